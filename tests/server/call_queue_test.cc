// A CallQueue behind a real gRPC server: what a handler starts while it is made, calls that are
// cancelled at any time, and the end of the server.
#include "server/service/call_queue.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

grpc::ByteBuffer BufferOf(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string TextOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

// What the handlers of a test have seen.
struct Seen {
  std::atomic<int> opened = 0, gone = 0, over = 0, gone_after_over = 0;
  Mutex mutex;
  ConditionVariable changed;
  std::set<std::thread::id> threads TG_GUARDED_BY(mutex);  // of all reactions

  void Note(std::atomic<int>* count) {
    const MutexLock lock(mutex);
    if (count != nullptr) ++*count;
    threads.insert(std::this_thread::get_id());
    changed.notify_all();
  }
  void Await(const std::atomic<int>& count, int value) {
    ReleasableLock lock(mutex);
    while (count < value) changed.wait(lock);
  }
};

// Answers each message with itself until none follows; the method says what else it does.
class Echo final : public RawStream {
 public:
  Echo(Seen* seen, std::string method) : seen_(*seen), method_(std::move(method)) {
    seen_.Note(&seen_.opened);
    if (method_ == "/refuse") {
      Finish({grpc::StatusCode::NOT_FOUND, "refused"});
    } else if (method_ == "/greet") {
      message_ = BufferOf("hello");
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    } else {
      StartRead(&message_);
    }
  }
  void OnReceived(bool ok) override {
    seen_.Note(nullptr);
    if (!ok) return EndOnce(grpc::Status::OK);
    if (method_ == "/unary") return StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    if (method_ == "/wait") return;  // until the client is gone
    StartWrite(&message_);
  }
  void OnSent(bool ok) override {
    seen_.Note(nullptr);
    if (ok) return StartRead(&message_);
    EndOnce(grpc::Status::CANCELLED);
  }
  void OnGone() override {
    if (over_) ++seen_.gone_after_over;
    seen_.Note(&seen_.gone);
    if (method_ == "/wait") EndOnce(grpc::Status::CANCELLED);
  }
  void OnOver() override {
    over_ = true;
    Seen& seen = seen_;
    delete this;
    seen.Note(&seen.over);
  }
  void End(absl::Status) override {}

 private:
  void EndOnce(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  Seen& seen_;
  const std::string method_;
  grpc::ByteBuffer message_;
  std::atomic<bool> ended_ = false, over_ = false;
};

// Begins each read but the first some time after the message before, and answers nothing.
class Late final : public RawStream,
                   public LateReads::Reader,
                   public std::enable_shared_from_this<Late> {
 public:
  explicit Late(Seen* seen) : seen_(*seen) { seen_.Note(&seen_.opened); }
  static RawStream* Make(Seen* seen) {
    const auto made = std::make_shared<Late>(seen);
    made->self_ = made;
    made->StartRead(&made->message_);
    return made.get();
  }
  void OnReceived(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    until_ = Clock::Steady()->Ns() + 1'000'000;
    EXPECT_TRUE(LateReads::PutOff(weak_from_this(), until_));
  }
  bool IsLate(int64_t until_ns) const override { return until_ == until_ns; }
  void ReadNow(int64_t until_ns) override {
    EXPECT_EQ(until_, until_ns);
    EXPECT_GE(Clock::Steady()->Ns(), until_ns);
    until_ = 0;
    StartRead(&message_);
  }
  void OnOver() override {
    Seen& seen = seen_;
    self_.reset();
    seen.Note(&seen.over);
  }
  void End(absl::Status) override {}

 private:
  Seen& seen_;
  std::shared_ptr<Late> self_;
  grpc::ByteBuffer message_;
  std::atomic<int64_t> until_ = 0;
};

class CallQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    calls_ = std::make_unique<CallQueue>(&builder,
                                         [this](grpc::GenericServerContext* context) -> RawStream* {
                                           if (context->method() == "/late")
                                             return Late::Make(&seen_);
                                           return new Echo(&seen_, context->method());
                                         });
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    calls_->Start();
    channel_ = grpc::CreateChannel(StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials());
  }
  void TearDown() override { Shutdown(); }
  void Shutdown() {
    server_->Shutdown(std::chrono::system_clock::now());
    calls_->Stop();
    EXPECT_EQ(seen_.over, seen_.opened);
    EXPECT_EQ(seen_.gone_after_over, 0);
  }

  // Of a call that has these messages, and reads until the end.
  grpc::Status Call(const std::string& method, const std::vector<std::string>& messages,
                    std::vector<std::string>* answers = nullptr) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    await();
    for (const std::string& message : messages) {
      call->Write(BufferOf(message), nullptr);
      if (!await()) break;
    }
    call->WritesDone(nullptr);
    await();
    for (grpc::ByteBuffer answer;; answer.Clear()) {
      call->Read(&answer, nullptr);
      if (!await()) break;
      if (answers != nullptr) answers->push_back(TextOf(answer));
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    return status;
  }
  // One that its client leaves after `after`.
  void Leave(const std::string& method, std::chrono::microseconds after) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + after);
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareUnaryCall(&context, method, BufferOf("left"), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  }

  int port_ = 0;
  Seen seen_;
  std::unique_ptr<CallQueue> calls_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(CallQueueTest, WhatAHandlerStartsWhileItIsMadeIsDone) {
  std::vector<std::string> answers;
  EXPECT_TRUE(Call("/greet", {}, &answers).ok());
  EXPECT_EQ(answers, std::vector<std::string>{"hello"});
  const grpc::Status refused = Call("/refuse", {"x"});
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(refused.error_message(), "refused");
}

TEST_F(CallQueueTest, MessagesAreAnsweredInOrder) {
  std::vector<std::string> sent, answers;
  for (int i = 0; i < 100; ++i) sent.push_back(StrCat("message ", i));
  EXPECT_TRUE(Call("/stream", sent, &answers).ok());
  EXPECT_EQ(answers, sent);
  answers.clear();
  EXPECT_TRUE(Call("/unary", {"one"}, &answers).ok());
  EXPECT_EQ(answers, std::vector<std::string>{"one"});
}

// Though nothing else happens meanwhile.
TEST_F(CallQueueTest, BeginsReadsThatWerePutOff) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Call("/late", {"one", "two", "three"}).ok());
}

// The end of a call is told by the threads that tell all else: no other one is woken for it.
TEST_F(CallQueueTest, AFewThreadsTellAll) {
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(Call("/unary", {"x"}).ok());
  seen_.Await(seen_.over, 200);
  const MutexLock lock(seen_.mutex);
  EXPECT_LE(seen_.threads.size(), std::max<size_t>(2, std::thread::hardware_concurrency() / 2));
}

TEST_F(CallQueueTest, ClientsThatLeaveAreToldOnce) {
  constexpr int kCalls = 40;
  std::vector<std::thread> clients;
  for (int i = 0; i < kCalls; ++i) {
    clients.emplace_back([this] { Leave("/wait", std::chrono::milliseconds(100)); });
  }
  for (std::thread& client : clients) client.join();
  Shutdown();
  EXPECT_EQ(seen_.gone, seen_.opened);
}

// Some before the handler is made, some after the answer.
TEST_F(CallQueueTest, ClientsMayLeaveAtAnyTime) {
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([this, client] {
      for (int i = 0; i < 100; ++i) {
        Leave(client % 2 == 0 ? "/unary" : "/stream", std::chrono::microseconds(37 * i));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Call("/unary", {"x"}).ok());
}

TEST_F(CallQueueTest, TheEndWaitsForEveryHandler) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([this] { Leave("/wait", std::chrono::minutes(1)); });
  }
  seen_.Await(seen_.opened, 8);
  Shutdown();  // which cancels them
  EXPECT_EQ(seen_.over, 8);
  for (std::thread& client : clients) client.join();
}

TEST(CallQueueTests, OneThatNeverServedEnds) {
  grpc::ServerBuilder builder;
  CallQueue calls(&builder, [](grpc::GenericServerContext*) { return nullptr; });
}

}  // namespace
}  // namespace telegrad
