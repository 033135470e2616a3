// Messages both ways at once, in plain and under TLS; what cannot be sent at once; farewells,
// broken connections, and lengths that nobody may have.
#include "engine/net/message_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
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

Pair Connect(bool tls) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  UniqueFd first(fds[0]), second(fds[1]);
  if (!tls) {
    return {std::make_unique<End>(std::make_shared<StreamSocket>(std::move(first), kStall)),
            std::make_unique<End>(std::make_shared<StreamSocket>(std::move(second), kStall))};
  }
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

}  // namespace
}  // namespace telegrad
