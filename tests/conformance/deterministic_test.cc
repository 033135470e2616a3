// The order of float sums on a target with Target::deterministic: a row of a batch has the same
// bits whatever the batch, the number of threads and the moves are, for sums of every kind and a
// whole network, in machine code and in the interpreter. And without it, it has not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/choose/move_space.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/random_moves.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

// A graph of rows "x", of which each is computed for itself. The first dim of "x" and of the output
// is the batch.
struct Case {
  std::string name;
  std::function<Tensor(Builder&, int64_t batch)> value;
};

Tensor Rows(Builder& b, int64_t batch, Shape row) {
  row.insert(row.begin(), batch);
  return b.Param(DType::kFloat32, row, "x");
}

Tensor Weight(Builder& b, const Shape& shape, const char* name = "w") {
  return b.Param(DType::kFloat32, shape, name);
}

// By queries, keys and values, one after another. Which values of queries times keys are stored,
// and which are computed again, may differ between batches.
Tensor GradientsOfAttention(Builder& b, int64_t batch, int64_t keys, bool causal) {
  std::vector<Tensor> parts;
  const Tensor x = Rows(b, batch, {3, 2, keys, 12});
  for (int64_t i = 0; i < 3; ++i) parts.push_back(x.Slice(1, i, i + 1).Squeeze(1));
  const Tensor y = parts[0].ScaledDotProductAttention(parts[1], parts[2], {}, causal);
  const Tensor seed = Weight(b, {1, 2, keys, 12}).Expand({batch, 2, keys, 12});
  return Concat(Gradients(std::vector{y}, std::vector{seed}, parts), 1);
}

// The same by queries and keys as PyTorch spells them: what is subtracted from each row is a sum of
// products of two values that kernels may keep.
Tensor SpelledGradients(Builder& b, int64_t batch, int64_t keys) {
  const Tensor x = Rows(b, batch, {4, 2, keys, 16});
  std::vector<Tensor> of;
  for (int64_t i = 0; i < 4; ++i) of.push_back(x.Slice(1, i, i + 1).Squeeze(1));
  const Tensor weights = of[0].MatMul(of[1].Transpose(-1, -2)).Softmax();
  const Tensor terms = of[3].MatMul(of[2].Transpose(-1, -2));
  const Tensor scores = weights * (terms - (weights * terms).Sum({-1}, /*keepdim=*/true));
  const Tensor parts[] = {scores.MatMul(of[1]), scores.Transpose(-1, -2).MatMul(of[0])};
  return Concat(parts, 1);
}

// `n`: how long the sums are, about.
std::vector<Case> Cases(int64_t n) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::function<Tensor(Builder&, int64_t)> value) {
    cases.push_back({name, std::move(value)});
  };
  add("product", [n](Builder& b, int64_t batch) {
    return Rows(b, batch, {n + 3}).MatMul(Weight(b, {n + 3, 37})).Relu();
  });
  add("product with a transposed weight", [n](Builder& b, int64_t batch) {
    return Rows(b, batch, {n + 3}).MatMul(Weight(b, {21, n + 3}).Transpose());
  });
  add("convolution of 3 x 3", [n](Builder& b, int64_t batch) {
    const int64_t channels = std::max<int64_t>(4, n / 8);
    return Rows(b, batch, {channels, 12, 12})
        .Conv(Weight(b, {channels, channels, 3, 3}), {.pads = {1, 1, 1, 1}});
  });
  add("softmax", [n](Builder& b, int64_t batch) { return Rows(b, batch, {n + 5}).Softmax(); });
  add("layer norm",
      [n](Builder& b, int64_t batch) { return Rows(b, batch, {3, n + 1}).LayerNorm({-1}); });
  add("mean of squares", [n](Builder& b, int64_t batch) {
    const Tensor x = Rows(b, batch, {n + 9});
    return (x * x).Mean({1}, /*keepdim=*/true);
  });
  add("sum of an image",
      [n](Builder& b, int64_t batch) { return Rows(b, batch, {3, n / 4, 35}).Sum({2, 3}); });
  add("sum of columns",
      [n](Builder& b, int64_t batch) { return Rows(b, batch, {n + 2, 19}).Sum({1}); });
  // A product that is stored for one reader and computed again for another.
  add("product with several users", [n](Builder& b, int64_t batch) {
    const Tensor product = Rows(b, batch, {n}) * Weight(b, {n});
    return product + product.Sum({1}, /*keepdim=*/true);
  });
  add("attention", [n](Builder& b, int64_t batch) {
    const int64_t keys = n / 16 * 16 + 16, channels = 24;
    const Tensor q = Rows(b, batch, {2, keys, channels});
    const Tensor k = Weight(b, {1, 2, keys, channels}, "k").Expand({batch, 2, keys, channels});
    return q.ScaledDotProductAttention(k, k * 0.5, {}, /*causal=*/true);
  });
  for (const bool causal : {false, true}) {
    add(causal ? "gradients of a causal attention" : "gradients of an attention",
        [n, causal](Builder& b, int64_t batch) {
          return GradientsOfAttention(b, batch, n / 2 + 7, causal);
        });
  }
  add("gradients of an attention, spelled",
      [n](Builder& b, int64_t batch) { return SpelledGradients(b, batch, n / 2 + 8); });
  return cases;
}

Plan PlanOf(const Case& c, int64_t batch) {
  Builder b;
  b.Output(c.value(b, batch), "out");
  absl::StatusOr<Plan> plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << c.name << ": " << plan.status();
  return *std::move(plan);
}

// Row i of "x" is the same in every batch.
Slots Operands(const Plan& plan) {
  Slots slots;
  for (const Slot& slot : plan.slots) {
    std::mt19937 random(static_cast<uint32_t>(slot.name.size()) * 7919 +
                        static_cast<uint32_t>(slot.name.back()));
    std::normal_distribution<float> normal;
    EXPECT_EQ(slot.dtype, DType::kFloat32) << slot.name;
    std::vector<float> values(static_cast<size_t>(NumElements(slot.shape)));
    for (float& x : values) x = normal(random);
    std::vector<uint8_t>& bytes = slots.emplace_back(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return slots;
}

const std::vector<uint8_t>& Output(const Plan& plan, const Slots& slots) {
  const auto at = std::ranges::find(plan.slots, std::string("out"), &Slot::name);
  return slots[static_cast<size_t>(at - plan.slots.begin())];
}

// `vector_bytes`: of the registers that are used; 0: all.
Target HostWith(bool deterministic, int threads, int vector_bytes = 0) {
  Target target = HostTarget(threads);
  target.deterministic = deterministic;
  if (vector_bytes != 0 && vector_bytes < target.vector_bytes) {
    target.vector_bytes = vector_bytes;
    target.vector_registers = 16;
  }
  return target;
}

// Compiles for this processor and runs.
class Machine {
 public:
  Machine(bool deterministic, int threads, int vector_bytes = 0)
      : runner_(*testing::CpuRunner::Open({}, HostWith(deterministic, threads, vector_bytes))) {}

  std::vector<uint8_t> Run(const Plan& plan) {
    Slots slots = Operands(plan);
    const absl::Status status = runner_->Run(plan.graph.root(), {}, &slots);
    EXPECT_TRUE(status.ok()) << status;
    return Output(plan, slots);
  }

 private:
  const std::unique_ptr<testing::CpuRunner> runner_;
};

// "" where the first rows of the larger batch are those of the smaller one.
std::string Compare(const std::vector<uint8_t>& large, const std::vector<uint8_t>& small) {
  if (small.size() > large.size()) return "more bytes";
  for (size_t i = 0; i + sizeof(float) <= small.size(); i += sizeof(float)) {
    if (std::memcmp(large.data() + i, small.data() + i, sizeof(float)) == 0) continue;
    float x, y;
    std::memcpy(&x, large.data() + i, sizeof(float));
    std::memcpy(&y, small.data() + i, sizeof(float));
    return StrCat("element ", i / sizeof(float), ": ", x, " and ", y, ", ", x - y, " apart");
  }
  return "";
}

constexpr int64_t kMostRows = 16;  // with two threads; the others are compared with these
struct Ways {
  int threads;
  std::vector<int64_t> batches;
  int vector_bytes = 0;
};

// What differs between batches, numbers of threads and, in a fixed order, vectors.
std::string FirstDifference(const Case& c, bool deterministic) {
  const std::vector<uint8_t> want = Machine(deterministic, 2).Run(PlanOf(c, kMostRows));
  for (const auto& [threads, batches, vector_bytes] :
       {Ways{1, {1, 3}}, Ways{2, {1, 2, 8}}, Ways{3, {1}}, Ways{2, {2}, 32}}) {
    Machine machine(deterministic, threads, vector_bytes);
    for (const int64_t batch : batches) {
      const std::string difference = Compare(want, machine.Run(PlanOf(c, batch)));
      if (!difference.empty()) {
        return StrCat(c.name, ", batch ", batch, ", ", threads, " threads, vectors of ",
                      vector_bytes, " bytes: ", difference);
      }
    }
  }
  return "";
}

TEST(Deterministic, ARowHasTheSameBitsInEveryBatch) {
  for (const Case& c : Cases(256)) EXPECT_EQ(FirstDifference(c, true), "");
}

TEST(Deterministic, WithoutItARowHasNot) {
  std::vector<std::string> differences;
  for (const Case& c : Cases(256)) {
    const std::string difference = FirstDifference(c, false);
    if (!difference.empty()) differences.push_back(difference);
  }
  EXPECT_FALSE(differences.empty());
}

// Of a million numbers and a few more, in parts that threads share.
TEST(Deterministic, AMeanToAScalarHasTheSameBitsWithAnyThreads) {
  const Case mean{"mean of 1000003", [](Builder& b, int64_t batch) {
                    return Rows(b, batch, {1'000'003}).Mean({1}, /*keepdim=*/true);
                  }};
  const std::vector<uint8_t> want = Machine(true, 2).Run(PlanOf(mean, 3));
  for (const int threads : {1, 2, 3}) {
    Machine machine(true, threads);
    for (const int64_t batch : {1, 2}) {
      EXPECT_EQ(Compare(want, machine.Run(PlanOf(mean, batch))), "") << threads << " threads";
    }
  }
}

// Of which a convolution is worth transforming without the option.
TEST(Deterministic, AConvolutionIsTheSumOfItsOwnProducts) {
  const Case convolution{"convolution", [](Builder& b, int64_t batch) {
                           return Rows(b, batch, {64, 28, 28})
                               .Conv(Weight(b, {64, 64, 3, 3}), {.pads = {1, 1, 1, 1}})
                               .Relu();
                         }};
  const std::vector<uint8_t> want = Machine(true, 2).Run(PlanOf(convolution, 3));
  Machine one(true, 1);
  EXPECT_EQ(Compare(want, one.Run(PlanOf(convolution, 1))), "");
  // What is scheduled with and without it, where products are slow.
  EXPECT_EQ(ScheduleOptions::For(HostWith(true, 2)).multiply_adds, 0);
  EXPECT_GT(ScheduleOptions::For(HostWith(false, 2)).multiply_adds, 0);
  const auto kernels = [graph = PlanOf(convolution, 3).graph](int64_t multiply_adds) {
    Budget budget;
    const auto schedule = ScheduleGraph(graph.root(), &budget,
                                        {.private_bytes = 1 << 20, .multiply_adds = multiply_adds});
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    return schedule.ok() ? schedule->kernels.size() : 0;
  };
  EXPECT_GT(kernels(1), kernels(0));
}

TEST(Deterministic, AWholeNetworkHasTheSameBitsInEveryBatch) {
  const auto file = ReadFile("tests/data/onnx/super_resolution_10/model.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan_of = [&](int64_t batch) {
    ImportOptions options;
    options.input_shapes["input"] = {batch, 1, 224, 224};
    const auto model = ImportOnnx(*file, options);
    EXPECT_TRUE(model.ok()) << model.status();
    Plan plan = model->plan;
    plan.slots[static_cast<size_t>(model->outputs.front().slot)].name = "out";
    return plan;
  };
  Machine two(true, 2), one(true, 1);
  const std::vector<uint8_t> want = two.Run(plan_of(3));
  EXPECT_EQ(Compare(want, one.Run(plan_of(1))), "");
  EXPECT_EQ(Compare(want, two.Run(plan_of(2))), "");
}

Target Processor(int vector_bytes) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = 2;
  target.cache_bytes = 16 << 10;
  target.deterministic = true;
  return target;
}

absl::StatusOr<std::string> RandomList(const FrozenGraph& kernel, const Target& target,
                                       std::span<const int32_t> weights, std::mt19937_64& rng,
                                       testing::RandomMoveCounts* counts) {
  Budget budget;
  TG_ASSIGN_OR_RETURN(MoveSpace space, MoveSpace::Open(kernel, target, weights, &budget));
  while (true) {
    TG_ASSIGN_OR_RETURN(const MoveList moves, testing::RandomMoves(space, rng, counts));
    TG_ASSIGN_OR_RETURN(MovedKernel moved, space.Add(moves));
    const absl::Status finished = space.Finish(std::move(moved)).status();
    if (absl::IsFailedPrecondition(finished)) continue;
    TG_RETURN_IF_ERROR(finished);
    return Print(moves);
  }
}

// The lists that a search tries are among these: edits that Apply accepts.
TEST(Deterministic, NoListOfMovesChangesABit) {
  constexpr int kLists = 50;
  testing::RandomMoveCounts counts;
  for (const Case& c : Cases(48)) {
    const Plan plan = PlanOf(c, 2);
    Slots want = Operands(plan);
    ASSERT_TRUE(testing::RunLowered(plan.graph.root(), Processor(64), {}, &want).ok()) << c.name;
    for (int i = 0; i < kLists; ++i) {
      std::mt19937_64 rng(static_cast<uint64_t>(i));
      const Target target = Processor(i % 3 == 0 ? 64 : i % 3 == 1 ? 32 : 4);
      std::string lists;
      const auto choose = [&](const FrozenGraph& kernel, const Target& t,
                              std::span<const int32_t> weights) -> absl::StatusOr<std::string> {
        TG_ASSIGN_OR_RETURN(const std::string list, RandomList(kernel, t, weights, rng, &counts));
        StrAppend(&lists, list, "\n");
        return list;
      };
      Slots got = Operands(plan);
      const absl::Status status = testing::RunLowered(plan.graph.root(), target, {}, &got, choose);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status << "\n" << lists;
      ASSERT_EQ(Compare(Output(plan, want), Output(plan, got)), "")
          << c.name << ", list " << i << ", vectors of " << target.vector_bytes << "\n"
          << lists;
    }
  }
  EXPECT_GT(counts.moves, counts.lists);
}

// Without a cache of its own a thread keeps nothing for itself: the rows of an attention, and what
// its gradients make of them, are stored.
TEST(Deterministic, WhatIsStoredChangesNoBit) {
  for (const Case& c : Cases(48)) {
    const Plan plan = PlanOf(c, 2);
    Slots want = Operands(plan), got = want;
    ASSERT_TRUE(testing::RunLowered(plan.graph.root(), Processor(64), {}, &want).ok()) << c.name;
    Target stores = Processor(64);
    stores.cache_bytes = 0;
    ASSERT_TRUE(testing::RunLowered(plan.graph.root(), stores, {}, &got).ok()) << c.name;
    EXPECT_EQ(Compare(Output(plan, want), Output(plan, got)), "") << c.name;
  }
}

// docs/numerics.md: a sum of n terms, added in any order, is at most (n - 1) u S / (1 - n u) from
// the true one, where S is the sum of the magnitudes and u is 2^-24; n u S where terms are
// products.
TEST(Numerics, SumsStayWithinTheStatedBoundInAnyOrder) {
  constexpr int kLists = 30;
  constexpr int64_t kBatch = 2, kTerms = 150, kColumns = 9;
  const double u = std::ldexp(1.0, -24), n = kTerms;
  const double bound = n * u / (1 - n * u);
  const Case cases[] = {{"product",
                         [](Builder& b, int64_t batch) {
                           return Rows(b, batch, {kTerms}).MatMul(Weight(b, {kTerms, kColumns}));
                         }},
                        {"sum", [](Builder& b, int64_t batch) {
                           return Rows(b, batch, {kTerms, kColumns}).Sum({1});
                         }}};
  testing::RandomMoveCounts counts;
  double most = 0;
  for (const Case& c : cases) {
    const Plan plan = PlanOf(c, kBatch);
    const bool product = plan.slots.size() == 3;
    const Slots given = Operands(plan);
    const auto at = [&](size_t slot, int64_t i) {
      float x;
      std::memcpy(&x, given[slot].data() + static_cast<size_t>(i) * sizeof(float), sizeof(float));
      return static_cast<double>(x);
    };
    for (int i = 0; i < kLists; ++i) {
      std::mt19937_64 rng(static_cast<uint64_t>(i));
      Target target = Processor(i % 2 == 0 ? 64 : 16);
      target.deterministic = false;
      const auto choose = [&](const FrozenGraph& kernel, const Target& t,
                              std::span<const int32_t> weights) {
        return RandomList(kernel, t, weights, rng, &counts);
      };
      Slots slots = given;
      const absl::Status status =
          testing::RunLowered(plan.graph.root(), target, {}, &slots, choose);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      for (int64_t row = 0; row < kBatch; ++row) {
        for (int64_t column = 0; column < kColumns; ++column) {
          double want = 0, magnitudes = 0;
          for (int64_t k = 0; k < kTerms; ++k) {
            const double term = product ? at(0, row * kTerms + k) * at(1, k * kColumns + column)
                                        : at(0, (row * kTerms + k) * kColumns + column);
            want += term;
            magnitudes += std::abs(term);
          }
          float got;
          std::memcpy(&got,
                      Output(plan, slots).data() +
                          static_cast<size_t>(row * kColumns + column) * sizeof(float),
                      sizeof(float));
          const double error = std::abs(static_cast<double>(got) - want) / magnitudes;
          ASSERT_LE(error, bound) << c.name << ", list " << i;
          most = std::max(most, error);
        }
      }
    }
  }
  EXPECT_GT(most, 0) << "exact sums would say nothing of the bound";
  std::printf("at most %.3f of the bound\n", most / bound);
}

}  // namespace
}  // namespace telegrad
