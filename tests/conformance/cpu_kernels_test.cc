// Kernels as they are lowered for a CPU, on made-up targets whose caches are so small that small
// products are reduced in blocks: what they compute is what the evaluator of tensor graphs does,
// and how often they read their operands is counted.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/base/strings.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/compare.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

// Tensor graphs over PARAMs of f32, with small integers for data: sums are exact in any order.
class Builder {
 public:
  UOp In(const Shape& shape) { return Slot(shape); }
  UOp Out(UOp value) {
    const UOp out = Slot(Shape(value.shape().begin(), value.shape().end()));
    stores_.push_back(graph_.Make(Op::kStore, {out, value}));
    return out;
  }
  RandomGraph Done() {
    random_.exact.assign(random_.slots.size(), true);
    random_.sink = graph_.Make(Op::kSink, DType::kVoid, stores_);
    EXPECT_TRUE(random_.sink.valid()) << graph_.status();
    return random_;
  }

  UOp Do(Op op, UOp x) { return graph_.Make(op, {x}); }
  UOp Do(Op op, UOp x, UOp y) { return graph_.Make(op, {x, y}); }
  UOp Reshape(UOp x, const Shape& to) {
    return graph_.Make(Op::kReshape, DType::kVoid, {&x, 1}, to);
  }
  UOp Expand(UOp x, const Shape& to) { return graph_.Make(Op::kExpand, DType::kVoid, {&x, 1}, to); }
  UOp Transpose(UOp x) {
    const Shape order{1, 0};
    return graph_.Make(Op::kPermute, DType::kVoid, {&x, 1}, order);
  }
  UOp Fold(ReduceKind kind, UOp x, int64_t axis) {
    const Shape arg{static_cast<int64_t>(kind), axis};
    return graph_.Make(Op::kReduce, DType::kVoid, {&x, 1}, arg);
  }
  // `part` has an offset and a size for each axis.
  UOp Pad(UOp x, const Shape& part) { return graph_.Make(Op::kPad, DType::kVoid, {&x, 1}, part); }
  UOp Shrink(UOp x, const Shape& part) {
    return graph_.Make(Op::kShrink, DType::kVoid, {&x, 1}, part);
  }
  // Of windows of 3 over rows x[c, n] with zeros around them, by weights w[m, 3 * c]: [m, n].
  UOp Convolution(UOp w, UOp x) {
    const int64_t m = w.shape()[0], c = x.shape()[0], n = x.shape()[1], row = n + 2;
    UOp wide = Expand(Reshape(Pad(x, {0, c, 1, row}), {c, 1, row}), {c, 4, row});
    wide = Shrink(Reshape(wide, {c, 4 * row}), {0, c, 0, 3 * (row + 1)});
    const UOp windows = Shrink(Reshape(wide, {c, 3, row + 1}), {0, c, 0, 3, 0, n});
    const UOp a = Expand(Reshape(w, {m, c, 3, 1}), {m, c, 3, n});
    const UOp b = Expand(Reshape(windows, {1, c, 3, n}), {m, c, 3, n});
    const UOp products = Do(Op::kMul, a, b);
    const Shape sum{static_cast<int64_t>(ReduceKind::kAdd), 1, 2};
    return Reshape(graph_.Make(Op::kReduce, DType::kVoid, {&products, 1}, sum), {m, n});
  }
  // a[m, k] and b[k, n].
  UOp Product(UOp a, UOp b, ReduceKind kind = ReduceKind::kAdd) {
    const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
    const UOp x = Expand(Reshape(a, {m, k, 1}), {m, k, n});
    const UOp y = Expand(Reshape(b, {1, k, n}), {m, k, n});
    return Reshape(Fold(kind, Do(Op::kMul, x, y), 1), {m, n});
  }

 private:
  UOp Slot(const Shape& shape) {
    const int64_t n = NumElements(shape);
    std::vector<uint8_t> bytes(static_cast<size_t>(n) * sizeof(float));
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<float>((i * 7919 + i / 5) % 9 - 4);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
    }
    random_.slots.push_back(std::move(bytes));
    random_.dtypes.push_back(DType::kFloat32);
    return graph_.Param(static_cast<int64_t>(random_.slots.size()) - 1, DType::kFloat32, shape);
  }

  Graph graph_;
  RandomGraph random_;
  std::vector<UOp> stores_;
};

Target Cpu(int64_t cache_bytes, int vector_bytes = 64) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = 2;
  target.cache_bytes = cache_bytes;
  return target;
}

std::string DifferenceOn(const RandomGraph& graph, const Target& target) {
  return testing::Compare(graph, [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return testing::RunLowered(sink, target, variables, slots);
  });
}

struct Counts {
  std::vector<double> loaded;  // elements, by argument
  int64_t private_bytes = 0;
  size_t programs = 0;
  int64_t iterations = 0;  // that launches are cut at
  double flops = 0;
  int most_together = 0;  // loads from one argument in lanes that lie apart, in one iteration
};

// The index of a vector that is not scalar + IOTA.
bool LanesLieApart(UOp index) {
  if (index.shape().empty()) return false;
  return !index.is(Op::kIota) && !(index.is(Op::kAdd) && index.src(1).is(Op::kIota));
}

Counts Count(const RandomGraph& graph, const Target& target) {
  Counts counts;
  Budget budget;
  const auto schedule = ScheduleGraph(graph.sink, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) continue;
    ++counts.programs;
    counts.iterations += program->iterations;
    counts.flops += program->flops;
    counts.loaded.resize(std::max(counts.loaded.size(), program->arguments.size()));
    std::vector<double> outer{1};
    int together = 0;
    for (uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      if (u.is(Op::kRange)) outer.push_back(outer.back() * u.src(0).const_word());
      if (u.is(Op::kEnd)) outer.pop_back();
      if (u.is(Op::kRange) || u.is(Op::kEnd)) together = 0;
      if (u.is(Op::kBuffer)) counts.private_bytes += BytesOf(u.dtype(), u.elements());
      if (!u.is(Op::kLoad) || !u.src(0).src(0).is(Op::kParam)) continue;
      counts.loaded[u.src(0).src(0).slot()] +=
          outer.back() * static_cast<double>(NumElements(u.shape()));
      if (LanesLieApart(u.src(0).src(1))) {
        counts.most_together = std::max(counts.most_together, ++together);
      }
    }
  }
  return counts;
}

// The panel of `b` for a tile of columns is more than the cache has, so a block of it is copied at
// a time: each element once for each part of the rows, and not once for each tile of them.
TEST(CpuKernels, AFoldInBlocksReadsItsPanelOnce) {
  constexpr int64_t kRows = 48, kColumns = 256, kFolded = 1024;
  Builder b;
  b.Out(b.Product(b.In({kRows, kFolded}), b.In({kFolded, kColumns})));
  const RandomGraph graph = b.Done();
  const Target small = Cpu(128 << 10);
  EXPECT_EQ(DifferenceOn(graph, small), "");
  const Counts counts = Count(graph, small);
  ASSERT_EQ(counts.programs, 1u);
  const double once = 1.25 * kFolded * kColumns;  // the last tile is moved back over another
  EXPECT_LE(counts.loaded[2], once);
  EXPECT_LE(counts.private_bytes, small.cache_bytes);
}

// Rows of an image follow each other closely, but what a tile takes of many of them is in more
// lines than the first-level cache has: it is copied once for all rows of the result. Of few it is
// read where it lies.
TEST(CpuKernels, NearRowsOfALongFoldAreCopied) {
  constexpr int64_t kRows = 256, kColumns = 784;
  for (const int64_t folded : {32, 512}) {
    Builder b;
    b.Out(b.Product(b.In({kRows, folded}), b.In({folded, kColumns})));
    const RandomGraph graph = b.Done();
    const Target target = Cpu(1 << 20);
    EXPECT_EQ(DifferenceOn(graph, target), "");
    const Counts counts = Count(graph, target);
    const auto once = static_cast<double>(folded * kColumns);
    if (folded == 32) {
      EXPECT_GE(counts.loaded[2], 8 * once);
      EXPECT_LE(counts.private_bytes, 32 * 64);
    } else {
      EXPECT_LE(counts.loaded[2], 1.35 * once);  // the last tile is moved back over another
    }
  }
}

// Masks of windows are a matter of the copy, too, where that is made a block at a time.
TEST(CpuKernels, WindowsThatExceedTheCacheAreCopiedInBlocks) {
  constexpr int64_t kOut = 96, kChannels = 384, kPixels = 49;
  Builder b;
  b.Out(b.Convolution(b.In({kOut, 3 * kChannels}), b.In({kChannels, kPixels})));
  const RandomGraph graph = b.Done();
  for (const int64_t cache : {1 << 20, 256 << 10}) {
    const Target target = Cpu(cache);
    EXPECT_EQ(DifferenceOn(graph, target), "");
    EXPECT_LE(Count(graph, target).loaded[2], 1.5 * 3 * kChannels * kPixels) << cache;
  }
}

// What is the same for all of a row costs little: lanes are those of the row's elements, which are
// neighbours, in the sum and in what is stored.
TEST(CpuKernels, RowsAreNormalizedAlongTheirElements) {
  Builder b;
  const UOp x = b.In({64, 256});
  const UOp most = b.Fold(ReduceKind::kMax, x, 1);
  const UOp d = b.Do(Op::kSub, x, b.Expand(most, {64, 256}));
  UOp scale = b.Fold(ReduceKind::kAdd, b.Do(Op::kMul, d, d), 1);
  for (int i = 0; i < 2; ++i) scale = b.Do(Op::kRecip, b.Do(Op::kSqrt, scale));
  b.Out(b.Do(Op::kMul, d, b.Expand(scale, {64, 256})));
  const RandomGraph graph = b.Done();
  const Target target = Cpu(1 << 20);
  EXPECT_EQ(DifferenceOn(graph, target), "");
  EXPECT_EQ(Count(graph, target).most_together, 0);
}

// Lanes that lie rows apart come with as many neighbours along the row, so that whole vectors can
// be loaded: all of the square's loads stand in one iteration.
TEST(CpuKernels, ATransposeLoadsSquares) {
  Builder b;
  b.Out(b.Do(Op::kAdd, b.Transpose(b.In({96, 80})), b.In({80, 96})));
  const RandomGraph graph = b.Done();
  const Target target = Cpu(1 << 20);
  EXPECT_EQ(DifferenceOn(graph, target), "");
  EXPECT_EQ(Count(graph, target).most_together, 16);
}

// Of rows that are pages apart a strip of each is read at a time.
TEST(CpuKernels, ColumnSumsReadLongStrips) {
  Builder b;
  b.Out(b.Fold(ReduceKind::kAdd, b.In({64, 2048}), 0));
  const RandomGraph graph = b.Done();
  const Target target = Cpu(1 << 20);
  EXPECT_EQ(DifferenceOn(graph, target), "");
  const Counts counts = Count(graph, target);
  EXPECT_EQ(counts.loaded[1] + counts.loaded[0], 64.0 * 2048);
  EXPECT_GE(counts.private_bytes, 4096);  // the accumulators of a strip
}

// The few rows of a product, for which no copy of the other operand pays, have a strip of
// accumulators each.
TEST(CpuKernels, ProductsOfFewRowsReadLongStrips) {
  Builder b;
  b.Out(b.Product(b.In({4, 64}), b.In({64, 2048})));
  const RandomGraph graph = b.Done();
  const Target target = Cpu(1 << 20);
  EXPECT_EQ(DifferenceOn(graph, target), "");
  const Counts counts = Count(graph, target);
  EXPECT_EQ(counts.loaded[2], 64.0 * 2048);
  EXPECT_GE(counts.private_bytes, 4 * 4096);
}

// Strips are of about the same size, of tiles that are whole vectors: few columns are read twice,
// whatever their number.
TEST(CpuKernels, StripsOfAnyNumberOfColumns) {
  for (const int64_t columns : {1456, 1680, 2080, 2128, 2340, 2576}) {
    SCOPED_TRACE(columns);
    Builder b;
    b.Out(b.Product(b.In({1, 256}), b.In({256, columns})));
    const RandomGraph graph = b.Done();
    const Target target = Cpu(1 << 20);
    EXPECT_EQ(DifferenceOn(graph, target), "");
    const Counts counts = Count(graph, target);
    EXPECT_LE(counts.loaded[2], 1.08 * 256 * static_cast<double>(columns));
    EXPECT_GE(counts.private_bytes, 2048) << "in strips";
  }
}

// Iterations that launches are cut at are as short as the target asks for, also where the columns
// are too few for that: then rows are cut, too, at little more work.
TEST(CpuKernels, LaunchesAreCutIntoShortIterations) {
  constexpr int64_t kRows = 320, kColumns = 64, kFolded = 128;
  Builder b;
  b.Out(b.Product(b.In({kRows, kFolded}), b.In({kFolded, kColumns})));
  const RandomGraph graph = b.Done();
  for (const int64_t cache : {1 << 20, 16 << 10}) {
    Target target = Cpu(cache);
    const Counts whole = Count(graph, target);
    target.unit_cycles = 3'500;
    const Counts cut = Count(graph, target);
    EXPECT_EQ(DifferenceOn(graph, target), "") << cache;
    EXPECT_GE(cut.iterations, 2 * whole.iterations) << cache;
    EXPECT_LE(cut.flops, 1.1 * whole.flops) << cache;
    const double cycles = cut.flops / static_cast<double>(cut.iterations) / (2 * 16);
    EXPECT_LE(cycles, 1.2 * static_cast<double>(target.unit_cycles)) << cache;
  }
}

TEST(CpuKernels, ProductsInBlocksOfAnyShape) {
  const char* const given = std::getenv("TELEGRAD_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 40; ++i) {
    const int64_t m = pick(1, 80) * pick(1, 3), n = pick(1, 90), k = pick(1, 12) * pick(1, 24);
    const int64_t cache = int64_t{1} << pick(9, 15);
    Target target = Cpu(cache, pick(0, 1) != 0 ? 64 : 32);
    target.unit_cycles = int64_t{1} << pick(8, 22);
    const auto kind = pick(0, 3) == 0 ? ReduceKind::kMax : ReduceKind::kAdd;
    const bool transposed = pick(0, 1) != 0, with_sum = pick(0, 1) != 0, twice = pick(0, 2) == 0;
    Builder b;
    const UOp x = b.In({m, k});
    const UOp y = transposed ? b.Transpose(b.In({n, k})) : b.In({k, n});
    UOp out = b.Product(x, y, kind);
    if (with_sum) out = b.Do(Op::kAdd, out, b.Expand(b.In({1, n}), {m, n}));
    if (twice) b.Out(b.Product(x, transposed ? b.Transpose(b.In({n, k})) : b.In({k, n})));
    b.Out(out);
    EXPECT_EQ(DifferenceOn(b.Done(), target), "")
        << "seed " << seed << ", case " << i << ": " << m << " x " << n << " x " << k << ", cache "
        << cache;
  }
}

}  // namespace
}  // namespace telegrad
