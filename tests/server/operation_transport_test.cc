// A stream on a bulk socket, which is told things at the worst moment.
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "server/service/operation_socket.h"

namespace telegrad {
namespace {

constexpr std::chrono::milliseconds kStall{20'000};

// Answers with more than is sent at once, and finishes when it is told that it was.
class Finisher final : public RawStream {
 public:
  explicit Finisher(size_t bytes) : answer_(SliceOf(bytes)) { StartRead(&message_); }
  bool told() const { return told_; }

 private:
  static grpc::ByteBuffer SliceOf(size_t bytes) {
    const grpc::Slice slice(std::string(bytes, 'a'));
    return grpc::ByteBuffer(&slice, 1);
  }
  void OnReceived(bool ok) override {
    EXPECT_TRUE(ok);
    StartWrite(&answer_);
  }
  void OnSent(bool ok) override {
    EXPECT_TRUE(ok);
    Finish(grpc::Status::OK);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!over_ && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_FALSE(over_) << "it may be gone by then";
    told_ = true;
  }
  void OnOver() override { over_ = true; }
  void End(absl::Status) override {}

  grpc::ByteBuffer message_, answer_;
  std::atomic<bool> over_ = false, told_ = false;
};

TEST(OperationSocketTest, AStreamIsNotOverWhileItIsToldWhatWasSent) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  constexpr size_t kBytes = 1 << 20;
  MessageSocket client(std::make_shared<StreamSocket>(UniqueFd(fds[0]), kStall), kBytes,
                       [](bool) {});
  ASSERT_EQ(client.Start(), absl::OkStatus());
  OperationSocket server(std::make_shared<StreamSocket>(UniqueFd(fds[1]), kStall), nullptr);
  ASSERT_EQ(server.Start(), absl::OkStatus());
  Finisher stream(kBytes);
  std::thread serves([&] { EXPECT_EQ(server.Serve(&stream), absl::OkStatus()); });
  const std::string text = "go";
  EXPECT_TRUE(client.Send({{reinterpret_cast<const uint8_t*>(text.data()), text.size()}}, false));
  const auto answer = client.Receive();
  ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
  EXPECT_EQ(**answer, std::string(kBytes, 'a'));
  const auto farewell = client.Receive();
  EXPECT_TRUE(farewell.ok() && !farewell->has_value()) << farewell.status();
  client.End("");
  serves.join();
  EXPECT_TRUE(stream.told());
}

}  // namespace
}  // namespace telegrad
