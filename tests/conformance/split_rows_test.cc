// Attention of few queries to many keys on targets with workgroups: the keys of each row are
// divided among workgroups, and a second kernel joins their parts. Both together compute what the
// interpreter of the graph does, whatever a mask hides.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {
namespace {

enum class Mask : uint8_t { kNone, kCausal, kOneRowHidden, kFewShown };

struct Case {
  const char* name;
  DType dtype;
  int64_t batch, heads, groups, queries, keys, channels;
  int64_t parts;  // expected, of 132 processors; 1: one kernel
  Mask mask = Mask::kNone;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr Case kCases[] = {
    {"f32", DType::kFloat32, 1, 16, 16, 1, 1024, 32, 2},
    {"f16_of_groups", DType::kFloat16, 1, 16, 4, 1, 2048, 32, 4},
    {"bf16_of_two_texts", DType::kBFloat16, 2, 8, 2, 1, 1024, 64, 2},
    {"f32_of_three_queries", DType::kFloat32, 1, 8, 8, 3, 1536, 32, 2},
    {"f32_causal", DType::kFloat32, 1, 8, 8, 3, 1024, 32, 2, Mask::kCausal},
    {"f32_with_a_hidden_row", DType::kFloat32, 1, 8, 8, 2, 1024, 32, 2, Mask::kOneRowHidden},
    {"f16_with_few_keys_shown", DType::kFloat16, 1, 16, 16, 1, 1024, 32, 2, Mask::kFewShown},
    {"few_keys", DType::kFloat32, 1, 16, 16, 1, 512, 32, 1},
    {"odd_keys", DType::kFloat32, 1, 16, 16, 1, 1025, 32, 1},
    {"enough_rows", DType::kFloat32, 1, 44, 44, 3, 1024, 32, 1},
};

Target Hopper() { return *NvidiaTarget(9, 0, 132, 227 << 10); }

absl::StatusOr<Plan> Attention(const Case& c) {
  Builder b;
  const Tensor q = b.Param(c.dtype, {c.batch, c.heads, c.queries, c.channels}, "q");
  const Tensor k = b.Param(c.dtype, {c.batch, c.groups, c.keys, c.channels}, "k");
  const Tensor v = b.Param(c.dtype, {c.batch, c.groups, c.keys, c.channels}, "v");
  Tensor mask;
  if (c.mask != Mask::kNone) {
    mask = b.Param(DType::kBool, {c.queries, c.keys}, "mask");
  }
  b.Output(q.ScaledDotProductAttention(k, v, mask, false, {}, c.groups != c.heads), "y");
  return b.Finish();
}

bool Shows(const Case& c, int64_t query, int64_t key) {
  switch (c.mask) {
    case Mask::kCausal:
      return key <= c.keys - c.queries + query;
    case Mask::kOneRowHidden:
      return query != 0;
    case Mask::kFewShown:  // which are in one part alone
      return key == 6 || key == 1000;
    default:
      return true;
  }
}

Slots Operands(const Case& c, UOp root, uint32_t seed) {
  Slots slots = EmptySlots(root);
  std::mt19937 random(seed);
  const int64_t size = ByteSize(c.dtype);
  for (size_t slot = 0; slot < 3; ++slot) {
    for (size_t at = 0; at < slots[slot].size(); at += static_cast<size_t>(size)) {
      const double x = static_cast<double>(random() % 65) / 16 - 2;
      const int64_t raw = ScalarToMemory(c.dtype, ScalarFromDouble(c.dtype, x));
      std::memcpy(slots[slot].data() + at, &raw, static_cast<size_t>(size));
    }
  }
  for (int64_t i = 0; c.mask != Mask::kNone && i < c.queries * c.keys; ++i) {
    slots[3][static_cast<size_t>(i)] = Shows(c, i / c.keys, i % c.keys) ? 1 : 0;
  }
  return slots;
}

class SplitRows : public ::testing::TestWithParam<Case> {};

TEST_P(SplitRows, ComputeWhatTheWholeOnesCompute) {
  const Case& c = GetParam();
  const auto plan = Attention(c);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Budget budget;
  const UOp root = plan->graph.root();
  const Target target = Hopper();
  const auto schedule = ScheduleGraph(root, {}, &budget, ScheduleOptions::For(target));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->kernels.size(), c.parts == 1 ? 1u : 2u);
  const auto program = Lower(schedule->kernels[0].graph, target, "rows", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  const int64_t rows = c.batch * c.heads * c.queries;
  EXPECT_EQ(program->iterations, rows * c.parts);
  // Of each part two numbers and a sum for each channel, each in memory of its own.
  const int64_t numbers = c.parts == 1 ? 0 : rows * c.parts * 4;
  EXPECT_GE(schedule->arena_bytes, numbers * (2 + c.channels));
  EXPECT_LE(schedule->arena_bytes, numbers * (2 + c.channels) + (c.parts == 1 ? 0 : 3 * 256));
  for (const uint32_t seed : {1u, 2u}) {
    Slots want = Operands(c, root, seed), got = want;
    // A value that is shown, and one that a mask may hide.
    if (seed == 2) {
      for (const int64_t key : {int64_t{6}, c.keys - 1}) {
        const int64_t raw = ScalarToMemory(
            c.dtype, ScalarFromDouble(c.dtype, std::numeric_limits<double>::infinity()));
        std::memcpy(&want[2][static_cast<size_t>(key * c.channels * ByteSize(c.dtype))], &raw,
                    static_cast<size_t>(ByteSize(c.dtype)));
      }
      got = want;
    }
    ASSERT_EQ(reference::Evaluate(root, want, &budget), absl::OkStatus());
    ASSERT_EQ(RunSchedule(*schedule, target, &got), absl::OkStatus());
    EXPECT_EQ(Difference(c.dtype, false, want.back(), got.back()), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitRows, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace telegrad::testing
