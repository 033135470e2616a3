// What takes the results of runs may call the session, and other sessions of its thread.
#include <algorithm>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/burst.h"
#include "engine/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/remote/fake_server.h"

namespace telegrad {
namespace {

Digest HashOf(uint8_t byte) {
  Digest hash;
  hash.bytes.fill(byte);
  return hash;
}

// Tells nothing.
struct Silent final : RunSink {
  void OnRun(uint64_t, const absl::StatusOr<RunInfo>&) override {}
};

class RunSinks : public ::testing::Test {
 protected:
  RunSinks() {
    server_.compute.answer = [this](const v1::ExecuteRequest& run, FakeCompute::Stream* stream) {
      if (run.has_run()) {
        const MutexLock lock(mutex_);
        hashes_.push_back(run.run().hash());
      }
      FakeServer::Answer(run, stream);
    };
    auto connection = Connection::Connect(server_.Options("far").address);
    EXPECT_TRUE(connection.ok()) << connection.status();
    connection_ = *connection;
  }
  std::unique_ptr<RemoteSession> Open() { return *connection_->OpenSession(); }

  Mutex mutex_;
  std::vector<std::string> hashes_ TG_GUARDED_BY(mutex_);  // of the runs that came
  FakeServer server_;
  std::shared_ptr<Connection> connection_;
};

// It goes where the session's lock is not held.
TEST_F(RunSinks, MayCallTheSessionWhereTheyEnd) {
  struct Calling final : RunSink {
    ~Calling() override { ended.Set(session->NextOperation()); }
    void OnRun(uint64_t, const absl::StatusOr<RunInfo>&) override {}
    RemoteSession* session = nullptr;
    Future<uint64_t> ended;
  };
  const auto session = Open();
  Future<uint64_t> ended;
  {
    auto sink = std::make_shared<Calling>();
    sink->session = session.get();
    sink->ended = ended;
    session->RunTold(HashOf(1), {}, std::move(sink), 0);
  }
  EXPECT_TRUE(ended.Get().ok());
}

// A session that is full does first what its thread has put off, which may send other runs.
TEST_F(RunSinks, RunsOfOneThreadDoNotMix) {
  struct Other final : Burst::Part {
    void EndOfBurst() override {
      session->RunTold(HashOf(2), {}, std::make_shared<Silent>(), 0);
      done = true;
    }
    std::unique_ptr<RemoteSession> session;
    bool done = false;
  };
  const auto session = Open();
  const auto other = std::make_shared<Other>();
  other->session = Open();
  const auto sink = std::make_shared<Silent>();
  size_t runs = 0;
  {
    const Burst burst;
    ASSERT_TRUE(Burst::PutOff(other));
    for (; !other->done && runs < 100'000; ++runs) session->RunTold(HashOf(1), {}, sink, runs);
  }
  ASSERT_TRUE(other->done) << "the session was never full";
  EXPECT_TRUE(session->Sync().Get().ok());
  EXPECT_TRUE(other->session->Sync().Get().ok());
  const MutexLock lock(mutex_);
  EXPECT_EQ(hashes_.size(), runs + 1);
  EXPECT_EQ(std::ranges::count(hashes_, std::string(HashOf(1).view())), runs);
}

}  // namespace
}  // namespace telegrad
