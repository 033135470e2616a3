// The bare gRPC server that Telegrad is measured against: a unary echo on the callback API, a
// stream of short messages that come back, and raw bulk streams in both directions that only copy
// between the wire and one buffer of memory.
//
// Usage: echo_server HOST:PORT    prints `listening on HOST:PORT`, ends on SIGTERM. TUNE=1: see
// common.h.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/bench/grpc_peer/common.h"
#include "tests/bench/grpc_peer/echo.grpc.pb.h"

namespace telegrad::bench {
namespace {

std::vector<char>& Store() {
  static std::vector<char> store(kBulkBytes, 1);
  return store;
}

bool Fits(uint64_t offset, uint64_t length) {
  return offset <= kBulkBytes && length <= kBulkBytes - offset;
}

class EchoService final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const Chunk* request,
                                 Chunk* response) override {
    response->set_data(request->data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// Receives chunks until the client has no more, and answers with how many bytes there were.
class Up final : public grpc::ServerGenericBidiReactor {
 public:
  Up() { StartRead(&in_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      out_ = MakeChunk(received_, 0, nullptr, 0);
      StartWriteAndFinish(&out_, grpc::WriteOptions(), grpc::Status::OK);
      return;
    }
    // The header is complete before the first piece of payload is handed over.
    Header header;
    const bool whole = Unpack(in_, &header, [&](uint64_t at, const char* data, size_t length) {
      const uint64_t offset = header.words[0] + at;
      if (!Fits(offset, length)) return;
      std::memcpy(Store().data() + offset, data, length);
      received_ += length;
    });
    if (!whole) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no header"));
      return;
    }
    in_.Clear();
    StartRead(&in_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer in_, out_;
  uint64_t received_ = 0;
};

// Reads one request and sends that many bytes in chunks of that size.
class Down final : public grpc::ServerGenericBidiReactor {
 public:
  Down() { StartRead(&in_); }

  void OnReadDone(bool ok) override {
    if (!ok || chunk_ != 0) return;
    Header header{};
    Unpack(in_, &header, [](uint64_t, const char*, size_t) {});
    total_ = header.words[0];
    chunk_ = header.words[1];
    if (total_ > kBulkBytes || chunk_ == 0) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too long, or no chunk size"));
      return;
    }
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (sent_ == total_) {
      Finish(grpc::Status::OK);
      return;
    }
    const uint64_t length = std::min(chunk_, total_ - sent_);
    out_ = MakeChunk(sent_, length, Store().data() + sent_, length);
    sent_ += length;
    StartWrite(&out_);
  }

  grpc::ByteBuffer in_, out_;
  uint64_t total_ = 0, chunk_ = 0, sent_ = 0;
};

// Sends each message back. Those that arrive while one is being sent wait.
class Talk final : public grpc::ServerGenericBidiReactor {
 public:
  Talk() { StartRead(&in_); }

  void OnReadDone(bool ok) override {
    bool write = false, end = false;
    {
      const std::lock_guard lock(mutex_);
      if (ok) {
        waiting_.push_back(in_);
      } else {
        input_ended_ = true;
      }
      write = TakeNext();
      end = Ended();
    }
    if (ok) {
      in_.Clear();
      StartRead(&in_);
    }
    if (write) StartWrite(&out_);
    if (end) Finish(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    bool write = false, end = false;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) waiting_.clear();
      write = TakeNext();
      end = Ended();
    }
    if (write) StartWrite(&out_);
    if (end) Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  bool TakeNext() {
    if (writing_ || waiting_.empty()) return false;
    out_ = waiting_.front();
    waiting_.pop_front();
    return writing_ = true;
  }
  bool Ended() const { return input_ended_ && !writing_ && waiting_.empty(); }

  std::mutex mutex_;
  std::deque<grpc::ByteBuffer> waiting_;
  bool writing_ = false, input_ended_ = false;
  grpc::ByteBuffer in_, out_;
};

class RawService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kUpMethod) return new Up;
    if (context->method() == kDownMethod) return new Down;
    if (context->method() == kTalkMethod) return new Talk;
    return grpc::CallbackGenericService::CreateReactor(context);
  }
};

int Main(const std::string& address) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);  // before gRPC makes threads, which inherit it

  Store();
  EchoService echo;
  RawService raw;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  builder.RegisterCallbackGenericService(&raw);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  Tune([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) {
    std::fprintf(stderr, "echo_server: cannot listen on %s\n", address.c_str());
    return 1;
  }
  std::printf("listening on %s:%d\n", address.substr(0, address.rfind(':')).c_str(), port);
  std::fflush(stdout);
  int signal = 0;
  sigwait(&stop, &signal);
  server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: echo_server HOST:PORT\n");
    return 2;
  }
  return telegrad::bench::Main(argv[1]);
}
