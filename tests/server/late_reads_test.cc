// When an Execute stream begins its next read: behind the answer that its client waits for, but
// never long after the message before.
#include "server/service/late_reads.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "server/service/execute_call.h"
#include "server/session/session_registry.h"
#include "tests/server/raw_session.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

constexpr int64_t kLongestNs = 2'000'000;

// The transport of one call, whose client is the test.
class Peer final : public StreamTransport {
 public:
  explicit Peer(bool prefers) : prefers_(prefers) {}

  void Read(grpc::ByteBuffer* message) override {
    const std::lock_guard lock(mutex_);
    into_ = message;
    order_ += 'R';
    changed_.notify_all();
  }
  void Write(const grpc::ByteBuffer&, const grpc::WriteOptions&) override {
    const std::lock_guard lock(mutex_);
    writing_ = true;
    order_ += 'W';
    changed_.notify_all();
  }
  void WriteAndFinish(const grpc::ByteBuffer&, const grpc::WriteOptions&,
                      const grpc::Status&) override {
    FAIL();
  }
  void Finish(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    end_ = status;
    changed_.notify_all();
  }
  bool PrefersLateReads() const override { return prefers_; }

  bool is_reading() {
    const std::lock_guard lock(mutex_);
    return into_ != nullptr;
  }
  // Where the message goes that is read.
  grpc::ByteBuffer* AwaitRead() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return into_ != nullptr; });
    return std::exchange(into_, nullptr);
  }
  void AwaitReading() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return into_ != nullptr; });
  }
  void AwaitWrite() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return writing_; });
    writing_ = false;
  }
  grpc::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return end_.has_value(); });
    return *end_;
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return end_.has_value();
  }
  // What was begun since it was last asked, in its order.
  std::string TakeOrder() {
    const std::lock_guard lock(mutex_);
    return std::exchange(order_, {});
  }

 private:
  const bool prefers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ByteBuffer* into_ = nullptr;
  bool writing_ = false;
  std::string order_;
  std::optional<grpc::Status> end_;
};

class LateReadsTest : public SessionTest {
 protected:
  void TearDown() override {
    if (call_ != nullptr) {
      if (!peer_->has_ended()) call_->OnCancel();
      peer_->AwaitEnd();
      std::exchange(call_, nullptr)->OnDone();
    }
  }

  // A stream of a session that has buffers 1 and 2, and has run the graph.
  void Open(bool prefers = true) {
    Put(4);  // by another session of the tenant
    registry_.emplace(env_);
    Caller caller{.principal = {}, .tenant = tenant_, .peer = "test"};
    const auto call = ExecuteCall::Create(*registry_, std::move(caller), "", nullptr, &workers_);
    call_ = call.get();
    call->Start({}, absl::OkStatus());
    peer_.emplace(prefers);
    call->Bind(&*peer_);
    v1::ExecuteRequest open;
    open.mutable_open()->set_protocol(1);
    Send(open);
    Answered();
    Send(AllocRequest(1, 16));
    Send(AllocRequest(2, 16));
    Send(WriteRequest(2, 0, std::string(16, 'x')));
    SendRun();
    Answered();
    while (!call_session().Idle()) std::this_thread::yield();
  }
  Session& call_session() { return *registry_->All().back(); }
  // Returns its number.
  uint64_t Send(v1::ExecuteRequest request) {
    request.set_op_id(++last_sent_);
    const grpc::Slice slice(request.SerializeAsString());
    grpc::ByteBuffer* const into = peer_->AwaitRead();
    *into = grpc::ByteBuffer(&slice, 1);
    call_->OnReadDone(true);
    return last_sent_;
  }
  uint64_t SendRun() { return Send(RunRequest(std::string(hash_.view()), {1, 2})); }
  void Answered() {
    peer_->AwaitWrite();
    call_->OnWriteDone(true);
  }
  // The client waits for each of so many answers.
  void WaitForEach(int times) {
    for (int i = 0; i < times; ++i) {
      SendHeldRun();
      engine_.gate.Open();
      Answered();
      while (!call_session().Idle()) std::this_thread::yield();
    }
  }
  // A run that is under way until the gate is opened.
  uint64_t SendHeldRun() {
    engine_.gate.Close();
    (void)peer_->TakeOrder();
    return SendRun();
  }

  LateReads late_;  // of this thread
  std::optional<SessionRegistry> registry_;
  std::optional<Peer> peer_;
  ExecuteCall* call_ = nullptr;  // owns itself until OnDone
  uint64_t last_sent_ = 0;
};

TEST_F(LateReadsTest, ARefusalIsForWhoLooksAfterNone) {
  std::thread([] { EXPECT_FALSE(LateReads::PutOff({}, 1)); }).join();
  EXPECT_TRUE(LateReads::PutOff({}, 1));
  EXPECT_EQ(late_.FirstNs(), INT64_MAX) << "whose reader is gone";
}

TEST_F(LateReadsTest, TheNextReadBeginsBehindTheAnswerThatIsWaitedFor) {
  Open();
  WaitForEach(10);
  SendHeldRun();
  EXPECT_FALSE(peer_->is_reading());
  engine_.gate.Open();
  Answered();
  peer_->AwaitReading();
  EXPECT_EQ(peer_->TakeOrder(), "WR");
  EXPECT_EQ(late_.FirstNs(), INT64_MAX) << "nobody is to be woken for it any more";
}

TEST_F(LateReadsTest, WhoHasNotWaitedYetIsReadAtOnce) {
  Open();
  WaitForEach(1);
  SendHeldRun();
  EXPECT_EQ(peer_->TakeOrder(), "R");
  engine_.gate.Open();
  Answered();
}

// That nothing is under way when the next message comes does not say that its client has waited.
TEST_F(LateReadsTest, WhatIsDoneAtOnceSaysNothingOfItsClient) {
  Open();
  for (uint64_t handle = 10; handle < 30; ++handle) Send(AllocRequest(handle, 16));
  SendHeldRun();
  EXPECT_EQ(peer_->TakeOrder(), "R");
  engine_.gate.Open();
  Answered();
}

TEST_F(LateReadsTest, NothingIsPutOffWhereItGainsNothing) {
  Open(/*prefers=*/false);
  WaitForEach(10);
  SendHeldRun();
  EXPECT_EQ(peer_->TakeOrder(), "R");
  engine_.gate.Open();
  Answered();
}

TEST_F(LateReadsTest, AnOperationThatComesBeforeTheAnswerIsTakenSoon) {
  Open();
  WaitForEach(10);
  const int64_t before = Clock::Steady()->Ns();
  SendHeldRun();
  const int64_t first = late_.FirstNs();
  EXPECT_GE(first, before);
  EXPECT_LE(first, Clock::Steady()->Ns() + kLongestNs);
  late_.Begin(first - 1);
  EXPECT_FALSE(peer_->is_reading());
  late_.Begin(first);
  ASSERT_TRUE(peer_->is_reading());
  EXPECT_EQ(late_.FirstNs(), INT64_MAX);
  const uint64_t second = Send(AllocRequest(3, 16));
  EXPECT_EQ(call_session().last_operation(), second) << "while the run is under way";
  EXPECT_TRUE(peer_->is_reading()) << "a client that does not wait is read at once";
  engine_.gate.Open();
  Answered();
  // It has to wait for some answers again before it counts as one that does.
  WaitForEach(1);
  SendHeldRun();
  EXPECT_TRUE(peer_->is_reading());
  engine_.gate.Open();
  Answered();
}

// What a client sends early is seen only where the read was not put off.
TEST_F(LateReadsTest, NowAndThenAReadIsNotPutOff) {
  Open();
  WaitForEach(10);
  int at_once = 0;
  for (int i = 0; i < 80; ++i) {
    SendHeldRun();
    at_once += peer_->is_reading() ? 1 : 0;
    engine_.gate.Open();
    Answered();
    while (!call_session().Idle()) std::this_thread::yield();
  }
  EXPECT_GE(at_once, 1);
  EXPECT_LE(at_once, 4);
}

TEST_F(LateReadsTest, ACancellationIsNoticedMeanwhile) {
  Open();
  WaitForEach(10);
  SendHeldRun();
  ASSERT_FALSE(peer_->is_reading());
  call_->OnCancel();
  EXPECT_EQ(peer_->AwaitEnd().error_code(), grpc::StatusCode::CANCELLED);
  std::exchange(call_, nullptr)->OnDone();
  EXPECT_THAT(registry_->All(), ::testing::IsEmpty()) << "its session has gone with it";
  EXPECT_EQ(late_.FirstNs(), INT64_MAX);
  late_.Begin(INT64_MAX);
  EXPECT_FALSE(peer_->is_reading());
  engine_.gate.Open();
}

TEST_F(LateReadsTest, AClientThatSendsNoMoreMeanwhileHasItsAnswer) {
  Open();
  WaitForEach(10);
  SendHeldRun();
  late_.Begin(late_.FirstNs());
  (void)peer_->AwaitRead();
  call_->OnReadDone(false);
  EXPECT_FALSE(peer_->has_ended()) << "the run is under way";
  engine_.gate.Open();
  Answered();
  EXPECT_TRUE(peer_->AwaitEnd().ok());
}

}  // namespace
}  // namespace telegrad
