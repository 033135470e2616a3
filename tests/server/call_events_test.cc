// Sessions of a process whose server lends its completion queue, and takes it back.
#include "client/cc/call_events.h"

#include <atomic>
#include <thread>

#include "proto/call_event.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

// A queue with one thread, as a server's.
class CallEventsTest : public DaemonTest {
 protected:
  CallEventsTest() {
    thread_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      while (queue_.Next(&tag, &ok)) {
        ++events_;
        CallEvent::Of(tag)->Happened(ok);
      }
    });
  }
  ~CallEventsTest() override {
    CallEvents::TakeBack();
    queue_.Shutdown();
    thread_.join();
  }
  static void Write(RemoteSession& session, int value) {
    session.WriteCopy(1, 0, std::as_bytes(std::span(&value, 1)));
  }
  static int Read(RemoteSession& session) {
    int value = 0;
    const Future<Done> read = session.Read(1, 0, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(read.Get().status(), absl::OkStatus());
    return value;
  }

  grpc::CompletionQueue queue_;
  std::thread thread_;
  std::atomic<int> events_ = 0;
};

TEST_F(CallEventsTest, AResumableSessionUsesWhatIsLentUntilItIsTakenBack) {
  CallEvents::Lend(&queue_);
  auto session = *connection_->OpenSession({.resumable = true});
  session->Alloc(1, sizeof(int), "CPU:0");
  Write(*session, 1);
  EXPECT_EQ(Read(*session), 1);
  EXPECT_GT(events_, 0);
  // What is under way when it is taken back is done once all the same.
  for (int i = 0; i < 500; ++i) Write(*session, i);
  CallEvents::TakeBack();
  const int before = events_;
  for (int i = 500; i < 1000; ++i) Write(*session, i);
  EXPECT_EQ(Read(*session), 999);
  EXPECT_EQ(session->Over(), absl::OkStatus());
  EXPECT_EQ(events_, before) << "it goes on by another queue";
  auto next = *connection_->OpenSession({.resumable = true});
  EXPECT_EQ(next->Sync().Get().status(), absl::OkStatus());
  EXPECT_EQ(events_, before);
}

TEST_F(CallEventsTest, ASessionThatEndsWithItsStreamUsesTheProcesssOwn) {
  CallEvents::Lend(&queue_);
  auto session = Session();
  session->Alloc(1, sizeof(int), "CPU:0");
  Write(*session, 1);
  CallEvents::TakeBack();
  EXPECT_EQ(Read(*session), 1);
  EXPECT_EQ(events_, 0);
}

TEST_F(CallEventsTest, TheOwnQueueGoesWithTheLastCall) {
  std::weak_ptr<CallEvents> own;
  {
    auto session = Session();
    auto other = Session();
    own = CallEvents::Own();
    EXPECT_EQ(CallEvents::Own(), own.lock());
    session.reset();
    EXPECT_FALSE(own.expired());
    EXPECT_EQ(other->Sync().Get().status(), absl::OkStatus());
  }
  EXPECT_TRUE(own.expired()) << "no thread is left to poll";
}

}  // namespace
}  // namespace telegrad
