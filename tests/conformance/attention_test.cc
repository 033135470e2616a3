// Attention of random shapes: one launch whose scores stay in the private memory of the thread that
// computes them, with the results of the tensor evaluator, whatever a mask shows of the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"
#include "tests/models/models.h"

namespace telegrad::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::string_view kNames[] = {"full", "causal", "window", "alibi"};

std::string Print(const AttentionShape& s) {
  return StrCat(kNames[static_cast<size_t>(s.seen)], " [", s.batch, ", ", s.heads, "/", s.groups,
                ", ", s.queries, " x ", s.keys, ", ", s.channels, "] window ", s.window);
}

UOp Root(const absl::StatusOr<Plan>& plan) { return plan->graph.root(); }

std::vector<uint8_t> Floats(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(static_cast<size_t>(n) * 4);
  for (int64_t i = 0; i < n; ++i) {
    const float x = normal(random);
    std::memcpy(bytes.data() + 4 * i, &x, 4);
  }
  return bytes;
}

void Put(std::vector<uint8_t>* bytes, int64_t at, float x) {
  std::memcpy(bytes->data() + 4 * at, &x, 4);
}

// "q", "k", "v" and room for "y".
Slots Operands(const AttentionShape& s, std::mt19937& random) {
  const int64_t q = s.batch * s.heads * s.queries * s.channels;
  const int64_t k = s.batch * s.groups * s.keys * s.channels;
  return {Floats(q, random), Floats(k, random), Floats(k, random),
          std::vector<uint8_t>(static_cast<size_t>(q) * 4)};
}

Target Cpu(int vector_bytes, int threads = 2) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = threads;
  return target;
}

AttentionShape RandomShape(std::mt19937& random, int64_t most) {
  const auto pick = [&](std::initializer_list<int64_t> of) {
    return of.begin()[random() % of.size()];
  };
  AttentionShape s;
  s.batch = pick({1, 1, 2});
  s.groups = pick({1, 2, 3});
  s.heads = s.groups * pick({1, 1, 2, 4});
  s.seen = static_cast<Seen>(random() % 4);
  s.queries = pick({1, 5, 16, 33, 64, 96, 100, 128, 200});
  s.keys = pick({1, 7, 16, 48, 64, 96, 100, 128, 250});
  s.queries = std::min(s.queries, most);
  s.keys = std::min(s.keys, most);
  if (random() % 2 == 0) s.keys = s.queries;
  s.channels = pick({16, 24, 32, 64});
  s.window = pick({1, 8, 40, 64});
  return s;
}

void Check(const AttentionShape& s, const Slots& operands, CpuRunner* runner) {
  SCOPED_TRACE(Print(s));
  const absl::StatusOr<Plan> plan = Attention(s);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  Slots want = operands;
  ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
  for (const int vector_bytes : {0, 32, 64}) {
    Slots got = operands;
    if (vector_bytes == 0) {
      const absl::Status status = runner->Run(Root(plan), {}, &got);
      ASSERT_TRUE(status.ok()) << status;
    } else {
      if (s.batch * s.heads * s.queries * s.keys * s.channels > 1'000'000) continue;  // slow
      const absl::Status status = RunLowered(Root(plan), Cpu(vector_bytes), {}, &got);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(Difference(DType::kFloat32, false, want[3], got[3]), "") << vector_bytes;
  }
}

class AttentionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto runner = CpuRunner::Open();
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = runner->release();
  }
  static void TearDownTestSuite() { delete runner_; }
  static inline CpuRunner* runner_ = nullptr;
};

TEST_F(AttentionTest, AgreesWithTheEvaluator) {
  std::mt19937 random(1);
  for (int i = 0; i < 14; ++i) {
    const AttentionShape s = RandomShape(random, 250);
    Check(s, Operands(s, random), runner_);
    if (HasFatalFailure()) return;
  }
}

// What a mask hides is not computed, unless a value that it hides is no finite number: 0 times
// that is none either.
TEST_F(AttentionTest, AgreesWhereOperandsAreNotFinite) {
  std::mt19937 random(2);
  for (int i = 0; i < 10; ++i) {
    AttentionShape s = RandomShape(random, 128);
    s.batch = 1;
    s.keys = s.queries = std::max<int64_t>(s.queries, 64);
    Slots operands = Operands(s, random);
    for (int n = 0; n < 3; ++n) {
      std::vector<uint8_t>& bytes = operands[random() % 3];
      const float odd[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 1e30f};
      Put(&bytes, static_cast<int64_t>(random() % (bytes.size() / 4)), odd[random() % 4]);
    }
    Check(s, operands, runner_);
    if (HasFatalFailure()) return;
  }
}

// The last tile of rows is moved back until it is whole: what it computes again must not have been
// overwritten by what it is added to.
TEST_F(AttentionTest, AddsToAnOperandThatDies) {
  const AttentionShape s{.heads = 8, .groups = 8, .queries = 100, .keys = 200, .channels = 32};
  std::mt19937 random(3);
  Builder b;
  const Tensor q = b.Param(DType::kFloat32, {s.batch, s.heads, s.queries, s.channels}, "q");
  const Tensor k = b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "k");
  const Tensor v = b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "v");
  const Tensor residual = (q * 2.0).Contiguous();
  const Tensor y = (q.ScaledDotProductAttention(k, v) + residual).Contiguous();
  b.Output(y.Flip({-1}) + y, "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Slots operands = Operands(s, random);
  Slots want = operands, got = operands;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(Root(plan), want, &budget).ok());
  const absl::Status status = runner_->Run(Root(plan), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Difference(DType::kFloat32, false, want[3], got[3]), "");
}

// Bytes that the programs of a target keep for each thread.
struct Cost {
  size_t launches = 0;
  int64_t arena = 0, kept = 0;
  int bounded = 0;  // loops whose end is computed
};

Cost CostOf(const AttentionShape& s, const Target& target) {
  Cost cost;
  const absl::StatusOr<Plan> plan = Attention(s);
  EXPECT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  const auto schedule = ScheduleGraph(Root(plan), &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  cost.launches = schedule->kernels.size();
  cost.arena = schedule->arena_bytes;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) continue;
    int64_t bytes = 0;
    for (uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      if (u.is(Op::kBuffer)) bytes += BytesOf(u.dtype(), u.arg(2));
      if (u.is(Op::kRange) && !u.src(0).is_const()) ++cost.bounded;
    }
    cost.kept = std::max(cost.kept, bytes);
  }
  return cost;
}

TEST_F(AttentionTest, IsOneLaunchWithLittleMemory) {
  constexpr int64_t kMost = int64_t{4} << 20;  // bytes, for each of two threads
  for (const int64_t length : {128, 200, 512, 1000, 1024, 2048, 4096, 8192}) {
    for (const auto& [heads, groups] : {std::pair(12, 12), std::pair(32, 8)}) {
      for (const Seen seen : {Seen::kAll, Seen::kCausal, Seen::kWindow, Seen::kAlibi}) {
        for (const int vector_bytes : {32, 64}) {
          AttentionShape s{.heads = heads, .groups = groups, .seen = seen};
          s.queries = s.keys = length;
          SCOPED_TRACE(Print(s));
          const Cost cost = CostOf(s, Cpu(vector_bytes));
          EXPECT_EQ(cost.launches, 1u);
          EXPECT_LE(cost.arena + 2 * cost.kept, 2 * kMost);
          // Loops over keys end where a mask of positions hides the rest; a bias is added to
          // scores that could be infinite, so it hides none.
          EXPECT_EQ(cost.bounded > 0, seen == Seen::kCausal || seen == Seen::kWindow);
        }
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
