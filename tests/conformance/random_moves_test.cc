// Random lists of moves, on kernels of every kind, for processors and GPUs: what Apply accepts is
// lowered, proved, interpreted with races detected, and agrees with the evaluator of tensor graphs.
// What it refuses, it refuses with a reason. The lists are drawn from a seed that failures name;
// TELEGRAD_SEED repeats it, and TELEGRAD_CASES asks for more lists than the usual ones.
#include "tests/conformance/random_moves.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/test_product.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/compare.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

Target Processor(int vector_bytes, int64_t cache_bytes) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = 2;
  target.cache_bytes = cache_bytes;
  return target;
}

Target WithDots(Target target) {
  target.dots = true;
  return target;
}

const std::vector<Target>& Targets() {
  static const auto* const targets =
      new std::vector<Target>{Processor(4, 4 << 10),
                              Processor(16, 16 << 10),
                              Processor(64, 1 << 20),
                              WithDots(Processor(64, 1 << 20)),
                              *NvidiaTarget(8, 0, 4, 163840),
                              *NvidiaTarget(9, 0, 132, 232448),
                              OpenClTarget(4),
                              OpenClProcessor(2, 64),
                              AmdTarget(*FindAmdProcessor("gfx942"), 4),
                              AmdTarget(*FindAmdProcessor("gfx1100"), 4)};
  return *targets;
}

// Kernels that a list of moves changes much, with sizes drawn.
class Kernels {
 public:
  explicit Kernels(std::mt19937_64& rng) : rng_(rng) {}

  absl::StatusOr<Plan> Draw() {
    switch (Below(19) / 2) {
      case 0:
      case 1: {
        const DType dtype = Below(2) == 0 ? DType::kFloat16 : DType::kFloat32;
        const int64_t m = Size(), n = Size(), k = Size();
        const Tensor a = b_.Param(dtype, {m, k}, "a"), b = b_.Param(dtype, {k, n}, "b");
        return Done(a.MatMul(b).Relu());
      }
      case 2: {
        const int64_t c = 1 + Below(4), h = 3 + Below(6), w = 3 + Below(9);
        const Tensor x = b_.Param(DType::kFloat32, {1, c, h, w}, "x");
        const Tensor y = b_.Param(DType::kFloat32, {1 + Below(5), c, 3, 3}, "w");
        return Done(x.Conv(y, {.pads = {1, 1, 1, 1}}));
      }
      case 3:
        return Done(Matrix("x").Softmax());
      case 4:
        return Done(Matrix("x").Sum({0}));
      case 5: {
        const Tensor x = Matrix("x");
        return Done(x.Transpose().Add(b_.Param(DType::kFloat32, {1}, "y")));
      }
      case 6: {
        const Tensor x = Matrix("x");
        return Done(x.Sub(x.Mean({1}, /*keepdim=*/true)).Exp().Sum({1}));
      }
      case 7: {  // large enough for words of bytes
        const int64_t m = 20 + Size(), n = 20 + Size(), k = 80 + Size();
        const Tensor a = b_.Param(DType::kUInt8, {m, k}, "a").Cast(DType::kInt32);
        const Tensor b = b_.Param(DType::kInt8, {k, n}, "b").Cast(DType::kInt32);
        return Done((a - Below(256)).MatMul(b));
      }
      case 8: {  // on a processor, rows of scores in blocks, with a mask that ends the loop or not
        const int64_t keys = 64 + 3 * Below(3), d = 16;
        const Tensor q = b_.Param(DType::kFloat32, {1, 4, 32, d}, "q");
        const Tensor k = b_.Param(DType::kFloat32, {1, 4, keys, d}, "k");
        const Tensor v = b_.Param(DType::kFloat32, {1, 4, keys, d}, "v");
        return Done(q.ScaledDotProductAttention(k, v, {}, /*causal=*/Below(2) == 0));
      }
      default: {
        const int64_t s = 2 + Below(6), d = 2 + Below(6);
        const Tensor q = b_.Param(DType::kFloat32, {1, 2, s, d}, "q");
        const Tensor k = b_.Param(DType::kFloat32, {1, 2, s, d}, "k");
        const Tensor v = b_.Param(DType::kFloat32, {1, 2, s, d}, "v");
        return Done(q.MatMul(k.Transpose()).Softmax().MatMul(v));
      }
    }
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  int64_t Size() {
    constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 12, 16, 17, 24, 32, 33};
    return kSizes[Below(11)];
  }
  Tensor Matrix(const char* name) { return b_.Param(DType::kFloat32, {Size(), Size()}, name); }
  absl::StatusOr<Plan> Done(const Tensor& y) {
    b_.Output(y, "out");
    return b_.Finish();
  }

  std::mt19937_64& rng_;
  Builder b_;
};

RandomGraph WithInputs(const Plan& plan, std::mt19937_64& rng) {
  RandomGraph out;
  out.sink = plan.graph.root();
  for (const Slot& slot : plan.slots) {
    const int64_t n = NumElements(slot.shape);
    const auto size = static_cast<size_t>(ByteSize(slot.dtype));
    std::vector<uint8_t>& bytes = out.slots.emplace_back(static_cast<size_t>(n) * size);
    for (int64_t i = 0; i < n; ++i) {
      const auto steps = static_cast<int64_t>(rng() % 2048);
      const int64_t raw = ScalarToMemory(
          slot.dtype, IsFloat(slot.dtype)
                          ? ScalarFromDouble(slot.dtype, static_cast<double>(steps) / 1024 - 1)
                          : ScalarFromInt(slot.dtype, steps));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &raw, size);
    }
    out.dtypes.push_back(slot.dtype);
    out.exact.push_back(!IsFloat(slot.dtype));
  }
  return out;
}

// A proof that takes too long says nothing about the program, which then is not used; and the
// interpreter does not run what needs too much memory for all threads of a workgroup.
bool IsBeyondLimits(std::string_view difference) {
  return difference.starts_with("RESOURCE_EXHAUSTED: prove: the budget of") ||
         difference.starts_with("INTERNAL: RESOURCE_EXHAUSTED: program");
}

// Of 128 copies of a factor that is the same in all of them, 5 count: one vector of four, which
// needs no gate, and a lane of the next.
TEST(RandomMoves, VectorsWithAndWithoutGates) {
  constexpr char kKernel[] = R"(
%0 = param u32 [1] slot=0
%1 = const i64 0
%2 = index u32 %0 %1
%3 = load u32 %2
%4 = const i64 5
%5 = range i64 %4 id=0 type=reduce
%6 = reduce u32 %3 %5 kind=mul axes=[]
%7 = store %2 %6
%8 = sink %7
)";
  Graph graph;
  const auto sink = Parse(kKernel, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Budget budget;
  PassOptions options;
  options.moves = "UPCAST r0 32, VECTORIZE r0 4";
  const auto program = Lower(Freeze(*sink), AmdTarget(*FindAmdProcessor("gfx942"), 4), "k", &budget,
                             nullptr, options);
  ASSERT_TRUE(program.ok()) << program.status();
  uint32_t value = 3;
  const std::span<uint8_t> buffers[] = {{reinterpret_cast<uint8_t*>(&value), sizeof(value)}};
  ASSERT_TRUE(reference::Run(*program, buffers, 0, program->iterations).ok());
  EXPECT_EQ(value, 243u);
}

// A tile of 8 copies of 5 rows would read three elements of the thread's memory that nothing wrote.
TEST(RandomMoves, WhatNothingWroteIsNotRead) {
  constexpr char kKernel[] = R"(
%0 = buffer f32 [8] space=register slot=0
%1 = const i64 2
%2 = range i64 %1 id=0 type=loop
%3 = after f32 [8] %0 %2
%4 = const i64 5
%5 = range i64 %4 id=1 type=loop
%6 = index f32 %3 %5
%7 = param f32 [10] slot=1
%8 = mul i64 %2 %4
%9 = add i64 %8 %5
%10 = index f32 %7 %9
%11 = load f32 %10
%12 = store %6 %11
%13 = end %12 %5
%14 = end %13 %2
%15 = after f32 [8] %3 %13
%16 = range i64 %4 id=2 type=loop
%17 = index f32 %15 %16
%18 = load f32 %17
%19 = param f32 [10] slot=0
%20 = add i64 %8 %16
%21 = index f32 %19 %20
%22 = store %21 %18
%23 = end %22 %16
%24 = end %23 %2
%25 = sink %14 %24
)";
  Graph graph;
  const auto sink = Parse(kKernel, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Budget budget;
  PassOptions options;
  options.moves = "UPCAST r2 8";
  const auto program = Lower(Freeze(*sink), TestProcessor(), "k", &budget, nullptr, options);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<float> y(10), x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto bytes = [](std::vector<float>& v) {
    return std::span<uint8_t>(reinterpret_cast<uint8_t*>(v.data()), v.size() * sizeof(float));
  };
  const std::span<uint8_t> buffers[] = {bytes(y), bytes(x)};
  const absl::Status run = reference::Run(*program, buffers, 0, program->iterations);
  ASSERT_TRUE(run.ok()) << run;
  EXPECT_EQ(y, x);
}

// Workers share all pairs of iterations of two loops. Each of them alone, the last one first,
// leaves the same result, also where tiles at the end begin earlier and a reduction is in blocks.
TEST(RandomMoves, WorkersShareSeveralLoops) {
  const std::tuple<int, int, const char*, int64_t> cases[] = {
      {48, 48, "THREAD r0, THREAD r1", 48 * 48},
      {48, 48, "UPCAST r0 4, VECTORIZE r1 16, THREAD r1, THREAD r0", 12 * 3},
      {47, 50, "UPCAST r0 4, VECTORIZE r1 16, THREAD r0, THREAD r1, OUTER r0", 12 * 4},
      {48, 50, "UPCAST r0 2, UPCAST r1 3, THREAD r0, THREAD r1, BLOCK r2 8", 24 * 17},
      {48, 48, "UPCAST r0 2, THREAD r0, THREAD r1, BLOCK r0 4, BLOCK r2 8", 6 * 48},
  };
  for (const auto& [m, n, moves, iterations] : cases) {
    SCOPED_TRACE(StrCat(m, " x ", n, ": ", moves));
    constexpr int kTerms = 32;
    Budget budget;
    const auto program =
        Lower(TestProduct(m, n, kTerms), TestProcessor(), "k", &budget, nullptr, {.moves = moves});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->iterations, iterations);
    std::vector<float> c(static_cast<size_t>(m * n), -1), a(static_cast<size_t>(m * kTerms)),
        b(static_cast<size_t>(kTerms * n));
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 11) - 5;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 13) - 6;
    const auto bytes = [](std::vector<float>& x) {
      return std::span<uint8_t>(reinterpret_cast<uint8_t*>(x.data()), x.size() * sizeof(float));
    };
    const std::span<uint8_t> buffers[] = {bytes(c), bytes(a), bytes(b)};
    for (int64_t i = iterations; i-- > 0;) {
      ASSERT_TRUE(reference::Run(*program, buffers, i, i + 1).ok());
    }
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int k = 0; k < kTerms; ++k) {
          sum += a[static_cast<size_t>(i * kTerms + k)] * b[static_cast<size_t>(k * n + j)];
        }
        ASSERT_EQ(c[static_cast<size_t>(i * n + j)], sum) << i << ", " << j;
      }
    }
  }
}

TEST(RandomMoves, ListsThatApplyAcceptsChangeNothing) {
  const uint64_t first = Setting("TELEGRAD_SEED", 1), wanted = Setting("TELEGRAD_CASES", 400);
  testing::RandomMoveCounts counts;
  uint64_t seed = first;
  int64_t beyond = 0;  // graphs
  for (; counts.lists < static_cast<int64_t>(wanted); ++seed) {
    std::mt19937_64 rng(seed);
    const Target& target = Targets()[rng() % Targets().size()];
    Graph graph;
    RandomGraph random;
    absl::StatusOr<Plan> plan;
    if (rng() % 4 == 0) {
      random = testing::GraphOfSeed(seed, &graph);
      if (!random.sink.valid()) continue;
    } else {
      plan = Kernels(rng).Draw();
      ASSERT_TRUE(plan.ok()) << plan.status();
      random = WithInputs(*plan, rng);
    }
    std::string lists;
    const auto choose = [&](const FrozenGraph& kernel, const Target& t,
                            std::span<const int32_t> weights) -> absl::StatusOr<std::string> {
      Budget budget(testing::WithoutDeadline());
      TG_ASSIGN_OR_RETURN(MoveSpace space, MoveSpace::Open(kernel, t, weights, &budget));
      while (true) {
        TG_ASSIGN_OR_RETURN(const MoveList moves, testing::RandomMoves(space, rng, &counts));
        // Only a whole list shows that something is missing at its end.
        TG_ASSIGN_OR_RETURN(MovedKernel moved, space.Add(moves));
        const auto finished = space.Finish(std::move(moved));
        if (absl::IsFailedPrecondition(finished.status())) {
          ++counts.refused;
          --counts.lists;
          continue;
        }
        TG_RETURN_IF_ERROR(finished.status());
        StrAppend(&lists, Print(moves), "\n", Print(kernel.root()), "\n");
        return Print(moves);
      }
    };
    const std::string difference =
        testing::Compare(random, [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
          return testing::RunLowered(sink, target, variables, slots, choose);
        });
    if (IsBeyondLimits(difference)) {
      ++beyond;
      continue;
    }
    ASSERT_EQ("", difference) << "TELEGRAD_SEED=" << seed << ", target " << target.Key()
                              << ", moves and kernels:\n"
                              << lists;
  }
  std::printf("%lld lists of %lld moves agree, %lld moves were refused, seeds %llu to %llu\n",
              static_cast<long long>(counts.lists), static_cast<long long>(counts.moves),
              static_cast<long long>(counts.refused), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(seed - 1));
  if (beyond > 0) {
    std::printf("%lld graphs of these are beyond a limit\n", static_cast<long long>(beyond));
  }
  EXPECT_LE(beyond, 1 + counts.lists / 200);
  // A checker that refuses nearly everything would prove nothing.
  EXPECT_GT(counts.moves, 2 * counts.lists);
}

}  // namespace
}  // namespace telegrad
