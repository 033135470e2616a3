// Mutants of lowered programs against the bounds proof. A mutation changes one thing of the final
// linear program (an offset, the end of a range, the width of vectors, a gate, a constant, the size
// of a buffer, the width of an index); the interpreter, which knows nothing of proofs, says whether
// the mutant then leaves its memory. Each one that does must have an access that the proof does not
// accept.
//
// TELEGRAD_SEED and TELEGRAD_CASES choose the random graphs, as in differential_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <random>

#include "engine/execution/unread_parts.h"
#include "engine/frontend/nn/models.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/rewrite/generalize.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/mutator.h"
#include "tests/conformance/random_graph.h"

namespace telegrad {
namespace {

using testing::Mutation;
using testing::Mutator;

constexpr int64_t kMostSteps = 5'000'000;  // of the interpreter

struct Counts {
  int64_t mutants = 0;
  int64_t leave = 0;     // their memory, in the interpreter
  int64_t refused = 0;   // of those that stay inside
  int64_t accepted = 0;  // of those that stay inside
};

bool LeavesMemory(const absl::Status& status) {
  const std::string text(status.message());
  return status.code() == absl::StatusCode::kInternal && text.find(", which has ") != text.npos &&
         text.find("has not been written") == text.npos;
}

class Mutants : public ::testing::Test {
 protected:
  // Integers small, negative, and now and then at the ends of their type: data decides indices.
  std::vector<std::vector<uint8_t>> Buffers(const Program& program) {
    std::vector<std::vector<uint8_t>> out;
    for (const Program::Argument& a : program.arguments) {
      const int64_t width = ByteSize(a.dtype);
      std::vector<uint8_t> bytes(static_cast<size_t>(a.elements * width));
      for (int64_t i = 0; i < a.elements; ++i) {
        int64_t v = static_cast<int64_t>(random_() % 30) - 8;
        if (random_() % 16 == 0) v = random_() % 2 == 0 ? INT64_MIN : INT64_MAX;
        const int64_t raw = ScalarToMemory(a.dtype, ScalarFromInt(a.dtype, v));
        std::memcpy(bytes.data() + i * width, &raw, static_cast<size_t>(width));
      }
      out.push_back(std::move(bytes));
    }
    return out;
  }

  absl::Status Interpret(const Program& program) {
    std::vector<std::vector<uint8_t>> bytes = Buffers(program);
    const std::vector<std::span<uint8_t>> spans(bytes.begin(), bytes.end());
    // Numbers of the run that nothing bounds end loops late.
    return reference::Run(program, spans, 0, program.iterations, {.max_steps = kMostSteps});
  }

  template <typename Is>
  static bool HasAny(const Program& program, Is is) {
    return std::ranges::any_of(program.order,
                               [&](uint32_t id) { return is(program.graph->at(id)); });
  }

  static bool HasNarrowIndex(const Program& program) {
    return std::ranges::any_of(program.order, [&](uint32_t id) {
      const UOp u = program.graph->at(id);
      return u.is(Op::kIndex) && u.src(1).dtype() == DType::kInt32 && !u.src(1).is_const();
    });
  }

  static double Work(const Program& program) {
    double iterations = 1, work = 0;
    std::vector<double> outer;
    for (uint32_t id : program.order) {
      const UOp u = program.graph->at(id);
      work += iterations * static_cast<double>(std::max<int64_t>(1, NumElements(u.shape())));
      if (u.is(Op::kRange)) {
        outer.push_back(iterations);
        iterations *= static_cast<double>(std::max<int64_t>(u.src(0).vmax(), 1));
      } else if (u.is(Op::kEnd)) {
        iterations = outer.back();
        outer.pop_back();
      }
    }
    return work;
  }

  void MutateProgram(const Program& program, int times) {
    if (Work(program) > most_work_) return;  // each mutant is interpreted
    const bool narrow = HasNarrowIndex(program);
    const bool ended =
        HasAny(program, [](UOp u) { return u.is(Op::kRange) && !u.src(0).is_const(); });
    const bool pipelined = HasAny(program, [](UOp u) { return u.is(Op::kCopyAsync); });
    const bool split = HasAny(program, [](UOp u) { return u.is(Op::kShuffle); });
    Budget::Limits limits;
    limits.steps = INT64_MAX;
    limits.time = std::chrono::hours(24);
    Budget budget(limits);
    ASSERT_TRUE(ProveBounds(*program.graph, program.order, &budget)->unproved.empty());
    ++programs_;
    Mutator mutator(program, &random_);
    for (int i = 0; i < times; ++i) {
      Mutation kind = static_cast<Mutation>(random_() % testing::kMutations);
      if (kind == testing::kRunEnd && !ended) kind = testing::kOffset;
      const std::optional<Program> mutant = mutator.Mutate(kind);
      if (!mutant || !Verify(*mutant).ok()) continue;
      const bool accepted = ProveBounds(*mutant->graph, mutant->order, &budget)->unproved.empty();
      const absl::Status status = Interpret(*mutant);
      Counts& c = counts_[kind];
      ++c.mutants;
      of_narrow_ += narrow ? 1 : 0;
      of_ended_ += ended ? 1 : 0;
      of_pipelined_ += pipelined ? 1 : 0;
      of_split_ += split ? 1 : 0;
      if (LeavesMemory(status)) {
        ++c.leave;
        ASSERT_FALSE(accepted) << testing::kMutationNames[kind] << ": " << status << "\n"
                               << Print(*mutant);
      } else {
        ++(accepted ? c.accepted : c.refused);
      }
    }
  }

  // Processors with vectors of two sizes, one that indexes in 32 bits, and a GPU, which does so,
  // too.
  static std::vector<Target> Targets() {
    std::vector<Target> targets(3);
    for (Target& target : targets) {
      target.vector_bytes = 16;
      target.vector_registers = 16;
      target.threads = 2;
    }
    targets[1].vector_bytes = 64;
    targets[2].index_bits = 32;
    targets.push_back(OpenClTarget(2));
    return targets;
  }

  void MutateGraph(UOp sink, int times, std::span<const VarValue> variables = {}) {
    for (const Target& target : Targets()) {
      Budget budget;
      const auto schedule = ScheduleGraph(sink, variables, &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      MutateSchedule(*schedule, target, times);
      if (HasFatalFailure()) return;
    }
  }

  // The general forms of a graph with variables, whose loops end at numbers of the run.
  void MutateGeneral(UOp sink, std::span<const Target> targets, int times) {
    Budget budget;
    const auto form = Generalize(sink, RangesOf(sink), &budget);
    if (!form.ok()) return;  // it cannot be expressed
    for (const Target& target : targets) {
      Budget own;
      auto schedule = ScheduleGraph(form->graph.root(), &own, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      LeaveOutUnread(&*schedule);
      MutateSchedule(*schedule, target, times);
      if (HasFatalFailure()) return;
    }
  }

  // With these moves, where given.
  void MutateSchedule(const Schedule& schedule, const Target& target, int times,
                      const std::optional<std::string>& moves = std::nullopt) {
    for (const ScheduledKernel& kernel : schedule.kernels) {
      Budget budget;
      const auto program =
          Lower(kernel.graph, target, "kernel", &budget, nullptr, PassOptions{.moves = moves});
      ASSERT_TRUE(program.ok()) << program.status();
      MutateProgram(*program, times);
      if (HasFatalFailure()) return;
    }
  }

  void Report(int64_t at_least) {
    Counts all;
    for (int k = 0; k < testing::kMutations; ++k) {
      const Counts& c = counts_[k];
      std::cout << testing::kMutationNames[k] << ": " << c.mutants << " mutants, " << c.leave
                << " leave memory and are refused; of the others " << c.accepted << " accepted, "
                << c.refused << " refused\n";
      if (k != testing::kRunEnd)
        EXPECT_GT(c.leave, 0) << testing::kMutationNames[k];  // GPUs gate all that it ends
      all.mutants += c.mutants;
      all.leave += c.leave;
    }
    std::cout << all.mutants << " mutants of " << programs_ << " programs, " << all.leave
              << " leave memory; " << of_narrow_ << " of programs with indices of 32 bits, "
              << of_ended_ << " with loops that the run ends, " << of_pipelined_
              << " with copies that run beside"
              << " the threads, " << of_split_ << " with sums that threads share\n";
    EXPECT_GE(all.mutants, at_least);
    EXPECT_GE(of_narrow_, at_least / 4);
  }

  double most_work_ = 60'000;  // of a program that is tried
  std::mt19937_64 random_;
  std::array<Counts, testing::kMutations> counts_;
  int programs_ = 0;
  // Mutants of programs that have these; split: sums that the threads of a workgroup share.
  int64_t of_narrow_ = 0, of_ended_ = 0, of_pipelined_ = 0, of_split_ = 0;
};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

TEST_F(Mutants, OfRandomGraphs) {
  const int64_t first = FromEnvironment("TELEGRAD_SEED", 1);
  const int64_t cases = FromEnvironment("TELEGRAD_CASES", 1000);
  for (int64_t seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    random_.seed(static_cast<uint64_t>(seed));
    Graph graph;
    const auto vocabulary = seed % 2 == 0 ? testing::Vocabulary::kPlain : testing::Vocabulary::kAll;
    const testing::RandomGraph random =
        testing::MakeRandomGraph(random_, 6 + static_cast<int>(seed % 30), &graph, vocabulary);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    MutateGraph(random.sink, 12, testing::VariablesOf(random.sink, random.variables));
    if (!RangesOf(random.sink).empty()) MutateGeneral(random.sink, Targets(), 12);
    if (HasFatalFailure()) return;
  }
  Report(cases * 10);
}

// Convolutions, products, windows and lookups, small enough to interpret.
TEST_F(Mutants, OfLayers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  random_.seed(seed);
  Builder b;
  const auto param = [&](const Shape& shape, DType dtype = DType::kFloat32) {
    return b.Param(dtype, shape, "in" + std::to_string(b.slots().size()));
  };
  const std::vector<Tensor> values = {
      param({1, 2, 7, 9}).Conv(param({3, 2, 3, 3}), {.pads = {1}}),
      param({1, 2, 9, 8}).Conv(param({2, 2, 2, 3}), {.stride = {2}, .dilation = {2}, .pads = {2}}),
      param({1, 4, 5, 5}).Conv(param({4, 1, 3, 3}), {.pads = {1}}, 4),
      param({1, 1, 7, 7}).MaxPool({3, 3}, {.stride = {2}, .pads = {1}}),
      param({1, 1, 6, 6}).AvgPool({2, 2}, {.stride = {2}}),
      param({5, 7}).MatMul(param({7, 9})),
      param({16, 16}).MatMul(param({16, 20})),
      param({3, 20}).Softmax(),
      param({11, 3}).Gather(param({7}, DType::kInt32)),
      param({11, 3}).Gather(param({7}, DType::kInt64)),
      param({6, 8}).Flip({0}).Pad({1, 2, 0, 3}).Transpose(),
  };
  for (size_t i = 0; i < values.size(); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  MutateGraph(plan->graph.root(), 120);
  Report(2000);
}

// Whole tiles and tails, sums, attention and caches of sizes that the run gives.
TEST_F(Mutants, OfGeneralForms) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  random_.seed(seed);
  Builder b;
  const Tensor n = b.Variable("n", 1, 72);
  const auto param = [&](const Shape& shape) {
    return b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
  };
  const auto rows = [&](int64_t columns) { return param({72, columns}).Narrow(0, 0, n); };
  const auto columns = [&](int64_t rows) { return param({rows, 72}).Narrow(1, 0, n); };
  const auto heads = [&] { return param({1, 2, 72, 8}).Narrow(2, 0, n); };
  const Tensor cache = b.State(DType::kFloat32, {73, 8}, "cache", Init::Constant(0));
  const std::vector<Tensor> values = {
      rows(24).MatMul(param({24, 20})),
      param({9, 24}).MatMul(columns(24)),
      columns(9).MatMul(rows(20)),
      columns(11).Sum({1}),
      columns(11).Softmax(),
      rows(9).Max({0}),
      columns(7) * 2,
      param({72}).Narrow(0, 0, n) * 3,
      param({1, 2, 1, 8}).ScaledDotProductAttention(heads(), heads(), {}, /*causal=*/false),
      b.Assign(cache.Narrow(0, n, 1), param({1, 8})),
  };
  for (size_t i = 0; i < values.size(); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<Target> targets = Targets();
  targets.push_back(*NvidiaTarget(8, 0, 108, int64_t{160} << 10));
  most_work_ = 5e5;
  const int64_t times = FromEnvironment("TELEGRAD_CASES", 1000) / 10;
  MutateGeneral(plan->graph.root(), targets, static_cast<int>(times));
  Report(20 * times);
  EXPECT_GE(of_ended_, 10 * times);
  EXPECT_GT(counts_[testing::kRunEnd].leave, 0);
}

// Operands that pass through a ring of copies which run beside the threads, sums that threads
// share, and products of matrix instructions; of fixed sizes that tiles do not divide, and of ones
// that the run gives.
TEST_F(Mutants, OfFormsForWorkgroups) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  random_.seed(seed);
  const Target target = *NvidiaTarget(8, 0, 108, int64_t{160} << 10);
  most_work_ = 2e7;
  const int64_t times = FromEnvironment("TELEGRAD_CASES", 1000) / 20;
  const std::string tile = "LOCAL r0 8 axis 1, UPCAST r0 4, LOCAL r1 8 axis 0, VECTORIZE r1 4, ";
  const std::string_view rings[] = {"STAGE r2 8", "STAGE r2 8 ring 2", "STAGE r2 8 ring 3",
                                    "STAGE r2 8 ring 4"};
  for (const bool given : {false, true}) {
    const auto plan_of = [&](auto make) {
      Builder b;
      const Tensor n = b.Variable("n", 1, 40);
      const auto param = [&](const Shape& shape, bool part) {
        const Tensor all = b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
        return part && given ? all.Narrow(0, 0, n) : all;
      };
      b.Output(make(param), "out");
      return *b.Finish();
    };
    const auto mutate = [&](const Plan& plan, const std::optional<std::string>& moves) {
      Budget budget;
      const auto form = Generalize(plan.graph.root(), RangesOf(plan.graph.root()), &budget);
      ASSERT_TRUE(form.ok()) << form.status();
      const auto schedule =
          ScheduleGraph(form->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      MutateSchedule(*schedule, target, static_cast<int>(times), moves);
    };
    const Plan product =
        plan_of([](auto param) { return param({40, 20}, true).MatMul(param({20, 36}, false)); });
    for (const std::string_view ring : rings) {
      mutate(product, tile + "UNROLL r2 8, " + std::string(ring) + ", GROUP r0, GROUP r1");
      if (HasFatalFailure()) return;
    }
    mutate(plan_of([](auto param) { return param({40, 30}, true).Sum({0}); }),
           "LOCAL r1 32 axis 0, GROUP r0");
    if (HasFatalFailure()) return;
    mutate(plan_of([](auto param) { return param({40, 70}, true).Softmax(); }), std::nullopt);
    if (HasFatalFailure()) return;
  }
  Report(5 * times);
  EXPECT_GE(of_pipelined_, 2 * times);
  EXPECT_GE(of_split_, times);
  EXPECT_GE(of_ended_, 2 * times);
}

TEST_F(Mutants, OfATrainingStep) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  random_.seed(seed);
  const auto plan = DigitsCnn{}.TrainStep(2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  most_work_ = 1e6;  // few and large kernels
  MutateGraph(plan->graph.root(), 30);
  Report(500);
}

}  // namespace
}  // namespace telegrad
