// Handlers on transports that do everything at the worst moment.
#include "server/service/raw_stream.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "gtest/gtest.h"
#include "server/service/infer_stream.h"
#include "tests/fakes/copy_engine.h"

namespace telegrad {
namespace {

// Answers from a worker, as soon as it is asked to read.
class Answered final : public RawStream {
 public:
  explicit Answered(std::atomic<bool>* starts) : starts_(*starts) { StartRead(&message_); }
  void Answer() {
    starts_ = true;
    Finish(grpc::Status::OK);  // this may be gone
  }
  void OnOver() override {}
  void End(absl::Status) override {}

 private:
  std::atomic<bool>& starts_;
  grpc::ByteBuffer message_;
};

// Has a worker answer while the stream is still being bound, and lets the stream go with that.
class HastyTransport final : public StreamTransport {
 public:
  void Run() {
    auto* const memory = static_cast<unsigned char*>(::operator new(sizeof(Answered)));
    stream_ = new (memory) Answered(&starts_);
    stream_->Bind(this);
    bound_ = true;
    worker_.join();
    // Where the stream was, nothing was written after it went.
    for (size_t i = 0; i < sizeof(Answered); ++i) ASSERT_EQ(memory[i], 0) << "at " << i;
    ::operator delete(memory);
  }

 private:
  void Read(grpc::ByteBuffer*) override {
    worker_ = std::thread([this] { stream_->Answer(); });
    while (!starts_) std::this_thread::yield();
    for (int i = 0; i < 50; ++i) std::this_thread::yield();  // it likely waits for the stream now
  }
  void Write(const grpc::ByteBuffer&, const grpc::WriteOptions&) override {}
  void WriteAndFinish(const grpc::ByteBuffer&, const grpc::WriteOptions&,
                      const grpc::Status&) override {}
  void Finish(const grpc::Status&) override {
    while (!bound_) std::this_thread::yield();
    stream_->~Answered();
    std::memset(static_cast<void*>(stream_), 0, sizeof(Answered));
  }

  Answered* stream_ = nullptr;
  std::atomic<bool> starts_ = false, bound_ = false;
  std::thread worker_;
};

TEST(RawStreamTest, IsNotTouchedAfterWhatEndsIt) {
  for (int i = 0; i < 200; ++i) {
    HastyTransport transport;
    transport.Run();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// When it is asked for a second read: tells that all before is sent and that the client is gone, on
// another thread.
class LeavingClient final : public StreamTransport {
 public:
  explicit LeavingClient(RawStream** stream) : stream_(*stream) {}
  void Read(grpc::ByteBuffer* message) override {
    message_ = message;
    if (++reads_ < 2) return;
    std::thread([this] {
      stream_->OnWriteDone(true);
      stream_->OnCancel();
    }).join();
    EXPECT_FALSE(finished_) << "while a read was being started";
  }
  void Write(const grpc::ByteBuffer&, const grpc::WriteOptions&) override { ++writes_; }
  void WriteAndFinish(const grpc::ByteBuffer&, const grpc::WriteOptions&,
                      const grpc::Status&) override {}
  void Finish(const grpc::Status&) override { finished_ = true; }

  grpc::ByteBuffer* message_ = nullptr;
  int reads_ = 0, writes_ = 0;
  bool finished_ = false;

 private:
  RawStream*& stream_;
};

TEST(InferStreamTest, DoesNotFinishWhileAReadIsStarted) {
  Metrics metrics;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 1 << 20}));
  const auto pool = *DevicePool::Create(std::move(devices));
  TaskPool workers(1), compilers(1);
  const Environment env = {pool.get(), &workers, &compilers, &metrics, {}, Clock::Steady()};
  const auto tenant =
      std::make_shared<Tenant>("local", std::make_shared<fakes::CopyEngine>(), &metrics);
  const auto models = *ModelServer::Start({}, &env, tenant);
  RawStream* stream = nullptr;
  LeavingClient client(&stream);
  const grpc::GenericServerContext context;
  stream = InferStream::Start(models.get(), absl::OkStatus(),
                              {.principal = {}, .tenant = tenant, .peer = "test"}, context);
  stream->Bind(&client);
  ASSERT_EQ(client.reads_, 1);
  const grpc::Slice garbage(std::string("\xff"));
  *client.message_ = grpc::ByteBuffer(&garbage, 1);
  stream->OnReadDone(true);
  EXPECT_EQ(client.writes_, 1) << "of the error";
  EXPECT_EQ(client.reads_, 2);
  EXPECT_TRUE(client.finished_);
  stream->OnReadDone(false);
  stream->OnDone();
}

}  // namespace
}  // namespace telegrad
