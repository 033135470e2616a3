// A request for a ticket holds its connection, perhaps as the last one.
#include "client/cc/peer_admission.h"

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "client/cc/connection.h"
#include "gtest/gtest.h"
#include "tests/remote/fake_server.h"

namespace telegrad {
namespace {

TEST(PeerAdmissionTest, TheConnectionMayEndWithTheAnswer) {
  for (int round = 0; round < 20; ++round) {
    FakeServer server;
    absl::Notification alone;
    server.data.admit = [&](const v1::AdmitBulkRequest&, v1::AdmitBulkResponse* response) {
      alone.WaitForNotification();
      response->set_transfer(7);
      response->set_identity(std::string(16, 'i'));
      response->set_secret(std::string(32, 's'));
      return grpc::Status::OK;
    };
    auto connection = *Connection::Connect(server.Options("far").address);
    const std::weak_ptr<Connection> watch = connection;
    const Future<PeerTicket> told;
    AdmitPeer(connection, {.token = "token", .epoch = 1}, "key", 4, absl::Seconds(30), told);
    connection.reset();
    EXPECT_FALSE(watch.expired());
    alone.Notify();
    ASSERT_TRUE(told.Get().ok()) << told.Get().status();
    EXPECT_EQ(told.Get()->transfer, 7u);
    while (!watch.expired()) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace telegrad
