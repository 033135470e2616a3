// A run that reduces more numbers to one than a processor adds in many minutes: it ends when it is
// told to, and other tenants have the device before that and after. Without that, these tests take
// those minutes.
#include "client/cc/remote_session.h"
#include "engine/ir/content_hash.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/double_run.h"

namespace telegrad {
namespace {

// Of each of the two tensors, of whose pairs there are 2^46.
constexpr int64_t kElements = int64_t{1} << 23;

// Slot 0 becomes the sum, over all i and j, of the larger of element i of slot 1 and j of slot 2.
FrozenGraph SumOfPairs() {
  Graph g;
  const int64_t dims[] = {kElements}, column[] = {kElements, 1}, row[] = {1, kElements};
  const int64_t pairs[] = {kElements, kElements}, one[] = {1};
  const int64_t over_both[] = {static_cast<int64_t>(ReduceKind::kAdd), 0, 1};
  const auto spread = [&](int64_t slot, std::span<const int64_t> as) {
    const UOp x = g.Param(slot, DType::kFloat32, dims);
    return g.Make(Op::kExpand, {g.Make(Op::kReshape, {x}, as)}, pairs);
  };
  const UOp larger = g.Make(Op::kMax, {spread(1, column), spread(2, row)});
  const UOp sum = g.Make(Op::kReshape, {g.Make(Op::kReduce, {larger}, over_both)}, one);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(0, DType::kFloat32, one), sum})}));
}

class ReductionTest : public AuthTest {
 protected:
  // With one thread, so that no other one serves others meanwhile.
  void StartWith(std::vector<std::string> more) {
    more.insert(more.end(), {"--tls-client-ca", keys_->path("ca.pem"), "--cpu-threads", "1",
                             "--run-time", "1000000000000"});
    Start(std::move(more));
    if (HasFatalFailure()) return;
    const auto alice = Connect(address_, keys_->Certificate("alice"));
    const auto bob = Connect(address_, keys_->Certificate("bob"));
    ASSERT_TRUE(alice.ok() && bob.ok()) << alice.status() << bob.status();
    alice_ = *alice;
    bob_ = *bob;
  }
  // Once the device has it.
  Future<RunInfo> StartSum(RemoteSession& session) {
    const FrozenGraph graph = SumOfPairs();
    session.Alloc(1, 4);
    for (const uint64_t handle : {2, 3}) session.Alloc(handle, 4 * kElements);
    const auto put = session.Put(graph.root(), /*compile=*/true).Get();
    EXPECT_TRUE(put.ok()) << put.status();
    const uint64_t handles[] = {1, 2, 3};
    Future<RunInfo> run = session.Run(ContentHash(graph.root()), handles);
    while (!run.has_result() && alice_->Stats()->at("telegrad_runs_total") == 0) {
    }
    return run;
  }
  absl::Status RunOfBob() { return RunDouble(*bob_, 4); }

  std::shared_ptr<Connection> alice_, bob_;
};

TEST_F(ReductionTest, ASumToOneValueIsCutAndCancelled) {
  StartWith({});
  const auto session = *alice_->OpenSession();
  const Future<RunInfo> sum = StartSum(*session);
  for (int i = 0; i < 3; ++i) {
    const absl::Status between = RunOfBob();
    EXPECT_TRUE(between.ok()) << between;
  }
  EXPECT_FALSE(sum.has_result());
  session->Cancel();
  const absl::Status status = sum.Get().status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  const absl::Status after = RunOfBob();
  EXPECT_TRUE(after.ok()) << after;
  float result = 0;
  const auto read = session->Read(1, 0, std::as_writable_bytes(std::span(&result, 1))).Get();
  EXPECT_TRUE(absl::IsCancelled(read.status())) << read.status();
}

TEST_F(ReductionTest, ASumToOneValueEndsWithTheTimeToDrain) {
  StartWith({"--drain-seconds", "1"});
  const auto session = *alice_->OpenSession();
  const Future<RunInfo> sum = StartSum(*session);
  EXPECT_FALSE(sum.has_result());
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
  EXPECT_FALSE(sum.Get().ok());
}

}  // namespace
}  // namespace telegrad
