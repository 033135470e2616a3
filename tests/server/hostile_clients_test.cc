// Clients that are killed, fall silent, do not read, or send corrupt bytes: their resources are
// freed, other clients are not affected, and the daemon's memory for them stays within its
// limits.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "engine/base/sanitizers.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "tests/fakes/tcp_proxy.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

class HostileClientsTest : public DaemonTest {
 protected:
  uint16_t Port() const {
    return static_cast<uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1)));
  }
  void ExpectNothingLeft() {
    for (const char* name : {"telegrad_sessions", "telegrad_buffers", "telegrad_buffer_bytes",
                             "telegrad_staged_bytes", "telegrad_device_memory_used_bytes"}) {
      EXPECT_TRUE(BecomesZero(name)) << name;
    }
  }
  void ExpectAlive() {
    RawSession session(connection_->channel());
    EXPECT_EQ(session.Ask(AllocRequest(1, 8)), absl::OkStatus());
  }
};

TEST_F(HostileClientsTest, KilledInAnyPhaseLeaveNothing) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Start({"--session-grace", "500"});
  std::mt19937_64 random(seed);
  for (const char* phase : {"idle", "upload", "put", "run", "download", "resumable"}) {
    SCOPED_TRACE(phase);
    for (int round = 0; round < 3; ++round) {
      testing::Process client(PHASE_CLIENT, {address_, phase});
      for (uint64_t n = 1 + random() % 50; n > 0; --n) {
        ASSERT_NE(client.Line(StrCat(phase, " ")), "") << "the client failed by itself";
      }
      client.Signal(SIGKILL);
      client.Wait();
    }
    ExpectNothingLeft();
    ExpectAlive();
  }
}

// A resumable session is known by what its client says; when that is nothing, its lease ends it.
TEST_F(HostileClientsTest, AHalfOpenConnectionEndsWithItsLease) {
  fakes::TcpProxy proxy(Port());
  const auto through = Connect(proxy.address());
  v1::Open open;
  open.set_resumable(true);
  open.set_lease_ms(1000);
  RawSession session(through->channel(), open);
  ASSERT_EQ(session.Ask(AllocRequest(1, 1 << 20)), absl::OkStatus());
  EXPECT_EQ(Stat("telegrad_buffer_bytes"), 1 << 20);
  proxy.Swallow();
  ExpectNothingLeft();
  ExpectAlive();
}

TEST_F(HostileClientsTest, AHalfOpenConnectionDoesNotKeepTheDaemonFromStopping) {
  Start({"--drain-seconds", "1"});
  fakes::TcpProxy proxy(Port());
  const auto through = Connect(proxy.address());
  RawSession session(through->channel());
  ASSERT_EQ(session.Ask(AllocRequest(1, 1 << 20)), absl::OkStatus());
  proxy.Swallow();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

// Small reads are copies, of which answers hold only so many bytes.
TEST_F(HostileClientsTest, ASlowReaderOfSmallReadsHoldsWhatItIsAllowed) {
  constexpr uint64_t kBytes = 60'000;
  constexpr int kReads = 3'000;
  // AddressSanitizer keeps memory that was freed.
  constexpr int64_t kAllowed = (kAddressSanitizer ? int64_t{96} : int64_t{24}) << 20;
  RawSession slow(connection_->channel());
  ASSERT_EQ(slow.Ask(AllocRequest(1, kBytes)), absl::OkStatus());
  ASSERT_EQ(slow.Ask(WriteRequest(1, 0, std::string(kBytes, 's'))), absl::OkStatus());
  const int64_t before = daemon_->Resident();
  std::thread sender([&] {  // blocks when the daemon reads no further
    for (int i = 0; i < kReads; ++i) slow.Send(ReadRequest(1, 0, kBytes));
  });
  const auto other = Connect(address_);
  for (int i = 0; i < 50; ++i) {
    RawSession session(other->channel());
    ASSERT_EQ(session.Ask(AllocRequest(1, 64)), absl::OkStatus());
  }
  EXPECT_LT(daemon_->Resident() - before, kAllowed);
  for (int i = 0; i < kReads; ++i) ASSERT_EQ(slow.Read().data().size(), kBytes) << i;
  sender.join();
}

TEST_F(HostileClientsTest, ASlowReaderHoldsWhatItIsAllowed) {
  constexpr uint64_t kBytes = 1 << 20;
  constexpr int kReads = 200;
  RawSession slow(connection_->channel());
  ASSERT_EQ(slow.Ask(AllocRequest(1, kBytes)), absl::OkStatus());
  ASSERT_EQ(slow.Ask(WriteRequest(1, 0, std::string(kBytes, 'r'))), absl::OkStatus());
  const int64_t before = daemon_->Resident();
  for (int i = 0; i < kReads; ++i) slow.Send(ReadRequest(1, 0, kBytes));
  std::thread sender([&] {  // blocks when the daemon reads no further
    for (int i = 0; i < 20'000; ++i) slow.Send(ReadRequest(1, 0, 8));
  });
  const auto other = Connect(address_);
  for (int i = 0; i < 50; ++i) {
    RawSession session(other->channel());
    ASSERT_EQ(session.Ask(AllocRequest(1, 64)), absl::OkStatus());
  }
  EXPECT_LT(daemon_->Resident() - before, int64_t{64} << 20);
  for (int i = 0; i < kReads; ++i) {
    const v1::ExecuteResponse answer = slow.Read();
    ASSERT_FALSE(slow.over()) << slow.Finish();
    ASSERT_EQ(answer.data(), std::string(kBytes, 'r'));
  }
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(slow.Read().data(), "rrrrrrrr") << i;
  sender.join();
}

TEST_F(HostileClientsTest, CorruptFramesBreakTheirConnectionAndNothingElse) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  const FrozenGraph doubled = DoubleGraph(256);
  for (int round = 0; round < 10; ++round) {
    fakes::TcpProxy proxy(Port());
    const auto through = Connection::Connect(proxy.address());
    ASSERT_TRUE(through.ok()) << through.status();
    // Where a length was changed, the two ends wait for each other.
    RawSession session((*through)->channel(), {}, std::chrono::seconds(1));
    (void)session.Ask(AllocRequest(1, 1024));
    (void)session.Ask(AllocRequest(2, 1024));
    proxy.Corrupt(seed + static_cast<uint64_t>(round));
    for (int i = 0; i < 20 && !session.over(); ++i) {
      (void)session.Ask(WriteRequest(2, 0, std::string(1024, 'c')));
      (void)session.Ask(PutRequest(GraphBytes(doubled.root())));
      (void)session.Ask(RunRequest(std::string(ContentHash(doubled.root()).view()), {1, 2}));
      (void)session.Ask(ReadRequest(1, 0, 1024));
    }
  }
  ExpectNothingLeft();
  ExpectAlive();
}

// Frames of HTTP/2 (RFC 9113): three bytes of length, a type, flags, four bytes of stream number.
std::string RandomFrame(std::mt19937_64& random) {
  std::string frame;
  const size_t length = random() % 64;
  const size_t says = random() % 8 == 0 ? random() % (1 << 24) : length;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(says >> shift));
  frame.push_back(static_cast<char>(random() % 12));
  frame.push_back(static_cast<char>(random()));
  for (const int shift : {24, 16, 8, 0}) {
    frame.push_back(static_cast<char>((random() % 4) >> shift));
  }
  for (size_t i = 0; i < length; ++i) frame.push_back(static_cast<char>(random()));
  return frame;
}

TEST_F(HostileClientsTest, NoiseOnThePortIsNoHarm) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(Port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    std::string bytes;
    if (round % 4 != 0) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (round % 4 > 1) bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);  // SETTINGS
    for (uint64_t n = random() % 16; n > 0; --n) bytes += RandomFrame(random);
    // The daemon may have hung up before the end.
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  ExpectNothingLeft();
  ExpectAlive();
}

}  // namespace
}  // namespace telegrad
