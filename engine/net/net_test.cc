// Sockets, frames, checksums and TLS of the bulk transfers: both directions at once, limits of
// length and time, ends of connections, and proofs of a shared secret.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <barrier>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/own_certificate.h"
#include "engine/net/proof.h"
#include "engine/net/psk_tls.h"
#include "engine/net/tcp.h"
#include "engine/net/unix_listener.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLong{20'000};
const PresharedKey kKey{"who", "sixteen bytes or more of it"};

struct Ends {
  std::unique_ptr<StreamSocket> client, server;
};

std::pair<UniqueFd, UniqueFd> ConnectedPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Ends Plain(milliseconds stall = kLong) {
  auto [a, b] = ConnectedPair();
  return {std::make_unique<StreamSocket>(std::move(a), stall),
          std::make_unique<StreamSocket>(std::move(b), stall)};
}

std::optional<std::string> SecretOf(std::string_view identity) {
  if (identity != kKey.identity) return std::nullopt;
  return kKey.secret;
}

Ends Tls(const PresharedKey& key, milliseconds stall = kLong) {
  auto [a, b] = ConnectedPair();
  return {*TlsClient(std::move(a), stall, key), *TlsServer(std::move(b), stall, SecretOf)};
}

// Of both ends, at the same time.
std::pair<absl::Status, absl::Status> Shake(Ends& ends) {
  std::pair<absl::Status, absl::Status> statuses;
  std::thread server([&] { statuses.second = ends.server->Handshake(); });
  statuses.first = ends.client->Handshake();
  if (!statuses.first.ok()) ends.client->Shutdown();
  server.join();
  return statuses;
}

std::vector<std::byte> Noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Both directions at once, in frames of many sizes, among them none.
void ExchangeFrames(Ends& ends) {
  constexpr size_t kSizes[] = {0, 1, 15'000, 16'384, 300'000, 1 << 20, 3};
  const auto send = [&](StreamSocket& socket, unsigned seed) {
    for (const size_t size : kSizes) {
      const absl::Status sent = SendFrame(socket, std::to_string(size), Noise(size, seed));
      ASSERT_TRUE(sent.ok()) << sent;
    }
  };
  const auto receive = [&](StreamSocket& socket, unsigned seed) {
    for (const size_t size : kSizes) {
      const auto frame = ReceiveFrame(socket, 100, 1 << 20);
      ASSERT_TRUE(frame.ok()) << frame.status();
      EXPECT_EQ(frame->head, std::to_string(size));
      ASSERT_EQ(frame->payload_bytes, size);
      std::vector<std::byte> got(size);
      const auto crc = ReceiveChecked(socket, got);
      ASSERT_TRUE(crc.ok()) << crc.status();
      EXPECT_EQ(*crc, Crc32c(got.data(), got.size()));
      EXPECT_TRUE(got == Noise(size, seed));
    }
  };
  std::thread threads[] = {std::thread([&] { send(*ends.client, 1); }),
                           std::thread([&] { send(*ends.server, 2); }),
                           std::thread([&] { receive(*ends.client, 2); })};
  receive(*ends.server, 1);
  for (std::thread& thread : threads) thread.join();
}

TEST(Checksum, CheckValuesAndCopies) {
  constexpr std::string_view kDigits = "123456789";  // of the catalogues of CRC parameters
  EXPECT_EQ(ChecksumOf(Checksum::kCrc32c, kDigits.data(), kDigits.size()), 0xE3069283u);
  EXPECT_EQ(ChecksumOf(Checksum::kCrc32, kDigits.data(), kDigits.size()), 0xCBF43926u);
  for (const Checksum kind : {Checksum::kCrc32c, Checksum::kCrc32}) {
    const std::vector<std::byte> noise = Noise(100'001, 3);
    std::vector<std::byte> copy(noise.size());
    const uint32_t half = CopyWithChecksum(kind, copy.data(), noise.data(), 777);
    const uint32_t whole =
        CopyWithChecksum(kind, copy.data() + 777, noise.data() + 777, noise.size() - 777, half);
    EXPECT_EQ(whole, ChecksumOf(kind, noise.data(), noise.size()));
    EXPECT_TRUE(copy == noise);
  }
}

TEST(Frames, BothWaysAtOnce) {
  Ends ends = Plain();
  ExchangeFrames(ends);
}

TEST(Frames, BothWaysAtOnceUnderTls) {
  Ends ends = Tls(kKey);
  const auto [client, server] = Shake(ends);
  ASSERT_TRUE(client.ok()) << client;
  ASSERT_TRUE(server.ok()) << server;
  ExchangeFrames(ends);
}

TEST(Frames, LongerThanTheyMayBeAreNotReceived) {
  for (const auto& [head, payload] : {std::pair{11, 0}, {0, 101}}) {
    Ends ends = Plain();
    ASSERT_TRUE(SendFrame(*ends.client, std::string(head, 'h'), Noise(payload, 1)).ok());
    const auto frame = ReceiveFrame(*ends.server, 10, 100);
    EXPECT_EQ(frame.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(frame.status().message()), HasSubstr("10 and 100"));
  }
}

TEST(Frames, LengthsAreLittleEndian) {
  Ends ends = Plain();
  const std::string bytes("\2\0\0\0\1\0\0\0hip", 11);
  ASSERT_TRUE(ends.client->Send(std::as_bytes(std::span(bytes))).ok());
  const auto frame = ReceiveFrame(*ends.server, 10, 10);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->head, "hi");
  EXPECT_EQ(frame->payload_bytes, 1u);
  EXPECT_TRUE(SkipPayload(*ends.server, 1).ok());
}

TEST(StreamSocket, TheEndOfTheOtherSideIsUnavailable) {
  Ends ends = Plain();
  ends.client.reset();
  std::byte byte;
  EXPECT_EQ(ends.server->Receive({&byte, 1}).code(), Code::kUnavailable);
  EXPECT_EQ(ends.server->Send({&byte, 1}).code(), Code::kUnavailable);
}

TEST(StreamSocket, AnotherThreadEndsTheWait) {
  for (const bool tls : {false, true}) {
    Ends ends = tls ? Tls(kKey) : Plain();
    const auto [client, server] = Shake(ends);
    ASSERT_TRUE(client.ok() && server.ok());
    std::byte byte;
    std::thread waits(
        [&] { EXPECT_EQ(ends.server->Receive({&byte, 1}).code(), Code::kUnavailable); });
    ends.server->Shutdown();
    waits.join();
  }
}

TEST(StreamSocket, APeerThatMovesNoByteIsGivenUp) {
  Ends ends = Plain(milliseconds(30));
  std::byte byte;
  const absl::Status received = ends.server->Receive({&byte, 1});
  EXPECT_EQ(received.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(received.message()), HasSubstr("30 ms"));
  const auto more_than_fits = Noise(8 << 20, 1);
  EXPECT_EQ(ends.server->Send(more_than_fits).code(), Code::kDeadlineExceeded);
}

TEST(StreamSocket, ADeadlineHoldsThoughBytesMove) {
  Ends ends = Plain();
  std::byte byte;
  ASSERT_TRUE(ends.client->Send({&byte, 1}).ok());
  ends.server->SetDeadline(steady_clock::now() + milliseconds(30));
  EXPECT_TRUE(ends.server->Receive({&byte, 1}).ok());
  EXPECT_EQ(ends.server->Receive({&byte, 1}).code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(ends.client->Send({&byte, 1}).ok());
  ends.server->SetDeadline(std::nullopt);
  EXPECT_TRUE(ends.server->Receive({&byte, 1}).ok());
}

// What is there at once is never waited for.
TEST(StreamSocket, ADeadlineHoldsUnderAFlood) {
  Ends ends = Plain();
  std::thread flood([&] {
    std::vector<std::byte> bytes(1 << 20);
    while (ends.client->Send(bytes).ok()) {
    }
  });
  ends.server->SetDeadline(steady_clock::now() + milliseconds(30));
  std::vector<std::byte> into(64 << 10);
  absl::Status status;
  while (status.ok()) status = ends.server->Receive(into);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  ends.server->Shutdown();
  flood.join();
}

TEST(StreamSocket, WaitsForInputAsLongAsItTakes) {
  Ends ends = Plain(milliseconds(20));
  std::thread later([&] {
    std::byte byte{7};
    EXPECT_EQ(ends.client->Receive({&byte, 1}).code(), Code::kDeadlineExceeded);
    EXPECT_TRUE(ends.client->Send({&byte, 1}).ok());
  });
  EXPECT_TRUE(ends.server->AwaitInput().ok());
  std::byte byte;
  EXPECT_TRUE(ends.server->Receive({&byte, 1}).ok());
  later.join();
}

TEST(StreamSocket, OneDirectionMayEndBeforeTheOther) {
  Ends ends = Plain();
  ends.server->EndSending();
  std::byte byte;
  EXPECT_EQ(ends.client->Receive({&byte, 1}).code(), Code::kUnavailable);
  EXPECT_TRUE(ends.client->Send({&byte, 1}).ok());
  EXPECT_TRUE(ends.server->Receive({&byte, 1}).ok());
}

// A record holds more than was asked for; the rest is with OpenSSL and not with the kernel.
TEST(Tls, WhatWasDecryptedIsInput) {
  Ends ends = Tls(kKey);
  const auto [client, server] = Shake(ends);
  ASSERT_TRUE(client.ok() && server.ok());
  ASSERT_TRUE(ends.client->Send(Noise(2, 1)).ok());
  std::byte byte;
  ASSERT_TRUE(ends.server->Receive({&byte, 1}).ok());
  EXPECT_TRUE(ends.server->AwaitInput().ok()) << "would wait for ever";
  ASSERT_TRUE(ends.server->Receive({&byte, 1}).ok());
}

TEST(Proof, IsOfTheSecretTheNonceAndWhoGivesIt) {
  // RFC 4231 has no such texts; this value is OpenSSL's on the command line:
  //   printf 'telegrad bulk clientsixteen bytes...' | openssl dgst -sha256 -hmac secret
  const std::string proof = Prove("secret", Prover::kClient, "sixteen bytes...");
  std::string hex;
  for (const char c : proof) {
    for (const int digit : {(c >> 4) & 15, c & 15}) hex += "0123456789abcdef"[digit];
  }
  EXPECT_EQ(hex, "c58fff0343b05e8bf02b9850823ea49a7201c7a9bbe9825e11018afa65d081df");
  EXPECT_TRUE(IsProof(proof, "secret", Prover::kClient, "sixteen bytes..."));
  EXPECT_FALSE(IsProof(proof, "secret", Prover::kServer, "sixteen bytes..."));
  EXPECT_FALSE(IsProof(proof, "Secret", Prover::kClient, "sixteen bytes..."));
  EXPECT_FALSE(IsProof(proof, "secret", Prover::kClient, "sixteen bytes.,."));
  EXPECT_FALSE(IsProof(proof.substr(1), "secret", Prover::kClient, "sixteen bytes..."));
}

TEST(Tls, WhoDoesNotKnowTheSecretGetsNowhere) {
  for (const PresharedKey& key : {PresharedKey{kKey.identity, "another secret of many bytes"},
                                  PresharedKey{"somebody else", kKey.secret},
                                  PresharedKey{std::string(100, 'w'), kKey.secret}}) {
    Ends ends = Tls(key);
    const auto [client, server] = Shake(ends);
    EXPECT_EQ(client.code(), Code::kUnavailable) << client;
    EXPECT_EQ(server.code(), Code::kUnavailable) << server;
  }
}

TEST(Tls, AClientInTheClearGetsNowhere) {
  auto [a, b] = ConnectedPair();
  Ends ends{std::make_unique<StreamSocket>(std::move(a), kLong),
            *TlsServer(std::move(b), kLong, SecretOf)};
  ASSERT_TRUE(SendFrame(*ends.client, "attach me", {}).ok());
  EXPECT_EQ(ends.server->Handshake().code(), Code::kUnavailable);
}

TEST(Tls, NothingTravelsInTheClear) {
  auto [a, b] = ConnectedPair();
  auto [c, d] = ConnectedPair();
  Ends ends{*TlsClient(std::move(a), kLong, kKey), *TlsServer(std::move(d), kLong, SecretOf)};
  // Passes on what the ends say, and listens.
  std::string heard;
  std::thread relay([&, left = std::move(b), right = std::move(c)] {
    while (true) {
      pollfd polled[] = {{left.get(), POLLIN, 0}, {right.get(), POLLIN, 0}};
      poll(polled, 2, -1);
      for (int i = 0; i < 2; ++i) {
        if (polled[i].revents == 0) continue;
        char buffer[4096];
        const ssize_t n = recv(polled[i].fd, buffer, sizeof(buffer), 0);
        if (n <= 0) return;
        heard.append(buffer, static_cast<size_t>(n));
        ASSERT_EQ(send(polled[1 - i].fd, buffer, static_cast<size_t>(n), MSG_NOSIGNAL), n);
      }
    }
  });
  const auto [client, server] = Shake(ends);
  EXPECT_TRUE(client.ok() && server.ok()) << client << server;
  const std::string words = "said in confidence, and no less so for being long enough to be found";
  EXPECT_TRUE(SendFrame(*ends.client, words, {}).ok());
  const auto frame = ReceiveFrame(*ends.server, 100, 0);
  ends.client->Shutdown();
  relay.join();
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->head, words);
  EXPECT_GT(heard.size(), words.size());
  EXPECT_THAT(heard, ::testing::Not(HasSubstr(words.substr(0, 8))));
}

// A client of OpenSSL as other TLS libraries are: without a key, and satisfied with any
// certificate.
class KeylessClient {
 public:
  explicit KeylessClient(const UniqueFd& fd)
      : context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
    SSL_CTX_set_verify(context_, SSL_VERIFY_NONE, nullptr);
    SSL_set_fd(ssl_, fd.get());
  }
  ~KeylessClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  bool Handshake() { return SSL_connect(ssl_) == 1; }
  void Send(std::string_view text) {
    EXPECT_EQ(SSL_write(ssl_, text.data(), static_cast<int>(text.size())),
              static_cast<int>(text.size()));
  }
  // SHA-256 of what the server showed.
  std::string Shown() const {
    X509* const certificate = SSL_get1_peer_certificate(ssl_);
    if (certificate == nullptr) return "";
    unsigned char digest[32];
    X509_digest(certificate, EVP_sha256(), digest, nullptr);
    X509_free(certificate);
    return std::string(reinterpret_cast<const char*>(digest), sizeof(digest));
  }

 private:
  SSL_CTX* const context_;
  SSL* const ssl_;
};

TEST(Tls, AServerWithACertificateTakesClientsWithoutAKey) {
  auto [a, b] = ConnectedPair();
  KeylessClient client(a);
  const auto server = *TlsServerWithCertificate(std::move(b), kLong, SecretOf);
  absl::Status status;
  std::thread serves([&] {
    status = server->Handshake();
    const auto frame = ReceiveFrame(*server, 10, 0);
    EXPECT_TRUE(frame.ok() && frame->head == "hi");
  });
  const bool shaken = client.Handshake();
  if (shaken) client.Send(std::string_view("\2\0\0\0\0\0\0\0hi", 10));
  if (!shaken) server->Shutdown();
  serves.join();
  EXPECT_TRUE(shaken && status.ok()) << status;
  EXPECT_EQ(client.Shown(), OwnCertificate::OfProcess()->sha256());
  EXPECT_TRUE(server->KeepsBytes());
}

TEST(Tls, AServerWithACertificateStillTakesKeys) {
  for (const bool known : {true, false}) {
    auto [a, b] = ConnectedPair();
    const PresharedKey key = known ? kKey : PresharedKey{"somebody else", kKey.secret};
    Ends ends{*TlsClient(std::move(a), kLong, key),
              *TlsServerWithCertificate(std::move(b), kLong, SecretOf)};
    const auto [client, server] = Shake(ends);
    EXPECT_EQ(client.ok(), known) << client << ": it trusts no certificate";
  }
}

TEST(Tls, AServerWithoutACertificateShowsNone) {
  auto [a, b] = ConnectedPair();
  KeylessClient client(a);
  const auto server = *TlsServer(std::move(b), kLong, SecretOf);
  std::thread serves([&] {
    EXPECT_EQ(server->Handshake().code(), Code::kUnavailable);
    server->Shutdown();
  });
  EXPECT_FALSE(client.Handshake());
  serves.join();
}

TEST(Tls, AHandshakeHasADeadline) {
  Ends ends = Tls(kKey);
  ends.server->SetDeadline(steady_clock::now() + milliseconds(30));
  EXPECT_EQ(ends.server->Handshake().code(), Code::kDeadlineExceeded);
}

TEST(Tcp, ConnectsWhereSomebodyListens) {
  const auto listener = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string address = StrCat("127.0.0.1:", PortOf(*listener));
  const auto connected = ConnectTcp(address, steady_clock::now() + kLong);
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ(ListenTcp(address).status().code(), Code::kUnavailable) << "it is taken";
}

TEST(Tcp, SaysWhereItCannotConnect) {
  UniqueFd listener = *ListenTcp("127.0.0.1:0");
  const std::string address = StrCat("127.0.0.1:", PortOf(listener));
  listener = UniqueFd();
  const auto until = steady_clock::now() + kLong;
  const auto refused = ConnectTcp(address, until);
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(address));
  EXPECT_EQ(ConnectTcp("nothing", until).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ConnectTcp("host.invalid:1", until).status().code(), Code::kUnavailable);
}

// A full backlog answers nobody.
TEST(Tcp, ConnectingHasADeadline) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const std::string address = StrCat("127.0.0.1:", PortOf(listener));
  std::vector<UniqueFd> others;
  absl::Status status;
  for (int i = 0; i < 8 && status.ok(); ++i) {
    auto connected = ConnectTcp(address, steady_clock::now() + milliseconds(50));
    status = connected.status();
    if (connected.ok()) others.push_back(*std::move(connected));
  }
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
}

// What a process has left is replaced; what another one listens at, or another file, is not. What
// goes at the end is the file that was made, not one that has taken its place.
TEST(UnixListener, TakesTheFileOfAProcessThatHasEndedAndNoOther) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const std::string path = ::testing::TempDir() + StrCat("unix_listener_", getpid());
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path.copy(at.sun_path, sizeof(at.sun_path) - 1);
    UniqueFd killed(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(killed.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    killed = UniqueFd();

    auto first = BindUnix(path, type);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_EQ(listen(first->fd.get(), 1), 0);
    const auto second = BindUnix(path, type);
    EXPECT_EQ(second.status().code(), Code::kUnavailable);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("another process listens"));

    ASSERT_EQ(unlink(path.c_str()), 0);
    auto third = BindUnix(path, type);
    ASSERT_TRUE(third.ok()) << third.status();
    first->file.Remove();
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
    third->file.Remove();
    EXPECT_NE(access(path.c_str(), F_OK), 0);

    ASSERT_GE(UniqueFd(open(path.c_str(), O_CREAT | O_CLOEXEC, 0600)).get(), 0);
    EXPECT_THAT(std::string(BindUnix(path, type).status().message()), HasSubstr("not a socket"));
    EXPECT_EQ(unlink(path.c_str()), 0);
    EXPECT_EQ(BindUnix(path + "/x", type).status().code(), Code::kUnavailable);
    EXPECT_EQ(BindUnix(std::string(108, 'x'), type).status().code(), Code::kInvalidArgument);
  }
}

// Several that start at once at a file that was left: one of them has it.
TEST(UnixListener, OneOfManyTakesAFileThatWasLeft) {
  constexpr int kThreads = 4, kTimes = 100;
  const std::string path = ::testing::TempDir() + StrCat("unix_listener_many_", getpid());
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  for (int i = 0; i < kTimes; ++i) {
    UniqueFd killed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(killed.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    killed = UniqueFd();
    std::vector<absl::StatusOr<UnixListener>> bound(kThreads);
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (auto& one : bound) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        one = BindUnix(path, SOCK_STREAM);
      });
    }
    for (std::thread& thread : threads) thread.join();
    int listening = 0;
    for (const auto& one : bound) {
      listening += one.ok();
      if (!one.ok()) {
        EXPECT_THAT(std::string(one.status().message()), HasSubstr("another process listens"));
      }
    }
    ASSERT_EQ(listening, 1) << "attempt " << i;
    bound.clear();
    EXPECT_NE(access(path.c_str(), F_OK), 0);
  }
}

// Whoever may read a folder can lock it.
TEST(UnixListener, AStrangersLockOfTheFolderStopsNobody) {
  const std::string path = ::testing::TempDir() + StrCat("unix_listener_locked_", getpid());
  const UniqueFd stranger(open(::testing::TempDir().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(stranger.get(), LOCK_EX), 0);
  const auto bound = BindUnix(path, SOCK_STREAM);
  EXPECT_TRUE(bound.ok()) << bound.status();
}

}  // namespace
}  // namespace telegrad
