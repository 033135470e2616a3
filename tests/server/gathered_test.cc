// Operations and answers that travel together in one message.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/base/burst.h"
#include "engine/base/thread.h"
#include "proto/transport.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

v1::ExecuteRequest Sync() {
  v1::ExecuteRequest request;
  request.mutable_sync();
  return request;
}

v1::Open Gathers() {
  v1::Open open;
  open.set_gathers(true);
  return open;
}

class GatheredTest : public DaemonTest {
 protected:
  // Gathers it as operation `id`.
  static void Add(uint64_t id, v1::ExecuteRequest one, v1::ExecuteRequest* message) {
    one.set_op_id(id);
    *message->add_gathered() = one.SerializeAsString();
  }
  // The open is operation 1, so the message's own is 2.
  absl::Status EndWith(const v1::ExecuteRequest& message) {
    RawSession session(connection_->channel());
    session.Send(message);
    session.Read();
    return session.Finish();
  }
};

TEST_F(GatheredTest, AreCarriedOutInOrderAndAnsweredTogether) {
  RawSession session(connection_->channel(), Gathers());
  v1::ExecuteRequest message = AllocRequest(1, 8);
  Add(3, ReadRequest(1, 0, 8), &message);
  Add(4, Sync(), &message);
  Add(5, ReadRequest(9, 0, 8), &message);
  Add(6, FreeRequest(1), &message);
  Add(7, ReadRequest(1, 0, 8), &message);
  Add(8, Sync(), &message);
  ASSERT_EQ(session.Send(message), 2u);
  std::vector<std::pair<uint64_t, uint32_t>> answers;
  int messages = 0;
  while (answers.empty() || answers.back().first != 8) {
    const v1::ExecuteResponse response = session.Read();
    ASSERT_FALSE(session.over()) << session.Finish();
    ++messages;
    answers.emplace_back(response.op_id(), response.status().code());
    if (response.op_id() == 3) EXPECT_EQ(response.data(), std::string(8, '\0'));
    for (const std::string& gathered : response.gathered()) {
      v1::ExecuteResponse one;
      ASSERT_TRUE(one.ParseFromString(gathered));
      answers.emplace_back(one.op_id(), one.status().code());
    }
  }
  const uint32_t not_found = static_cast<uint32_t>(absl::StatusCode::kNotFound);
  EXPECT_THAT(answers,
              ::testing::ElementsAre(std::pair(3u, 0u), std::pair(4u, 0u), std::pair(5u, not_found),
                                     std::pair(7u, not_found), std::pair(8u, 0u)));
  EXPECT_EQ(messages, 2) << "the bytes of the first, and the four short ones behind them";
}

TEST_F(GatheredTest, AnswersAreOnlyForWhoTakesThem) {
  RawSession session(connection_->channel());
  v1::ExecuteRequest message = Sync();
  for (uint64_t id = 3; id < 10; ++id) Add(id, Sync(), &message);
  session.Send(message);
  for (uint64_t id = 2; id < 10; ++id) {
    const v1::ExecuteResponse response = session.Read();
    EXPECT_EQ(response.op_id(), id);
    EXPECT_EQ(response.gathered_size(), 0);
  }
}

TEST_F(GatheredTest, WhatMayNotBeGatheredEndsTheStream) {
  const auto with = [](uint64_t id, v1::ExecuteRequest one) {
    v1::ExecuteRequest message = Sync();
    Add(id, std::move(one), &message);
    return message;
  };
  v1::ExecuteRequest open;
  open.mutable_open()->set_protocol(1);
  v1::ExecuteRequest many = Sync();
  for (int i = 0; i <= kMostGathered; ++i) Add(static_cast<uint64_t>(3 + i), Sync(), &many);
  v1::ExecuteRequest garbage = Sync();
  *garbage.add_gathered() = "\xff\xff";
  v1::ExecuteRequest empty = Sync();
  empty.add_gathered();
  const std::pair<v1::ExecuteRequest, std::string> rows[] = {
      {with(3, WriteRequest(1, 0, "data")), "neither data"},
      {with(3, with(4, Sync())), "nor gathered operations of its own"},
      {with(3, open), "may not open a session"},
      {with(2, Sync()), "ids must increase"},
      {empty, "ids must increase"},
      {garbage, "not an ExecuteRequest"},
      {many, "257 operations are gathered in one message; at most 256"},
  };
  for (const auto& [message, text] : rows) {
    const absl::Status end = EndWith(message);
    EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
    EXPECT_THAT(end.message(), HasSubstr(text));
  }
  v1::Open ignored;
  RawSession session(connection_->channel());
  EXPECT_EQ(session.Ask(AllocRequest(1, 8)), absl::OkStatus()) << "the daemon goes on";
}

// What takes data and comes without any is answered as if it had come alone.
TEST_F(GatheredTest, TheDataOfWhatTakesSomeIsEmpty) {
  RawSession session(connection_->channel(), Gathers());
  v1::ExecuteRequest import;
  import.mutable_import();
  v1::ExecuteRequest message = AllocRequest(1, 8);
  Add(3, WriteRequest(1, 0, ""), &message);
  Add(4, PutRequest(""), &message);
  Add(5, import, &message);
  Add(6, Sync(), &message);
  session.Send(message);
  std::vector<uint64_t> failed;
  uint64_t last = 0;
  while (last != 6) {
    const v1::ExecuteResponse response = session.Read();
    ASSERT_FALSE(session.over()) << session.Finish();
    std::vector<v1::ExecuteResponse> all(1, response);
    for (const std::string& gathered : response.gathered()) {
      ASSERT_TRUE(all.emplace_back().ParseFromString(gathered));
    }
    for (const v1::ExecuteResponse& one : all) {
      last = one.op_id();
      if (one.status().code() != 0) failed.push_back(last);
    }
  }
  EXPECT_THAT(failed, ::testing::ElementsAre(4, 5)) << "neither is a graph";
}

TEST_F(GatheredTest, AcknowledgementsCountThereToo) {
  v1::Open open;
  open.set_resumable(true);
  RawSession session(connection_->channel(), open);
  uint64_t last = 1;
  for (int i = 0; i < 3; ++i) {
    v1::ExecuteRequest message = Sync(), acknowledgement;
    message.set_op_id(++last);
    acknowledgement.set_acknowledged(last - 1);
    Add(last - 1, acknowledgement, &message);
    session.SendAs(message);
    EXPECT_EQ(session.Read().op_id(), last);
  }
  EXPECT_FALSE(session.over()) << session.Finish();
}

// What is gathered in a message is beside its data, too.
TEST_F(GatheredTest, OfOneClientDoNotExceedWhatItsServerTakes) {
  Start({"--head-bytes", "1024"});
  const auto session = Session();
  Future<Done> end;
  {
    const Burst burst;
    for (int i = 0; i < 500; ++i) end = session->Sync();
  }
  EXPECT_EQ(end.Get().status(), absl::OkStatus());
}

// So many long operations in messages that every thread of the server has one.
TEST_F(GatheredTest, OthersNeedNotWaitForAllOfAMessage) {
  constexpr int kMessages = 10;
  const int threads = std::clamp(AvailableProcessors() / 2, 2, 16);
  RawSession session(connection_->channel());
  std::atomic<int> begun = 0, over = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < threads; ++i) {
    clients.emplace_back([&] {
      const auto connection = Connect(address_);
      RawSession many(connection->channel());
      uint64_t last = 1;
      for (int j = 0; j < kMessages; ++j) {
        v1::ExecuteRequest message = Sync();
        message.set_op_id(++last);
        while (message.gathered_size() + 2 <= kMostGathered) {
          Add(++last, AllocRequest(1, 4 << 20), &message);
          Add(++last, FreeRequest(1), &message);
        }
        many.SendAs(message);
      }
      EXPECT_NE(many.Read().op_id(), 0u);
      ++begun;
      for (int j = 1; j < kMessages; ++j) EXPECT_NE(many.Read().op_id(), 0u);
      ++over;
    });
  }
  while (begun < threads) std::this_thread::yield();
  int answers = 0;
  while (over == 0) {
    session.Send(Sync());
    session.Read();
    ++answers;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answers, kMessages);
}

TEST_F(GatheredTest, NothingComesWithTheOpen) {
  const auto stub = v1::Compute::NewStub(connection_->channel());
  grpc::ClientContext context;
  const auto stream = stub->Execute(&context);
  v1::ExecuteRequest open;
  open.set_op_id(1);
  open.mutable_open()->set_protocol(1);
  Add(2, Sync(), &open);
  stream->Write(open);
  v1::ExecuteResponse response;
  while (stream->Read(&response)) {
  }
  const grpc::Status end = stream->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.error_message(), HasSubstr("a message of its own"));
}

}  // namespace
}  // namespace telegrad
