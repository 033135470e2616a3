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
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <random>

#include "engine/base/checked.h"
#include "engine/frontend/nn/models.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/random_graph.h"

namespace telegrad {
namespace {

enum Kind { kOffset, kRangeEnd, kWidth, kGate, kConstant, kBuffer, kNarrow, kNumKinds };
constexpr std::string_view kNames[] = {"offset",   "range end", "width",    "gate",
                                       "constant", "buffer",    "narrowing"};

struct Counts {
  int64_t mutants = 0;
  int64_t leave = 0;     // their memory, in the interpreter
  int64_t refused = 0;   // of those that stay inside
  int64_t accepted = 0;  // of those that stay inside
};

class Mutator {
 public:
  Mutator(const Program& program, std::mt19937_64* random)
      : from_(program), g_(*program.graph), random_(*random) {}

  // The program with one random change of that kind; nullopt where there is nothing to change.
  std::optional<Program> Mutate(Kind kind) {
    victim_ = Victim(kind);
    if (!victim_.valid()) return std::nullopt;
    out_ = from_;
    graph_ = std::make_shared<Graph>();
    out_.order.clear();
    placed_.clear();
    copied_.assign(g_.size(), 0);
    for (uint32_t id : from_.order) copied_[id] = Copy(kind, g_.at(id)).id();
    out_.graph = graph_;
    if (!graph_->status().ok()) return std::nullopt;
    return std::move(out_);
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t Delta() {
    static constexpr int64_t kDeltas[] = {1, -1, 1, -1, 2, -2, 4, -4, 8, 15, -16, 1000};
    return kDeltas[Below(std::size(kDeltas))];
  }
  static bool IsIndexConst(UOp u) {
    return u.is_const() && (u.dtype() == DType::kInt64 || u.dtype() == DType::kInt32);
  }

  bool Suits(Kind kind, UOp u) const {
    switch (kind) {
      case kOffset:
      case kNarrow:
        return u.is(Op::kIndex);
      case kRangeEnd:
        return u.is(Op::kRange) && u.src(0).is_const();
      case kWidth:
        return u.is(Op::kIota);
      case kGate:
        return u.is(Op::kIndex) && u.num_src() == 3;
      case kConstant:
        return Is(u.op(), kAlu) && u.num_src() == 2 &&
               (IsIndexConst(u.src(0)) || IsIndexConst(u.src(1)));
      default:
        return u.is(Op::kParam) && from_.arguments[u.arg(0)].elements > 1;
    }
  }

  UOp Victim(Kind kind) {
    std::vector<UOp> all;
    for (uint32_t id : from_.order) {
      if (Suits(kind, g_.at(id))) all.push_back(g_.at(id));
    }
    return all.empty() ? UOp() : all[Below(static_cast<int64_t>(all.size()))];
  }

  UOp Place(UOp u) {
    if (u.valid() && std::ranges::find(placed_, u.id()) == placed_.end()) {
      placed_.push_back(u.id());
      out_.order.push_back(u.id());
    }
    return u;
  }

  // A copy of `u` in the mutant; mutated where it is the victim.
  UOp Copy(Kind kind, UOp u) {
    std::vector<UOp> src;
    for (uint32_t s : u.src_ids()) src.push_back(graph_->at(copied_[s]));
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    // Every IOTA of one width is one node: widening it widens all of its vectors.
    if (u == victim_) Change(kind, u, &src, &arg);
    return Place(graph_->Make(u.op(), u.dtype(), src, arg));
  }

  void Change(Kind kind, UOp u, std::vector<UOp>* src, std::vector<int64_t>* arg) {
    switch (kind) {
      case kOffset:
        (*src)[1] = Do(Op::kAdd, (*src)[1], Delta());
        break;
      case kNarrow:
        (*src)[1] = Narrowed((*src)[1]);
        break;
      case kRangeEnd: {
        const int64_t end = u.src(0).const_word() + 1 + Below(3);
        (*src)[0] = Place(graph_->Const(u.dtype(), end));
        const AxisType type{u.arg(1)};
        if (type == AxisType::kThread || type == AxisType::kGroup) {
          out_.iterations = out_.iterations / u.src(0).const_word() * end;
        }
        break;
      }
      case kWidth:
        (*arg)[0] = Below(2) == 0 ? 2 * u.arg(0) : u.arg(0) + 1;
        break;
      case kGate:
        Weaken(u.src(2), src);
        break;
      case kConstant: {
        const int at = IsIndexConst(u.src(1)) ? 1 : 0;
        const int64_t c = u.src(at).const_word();
        int64_t changed;  // wraps where it overflows
        CheckedAdd(c, Below(4) == 0 ? c : Below(8) == 0 ? HighBits() : Delta(), &changed);
        (*src)[at] = Place(graph_->Const(u.src(at).dtype(), changed));
        break;
      }
      default: {
        int64_t& elements = out_.arguments[u.arg(0)].elements;
        elements -= 1 + Below(std::min<int64_t>(elements - 1, 8));
        (*arg)[2] = elements;
      }
    }
  }

  UOp Do(Op op, UOp x, int64_t y) {
    return Place(graph_->Make(op, {x, Place(graph_->Const(x.dtype(), y))}));
  }
  UOp Cast(DType to, UOp x) { return Place(graph_->Make(Op::kCast, to, {x})); }

  // What makes an i32 wrap that it is added to, or nearly.
  int64_t HighBits() {
    const int64_t high = int64_t{1} << (29 + Below(4));
    return (Below(2) == 0 ? high : -high) - Below(4);
  }

  // The index by way of a type that is too narrow for what is computed there.
  UOp Narrowed(UOp index) {
    switch (Below(4)) {
      case 0:
        return Cast(DType::kInt32, Do(Op::kAdd, Cast(DType::kInt64, index), HighBits()));
      case 1:
        return Do(Op::kAdd, Cast(DType::kInt32, index), HighBits());
      case 2: {
        const UOp product = Do(Op::kMul, Cast(DType::kInt32, index), HighBits() + 1 + Below(4));
        return Do(Op::kFloorDiv, product, 1 + Below(8));
      }
      default: {
        const UOp sum = Do(Op::kAdd, index, 120 + Below(30));
        return Do(Op::kAdd, Cast(DType::kInt32, Cast(DType::kInt8, sum)), -120);
      }
    }
  }

  // Drops the whole gate or one of its conditions.
  void Weaken(UOp gate, std::vector<UOp>* src) {
    if (!gate.is(Op::kAnd) || Below(3) == 0) {
      src->pop_back();
    } else {
      (*src)[2] = graph_->at(copied_[gate.src(static_cast<int>(Below(2))).id()]);
    }
  }

  const Program& from_;
  const Graph& g_;
  std::mt19937_64& random_;
  UOp victim_;
  Program out_;
  std::shared_ptr<Graph> graph_;
  std::vector<uint32_t> copied_, placed_;
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
    return reference::Run(program, spans, 0, program.iterations);
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
        iterations *= static_cast<double>(u.src(0).const_word());
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
    Budget::Limits limits;
    limits.steps = INT64_MAX;
    Budget budget(limits);
    ASSERT_TRUE(ProveBounds(*program.graph, program.order, &budget)->unproved.empty());
    ++programs_;
    Mutator mutator(program, &random_);
    for (int i = 0; i < times; ++i) {
      const Kind kind = static_cast<Kind>(random_() % kNumKinds);
      const std::optional<Program> mutant = mutator.Mutate(kind);
      if (!mutant || !Verify(*mutant).ok()) continue;
      const bool accepted = ProveBounds(*mutant->graph, mutant->order, &budget)->unproved.empty();
      const absl::Status status = Interpret(*mutant);
      Counts& c = counts_[kind];
      ++c.mutants;
      of_narrow_ += narrow ? 1 : 0;
      if (LeavesMemory(status)) {
        ++c.leave;
        ASSERT_FALSE(accepted) << kNames[kind] << ": " << status << "\n" << Print(*mutant);
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
      for (const ScheduledKernel& kernel : schedule->kernels) {
        const auto program = Lower(kernel.graph, target, "kernel", &budget);
        ASSERT_TRUE(program.ok()) << program.status();
        MutateProgram(*program, times);
        if (HasFatalFailure()) return;
      }
    }
  }

  void Report(int64_t at_least) {
    Counts all;
    for (int k = 0; k < kNumKinds; ++k) {
      const Counts& c = counts_[k];
      std::cout << kNames[k] << ": " << c.mutants << " mutants, " << c.leave
                << " leave memory and are refused; of the others " << c.accepted << " accepted, "
                << c.refused << " refused\n";
      EXPECT_GT(c.leave, 0) << kNames[k];
      all.mutants += c.mutants;
      all.leave += c.leave;
    }
    std::cout << all.mutants << " mutants of " << programs_ << " programs, " << all.leave
              << " leave memory; " << of_narrow_ << " of programs with indices of 32 bits\n";
    EXPECT_GE(all.mutants, at_least);
    EXPECT_GE(of_narrow_, at_least / 4);
  }

  double most_work_ = 60'000;  // of a program that is tried
  std::mt19937_64 random_;
  std::array<Counts, kNumKinds> counts_;
  int programs_ = 0;
  int64_t of_narrow_ = 0;  // mutants of programs that have indices of 32 bits
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
