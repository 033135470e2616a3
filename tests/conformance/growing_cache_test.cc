// Attention to the part of a cache that is in use, whose length a run gives, on targets with
// workgroups: one kernel for all lengths, whose work grows with the length and not with the cache,
// whatever lies beyond it. Its results are those of the interpreter of the graph at each length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/execution/unread_parts.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/rewrite/generalize.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {
namespace {

struct Case {
  const char* name;
  DType dtype;
  int64_t heads, groups, queries, capacity, channels;
  bool causal = false;  // of the last queries of the text so far
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr Case kCases[] = {
    {"f32", DType::kFloat32, 16, 16, 1, 512, 32},
    {"f16_of_groups", DType::kFloat16, 16, 4, 1, 500, 64},
    {"bf16_of_four_queries", DType::kBFloat16, 8, 8, 4, 400, 64, true},
    {"f16_of_tiles", DType::kFloat16, 8, 8, 16, 256, 32},
    {"f16_of_causal_tiles", DType::kFloat16, 8, 4, 32, 256, 32, true},
    {"f32_of_tiles", DType::kFloat32, 8, 8, 16, 300, 16, true},
};

absl::StatusOr<Plan> Attention(const Case& c) {
  Builder b;
  const Tensor q = b.Param(c.dtype, {1, c.heads, c.queries, c.channels}, "q");
  const Tensor k = b.Param(c.dtype, {1, c.groups, c.capacity, c.channels}, "k");
  const Tensor v = b.Param(c.dtype, {1, c.groups, c.capacity, c.channels}, "v");
  const Tensor used = b.Variable("used", c.queries, c.capacity);
  Tensor mask;
  if (c.causal) {
    const Tensor at = b.Iota(DType::kInt64, c.queries).Unsqueeze(-1) + (used - c.queries);
    mask = b.Iota(DType::kInt64, c.capacity).Narrow(0, 0, used).Le(at);
  }
  b.Output(q.ScaledDotProductAttention(k.Narrow(2, 0, used), v.Narrow(2, 0, used), mask, false, {},
                                       c.groups != c.heads),
           "y");
  return b.Finish();
}

struct Compiled {
  Schedule schedule;
  int64_t slot = 0;
};

absl::StatusOr<Compiled> Compile(const Plan& plan, const Target& target) {
  Budget budget;
  Compiled out;
  const UOp root = plan.graph.root();
  TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(root, RangesOf(root), &budget));
  TG_ASSIGN_OR_RETURN(out.schedule,
                      ScheduleGraph(form.graph.root(), &budget, ScheduleOptions::For(target)));
  LeaveOutUnread(&out.schedule);
  out.slot = form.slot;
  return out;
}

// Random numbers; those of a cache beyond `used` are infinite or none.
void Fill(std::vector<uint8_t>* bytes, const Case& c, std::mt19937& random, int64_t used) {
  const int64_t size = ByteSize(c.dtype);
  const int64_t n = static_cast<int64_t>(bytes->size()) / size;
  for (int64_t i = 0; i < n; ++i) {
    double x = static_cast<double>(random() % 65) / 32 - 1;
    if (i / c.channels % c.capacity >= used && n > c.heads * c.queries * c.channels) {
      x = i % 2 == 0 ? std::numeric_limits<double>::infinity()
                     : std::numeric_limits<double>::quiet_NaN();
    }
    const int64_t raw = ScalarToMemory(c.dtype, ScalarFromDouble(c.dtype, x));
    std::memcpy(bytes->data() + i * size, &raw, static_cast<size_t>(size));
  }
}

// The instructions of a run, whose results are compared.
absl::StatusOr<int64_t> Steps(const Case& c, const Plan& plan, const Compiled& compiled,
                              const Target& target, int64_t used) {
  const UOp root = plan.graph.root();
  std::mt19937 random(static_cast<uint32_t>(used));
  Slots want = EmptySlots(root);
  for (size_t i = 0; i < 3; ++i) Fill(&want[i], c, random, used);
  Slots got = want;
  Budget budget;
  TG_RETURN_IF_ERROR(reference::Evaluate(root, want, &budget, {{plan.variables[0].id, used}}));
  got.resize(static_cast<size_t>(compiled.slot));
  got.emplace_back(sizeof used);
  std::memcpy(got.back().data(), &used, sizeof used);
  int64_t steps = 0;
  TG_RETURN_IF_ERROR(RunSchedule(compiled.schedule, target, &got, nullptr, &steps));
  const std::string difference = Difference(c.dtype, false, want[3], got[3]);
  if (!difference.empty()) return Internal("at ", used, ": ", difference);
  return steps;
}

bool HasMatrixInstructions(const ScheduledKernel& kernel, const Target& target) {
  Budget budget;
  const auto program = Lower(kernel.graph, target, "attention", &budget);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() && std::ranges::any_of(program->order, [&](uint32_t id) {
           return program->graph->op(id) == Op::kMma;
         });
}

// The interpreter takes seconds for each tile of a workgroup, so they take turns.
std::vector<Target> Targets(const Case& c) {
  if (c.queries >= 16) return {*NvidiaTarget(9, 0, 132, 227 << 10)};
  return {*NvidiaTarget(9, 0, 132, 227 << 10), AmdTarget(*FindAmdProcessor("gfx942"), 304)};
}

class GrowingCache : public ::testing::TestWithParam<Case> {};

TEST_P(GrowingCache, WorkFollowsTheLength) {
  const Case& c = GetParam();
  const auto plan = Attention(c);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Case more = c;
  more.capacity *= 4;
  const auto long_plan = Attention(more);
  ASSERT_TRUE(long_plan.ok()) << long_plan.status();
  for (const Target& target : Targets(c)) {
    const auto compiled = Compile(*plan, target), longer = Compile(*long_plan, target);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(longer.ok()) << longer.status();
    EXPECT_EQ(compiled->schedule.kernels.size(), 1u);
    EXPECT_EQ(compiled->schedule.arena_bytes, 0);
    // Tiles of 16-bit floats are products of the matrix unit.
    const bool tiles = c.queries >= 16 && c.dtype != DType::kFloat32;
    EXPECT_EQ(HasMatrixInstructions(compiled->schedule.kernels[0], target), tiles);
    const auto all = Steps(c, *plan, *compiled, target, c.capacity);
    ASSERT_TRUE(all.ok()) << all.status();
    int64_t before = 0;
    for (const int64_t used : {c.queries, int64_t{63}, int64_t{200}, c.capacity - 1}) {
      const auto some = Steps(c, *plan, *compiled, target, used);
      ASSERT_TRUE(some.ok()) << some.status();
      EXPECT_GE(*some, before);
      before = *some;
      if (used < 64) EXPECT_LT(*some, *all * 3 / 5);
    }
    // As much where the cache is longer; but rows of so many keys are divided into four parts
    // (split_rows.h), each of which has a block of keys at least.
    const auto same = Steps(more, *long_plan, *longer, target, c.capacity);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_LT(*same, c.queries < 16 ? *all * 21 / 10 : *all * 21 / 20);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GrowingCache, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Too few workgroups, or so few channels that scores are cheaper computed twice: kernels that
// reduce up to the length.
TEST(ShortRows, AreReducedByKernelsOfTheirOwn) {
  for (const Case& c : {Case{"two heads", DType::kFloat32, 2, 2, 1, 300, 32},
                        Case{"eight channels", DType::kFloat32, 16, 16, 1, 300, 8}}) {
    const auto plan = Attention(c);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Target target = Targets(c)[0];
    const auto compiled = Compile(*plan, target);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_GT(compiled->schedule.arena_bytes, 0) << c.name;
    for (const int64_t used : {int64_t{1}, int64_t{50}, c.capacity}) {
      const auto steps = Steps(c, *plan, *compiled, target, used);
      EXPECT_TRUE(steps.ok()) << steps.status();
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
