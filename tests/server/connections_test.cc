// Connections without credentials: they displace no authenticated connection, and no listener
// stops accepting because of them.
#include "server/service/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <future>

#include "engine/base/strings.h"
#include "engine/base/unique_fd.h"
#include "engine/net/tcp.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/service/acceptor.h"
#include "server/service/peer.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

UniqueFd ConnectTo(const std::string& address) {
  auto fd = ConnectTcp(address, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  EXPECT_TRUE(fd.ok()) << fd.status();
  return fd.ok() ? *std::move(fd) : UniqueFd();
}

// Both ends of a connection; the server's is `accepted`.
struct Pair {
  explicit Pair(const UniqueFd& listener)
      : client(ConnectTo(StrCat("127.0.0.1:", PortOf(listener)))),
        accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)) {}
  bool ended() const {  // by the server
    char byte;
    return recv(accepted.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  UniqueFd client, accepted;
};

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() { connections_.Limit(3); }
  Pair Make() { return Pair(listener_); }
  const UniqueFd listener_ = *ListenTcp("127.0.0.1:0");
  fakes::ManualClock clock_;
  Connections connections_{&clock_};
};

TEST_F(ConnectionsTest, OneMoreTakesThePlaceOfTheOldestStranger) {
  const Pair a = Make(), b = Make(), c = Make(), d = Make(), e = Make();
  EXPECT_TRUE(connections_.Admit(a.accepted.get()));
  EXPECT_TRUE(connections_.Admit(b.accepted.get()));
  EXPECT_TRUE(connections_.Admit(c.accepted.get()));
  connections_.Know(PeerOf(a.accepted.get()), "t");
  EXPECT_TRUE(connections_.Admit(d.accepted.get()));
  EXPECT_FALSE(a.ended());
  EXPECT_TRUE(b.ended());
  EXPECT_FALSE(c.ended());
  connections_.Know(PeerOf(c.accepted.get()), "u");
  connections_.Know(PeerOf(d.accepted.get()), "v");
  EXPECT_FALSE(connections_.Admit(e.accepted.get())) << "all are known, and nobody has more";
  EXPECT_FALSE(connections_.Evict());
  for (const Pair* kept : std::initializer_list<const Pair*>{&a, &c, &d})
    EXPECT_FALSE(kept->ended());
}

// One tenant has all that may be: whoever comes takes its least used, until it has a share.
TEST_F(ConnectionsTest, ATenantHasAShareOfThem) {
  connections_.Limit(4);
  const Pair a = Make(), b = Make(), c = Make(), d = Make(), e = Make(), f = Make(), g = Make();
  const auto know = [&](const Pair& pair, std::string_view tenant) {
    connections_.Know(PeerOf(pair.accepted.get()), tenant);
  };
  for (const Pair* pair : std::initializer_list<const Pair*>{&a, &b, &c, &d}) {
    EXPECT_TRUE(connections_.Admit(pair->accepted.get()));
    know(*pair, "hog");
  }
  know(a, "hog");  // once more
  EXPECT_TRUE(connections_.Admit(e.accepted.get()));
  EXPECT_TRUE(b.ended()) << "over which no call has come for longest";
  know(e, "other");
  EXPECT_TRUE(connections_.Admit(f.accepted.get()));
  EXPECT_TRUE(c.ended());
  know(f, "third");
  EXPECT_TRUE(connections_.Admit(g.accepted.get()));
  EXPECT_TRUE(d.ended());
  know(g, "fourth");
  for (const Pair* pair : std::initializer_list<const Pair*>{&a, &e, &f, &g}) {
    EXPECT_FALSE(pair->ended());
  }
  EXPECT_FALSE(connections_.Evict()) << "each has one";
}

// They have no address; who connected is asked of the kernel.
TEST_F(ConnectionsTest, ThoseOfUnixSocketsAreOfTheirUser) {
  connections_.Limit(2);
  UniqueFd ends[3][2];
  for (auto& pair : ends) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pair[0] = UniqueFd(fds[0]);
    pair[1] = UniqueFd(fds[1]);
    EXPECT_TRUE(connections_.Admit(pair[0].get()));
  }
  char byte;
  EXPECT_EQ(recv(ends[0][1].get(), &byte, 1, MSG_DONTWAIT), 0) << "one user had all";
  EXPECT_EQ(recv(ends[1][1].get(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST_F(ConnectionsTest, WhatIsClosedMakesRoom) {
  Pair a = Make();
  const Pair b = Make(), c = Make(), d = Make(), e = Make();
  const std::pair<const Pair*, std::string_view> rows[] = {{&a, "t"}, {&b, "u"}, {&c, "v"}};
  for (const auto& [pair, tenant] : rows) {
    EXPECT_TRUE(connections_.Admit(pair->accepted.get()));
    connections_.Know(PeerOf(pair->accepted.get()), tenant);
  }
  EXPECT_EQ(connections_.open(), 3);
  a.accepted = UniqueFd();
  EXPECT_FALSE(connections_.Admit(d.accepted.get())) << "it was looked a moment ago";
  clock_.Advance(kSecond);
  EXPECT_TRUE(connections_.Admit(d.accepted.get()));
  clock_.Advance(kSecond);
  EXPECT_EQ(connections_.open(), 3);
  EXPECT_TRUE(connections_.Admit(e.accepted.get()));
  EXPECT_TRUE(d.ended()) << "the only stranger";
}

// A number that was given to another file is not hung up on.
TEST_F(ConnectionsTest, ADescriptorsNumberIsNotTheConnection) {
  Pair a = Make();
  const Pair other = Make();
  const int number = a.accepted.get();
  ASSERT_TRUE(connections_.Admit(number));
  a.accepted = UniqueFd();
  const UniqueFd taken(fcntl(other.accepted.get(), F_DUPFD_CLOEXEC, number));
  ASSERT_EQ(taken.get(), number);
  EXPECT_TRUE(connections_.Evict());
  EXPECT_FALSE(other.ended());
}

TEST_F(ConnectionsTest, KnowsPeersAsTransportsWriteThem) {
  EXPECT_EQ(UnescapedPeer("ipv6:%5B::1%5D:80"), "ipv6:[::1]:80");
  const Pair a = Make();
  sockaddr_in client{};
  socklen_t size = sizeof(client);
  getsockname(a.client.get(), reinterpret_cast<sockaddr*>(&client), &size);
  EXPECT_EQ(PeerOf(a.accepted.get()), StrCat("ipv4:127.0.0.1:", ntohs(client.sin_port)));
}

// What was accepted, for who waits for it.
class Taken {
 public:
  Acceptor::Take take() {
    return [this](int fd) {
      const std::lock_guard lock(mutex_);
      fds_.emplace_back(fd);
      more_.notify_all();
    };
  }
  bool WaitFor(size_t n) {
    std::unique_lock lock(mutex_);
    return more_.wait_for(lock, std::chrono::seconds(20), [&] { return fds_.size() >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<UniqueFd> fds_;
};

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() { connections_.Limit(1000); }
  std::string Listen(const std::string& address) {
    auto where = acceptor_.Listen(*ParseListenAddress(address), 0, taken_.take());
    EXPECT_TRUE(where.ok()) << where.status();
    return where.ok() ? *where : "";
  }
  Metrics metrics_;
  Connections connections_;
  Taken taken_;
  Acceptor acceptor_{&connections_, &metrics_};
};

TEST_F(AcceptorTest, ListensOnAllAddressesOfAHost) {
  const std::string local = Listen("localhost:0"), any = Listen("0.0.0.0:0");
  const std::string path = StrCat(::testing::TempDir(), "acceptor_", getpid(), ".sock");
  Listen("unix:" + path);
  ASSERT_TRUE(acceptor_.Start().ok());
  const std::string port = any.substr(any.rfind(':'));
  std::vector<UniqueFd> clients;
  clients.push_back(ConnectTo(local));
  clients.push_back(ConnectTo("127.0.0.1" + port));
  clients.push_back(UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  EXPECT_EQ(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  if (const UniqueFd v6(socket(AF_INET6, SOCK_STREAM, 0)); v6.valid()) {
    clients.push_back(ConnectTo("[::1]" + port));
  }
  EXPECT_TRUE(taken_.WaitFor(clients.size()));
  acceptor_.Stop();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(AcceptorTest, AnAddressThatIsTakenIsAnError) {
  const UniqueFd listener = *ListenTcp("127.0.0.1:0");
  const auto where = acceptor_.Listen(*ParseListenAddress(StrCat("127.0.0.1:", PortOf(listener))),
                                      0, taken_.take());
  EXPECT_EQ(where.status().code(), absl::StatusCode::kUnavailable);
}

// The sockets of this process that listen at `port`.
std::vector<int> ListenersAt(int port) {
  std::vector<int> found;
  for (int fd = 3; fd < 1000; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in at{};
    socklen_t at_size = sizeof(at);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&at), &at_size) == 0 &&
        ntohs(at.sin_port) == port) {
      found.push_back(fd);
    }
  }
  return found;
}

TEST_F(AcceptorTest, AListenerThatAcceptsNoMoreIsOpenedAnew) {
  const std::string where = Listen("127.0.0.1:0");
  ASSERT_TRUE(acceptor_.Start().ok());
  const UniqueFd before = ConnectTo(where);
  ASSERT_TRUE(taken_.WaitFor(1));
  const std::vector<int> listeners = ListenersAt(std::stoi(where.substr(where.rfind(':') + 1)));
  ASSERT_EQ(listeners.size(), 1u);
  shutdown(listeners[0], SHUT_RDWR);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  absl::StatusOr<UniqueFd> after;
  do {  // refused until it is opened
    after = ConnectTcp(where, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  } while (!after.ok() && std::chrono::steady_clock::now() < deadline);
  EXPECT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(taken_.WaitFor(2));
  EXPECT_GE(metrics_.count(Metric::kAcceptErrors), 1);
}

// All that the process may have are taken; then there is one again.
TEST_F(AcceptorTest, GoesOnWhenThereAreDescriptorsAgain) {
  const std::string where = Listen("127.0.0.1:0");
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(acceptor_.Start().ok());
  rlimit usual{};
  getrlimit(RLIMIT_NOFILE, &usual);
  const rlimit small{128, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<UniqueFd> others;
  for (UniqueFd fd(dup(0)); fd.valid(); fd = UniqueFd(dup(0))) others.push_back(std::move(fd));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(where.substr(where.rfind(':') + 1))));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (metrics_.count(Metric::kAcceptErrors) == 0 &&
         std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_GE(metrics_.count(Metric::kAcceptErrors), 1);
  others.clear();
  EXPECT_TRUE(taken_.WaitFor(1));
  setrlimit(RLIMIT_NOFILE, &usual);
}

}  // namespace
}  // namespace telegrad
