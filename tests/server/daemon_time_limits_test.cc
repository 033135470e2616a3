// Cancellation and time limits over the network: a run that was cancelled, or whose time is over
// before it begins, does not run.
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

// A run that has to be compiled first takes longer than a millisecond.
TEST_F(DaemonTest, RunsEndWithTheirTimeout) {
  const auto session = Session();
  const FrozenGraph graph = DoubleGraph(64);
  const Digest hash = ContentHash(graph.root());
  const uint64_t handles[] = {1, 2};
  session->Alloc(1, 256);
  session->Alloc(2, 256);
  session->Put(graph.root());
  const auto late = session->Run(hash, handles, {}, /*timeout_ms=*/1);
  std::vector<uint8_t> bytes(256);
  const auto spoiled = session->Read(1, 0, Writable(bytes));
  const auto patient = session->Run(hash, handles, {}, /*timeout_ms=*/600'000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Get().status())) << late.Get().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(spoiled.Get().status())) << spoiled.Get().status();
  EXPECT_TRUE(patient.Get().ok()) << patient.Get().status();
}

// Each of the runs is of another graph, so that the cancellation overtakes most of the
// compilations.
TEST_F(DaemonTest, CancelOvertakesWhatIsQueued) {
  const auto session = Session();
  const uint64_t handles[] = {1, 2};
  session->Alloc(1, 4096);
  session->Alloc(2, 4096);
  std::vector<Future<RunInfo>> runs;
  for (int64_t elements = 1; elements <= 100; ++elements) {
    const FrozenGraph graph = DoubleGraph(elements);
    session->Put(graph.root());
    runs.push_back(session->Run(ContentHash(graph.root()), handles));
  }
  session->Cancel();
  for (const auto& run : runs) {
    const absl::Status status = run.Get().status();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_TRUE(absl::IsCancelled(runs.back().Get().status()));
  (void)session->TakeStatus();
  session->Free(handles);
  session->Alloc(1, 4);
  EXPECT_TRUE(session->Sync().Get().ok()) << "the session goes on";
}

}  // namespace
}  // namespace telegrad
