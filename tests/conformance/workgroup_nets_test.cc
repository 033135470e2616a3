// Small networks, their training steps included, lowered for GPUs: all kernels together leave what
// the evaluator of tensor graphs leaves.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "engine/frontend/nn/models.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/nn_attention.h"
#include "engine/frontend/nn/nn_norms.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/compare.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

// State as it begins; for inputs numbers in [-1, 1) and small integers.
RandomGraph GraphOf(const Plan& plan) {
  std::mt19937_64 rng(1);
  RandomGraph out;
  out.sink = plan.graph.root();
  for (const Slot& slot : plan.slots) {
    const int64_t n = NumElements(slot.shape);
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(slot.dtype, n)));
    if (slot.content != nullptr || slot.init.kind != Init::kNone) {
      const auto value = InitialValue(slot);
      EXPECT_TRUE(value.ok()) << value.status();
      if (value.ok()) std::memcpy(bytes.data(), value->bytes.data(), bytes.size());
    } else if (slot.role == SlotRole::kInput) {
      const auto size = static_cast<size_t>(ByteSize(slot.dtype));
      for (int64_t i = 0; i < n; ++i) {
        const auto steps = static_cast<double>(rng() % 2048);
        const int64_t word = IsFloat(slot.dtype)
                                 ? ScalarFromDouble(slot.dtype, steps / 1024 - 1)
                                 : ScalarFromInt(slot.dtype, static_cast<int64_t>(steps) % 8);
        const int64_t raw = ScalarToMemory(slot.dtype, word);
        std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &raw, size);
      }
    }
    out.slots.push_back(std::move(bytes));
    out.dtypes.push_back(slot.dtype);
    out.exact.push_back(false);
  }
  return out;
}

void ExpectAgreement(const absl::StatusOr<Plan>& plan) {
  ASSERT_TRUE(plan.ok()) << plan.status();
  const RandomGraph graph = GraphOf(*plan);
  for (const int processors : {1, 132}) {
    const Target target = *NvidiaTarget(9, 0, processors, 232448);
    EXPECT_EQ("",
              testing::Compare(graph,
                               [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
                                 return testing::RunLowered(sink, target, variables, slots);
                               }))
        << processors << " processors";
  }
}

TEST(WorkgroupNets, AConvolutionalNetworkIsTrainedAndEvaluated) {
  ExpectAgreement(DigitsCnn{}.TrainStep(1));
  ExpectAgreement(DigitsCnn{}.Eval(2));
}

TEST(WorkgroupNets, ABlockOfATransformer) {
  constexpr int64_t kChannels = 32;
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {2, 24, kChannels}, "x");
  const nn::LayerNorm first(&b, "first", kChannels), second(&b, "second", kChannels);
  const nn::MultiHeadAttention attention(&b, "attention", kChannels, 4);
  const nn::Linear up(&b, "up", kChannels, 2 * kChannels),
      down(&b, "down", 2 * kChannels, kChannels);
  const Tensor y = x.Add(attention(first(x), {}, /*causal=*/true));
  b.Output(y.Add(down(up(second(y)).Gelu())), "y");
  ExpectAgreement(b.Finish());
}

// What an attention may be: heads of groups, any number of queries and keys, and what is seen.
struct AttentionForm {
  DType dtype = DType::kFloat32;
  int64_t heads = 8, groups = 8, queries = 32, keys = 48, channels = 32;
  bool causal = false, masked = false, clipped = false;
  bool infinite = false;  // a value of the last key, which a causal mask hides from most
  bool emptied = false;   // weights are 0 in rows that see nothing
};

absl::StatusOr<Plan> PlanOf(const AttentionForm& f) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  Builder b;
  const Tensor q = b.Param(f.dtype, {f.heads, f.queries, f.channels}, "q");
  const Tensor k = b.Param(f.dtype, {f.groups, f.keys, f.channels}, "k");
  const Tensor v = b.Param(f.dtype, {f.groups, f.keys, f.channels}, "v");
  const Tensor mask = b.Param(DType::kInt32, {f.queries, f.keys}, "mask");
  if (f.emptied) {
    const Tensor scores = q.Cast(DType::kFloat32).MatMul(k.Cast(DType::kFloat32).Transpose());
    const Tensor seen = b.Iota(DType::kInt32, f.queries).Unsqueeze(-1).FloorMod(5).Eq(3);
    const Tensor shown = seen.Where(kHidden, scores), most = shown.Max({-1}, true);
    const Tensor shift = f.clipped ? most.Gt(5.0).Where(most, 2.0) : most;
    const Tensor weights = ((shown - shift) * 1.5).Exp2(), sum = weights.Sum({-1}, true);
    const Tensor kept = most.Eq(kHidden).Where(0.0, weights / sum);
    b.Output(kept.MatMul(v.Cast(DType::kFloat32)).Cast(f.dtype), "y");
    return b.Finish();
  }
  if (!f.clipped) {
    const Tensor seen = f.masked ? mask.Lt(5) : Tensor();  // of 8 numbers; rows may see nothing
    b.Output(q.ScaledDotProductAttention(k, v, seen, f.causal, {}, f.heads != f.groups), "y");
    return b.Finish();
  }
  // Another shift than the maximum, and a second result for each row.
  const Tensor scores = q.Cast(DType::kFloat32).MatMul(k.Cast(DType::kFloat32).Transpose());
  const Tensor seen = b.Iota(DType::kInt32, f.queries).Unsqueeze(-1).FloorMod(5).Eq(3);
  const Tensor shown = seen.Where(kHidden, scores);
  const Tensor most = shown.Max({-1}, true), shift = most.Gt(1.0).Where(most, 1.0);
  const Tensor weights = ((shown - shift) * 1.5).Exp2(), sum = weights.Sum({-1}, true);
  const Tensor y = (weights * 0.5 / (sum + 1.0)).MatMul(v.Cast(DType::kFloat32));
  b.Output(y.Cast(f.dtype), "y");
  return b.Finish();
}

TEST(WorkgroupNets, AttentionOnEveryKindOfWorkgroup) {
  constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16, kBF16 = DType::kBFloat16;
  const AttentionForm forms[] = {
      {.dtype = kF32},
      {.dtype = kF16, .causal = true},
      {.dtype = kBF16, .heads = 8, .groups = 2, .queries = 33, .keys = 65, .channels = 24},
      {.dtype = kF32, .heads = 8, .groups = 4, .queries = 37, .keys = 70, .causal = true},
      {.dtype = kF16, .queries = 150, .keys = 150, .causal = true},
      {.dtype = kF16, .queries = 150, .keys = 150, .causal = true, .infinite = true},
      {.dtype = kF32, .queries = 80, .keys = 100, .channels = 20, .causal = true, .infinite = true},
      {.dtype = kF32, .queries = 17, .keys = 100, .channels = 130},
      {.dtype = kF16, .keys = 100, .masked = true},
      {.dtype = kF32, .keys = 70, .channels = 20, .masked = true},
      {.dtype = kF16, .keys = 80, .clipped = true},
      {.dtype = kF32, .queries = 40, .keys = 80, .clipped = true},
      {.dtype = kF16, .heads = 16, .groups = 16, .queries = 1, .keys = 300, .channels = 64},
      {.dtype = kF32, .queries = 5, .keys = 70, .channels = 23, .masked = true},
      {.dtype = kBF16, .queries = 9, .keys = 90, .causal = true, .infinite = true},
      {.dtype = kF32, .queries = 15, .keys = 80, .clipped = true},
      {.dtype = kF32, .queries = 40, .keys = 80, .emptied = true},
      {.dtype = kF32, .queries = 5, .keys = 80, .emptied = true},
      {.dtype = kF32, .queries = 40, .keys = 80, .clipped = true, .emptied = true},
      {.dtype = kF32, .queries = 5, .keys = 80, .clipped = true, .emptied = true},
  };
  for (const AttentionForm& form : forms) {
    const auto plan = PlanOf(form);
    ASSERT_TRUE(plan.ok()) << plan.status();
    RandomGraph graph = GraphOf(*plan);
    if (form.infinite) {
      std::vector<uint8_t>& v = graph.slots[2];
      const auto size = static_cast<size_t>(ByteSize(form.dtype));
      const int64_t word = ScalarFromDouble(form.dtype, std::numeric_limits<double>::infinity());
      const int64_t raw = ScalarToMemory(form.dtype, word);
      std::memcpy(v.data() + v.size() - 3 * size, &raw, size);
    }
    for (const char* arch : {"sm_90a", "gfx942", "gfx1100", "gfx1201", "invented"}) {
      const Target target = arch == std::string_view("sm_90a") ? *NvidiaTarget(9, 0, 1, 232448)
                            : arch == std::string_view("invented")
                                ? TargetOf(TargetKind::kInvented)
                                : AmdTarget(*FindAmdProcessor(arch), 1);
      Budget budget;
      const auto schedule =
          ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      EXPECT_EQ(schedule->kernels.size(), 1u) << arch;
      LoweringReport report;
      EXPECT_TRUE(Lower(schedule->kernels[0].graph, target, "k", &budget, &report).ok());
      EXPECT_EQ(report.refused, "") << arch << ", " << (&form - forms);
      EXPECT_EQ(schedule->arena_bytes, 0) << arch;
      EXPECT_EQ("",
                testing::Compare(graph,
                                 [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
                                   return testing::RunLowered(sink, target, variables, slots);
                                 }))
          << arch << ", " << (&form - forms);
    }
  }
}

// With what threads exchange of rows, and of whether hidden values are finite: as many columns as
// leave little beside the operands.
TEST(WorkgroupNets, AttentionKeepsToLocalMemory) {
  for (const char* arch : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    const Target target = AmdTarget(*FindAmdProcessor(arch), 1);
    for (int64_t values = 160; values <= 256; values += 8) {
      Builder b;
      const Tensor q = b.Param(DType::kFloat16, {8, 100, 256}, "q");
      const Tensor k = b.Param(DType::kFloat16, {8, 8192, 256}, "k");
      const Tensor v = b.Param(DType::kFloat16, {8, 8192, values}, "v");
      b.Output(q.ScaledDotProductAttention(k, v, {}, /*causal=*/true), "y");
      const auto plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      Budget budget;
      const auto schedule =
          ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      ASSERT_EQ(schedule->kernels.size(), 1u);
      LoweringReport report;
      const auto program = Lower(schedule->kernels[0].graph, target, "k", &budget, &report);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(report.refused, "") << arch << ", " << values;
      int64_t bytes = 0;
      for (const uint32_t id : program->order) {
        const UOp u = program->graph->at(id);
        const bool local = u.is(Op::kBuffer) && u.space() == AddressSpace::kLocal;
        if (local)
          bytes += (BytesOf(u.dtype(), u.elements()) + 15) / 16 * 16;  // as they are aligned
      }
      EXPECT_LE(bytes, target.local_bytes) << arch << ", " << values;
    }
  }
}

TEST(WorkgroupNets, LayersOf16BitFloats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Builder b;
    const Tensor x = b.Param(dtype, {48, 64}, "x");
    const nn::Linear up(&b, "up", 64, 96, {.dtype = dtype}),
        down(&b, "down", 96, 40, {.dtype = dtype});
    b.Output(down(up(x).Relu()).Softmax(), "y");
    ExpectAgreement(b.Finish());
  }
}

TEST(WorkgroupNets, WordsByTheirNumbers) {
  Builder b;
  const Tensor words = b.Param(DType::kInt32, {3, 7}, "words");
  const nn::Embedding embedding(&b, "embedding", 50, 20);
  b.Output(embedding(words).Sum({1}).Softmax(), "y");
  ExpectAgreement(b.Finish());
}

}  // namespace
}  // namespace telegrad
