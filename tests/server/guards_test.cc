// Floods of calls that end without a result fill neither the log, nor the memory, nor the
// tables: log lines are limited and counted, connections are closed, and places are freed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <regex>
#include <thread>

#include "absl/strings/escaping.h"
#include "engine/base/rate_limit.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/limited_log.h"
#include "server/service/convert.h"
#include "server/service/health_service.h"
#include "server/service/open_calls.h"
#include "server/service/reset_guard.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kLines = LimitedLog::kLinesPerSecond;

// The bytes are those of google.rpc.Status with a google.rpc.RetryInfo of 2 s and 401,000,000 ns,
// put together by hand.
TEST(ErrorDetails, SayWhenToTryAgain) {
  const grpc::Status status = ToGrpc(WithRetryAfter(ResourceExhausted("full"), 2401));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "full");
  EXPECT_EQ(
      absl::BytesToHexString(status.error_details()),
      "0808120466756c6c1a360a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265"
      "747279496e666f120a0a08080210c08c9bbf01");
  EXPECT_EQ(ToGrpc(ResourceExhausted("full")).error_details(), "");
}

// Without their times.
std::vector<std::string> LinesWritten(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  body();
  std::istringstream in(::testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(line.find(' ') + 1));
  return lines;
}

TEST(LimitedLogTest, WritesSomeLinesASecondAndCountsTheRest) {
  fakes::ManualClock clock;
  LimitedLog log(LogLevel::kWarning, "refused", &clock);
  const auto write = [&](int n) {
    return LinesWritten([&] {
      for (int i = 0; i < n; ++i) log.Write({{"call", i}});
    });
  };
  const std::vector<std::string> first = write(1000);
  ASSERT_EQ(first.size(), kLines);
  EXPECT_EQ(first.front(), "WARNING refused call=0");
  EXPECT_EQ(first.back(), StrCat("WARNING refused call=", kLines - 1));
  clock.Advance(kSecondNs - 1);
  EXPECT_EQ(write(5).size(), 0u);
  clock.Advance(1);
  EXPECT_THAT(write(2),
              ::testing::ElementsAre(StrCat("WARNING refused call=0 left_out=", 1000 - kLines + 5),
                                     "WARNING refused call=1"));
  clock.Advance(100 * kSecondNs);
  EXPECT_EQ(write(kLines + 1).size(), kLines);
}

TEST(LimitedLogTest, LosesNoLineOfManyThreads) {
  fakes::ManualClock clock;
  LimitedLog log(LogLevel::kWarning, "refused", &clock);
  constexpr int kThreads = 4, kEach = 200;
  const std::vector<std::string> lines = LinesWritten([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < kEach; ++k) log.Write({});
      });
    }
    for (std::thread& thread : threads) thread.join();
    clock.Advance(kSecondNs);
    log.Write({});
  });
  ASSERT_EQ(lines.size(), kLines + 1);
  EXPECT_EQ(lines.back(), StrCat("WARNING refused left_out=", kThreads * kEach - kLines));
}

TEST(ResetGuardTest, HangsUpOnWhoResetsTooManyInASecond) {
  fakes::ManualClock clock;
  std::vector<std::string> ended;
  const auto hang_up = [&](std::string_view peer) {
    ended.emplace_back(peer);
    return true;
  };
  ResetGuard guard(3, hang_up, &clock);
  const auto lines = LinesWritten([&] {
    for (int i = 0; i < 2; ++i) guard.Count("ipv4:10.0.0.1:1");
    for (int i = 0; i < 9; ++i) guard.Count("ipv4:10.0.0.1:2");
    for (int i = 0; i < 9; ++i) guard.Count("unix:");  // of whom there is more than one
    EXPECT_THAT(ended, ::testing::ElementsAre("ipv4:10.0.0.1:2"));
    clock.Advance(kSecondNs);  // forgets the two
    for (int i = 0; i < 2; ++i) guard.Count("ipv4:10.0.0.1:1");
    EXPECT_EQ(ended.size(), 1u);
    guard.Count("ipv4:10.0.0.1:1");
    EXPECT_EQ(ended.size(), 2u);
  });
  EXPECT_THAT(lines, ::testing::ElementsAre("WARNING hung_up_on peer=ipv4:10.0.0.1:2 resets=3",
                                            "WARNING hung_up_on peer=ipv4:10.0.0.1:1 resets=3"));
  ResetGuard off(0, hang_up, &clock);
  for (int i = 0; i < 1000; ++i) off.Count("ipv4:10.0.0.1:1");
  EXPECT_EQ(ended.size(), 2u);
}

// The two ends of a connection over the loopback.
struct Ends {
  UniqueFd client, server;
  std::string peer;  // the client's address, as gRPC writes it
};

Ends ConnectedEnds(int family) {
  sockaddr_storage address{};
  socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
  }
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const UniqueFd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Ends ends;
  if (bind(listener.get(), generic, size) != 0) return ends;  // a machine without IPv6
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  ends.client = UniqueFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(ends.client.get(), generic, size), 0);
  ends.server = UniqueFd(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(getsockname(ends.client.get(), generic, &size), 0);
  const int port = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                           : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  ends.peer = StrCat(family == AF_INET ? "ipv4:127.0.0.1:" : "ipv6:%5B::1%5D:", port);
  return ends;
}

bool IsOpen(const UniqueFd& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, MSG_DONTWAIT) != 0;
}

TEST(HangUpTest, ClosesTheConnectionOfThatPeerAndNoOther) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Ends one = ConnectedEnds(family), other = ConnectedEnds(family);
    if (one.peer.empty()) continue;
    EXPECT_TRUE(HangUp(one.peer)) << one.peer;
    EXPECT_FALSE(IsOpen(one.client));
    EXPECT_TRUE(IsOpen(other.client));
  }
  EXPECT_FALSE(HangUp("ipv4:127.0.0.1:1"));
  EXPECT_FALSE(HangUp("unix:"));
}

TEST(OpenCallsTest, ASlotIsHeldByItsCallAndByNoRefusedOne) {
  struct Call {
    OpenCalls<Call>::CallSlot slot;
  };
  OpenCalls<Call> calls;
  const auto enter = [&] {
    auto call = std::make_shared<Call>();
    call->slot = calls.Enter(call, 2, /*owner=*/nullptr, 2);
    return call;
  };
  auto first = enter();
  const auto second = enter();
  EXPECT_TRUE(first->slot && second->slot);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(enter()->slot);
  EXPECT_THAT(calls.All(), ::testing::ElementsAre(first, second));
  first.reset();
  EXPECT_THAT(calls.All(), ::testing::ElementsAre(second));
  const auto third = enter();
  EXPECT_TRUE(third->slot);
  EXPECT_THAT(calls.All(), ::testing::ElementsAre(second, third));
}

TEST(OpenCallsTest, OneOwnerLeavesSlotsToOthers) {
  struct Call {
    OpenCalls<Call>::CallSlot slot;
  };
  OpenCalls<Call> calls;
  int a = 0, b = 0;
  const auto enter = [&](const int* owner) {
    auto call = std::make_shared<Call>();
    call->slot = calls.Enter(call, 3, owner, 2);
    return call;
  };
  auto first = enter(&a);
  const auto second = enter(&a);
  EXPECT_TRUE(first->slot && second->slot);
  EXPECT_FALSE(enter(&a)->slot);
  const auto other = enter(&b);
  EXPECT_TRUE(other->slot);
  EXPECT_FALSE(enter(&b)->slot) << "all of them are taken";
  first.reset();
  EXPECT_TRUE(enter(&a)->slot);
}

// Those that compute need all devices; the others go on.
TEST(HealthTest, FollowsTheDevices) {
  using grpc::health::v1::HealthCheckResponse;
  HealthService health;
  const auto status = [&](const std::string& service) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    EXPECT_TRUE(health.Check({}, request, &response).ok());
    return response.status();
  };
  const std::string compute = "telegrad.v1.Compute", session = "telegrad.v1.Session";
  EXPECT_EQ(status(compute), HealthCheckResponse::SERVING);
  health.SetDevicesHealthy(false);
  EXPECT_EQ(status(compute), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(status(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(status(session), HealthCheckResponse::SERVING);
  health.SetDevicesHealthy(true);
  EXPECT_EQ(status(compute), HealthCheckResponse::SERVING);
  health.StopServing();
  health.SetDevicesHealthy(true);
  for (const auto& service : {compute, session}) {
    EXPECT_EQ(status(service), HealthCheckResponse::NOT_SERVING);
  }
}

}  // namespace
}  // namespace telegrad
