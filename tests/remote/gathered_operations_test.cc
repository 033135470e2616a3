// The client gathers short operations in one message for a server that takes that, and takes
// answers that are gathered.
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/burst.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport.h"
#include "tests/remote/fake_server.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class GatheredOperations : public ::testing::Test {
 protected:
  std::unique_ptr<RemoteSession> Open(bool server_gathers) {
    server_.session.hello = [=](v1::HelloResponse* response) {
      response->set_gathers(server_gathers);
    };
    auto connection = Connection::Connect(server_.Options("far").address);
    EXPECT_TRUE(connection.ok()) << connection.status();
    connection_ = *connection;
    return *connection_->OpenSession();
  }
  // All operations of the message, each alone.
  static std::vector<v1::ExecuteRequest> Each(const v1::ExecuteRequest& message) {
    std::vector<v1::ExecuteRequest> all(1, message);
    for (const std::string& gathered : message.gathered()) {
      all.emplace_back();
      EXPECT_TRUE(all.back().ParseFromString(gathered));
    }
    return all;
  }
  // So many operations in one burst of events, all answered.
  void SyncMany(RemoteSession& session, int count) {
    std::vector<Future<Done>> ends;
    {
      const Burst burst;
      for (int i = 0; i < count; ++i) ends.push_back(session.Sync());
    }
    for (const Future<Done>& end : ends) EXPECT_EQ(end.Get().status(), absl::OkStatus());
  }

  FakeServer server_;
  std::shared_ptr<Connection> connection_;
};

TEST_F(GatheredOperations, OfABurstGoTogether) {
  std::atomic<int> messages = 0;
  server_.compute.answer = [&](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    ++messages;
    EXPECT_LE(message.gathered_size(), kMostGathered);
    const std::vector<v1::ExecuteRequest> all = Each(message);
    v1::ExecuteResponse response, one;
    response.set_op_id(all.front().op_id());
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_EQ(all[i].op_id(), all[i - 1].op_id() + 1);
      one.set_op_id(all[i].op_id());
      *response.add_gathered() = one.SerializeAsString();
    }
    stream->Write(response);
  };
  auto session = Open(/*server_gathers=*/true);
  // The end of sending what went before may start some of them within the burst.
  SyncMany(*session, 200);
  EXPECT_LT(messages, 20);
  SyncMany(*session, 600);
  EXPECT_LT(messages, 40);
}

TEST_F(GatheredOperations, GoAloneToAServerThatDoesNotTakeThem) {
  std::atomic<int> messages = 0;
  server_.compute.answer = [&](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    ++messages;
    EXPECT_EQ(message.gathered_size(), 0);
    FakeServer::Answer(message, stream);
  };
  auto session = Open(/*server_gathers=*/false);
  SyncMany(*session, 50);
  EXPECT_EQ(messages, 50);
}

// What has data does not travel with others, and overtakes none.
TEST_F(GatheredOperations, KeepTheirOrderAroundData) {
  std::vector<std::string> kinds;
  server_.compute.answer = [&](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    for (const v1::ExecuteRequest& one : Each(message)) {
      kinds.push_back(one.has_write() ? "write" : one.has_alloc() ? "alloc" : "sync");
      if (one.has_write()) EXPECT_EQ(one.data().size(), 8u);
      if (one.has_sync()) FakeServer::Answer(one, stream);
    }
  };
  auto session = Open(/*server_gathers=*/true);
  const std::vector<std::byte> data(8);
  Future<Done> end;
  {
    const Burst burst;
    session->Alloc(1, 8, "CPU:0");
    session->Alloc(2, 8, "CPU:0");
    session->Write(1, 0, data);
    session->Alloc(3, 8, "CPU:0");
    end = session->Sync();
  }
  EXPECT_EQ(end.Get().status(), absl::OkStatus());
  EXPECT_THAT(kinds, ::testing::ElementsAre("alloc", "alloc", "write", "alloc", "sync"));
}

// A server may be long in answering, or never answer.
TEST_F(GatheredOperations, DoNotWaitForACallThatTheirThreadMakes) {
  server_.compute.answer = [](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    FakeServer::Answer(message, stream);
  };
  auto session = Open(/*server_gathers=*/true);
  Future<Done> end;
  bool answered = false;
  server_.session.hello = [&](v1::HelloResponse*) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!end.has_result() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    answered = end.has_result();
  };
  const Burst burst;
  end = session->Sync();
  EXPECT_TRUE(Connection::Connect(server_.Options("other").address).ok());
  EXPECT_TRUE(answered) << "while the other server was waited for";
}

TEST_F(GatheredOperations, AnswersThatAreNoneEndTheSession) {
  const std::pair<std::function<void(v1::ExecuteResponse&, uint64_t)>, std::string> rows[] = {
      {[](v1::ExecuteResponse& r, uint64_t) { *r.add_gathered() = "\xff"; }, "could not be read"},
      {[](v1::ExecuteResponse& r, uint64_t id) {
         v1::ExecuteResponse one;
         one.set_op_id(id + 1);
         one.add_gathered();
         *r.add_gathered() = one.SerializeAsString();
       },
       "may not be gathered"},
      {[](v1::ExecuteResponse& r, uint64_t id) {
         v1::ExecuteResponse one;
         one.set_op_id(id);
         *r.add_gathered() = one.SerializeAsString();
       },
       "waits for none"},
  };
  for (const auto& [fill, text] : rows) {
    server_.compute.answer = [&](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
      FakeServer::Answer(message, stream,
                         [&](v1::ExecuteResponse& response) { fill(response, message.op_id()); });
    };
    auto session = Open(/*server_gathers=*/true);
    Future<Done> first, second;
    {
      const Burst burst;
      first = session->Sync();
      second = session->Sync();
    }
    EXPECT_EQ(first.Get().status(), absl::OkStatus());
    EXPECT_THAT(second.Get().status().message(), HasSubstr(text));
  }
}

TEST_F(GatheredOperations, TooManyAnswersInOneMessageEndTheSession) {
  server_.compute.answer = [](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    FakeServer::Answer(message, stream, [](v1::ExecuteResponse& response) {
      for (int i = 0; i <= kMostGathered; ++i) response.add_gathered();
    });
  };
  auto session = Open(/*server_gathers=*/true);
  EXPECT_THAT(session->Sync().Get().status().message(),
              HasSubstr("has 257 of gathered, at most 256 may be there"));
}

// The memory of a write may ask the session something as it goes: it goes without the lock.
TEST_F(GatheredOperations, WhatAWriteHeldMayAskItsSession) {
  server_.compute.answer = [](const v1::ExecuteRequest& message, FakeCompute::Stream* stream) {
    if (message.has_sync()) FakeServer::Answer(message, stream);
  };
  auto session = Open(/*server_gathers=*/false);
  std::atomic<int> gone = 0;
  const std::string bytes(8, 'x');
  for (int i = 1; i <= 3; ++i) {
    std::shared_ptr<const void> keep(bytes.data(), [&](const void*) {
      EXPECT_TRUE(session->HasRoom(1));
      ++gone;
    });
    session->Write(1, 0, std::as_bytes(std::span(bytes)), std::move(keep));
    EXPECT_EQ(session->Sync().Get().status(), absl::OkStatus());
    EXPECT_EQ(gone, i);
  }
}

}  // namespace
}  // namespace telegrad
