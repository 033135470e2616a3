// Messages both ways at once, in plain and under TLS; what cannot be sent at once; farewells,
// broken connections, and lengths that nobody may have.
#include "engine/net/message_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/byte_codec.h"
#include "engine/base/status.h"
#include "engine/net/psk_tls.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::chrono::milliseconds kStall{20'000};
constexpr size_t kMost = 4 << 20;

// One end, which counts what its thread has told.
struct End {
  explicit End(std::shared_ptr<StreamSocket> socket)
      : stream(socket), messages(std::move(socket), kMost, [this](bool ok) {
          const std::lock_guard lock(mutex);
          ++(ok ? sent : failed);
          changed.notify_all();
        }) {
    EXPECT_EQ(messages.Start(), absl::OkStatus());
  }
  // And waits until it has been sent; false if it could not be.
  bool Send(std::string_view text) {
    if (messages.Send({{reinterpret_cast<const uint8_t*>(text.data()), text.size()}}, false)) {
      return true;
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return sent + failed > taken; });
    ++taken;
    return failed == 0;
  }
  std::string Hear() {
    auto message = messages.Receive();
    EXPECT_TRUE(message.ok()) << message.status();
    if (!message.ok()) return "broken";
    return message->has_value() ? **message : "farewell " + messages.farewell();
  }

  std::shared_ptr<StreamSocket> stream;
  std::mutex mutex;
  std::condition_variable changed;
  int sent = 0, failed = 0, taken = 0;
  MessageSocket messages;
};

struct Pair {
  std::unique_ptr<End> a, b;
};

std::pair<UniqueFd, UniqueFd> Sockets() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Ends of connections that lead to each other, in whatever way.
Pair ConnectByTls(UniqueFd first, UniqueFd second) {
  const PresharedKey key{"who", "sixteen bytes or more of it"};
  std::shared_ptr<StreamSocket> client = *TlsClient(std::move(first), kStall, key);
  std::shared_ptr<StreamSocket> server =
      *TlsServer(std::move(second), kStall,
                 [key](std::string_view) -> std::optional<std::string> { return key.secret; });
  std::thread shaking([&] { EXPECT_EQ(server->Handshake(), absl::OkStatus()); });
  EXPECT_EQ(client->Handshake(), absl::OkStatus());
  shaking.join();
  return {std::make_unique<End>(std::move(client)), std::make_unique<End>(std::move(server))};
}

Pair Connect(bool tls) {
  auto [first, second] = Sockets();
  if (tls) return ConnectByTls(std::move(first), std::move(second));
  return {std::make_unique<End>(std::make_shared<StreamSocket>(std::move(first), kStall)),
          std::make_unique<End>(std::make_shared<StreamSocket>(std::move(second), kStall))};
}

std::string Noise(size_t bytes, std::minstd_rand* random) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>((*random)());
  return text;
}

class MessageSockets : public ::testing::TestWithParam<bool> {
 protected:
  Pair pair_ = Connect(GetParam());
};
INSTANTIATE_TEST_SUITE_P(, MessageSockets, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

TEST_P(MessageSockets, CarryMessagesOfAllLengthsBothWays) {
  const std::vector<size_t> lengths = {1, 7, 8, 4096, 16383, 16384, 65536, 65537, 300'000, kMost};
  const auto say = [&](End& end, unsigned seed) {
    std::minstd_rand random(seed);
    for (const size_t bytes : lengths) EXPECT_TRUE(end.Send(Noise(bytes, &random)));
    end.messages.End("bye");
  };
  const auto hear = [&](End& end, unsigned seed) {
    std::minstd_rand random(seed);
    for (const size_t bytes : lengths) EXPECT_EQ(end.Hear(), Noise(bytes, &random));
    EXPECT_EQ(end.Hear(), "farewell bye");
  };
  std::thread threads[] = {
      std::thread([&] { say(*pair_.a, 1); }), std::thread([&] { hear(*pair_.b, 1); }),
      std::thread([&] { say(*pair_.b, 2); }), std::thread([&] { hear(*pair_.a, 2); })};
  for (std::thread& thread : threads) thread.join();
}

TEST_P(MessageSockets, ShortOnesAreSentAtOnceAndHeardTogether) {
  const std::string text(100, 'x');
  const MessageSocket::Pieces pieces = {
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()}};
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(pair_.a->messages.Send(pieces, i < 19));
  EXPECT_EQ(pair_.a->sent, 0) << "nothing is left to the thread";
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pair_.b->Hear(), text);
    if (!GetParam()) EXPECT_EQ(pair_.b->messages.has_more(), i < 19) << i;
  }
}

// A peer that does not read: the sender is not held up, and all of it arrives once it reads.
TEST_P(MessageSockets, WhatThePeerDoesNotReadIsLeftToTheThread) {
  const std::string text(50'000, 'y');
  const MessageSocket::Pieces pieces = {
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()}};
  int count = 1;
  while (pair_.a->messages.Send(pieces, false)) ++count;  // ends when the system takes no more
  for (int i = 0; i < count; ++i) EXPECT_EQ(pair_.b->Hear(), text);
  std::unique_lock lock(pair_.a->mutex);
  pair_.a->changed.wait(lock, [&] { return pair_.a->sent == 1; });
}

TEST_P(MessageSockets, AConnectionWithoutAFarewellIsBroken) {
  ASSERT_TRUE(pair_.a->Send("hello"));
  pair_.a.reset();
  EXPECT_EQ(pair_.b->Hear(), "hello");
  EXPECT_EQ(pair_.b->messages.Receive().status().code(), Code::kUnavailable);
  while (pair_.b->Send(std::string(1000, 'z'))) {
  }
  EXPECT_EQ(pair_.b->failed, 1) << "it is told that it could not be sent";
}

TEST_P(MessageSockets, AFarewellEndsTheConnectionThoughThePeerStays) {
  pair_.a->messages.End("");
  EXPECT_EQ(pair_.b->Hear(), "farewell ");
  EXPECT_EQ(pair_.a->messages.Receive().status().code(), Code::kUnavailable) << "after a second";
}

TEST_P(MessageSockets, LengthsThatNobodyMayHaveAreRefused) {
  for (const auto& [message, farewell] : std::vector<std::pair<uint32_t, uint32_t>>{
           {kMost + 1, 0}, {UINT32_MAX, 0}, {0, UINT32_MAX}, {1, 1}}) {
    Pair pair = Connect(GetParam());
    ByteWriter lengths;
    lengths.Word(message);
    lengths.Word(farewell);
    const std::string bytes = lengths.Take();
    ASSERT_EQ(pair.a->stream->Send(std::as_bytes(std::span(bytes))), absl::OkStatus());
    const auto heard = pair.b->messages.Receive();
    EXPECT_EQ(heard.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(heard.status().message()), HasSubstr("there may be"));
  }
}

// Of two peers that stop in the middle of a message, the second has no more room than the first has
// left it.
TEST(MessageSocketTest, WhatHasComeOfLongMessagesIsLimitedInAll) {
  constexpr size_t kBytes = 4 << 20, kPart = 256 << 10;
  const auto memory = std::make_shared<Account>("messages", kBytes + kPart, "send shorter ones");
  ByteWriter lengths;
  for (const size_t length : {kBytes, size_t{0}}) lengths.Word(static_cast<uint32_t>(length));
  const std::string message = lengths.Take() + std::string(kBytes, 'm');
  const auto send = [](StreamSocket& to, std::string_view bytes) {
    EXPECT_EQ(to.Send(std::as_bytes(std::span(bytes))), absl::OkStatus());
  };
  auto [one, one_far] = Sockets();
  auto [two, two_far] = Sockets();
  StreamSocket first(std::move(one), kStall), second(std::move(two), kStall);
  MessageSocket hears_first(
      std::make_shared<StreamSocket>(std::move(one_far), kStall), kBytes, [](bool) {}, memory);
  MessageSocket hears_second(
      std::make_shared<StreamSocket>(std::move(two_far), kStall), kBytes, [](bool) {}, memory);
  std::thread hears([&] {
    const auto heard = hears_first.Receive();
    EXPECT_TRUE(heard.ok() && heard->has_value() && **heard == message.substr(8));
  });
  send(first, message.substr(0, message.size() - 1));
  constexpr int64_t kFree = 16 << 10;  // as much is there anyway
  const auto until = std::chrono::steady_clock::now() + kStall;
  while (memory->used() < static_cast<int64_t>(kBytes) - kFree) {
    if (std::chrono::steady_clock::now() > until) break;
    std::this_thread::yield();
  }
  std::thread sends([&] { (void)second.Send(std::as_bytes(std::span(message))); });
  const auto refused = hears_second.Receive();
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted) << refused.status();
  hears_second.Shutdown();
  sends.join();
  send(first, "m");
  hears.join();
  EXPECT_EQ(memory->used(), 0);
}

// Whoever asks would wait for the rest.
TEST(MessageSocketTest, ThereIsNoMoreUntilAllOfItIsThere) {
  const Pair pair = Connect(/*tls=*/false);
  ByteWriter lengths;
  for (const uint32_t length : {1u, 0u}) lengths.Word(length);
  std::string first = lengths.Take() + "x";
  for (const uint32_t length : {9u, 0u}) lengths.Word(length);
  const std::string second = lengths.Take() + "123456789";
  const auto send = [&](std::string_view bytes) {
    ASSERT_EQ(pair.a->stream->Send(std::as_bytes(std::span(bytes))), absl::OkStatus());
  };
  for (size_t there = 0; there <= second.size(); ++there) {
    send(first + second.substr(0, there));
    EXPECT_EQ(pair.b->Hear(), "x");
    EXPECT_EQ(pair.b->messages.has_more(), there == second.size()) << there;
    if (there < second.size()) send(std::string_view(second).substr(there));
    EXPECT_EQ(pair.b->Hear(), "123456789");
  }
}

// Passes on what comes either way, but for the last byte of what comes first once it withholds.
class Relay {
 public:
  Relay(UniqueFd first, UniqueFd second)
      : ends_{std::move(first), std::move(second)}, thread_([this] { Run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  void Withhold() { withholds_ = true; }
  bool withheld() const { return withheld_; }
  void GoOn() { withholds_ = false; }

 private:
  void Run() {
    std::vector<char> bytes(1 << 20);
    while (!stop_) {
      pollfd polled[] = {{ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}};
      poll(polled, 2, 1);
      for (size_t i = 0; i < 2; ++i) {
        if (polled[i].revents == 0) continue;
        const ssize_t n = read(ends_[i].get(), bytes.data(), bytes.size());
        if (n <= 0) return;
        const bool withholds = withholds_;
        Pass(i, bytes.data(), n - (withholds ? 1 : 0));
        withheld_ = withholds;
        while (withholds_) std::this_thread::yield();
        if (withholds) Pass(i, bytes.data() + n - 1, 1);
      }
    }
  }
  void Pass(size_t from, const char* bytes, ssize_t n) {
    EXPECT_EQ(write(ends_[1 - from].get(), bytes, static_cast<size_t>(n)), n);
  }

  const UniqueFd ends_[2];
  std::atomic<bool> stop_ = false, withholds_ = false, withheld_ = false;
  std::thread thread_;
};

// What came of the record is in memory, and no reason to try once more.
TEST(MessageSocketTest, TheRestOfARecordIsWaitedForWithoutWork) {
  using std::chrono::steady_clock;
  auto [first, first_far] = Sockets();
  auto [second, second_far] = Sockets();
  Relay relay(std::move(first_far), std::move(second_far));
  Pair pair = ConnectByTls(std::move(first), std::move(second));
  relay.Withhold();
  const std::string text(1000, 't');
  EXPECT_TRUE(pair.a->Send(text));
  std::thread hears([&] { EXPECT_EQ(pair.b->Hear(), text); });
  while (!relay.withheld()) std::this_thread::yield();
  clockid_t clock;
  ASSERT_EQ(pthread_getcpuclockid(hears.native_handle(), &clock), 0);
  timespec worked{};
  const auto until = steady_clock::now() + std::chrono::milliseconds(500);
  constexpr long kMostNs = 50'000'000;
  while (steady_clock::now() < until && worked.tv_sec == 0 && worked.tv_nsec < kMostNs) {
    clock_gettime(clock, &worked);
    std::this_thread::yield();
  }
  EXPECT_TRUE(worked.tv_sec == 0 && worked.tv_nsec < kMostNs) << worked.tv_nsec;
  relay.GoOn();
  hears.join();
}

}  // namespace
}  // namespace telegrad
