// The bare gRPC client that Telegrad is measured against. Prints one number.
//
// Usage: echo_client HOST:PORT latency CALLS CLIENTS   median microseconds of a unary echo over all
//                                                      clients, each a thread with a connection of
//                                                      its own and one call in flight
//        echo_client HOST:PORT talk MESSAGES CLIENTS  messages a second of all clients together
//        that
//                                                     come back on one stream of each, which does
//                                                     not wait for one before it sends the next
//        echo_client HOST:PORT up|down REPEATS         median GB/s of 256 MiB in chunks of CHUNK
//                                                      bytes (1 MiB), between the final buffers of
//                                                      both ends
// TUNE=1 and CHUNK=BYTES in the environment: see common.h.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/grpc_peer/common.h"
#include "tests/bench/grpc_peer/echo.grpc.pb.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

std::vector<char>& Store() {
  static std::vector<char> store(kBulkBytes, 2);
  return store;
}

// The end of a stream: what it moved, and how.
class Stream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }
  // Waits for the end. True if it was a good one and all bytes arrived.
  bool Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    if (!status_.ok()) std::fprintf(stderr, "echo_client: %s\n", status_.error_message().c_str());
    return status_.ok() && moved_ == kBulkBytes;
  }

 protected:
  grpc::ClientContext context_;
  grpc::ByteBuffer in_, out_;
  uint64_t moved_ = 0;  // as the receiving end counted

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  grpc::Status status_;
};

class Up final : public Stream {
 public:
  Up(grpc::GenericStub* stub, uint64_t chunk) : chunk_(chunk) {
    stub->PrepareBidiStreamingCall(&context_, kUpMethod, grpc::StubOptions(), this);
    StartRead(&in_);
    Next();
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnReadDone(bool ok) override {
    Header header{};
    if (ok && Unpack(in_, &header, [](uint64_t, const char*, size_t) {})) moved_ = header.words[0];
  }

 private:
  void Next() {
    if (sent_ == kBulkBytes) {
      StartWritesDone();
      return;
    }
    const uint64_t length = std::min(chunk_, kBulkBytes - sent_);
    out_ = MakeChunk(sent_, length, Store().data() + sent_, length);
    sent_ += length;
    StartWrite(&out_);
  }

  const uint64_t chunk_;
  uint64_t sent_ = 0;
};

class Down final : public Stream {
 public:
  Down(grpc::GenericStub* stub, uint64_t chunk) {
    stub->PrepareBidiStreamingCall(&context_, kDownMethod, grpc::StubOptions(), this);
    out_ = MakeChunk(kBulkBytes, chunk, nullptr, 0);
    StartRead(&in_);
    StartWriteLast(&out_, grpc::WriteOptions());
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    Header header;
    Unpack(in_, &header, [&](uint64_t at, const char* data, size_t length) {
      const uint64_t offset = header.words[0] + at;
      if (offset > kBulkBytes || length > kBulkBytes - offset) return;
      std::memcpy(Store().data() + offset, data, length);
      moved_ += length;
    });
    in_.Clear();
    StartRead(&in_);
  }
};

constexpr int kWarmUp = 500;  // calls, of all clients together at least

// Microseconds of each call after `warm_up` more. False if one failed.
bool EchoEach(Echo::Stub& stub, int warm_up, int calls, std::vector<double>* micros) {
  Chunk request;
  request.set_data(std::string(16, 'x'));
  for (int i = 0; i < warm_up + calls; ++i) {
    const double start = Seconds();
    grpc::ClientContext context;
    Chunk response;
    const grpc::Status status = stub.Echo(&context, request, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "echo_client: %s\n", status.error_message().c_str());
      return false;
    }
    if (i >= warm_up) micros->push_back((Seconds() - start) * 1e6);
  }
  return true;
}

int Latency(const std::string& address, int calls, int clients) {
  std::vector<std::unique_ptr<Echo::Stub>> stubs;
  for (int i = 0; i < clients; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
    stubs.push_back(Echo::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  std::vector<std::vector<double>> micros(stubs.size());
  std::atomic<bool> good{true};
  std::latch begin(clients);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < stubs.size(); ++i) {
    threads.emplace_back([&, i] {
      if (!EchoEach(*stubs[i], 0, 1, &micros[i])) good = false;  // connects
      micros[i].clear();
      begin.arrive_and_wait();
      if (!EchoEach(*stubs[i], kWarmUp / clients + 1, calls, &micros[i])) good = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!good) return 1;
  std::vector<double> all;
  for (const auto& of_one : micros) all.insert(all.end(), of_one.begin(), of_one.end());
  std::printf("%.3f\n", Median(std::move(all)));
  return 0;
}

// Sends short messages one behind the other and counts what comes back.
class Talk final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Talk(grpc::GenericStub* stub, int messages) : messages_(messages) {
    const grpc::Slice slice(std::string(kTalkBytes, 'x'));
    message_ = grpc::ByteBuffer(&slice, 1);
    stub->PrepareBidiStreamingCall(&context_, kTalkMethod, grpc::StubOptions(), this);
    StartRead(&in_);
    Next();
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    good_ = good_ && in_.Length() == kTalkBytes;
    ++back_;
    in_.Clear();
    StartRead(&in_);
  }
  void OnDone(const grpc::Status& status) override {
    good_ = good_ && status.ok() && back_ == messages_;
    done_.count_down();
  }
  bool Wait() {
    done_.wait();
    return good_;
  }

 private:
  // Like the request and the answer of a run.
  static constexpr size_t kTalkBytes = 64;
  // As Telegrad's client does it: a message waits for those that are behind it already.
  static constexpr int kTogether = 16;

  void Next() {
    if (sent_ == messages_) {
      StartWritesDone();
      return;
    }
    grpc::WriteOptions options;
    if (++sent_ % kTogether != 0 && sent_ != messages_) options.set_buffer_hint();
    StartWrite(&message_, options);
  }

  const int messages_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_, in_;
  int sent_ = 0, back_ = 0;
  bool good_ = true;
  std::latch done_{1};
};

int Talks(const std::string& address, int messages, int clients) {
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < clients; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
    stubs.push_back(std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  double seconds = 0;
  for (int turn = 0; turn < 2; ++turn) {  // the first one connects and warms up
    std::vector<std::unique_ptr<Talk>> talks;
    const double start = Seconds();
    for (const auto& stub : stubs) talks.push_back(std::make_unique<Talk>(stub.get(), messages));
    for (const auto& talk : talks) {
      if (!talk->Wait()) return 1;
    }
    seconds = Seconds() - start;
  }
  std::printf("%.1f\n", static_cast<double>(messages) * clients / seconds);
  return 0;
}

int Bulk(int repeats, const std::function<bool()>& transfer) {
  std::vector<double> rates;
  for (int i = 0; i <= repeats; ++i) {  // the first one warms up
    const double start = Seconds();
    if (!transfer()) return 1;
    if (i > 0) rates.push_back(kBulkBytes / (Seconds() - start) / 1e9);
  }
  std::printf("%.4f\n", Median(rates));
  return 0;
}

int Main(const std::string& address, const std::string& what, int count, int clients) {
  if (what == "latency") return Latency(address, count, clients);
  if (what == "talk") return Talks(address, count, clients);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  Tune([&](const char* name, int value) { arguments.SetInt(name, value); });
  const auto channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const char* const given = std::getenv("CHUNK");
  const uint64_t chunk = given ? std::strtoull(given, nullptr, 10) : 1 << 20;
  grpc::GenericStub stub(channel);
  if (chunk > 0 && what == "up") return Bulk(count, [&] { return Up(&stub, chunk).Wait(); });
  if (chunk > 0 && what == "down") return Bulk(count, [&] { return Down(&stub, chunk).Wait(); });
  return 2;
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  const int count = argc == 4 || argc == 5 ? std::atoi(argv[3]) : 0;
  const int clients = argc == 5 ? std::atoi(argv[4]) : 1;
  if (count <= 0 || clients <= 0) {
    std::fprintf(stderr, "Usage: echo_client HOST:PORT latency|talk|up|down COUNT [CLIENTS]\n");
    return 2;
  }
  return telegrad::bench::Main(argv[1], argv[2], count, clients);
}
