// Mutants of lowered programs against the proof of independence. A mutation changes what keeps
// threads apart in the final program: a term of a store's index is dropped, two of its coefficients
// are exchanged, a constant, an offset or the end of a range changes, a gate or a barrier is
// dropped or stands elsewhere, a wait does or leaves another number of copies running, a tile goes
// to another place of its ring, or the ring has other places. The interpreter, which watches all
// accesses to memory and knows nothing of proofs, says whether two threads then touch the same
// element. Each mutant in which they do must have a pair that the proof does not accept. For that,
// the iterations that a processor's threads share are made workgroups, which nothing orders.
//
// Each test draws from a seed that it prints; TELEGRAD_SEED repeats it. TELEGRAD_CASES asks for
// more than the usual 120 random graphs, and for as many times as many mutants in the other tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/independence_proof.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/moves/move.h"
#include "engine/lowering/test_product.h"
#include "engine/reference/program_eval.h"
#include "engine/rewrite/generalize.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/mutator.h"
#include "tests/conformance/random_graph.h"

namespace telegrad {
namespace {

using testing::Mutation;
using testing::Mutator;

constexpr int64_t kMostSteps = 200'000;         // of the interpreter
constexpr int64_t kMostStepsOfOne = 3'000'000;  // of one workgroup of an attention
constexpr int64_t kUsualCases = 120;
constexpr Mutation kKinds[] = {
    testing::kDropTerm, testing::kSwapTerms, testing::kConstant, testing::kOffset,
    testing::kRangeEnd, testing::kGate, testing::kRunEnd,
    // of memory that threads share
    testing::kBarrier, testing::kBarrierMoved, testing::kStride, testing::kWaitCount,
    testing::kWaitMoved, testing::kPlace, testing::kPlaces, testing::kDepth};
constexpr size_t kFirstOfShared = 7;

// The program with workgroups in place of the iterations that threads share.
Program AsWorkgroups(const Program& program) {
  Program out = program;
  const auto graph = std::make_shared<Graph>();
  out.order.clear();
  std::vector<uint32_t> copied(program.graph->size(), 0);
  for (const uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    std::vector<UOp> src;
    for (const uint32_t s : u.src_ids()) src.push_back(graph->at(copied[s]));
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    if (u.is(Op::kRange) && arg[1] == static_cast<int64_t>(AxisType::kThread)) {
      arg[1] = static_cast<int64_t>(AxisType::kGroup);
    }
    copied[id] = graph->Make(u.op(), u.dtype(), src, arg).id();
    if (std::ranges::find(out.order, copied[id]) == out.order.end()) {
      out.order.push_back(copied[id]);
    }
  }
  out.graph = graph;
  return out;
}

struct Counts {
  int64_t mutants = 0;
  int64_t races = 0;
  int64_t refused = 0;  // without a race
};

class RaceMutants : public ::testing::Test {
 protected:
  // An i64 may be a size of the run.
  absl::Status Interpret(const Program& program, bool one) {
    std::vector<std::vector<uint8_t>> bytes;
    for (const Program::Argument& a : program.arguments) {
      bytes.emplace_back(static_cast<size_t>(BytesOf(a.dtype, a.elements)), uint8_t{1});
      if (a.dtype != DType::kInt64) continue;
      for (size_t i = 0; i < bytes.back().size(); i += sizeof(int64_t)) {
        const auto value = static_cast<int64_t>(random_() % 80);
        std::memcpy(bytes.back().data() + i, &value, sizeof(value));
      }
    }
    const std::vector<std::span<uint8_t>> spans(bytes.begin(), bytes.end());
    const auto groups = static_cast<uint64_t>(program.iterations);
    const auto begin = one ? static_cast<int64_t>(random_() % groups) : 0;
    return reference::Run(program, spans, begin, one ? begin + 1 : program.iterations,
                          {.max_steps = one ? kMostStepsOfOne : kMostSteps});
  }

  void Seed() {
    seed_ = static_cast<uint64_t>(FromEnvironment("TELEGRAD_SEED", std::random_device{}()));
    std::cout << "seed " << seed_ << "\n";
    random_.seed(seed_);
  }
  static int64_t FromEnvironment(const char* name, int64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
  }
  static int64_t Cases() { return FromEnvironment("TELEGRAD_CASES", kUsualCases); }
  static int Times(int64_t usual) { return static_cast<int>(usual * Cases() / kUsualCases); }

  // Two accesses by threads that nothing orders; without a barrier, one of which came too early.
  static bool IsRace(const absl::Status& status, Mutation kind) {
    const absl::string_view text = status.message();
    const bool order = kind == testing::kBarrier || kind == testing::kBarrierMoved;
    return status.code() == absl::StatusCode::kInternal &&
           (text.find("something that orders the two") != text.npos ||
            (order && text.find("has not been written") != text.npos));
  }

  // Of kinds from `first` on; with `one`, in a workgroup that is drawn.
  void MutateProgram(const Program& program, int times, size_t first = 0, bool one = false) {
    Budget whole_budget;
    const auto proof = ProveIndependence(program, &whole_budget, /*local=*/true);
    ASSERT_TRUE(proof.ok() && proof->unproved.empty()) << proof.status() << "\n" << Print(program);
    ASSERT_TRUE(proof->unproved_local.empty()) << Print(program);
    const Program whole = AsWorkgroups(program);
    if (!Verify(whole).ok() || !Interpret(whole, one).ok()) {  // too long; or tiles overlap
      ++left_out_;
      return;
    }
    ++programs_;
    const bool ended = std::ranges::any_of(program.order, [&](uint32_t id) {
      const UOp u = program.graph->at(id);
      return u.is(Op::kRange) && !u.src(0).is_const();
    });
    Mutator mutator(program, &random_);
    for (int i = 0; i < times; ++i) {
      size_t k = first + random_() % (std::size(kKinds) - first);
      if (kKinds[k] == testing::kRunEnd && !ended) k = 0;
      const std::optional<Program> mutant = mutator.Mutate(kKinds[k]);
      if (!mutant || !Verify(*mutant).ok()) continue;
      Budget budget;
      const auto report = ProveIndependence(*mutant, &budget, /*local=*/true);
      ASSERT_TRUE(report.ok()) << report.status();
      const bool accepted = report->unproved.empty() && report->unproved_local.empty();
      const absl::Status status = Interpret(AsWorkgroups(*mutant), one);
      Counts& c = counts_[k];
      ++c.mutants;
      of_ended_ += ended ? 1 : 0;
      if (IsRace(status, kKinds[k])) {
        ++c.races;
        ASSERT_FALSE(accepted) << testing::kMutationNames[kKinds[k]] << ": " << status << "\n"
                               << Print(*mutant);
      } else {
        c.refused += accepted ? 0 : 1;
      }
    }
  }

  static std::vector<Target> Targets() {
    Target processor;
    processor.vector_bytes = 16;
    processor.vector_registers = 16;
    processor.threads = 2;
    return {processor, OpenClTarget(2), *NvidiaTarget(8, 0, 4, 163840),
            *NvidiaTarget(9, 0, 4, 232448), AmdTarget(*FindAmdProcessor("gfx942"), 4)};
  }

  void MutateGraph(UOp sink, int times, std::span<const VarValue> variables = {}) {
    for (const Target& target : Targets()) {
      Budget budget;
      const auto schedule = ScheduleGraph(sink, variables, &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      for (const ScheduledKernel& kernel : schedule->kernels) {
        Budget own;
        const auto program = Lower(kernel.graph, target, "kernel", &own);
        ASSERT_TRUE(program.ok()) << program.status();
        MutateProgram(*program, times);
        if (HasFatalFailure()) return;
      }
    }
  }

  // Whether iterations of threads that store one element store the same; nullopt where one fails.
  std::optional<bool> LeaveTheSame(const Program& program) {
    std::vector<std::vector<uint8_t>> given;
    for (const Program::Argument& a : program.arguments) {
      given.emplace_back(static_cast<size_t>(BytesOf(a.dtype, a.elements)));
      if (a.dtype != DType::kFloat32) return std::nullopt;
      for (size_t i = 0; i + sizeof(float) <= given.back().size(); i += sizeof(float)) {
        const float value = 0.5F + static_cast<float>(random_() % 1024) / 1024;
        std::memcpy(given.back().data() + i, &value, sizeof(value));
      }
    }
    std::vector<std::map<size_t, uint32_t>> left(given.size());
    for (int64_t n = 0; n < program.iterations; ++n) {
      // What it stores is the same whatever was there.
      std::vector<std::vector<uint8_t>> results[2];
      for (const int k : {0, 1}) {
        results[k] = given;
        std::vector<std::span<uint8_t>> spans;
        for (size_t a = 0; a < given.size(); ++a) {
          if (program.arguments[a].written) {
            std::ranges::fill(results[k][a], static_cast<uint8_t>(k == 0 ? 0x21 : 0x43));
          }
          spans.emplace_back(results[k][a]);
        }
        if (!reference::Run(program, spans, n, n + 1, {.max_steps = kMostSteps}).ok()) {
          return std::nullopt;
        }
      }
      for (size_t a = 0; a < given.size(); ++a) {
        if (!program.arguments[a].written) continue;
        for (size_t i = 0; i + sizeof(float) <= given[a].size(); i += sizeof(float)) {
          uint32_t x, y;
          std::memcpy(&x, results[0][a].data() + i, sizeof(x));
          std::memcpy(&y, results[1][a].data() + i, sizeof(y));
          if (x != y) continue;
          const uint32_t before = left[a].try_emplace(i, x).first->second;
          const auto is_nan = [](uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; };
          if (before != x && !(is_nan(before) && is_nan(x))) return false;
        }
      }
    }
    return true;
  }

  struct Repeats {
    int64_t programs = 0, mutants = 0, equal = 0, others = 0;
  };
  // Mutants of a program that stores elements twice: where the values are shown to be equal, they
  // are.
  void MutateRepeats(const Program& program, int times, Repeats* counts) {
    ++counts->programs;
    Mutator mutator(program, &random_);
    const Mutation kinds[] = {testing::kOffset,    testing::kConstant, testing::kDropTerm,
                              testing::kSwapTerms, testing::kGate,     testing::kRangeEnd};
    for (int i = 0; i < times; ++i) {
      const auto mutant = mutator.Mutate(kinds[random_() % std::size(kinds)]);
      if (!mutant || !Verify(*mutant).ok()) continue;
      Budget budget;
      const auto report = ProveIndependence(*mutant, &budget);
      ASSERT_TRUE(report.ok()) << report.status();
      const std::optional<bool> same = LeaveTheSame(*mutant);
      if (!same) continue;
      ++counts->mutants;
      const bool shown = report->unproved.empty() && report->declared == 0;
      ASSERT_TRUE(*same || !shown) << Print(*mutant);
      counts->equal += shown ? 1 : 0;
      counts->others += *same ? 0 : 1;
    }
  }
  static void Report(const Repeats& counts) {
    std::cout << counts.mutants << " mutants of " << counts.programs << " programs: of "
              << counts.equal << " the values are shown to be equal, of " << counts.others
              << " they differ\n";
    EXPECT_GT(counts.programs, 3);
    EXPECT_GT(counts.equal, 0);
    EXPECT_GT(counts.others, 0);
  }

  void Report(int64_t at_least) {
    int64_t mutants = 0, races = 0;
    for (size_t k = 0; k < std::size(kKinds); ++k) {
      const Counts& c = counts_[k];
      std::cout << testing::kMutationNames[kKinds[k]] << ": " << c.mutants << " mutants, "
                << c.races << " have races and are refused, " << c.refused
                << " have none and are\n";
      mutants += c.mutants;
      races += c.races;
    }
    std::cout << mutants << " mutants of " << programs_ << " programs, " << of_ended_
              << " of them with loops that the run ends, " << races << " have races; " << left_out_
              << " programs are too long, or repeat elements\n";
    EXPECT_GE(mutants, at_least);
    EXPECT_GT(races, at_least / 20);
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::array<Counts, std::size(kKinds)> counts_;
  int64_t programs_ = 0, left_out_ = 0, of_ended_ = 0;
};

TEST_F(RaceMutants, OfRandomGraphs) {
  Seed();
  const auto cases = static_cast<uint64_t>(Cases());
  for (uint64_t seed = seed_; seed < seed_ + cases; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    random_.seed(seed);
    Graph graph;
    const testing::RandomGraph random =
        testing::MakeRandomGraph(random_, 6 + static_cast<int>(seed % 20), &graph);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    MutateGraph(random.sink, 40, testing::VariablesOf(random.sink, random.variables));
    if (HasFatalFailure()) return;
  }
  Report(Times(4000));
}

// Products whose tiles pass through rings: through the registers of threads, as copies that run
// beside them, and to matrix instructions of several warps.
TEST_F(RaceMutants, OfPipelines) {
  Seed();
  const char* const kTile =
      "LOCAL r0 4 axis 1, UPCAST r0 2, LOCAL r1 4 axis 0, VECTORIZE r1 4, UNROLL r2 4, STAGE r2 4";
  const char* const kMatrices =
      "LOCAL r0 2 axis 0, TENSORCORE r0 16, TENSORCORE r1 16, TENSORCORE r2 16, STAGE r2 16";
  const struct {
    DType dtype;
    int64_t m, n, k;
    const char* moves;
    int rings;  // as many tiles where copies run beside threads; 2 at most where they do not
  } kCases[] = {{DType::kFloat32, 16, 16, 24, kTile, 5},
                {DType::kFloat32, 13, 14, 21, kTile, 4},
                {DType::kFloat16, 32, 16, 64, kMatrices, 4}};
  const std::vector<Target> targets = Targets();
  for (const Target& target : std::span(targets).subspan(1)) {
    for (const auto& c : kCases) {
      if (c.moves == kMatrices && target.arch == "opencl-c") continue;
      Builder b;
      const Tensor x = b.Param(c.dtype, {c.m, c.k}, "x"), y = b.Param(c.dtype, {c.k, c.n}, "y");
      b.Output(x.MatMul(y), "out");
      const auto plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      Budget budget;
      const auto schedule =
          ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok() && schedule->kernels.size() == 1) << schedule.status();
      for (int ring = 1; ring <= (target.async_bytes == 0 ? 2 : c.rings); ++ring) {
        std::string moves = c.moves;
        if (ring > 1) moves += " ring " + std::to_string(ring);
        moves += ", GROUP r0, GROUP r1";
        SCOPED_TRACE(target.arch + ": " + moves);
        Budget own;
        const auto program =
            Lower(schedule->kernels[0].graph, target, "kernel", &own, nullptr, {.moves = moves});
        ASSERT_TRUE(program.ok()) << program.status();
        MutateProgram(*program, Times(150), ring % 2 == 0 ? kFirstOfShared : 0);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(left_out_, 0);
  Report(Times(2500));
}

// Attentions: blocks of keys and values in local memory, as a ring or filled anew, weights of one
// nest that the next one reads, and what threads exchange of rows.
TEST_F(RaceMutants, OfAttentions) {
  Seed();
  const struct {
    DType dtype;
    int64_t queries, keys, channels;
    bool causal;
  } kForms[] = {{DType::kFloat32, 20, 40, 8, false},
                {DType::kFloat16, 16, 150, 16, true},
                {DType::kFloat32, 17, 70, 16, true},
                {DType::kFloat16, 1, 100, 16, false}};
  const std::vector<Target> targets = Targets();
  for (const auto& form : kForms) {
    Builder b;
    const auto param = [&](int64_t rows, const char* name) {
      return b.Param(form.dtype, {16, rows, form.channels}, name);
    };
    const Tensor q = param(form.queries, "q"), k = param(form.keys, "k"), v = param(form.keys, "v");
    b.Output(q.ScaledDotProductAttention(k, v, {}, form.causal), "y");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const Target& target : std::span(targets).subspan(1)) {
      SCOPED_TRACE(target.arch);
      Budget budget;
      const auto schedule =
          ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      for (const ScheduledKernel& kernel : schedule->kernels) {
        Budget own;
        LoweringReport report;
        const auto program = Lower(kernel.graph, target, "kernel", &own, &report);
        ASSERT_TRUE(program.ok()) << program.status();
        EXPECT_EQ(report.refused, "");
        MutateProgram(*program, Times(40), kFirstOfShared, /*one=*/true);
        if (HasFatalFailure()) return;
      }
    }
  }
  Report(Times(120));
}

// Whole tiles, several of them in an iteration of the shared loop, and tails.
TEST_F(RaceMutants, OfGeneralForms) {
  Seed();
  Builder b;
  const Tensor n = b.Variable("n", 1, 72);
  const auto param = [&](const Shape& shape) {
    return b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
  };
  const auto rows = [&](int64_t columns) { return param({72, columns}).Narrow(0, 0, n); };
  const auto columns = [&](int64_t rows) { return param({rows, 72}).Narrow(1, 0, n); };
  const std::vector<Tensor> values = {
      rows(24).MatMul(param({24, 20})),
      param({9, 24}).MatMul(columns(24)),
      columns(9).MatMul(rows(20)),
      columns(11).Softmax(),
      rows(9).Max({0}),
      columns(7) * 2,
      param({72}).Narrow(0, 0, n) * 3,
      rows(20).MatMul(columns(20)),
  };
  for (size_t i = 0; i < values.size(); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const UOp sink = plan->graph.root();
  Budget budget;
  const auto form = Generalize(sink, RangesOf(sink), &budget);
  ASSERT_TRUE(form.ok()) << form.status();
  MutateGraph(form->graph.root(), Times(160));
  Report(Times(2200));
  EXPECT_GT(of_ended_, Times(1100));
}

// Of elements that several iterations of a processor's threads store: what each of them leaves when
// it runs alone. Values that the proof says are equal must be, in each mutant, but for NaNs.
TEST_F(RaceMutants, OfRepeatedElements) {
  Seed();
  Builder b;
  const auto param = [&](const Shape& shape) {
    return b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
  };
  const std::vector<Tensor> values = {
      param({1, 2, 9, 9}).Conv(param({5, 2, 3, 3}), {.pads = {1}}),
      param({13, 17}).MatMul(param({17, 11})),
      param({1, 40}).MatMul(param({40, 37})),
      param({11, 19}).Softmax(),
      param({13, 21}).Sum({0}),
      param({41}).Exp2() + param({41}),
      param({7, 13}).Transpose() * 3,
  };
  for (size_t i = 0; i < values.size(); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Repeats repeats;
  for (const int bytes : {4, 16, 32, 64}) {
    Target target;
    target.vector_bytes = bytes;
    target.vector_registers = 16;
    target.threads = 5;
    Budget budget;
    const auto schedule = ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    for (const ScheduledKernel& kernel : schedule->kernels) {
      Budget own;
      const auto program = Lower(kernel.graph, target, "kernel", &own);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto whole = ProveIndependence(*program, &own);
      ASSERT_TRUE(whole.ok() && whole->unproved.empty()) << whole.status();
      if (whole->repeated == 0) continue;
      MutateRepeats(*program, Times(150), &repeats);
      if (HasFatalFailure()) return;
    }
  }
  Report(repeats);
}

// Products of which workers share the loops over rows and over columns.
TEST_F(RaceMutants, OfLoopsSharedTogether) {
  Seed();
  const Target target = Targets()[0];
  Repeats repeats;
  for (int i = 0; i < Times(80); ++i) {
    constexpr int64_t kSizes[] = {4, 6, 8, 9, 12, 13};
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random_() % n); };
    const int64_t m = kSizes[below(6)], n = kSizes[below(6)];
    std::string moves;
    if (const int64_t rows = 1 + below(4); rows > 1) StrAppend(&moves, "UPCAST r0 ", rows, ", ");
    if (const int64_t columns = 1 + below(3); columns > 1) {
      StrAppend(&moves, "UPCAST r1 ", columns, ", ");
    }
    if (below(3) == 0) moves += "VECTORIZE r1 2, ";
    moves += below(2) == 0 ? "THREAD r0, THREAD r1" : "THREAD r1, THREAD r0";
    if (below(3) == 0) moves += ", BLOCK r2 2";
    SCOPED_TRACE(moves);
    Budget budget;
    const auto program =
        Lower(TestProduct(m, n, 6), target, "kernel", &budget, nullptr, {.moves = moves});
    if (absl::StrContains(program.status().message(), "one iteration is left") ||
        absl::StrContains(program.status().message(), "one block is left")) {
      continue;
    }
    ASSERT_TRUE(program.ok()) << program.status();
    const auto whole = ProveIndependence(*program, &budget);
    ASSERT_TRUE(whole.ok() && whole->unproved.empty()) << whole.status();
    if (whole->repeated > 0) {
      MutateRepeats(*program, 40, &repeats);
    } else {
      MutateProgram(*program, 100);
    }
    if (HasFatalFailure()) return;
  }
  Report(repeats);
  Report(Times(400));
}

TEST_F(RaceMutants, OfLayers) {
  Seed();
  Builder b;
  const auto param = [&](const Shape& shape) {
    return b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
  };
  const std::vector<Tensor> values = {
      param({1, 2, 7, 9}).Conv(param({3, 2, 3, 3}), {.pads = {1}}),
      param({1, 1, 7, 7}).MaxPool({3, 3}, {.stride = {2}, .pads = {1}}),
      param({5, 7}).MatMul(param({7, 9})),
      param({16, 16}).MatMul(param({16, 20})),
      param({3, 20}).Softmax(),
      param({4, 70}).Sum({1}),
      param({70, 4}).Sum({0}),
      param({6, 8}).Flip({0}).Pad({1, 2, 0, 3}).Transpose(),
  };
  for (size_t i = 0; i < values.size(); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  MutateGraph(plan->graph.root(), Times(420));
  Report(Times(6000));
}

}  // namespace
}  // namespace telegrad
