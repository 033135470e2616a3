// Kernels lowered for GPUs: their programs compute what the interpreter of tensor graphs does,
// without races, and have the expected barriers, wide accesses, exchanges between lanes and
// matrix instructions.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "engine/base/strings.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/compare.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

// Tensor graphs over PARAMs, with small integers for data, so that sums are exact in any order.
class Builder {
 public:
  UOp In(DType dtype, const Shape& shape) { return Slot(dtype, shape, 1); }
  void Out(UOp value) {
    const UOp out = Slot(value.dtype(), Shape(value.shape().begin(), value.shape().end()), 0);
    stores_.push_back(graph.Make(Op::kStore, {out, value}));
  }
  RandomGraph Done(bool exact = true) {
    random_.exact.assign(random_.slots.size(), exact);
    random_.sink = graph.Make(Op::kSink, DType::kVoid, stores_);
    EXPECT_TRUE(random_.sink.valid()) << graph.status();
    return random_;
  }

  UOp Reshape(UOp x, const Shape& to) {
    return graph.Make(Op::kReshape, DType::kVoid, {&x, 1}, to);
  }
  UOp Expand(UOp x, const Shape& to) { return graph.Make(Op::kExpand, DType::kVoid, {&x, 1}, to); }
  UOp Permute(UOp x, const Shape& to) {
    return graph.Make(Op::kPermute, DType::kVoid, {&x, 1}, to);
  }
  UOp Fold(ReduceKind kind, UOp x, int64_t axis) {
    const Shape arg{static_cast<int64_t>(kind), axis};
    return graph.Make(Op::kReduce, DType::kVoid, {&x, 1}, arg);
  }
  UOp F32(UOp x) {
    return x.dtype() == DType::kFloat32 ? x : graph.Make(Op::kCast, DType::kFloat32, {x});
  }
  UOp Number(double x, const Shape& shape) {
    return Expand(Reshape(graph.ConstFloat(DType::kFloat32, x), Shape(shape.size(), 1)), shape);
  }
  // a[batch, m, k] and b[batch, k, n], in f32.
  UOp Product(UOp a, UOp b) {
    const int64_t batch = a.shape()[0], m = a.shape()[1], k = a.shape()[2], n = b.shape()[2];
    const UOp x = Expand(Reshape(F32(a), {batch, m, k, 1}), {batch, m, k, n});
    const UOp y = Expand(Reshape(F32(b), {batch, 1, k, n}), {batch, m, k, n});
    return Reshape(Fold(ReduceKind::kAdd, graph.Make(Op::kMul, {x, y}), 2), {batch, m, n});
  }

  Graph graph;

 private:
  UOp Slot(DType dtype, const Shape& shape, int64_t step) {
    const int64_t n = NumElements(shape);
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(dtype, n)));
    const auto size = static_cast<size_t>(ByteSize(dtype));
    for (int64_t i = 0; i < n; ++i) {
      const auto value =
          static_cast<double>((i * 7919 + i / 5) % 9 - 4) * static_cast<double>(step);
      const int64_t word = ScalarToMemory(dtype, ScalarFromDouble(dtype, value));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &word, size);
    }
    random_.slots.push_back(std::move(bytes));
    random_.dtypes.push_back(dtype);
    return graph.Param(static_cast<int64_t>(random_.slots.size()) - 1, dtype, shape);
  }

  RandomGraph random_;
  std::vector<UOp> stores_;
};

using Sizes = std::vector<std::pair<int64_t, int64_t>>;

Target Gpu(int processors = 108) { return *NvidiaTarget(8, 0, processors, 163840); }

std::string DifferenceOn(const RandomGraph& graph, const Target& target) {
  return testing::Compare(graph, [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return testing::RunLowered(sink, target, variables, slots);
  });
}

// How often each op stands in the programs; a LOAD or STORE of 16 bytes counts as "wide", the loop
// of a reduction as "sums".
struct KernelCounts {
  std::map<std::string, int> ops;
  int64_t programs = 0, workgroups = 0, threads = 1;
  int operator[](const std::string& name) const {
    const auto it = ops.find(name);
    return it == ops.end() ? 0 : it->second;
  }
};

KernelCounts Count(const RandomGraph& graph, const Target& target) {
  KernelCounts counts;
  Budget budget;
  const auto schedule = ScheduleGraph(graph.sink, &budget);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) continue;
    ++counts.programs;
    counts.workgroups += program->iterations;
    counts.ops["held tiles"] += absl::StrContains(program->moves, "ring 2") ? 1 : 0;
    for (uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      if (u.is(Op::kBarrier) && u.scope() != Scope::kWorkgroup) continue;
      ++counts.ops[std::string(Name(u.op()))];
      if (u.is(Op::kRange)) {
        const AxisType type = u.axis_type();
        if (type == AxisType::kReduce) ++counts.ops["sums"];
        if (type == AxisType::kLocal || type == AxisType::kWarp) {
          counts.threads *= u.src(0).const_word();
        }
      }
      if (!u.is(Op::kLoad) && !u.is(Op::kStore)) continue;
      const UOp memory = u.src(0).src(0);
      const int64_t bytes = NumElements(u.src(0).shape()) * ByteSize(u.src(0).dtype());
      if (memory.is(Op::kParam) && bytes == 16) ++counts.ops["wide"];
    }
  }
  return counts;
}

TEST(WorkgroupKernels, ElementsAreVectorsOfNeighbouringThreads) {
  for (const int64_t n : {1 << 16, (1 << 16) + 4, 1003}) {
    Builder b;
    const UOp x = b.In(DType::kFloat32, {n}), y = b.In(DType::kFloat32, {n});
    b.Out(b.graph.Make(Op::kAdd, {x, y}));
    const RandomGraph graph = b.Done();
    EXPECT_EQ(DifferenceOn(graph, Gpu(1)), "") << n;
    const KernelCounts counts = Count(graph, Gpu(1));
    EXPECT_EQ(counts["wide"], n % 4 == 0 ? 3 : 0) << n;
    EXPECT_EQ(counts.threads, 256) << n;
    EXPECT_EQ(counts["barrier"], 0);
  }
}

TEST(WorkgroupKernels, TransposedAndBroadcastElements) {
  Builder b;
  const UOp x = b.In(DType::kFloat32, {33, 70}), y = b.In(DType::kFloat32, {1, 33});
  b.Out(b.graph.Make(Op::kAdd, {b.Permute(x, {1, 0}), b.Expand(y, {70, 33})}));
  const RandomGraph graph = b.Done();
  EXPECT_EQ(DifferenceOn(graph, Gpu()), "");
  EXPECT_EQ(DifferenceOn(graph, Gpu(1)), "");
}

TEST(WorkgroupKernels, RowsAreFoldedByTheirWorkgroups) {
  for (const ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMax}) {
    for (const auto& [rows, columns] : Sizes{{7, 1000}, {300, 64}, {5, 4096}, {3, 77}, {40, 33}}) {
      Builder b;
      b.Out(b.Fold(kind, b.In(DType::kFloat32, {rows, columns}), 1));
      const RandomGraph graph = b.Done();
      for (const int processors : {1, 108}) {
        EXPECT_EQ(DifferenceOn(graph, Gpu(processors)), "") << rows << " x " << columns;
      }
      const KernelCounts counts = Count(graph, Gpu());
      EXPECT_GE(counts["shuffle"], 3) << rows << " x " << columns;
      EXPECT_LE(counts["barrier"], 1) << rows << " x " << columns;
    }
  }
}

TEST(WorkgroupKernels, ColumnsAreFoldedByNeighbouringThreads) {
  for (const auto& [rows, columns] : Sizes{{512, 64}, {100, 100}, {1000, 33}}) {
    Builder b;
    b.Out(b.Fold(ReduceKind::kAdd, b.In(DType::kFloat32, {rows, columns}), 0));
    const RandomGraph graph = b.Done();
    for (const int processors : {1, 108}) {
      EXPECT_EQ(DifferenceOn(graph, Gpu(processors)), "") << rows << " x " << columns;
    }
    const KernelCounts counts = Count(graph, Gpu());
    EXPECT_EQ(counts["shuffle"], 0);
    EXPECT_EQ(counts["barrier"], 1);
    EXPECT_GE(counts.threads, 256);
  }
}

TEST(WorkgroupKernels, OneLargeFoldHasAllThreadsOfAWorkgroup) {
  Builder b;
  b.Out(b.Fold(ReduceKind::kAdd, b.In(DType::kInt32, {50000}), 0));
  const RandomGraph graph = b.Done();
  EXPECT_EQ(DifferenceOn(graph, Gpu()), "");
  EXPECT_EQ(Count(graph, Gpu()).threads, 1024);
}

// exp2(x - max) / sum of each row.
void AddSoftmax(Builder& b, int64_t rows, int64_t columns) {
  const UOp x = b.In(DType::kFloat32, {rows, columns});
  const Shape shape{rows, columns};
  const UOp most = b.Expand(b.Fold(ReduceKind::kMax, x, 1), shape);
  const UOp e = b.graph.Make(Op::kExp2, {b.graph.Make(Op::kSub, {x, most})});
  b.Out(b.graph.Make(Op::kFDiv, {e, b.Expand(b.Fold(ReduceKind::kAdd, e, 1), shape)}));
}

// exp2(x - max) / sum, and (x - mean) / deviation: rows that several folds need.
TEST(WorkgroupKernels, FoldsOfARowShareItsWorkgroup) {
  for (const auto& [rows, columns] : Sizes{{6, 1024}, {9, 333}, {64, 48}}) {
    Builder b;
    AddSoftmax(b, rows, columns);
    const RandomGraph graph = b.Done(false);
    for (const int processors : {1, 108}) {
      EXPECT_EQ(DifferenceOn(graph, Gpu(processors)), "") << rows << " x " << columns;
    }
    const KernelCounts counts = Count(graph, Gpu());
    EXPECT_LE(counts["barrier"], 2) << rows << " x " << columns;
  }
}

// Without warps, what each of 256 threads has is not folded in a row, which made kernels of
// thousands of statements.
TEST(WorkgroupKernels, ThreadsThatExchangeNothingFoldInTwoSteps) {
  const auto check = [](const std::string& what, const RandomGraph& graph, int64_t folds) {
    for (const Target& target : {OpenClTarget(16), OpenClProcessor(2, 64)}) {
      EXPECT_EQ(DifferenceOn(graph, target), "") << what << " on " << target.arch;
      const KernelCounts counts = Count(graph, target);
      EXPECT_GE(counts.threads, 256) << what;
      EXPECT_LE(counts["barrier"], 2 * folds) << what;
      int statements = 0;
      for (const auto& [name, count] : counts.ops) statements += count;
      EXPECT_LE(statements, 300 * folds) << what << " on " << target.arch;
    }
  };
  for (const ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMax}) {
    for (const int64_t n : {257, 1009, 2053}) {
      Builder b;
      b.Out(b.Fold(kind, b.In(DType::kFloat32, {n}), 0));
      check(StrCat("fold ", n), b.Done(), 1);
    }
  }
  Builder softmax;
  AddSoftmax(softmax, 1, 1000);
  check("softmax", softmax.Done(false), 2);
  Builder several;
  const UOp x = several.In(DType::kFloat32, {5003});
  several.Out(several.Fold(ReduceKind::kMax, x, 0));
  several.Out(several.Fold(ReduceKind::kAdd, several.graph.Make(Op::kMul, {x, x}), 0));
  several.Out(several.Fold(ReduceKind::kMax, several.graph.Make(Op::kNeg, {x}), 0));
  check("several", several.Done(), 3);
}

struct ProductCase {
  int64_t batch, m, n, k;
  bool a_turned, b_turned;
};
constexpr ProductCase kProducts[] = {
    {1, 64, 128, 64, false, false}, {1, 128, 128, 96, false, true}, {1, 64, 64, 32, true, false},
    {2, 70, 50, 40, false, false},  {1, 33, 90, 100, true, true},   {3, 32, 32, 16, false, false},
    {1, 129, 65, 33, false, false},
};

RandomGraph Product(Builder& b, const ProductCase& c, DType dtype) {
  UOp x = b.In(dtype, c.a_turned ? Shape{c.batch, c.k, c.m} : Shape{c.batch, c.m, c.k});
  UOp y = b.In(dtype, c.b_turned ? Shape{c.batch, c.n, c.k} : Shape{c.batch, c.k, c.n});
  if (c.a_turned) x = b.Permute(x, {0, 2, 1});
  if (c.b_turned) y = b.Permute(y, {0, 2, 1});
  const UOp bias = b.Expand(b.In(DType::kFloat32, {1, 1, c.n}), {c.batch, c.m, c.n});
  const UOp sum = b.graph.Make(Op::kAdd, {b.Product(x, y), bias});
  b.Out(b.graph.Make(Op::kMax, {sum, b.Number(0, {c.batch, c.m, c.n})}));
  return b.Done();
}

// Each unit has shapes and fragments of its own.
std::vector<Target> TargetsWithMatrixUnits() {
  std::vector<Target> targets = {Gpu(1), Gpu(108)};
  for (const char* processor : {"gfx942", "gfx1100", "gfx1201"}) {
    targets.push_back(AmdTarget(*FindAmdProcessor(processor), 1));
    targets.push_back(AmdTarget(*FindAmdProcessor(processor), 100));
  }
  return targets;
}

// Where the loop over tiles accesses local memory and arguments, as positions in the program.
struct TileSteps {
  int barriers = 0;
  size_t barrier = 0, last_store = 0, first_read = 0;  // of local memory
  size_t first_load = 0, last_load = 0;                // of arguments
};

TileSteps StepsOf(const Program& program) {
  TileSteps steps;
  bool inside = false;
  for (size_t at = 0; at < program.order.size(); ++at) {
    const UOp u = program.graph->at(program.order[at]);
    inside |= u.is(Op::kRange) && u.axis_type() == AxisType::kReduce;
    if (inside && u.is(Op::kEnd)) break;
    if (!inside) continue;
    if (u.is(Op::kBarrier) && u.scope() == Scope::kWorkgroup) {
      ++steps.barriers;
      steps.barrier = at;
    }
    if (!u.is(Op::kLoad) && !u.is(Op::kStore)) continue;
    UOp memory = u.src(0).src(0);
    while (memory.is(Op::kAfter)) memory = memory.src(0);
    if (memory.is(Op::kParam)) {
      if (steps.first_load == 0) steps.first_load = at;
      steps.last_load = at;
    } else if (memory.space() == AddressSpace::kLocal) {
      if (u.is(Op::kStore)) steps.last_store = at;
      if (u.is(Op::kLoad) && steps.first_read == 0) steps.first_read = at;
    }
  }
  return steps;
}

TEST(WorkgroupKernels, ProductsOf16BitFloatsAreMatrixInstructions) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const ProductCase& c : kProducts) {
      Builder b;
      const RandomGraph graph = Product(b, c, dtype);
      const std::string what = StrCat(c.batch, " x ", c.m, " x ", c.n, " x ", c.k);
      for (const Target& target : TargetsWithMatrixUnits()) {
        SCOPED_TRACE(StrCat(what, " for ", target.arch));
        EXPECT_EQ(DifferenceOn(graph, target), "");
        const KernelCounts counts = Count(graph, target);
        EXPECT_GE(counts["mma"], 1);
        // Two in a loop over several tiles that threads fill anew.
        const bool once =
            counts["sums"] == 0 || counts["copy_async"] > 0 || counts["held tiles"] > 0;
        EXPECT_EQ(counts["barrier"], once ? 1 : 2);
      }
    }
  }
}

TEST(WorkgroupKernels, ProductsOfFloatsAreTilesOfRegisters) {
  for (const ProductCase& c : kProducts) {
    Builder b;
    const RandomGraph graph = Product(b, c, DType::kFloat32);
    const std::string what = StrCat(c.batch, " x ", c.m, " x ", c.n, " x ", c.k);
    for (const int processors : {1, 108}) {
      EXPECT_EQ(DifferenceOn(graph, Gpu(processors)), "") << what;
      const KernelCounts counts = Count(graph, Gpu(processors));
      EXPECT_EQ(counts["barrier"], c.m > 16 && c.n > 16 ? 1 : 0) << what;
    }
  }
}

// One barrier in each iteration: a thread that is behind reads another panel than the one that is
// filled. What no instruction copies, which are fewer than 4 bytes, threads copy themselves.
TEST(WorkgroupKernels, TilesAreCopiedWhileOthersAreMultiplied) {
  struct Case {
    ProductCase product;
    DType dtype;
    bool copies;
  };
  const Case cases[] = {{{1, 64, 128, 160, false, false}, DType::kFloat16, true},
                        {{1, 64, 128, 64, true, true}, DType::kBFloat16, true},
                        {{2, 70, 34, 66, false, true}, DType::kFloat16, true},
                        {{1, 64, 65, 160, false, false}, DType::kFloat16, false},
                        {{1, 64, 64, 32, false, false}, DType::kFloat16, false},
                        {{1, 70, 33, 41, false, true}, DType::kFloat32, true},
                        {{2, 128, 128, 16, true, false}, DType::kFloat32, true},
                        {{1, 64, 64, 8, false, false}, DType::kFloat32, false}};
  for (const Case& c : cases) {
    Builder b;
    const RandomGraph graph = Product(b, c.product, c.dtype);
    SCOPED_TRACE(StrCat(Name(c.dtype), ", ", c.product.m, " x ", c.product.n, " x ", c.product.k));
    EXPECT_EQ(DifferenceOn(graph, Gpu(1)), "");
    const KernelCounts counts = Count(graph, Gpu(1));
    EXPECT_EQ(counts["copy_async"] > 0, c.copies);
    EXPECT_EQ(counts["wait"], c.copies ? 2 : 0);
    if (c.copies) EXPECT_EQ(counts["barrier"], 1);
    const Target amd = AmdTarget(*FindAmdProcessor("gfx942"), 1);
    EXPECT_EQ(Count(graph, amd)["copy_async"], 0);
  }
}

// Where nothing is copied asynchronously, what threads copy of the next tile is on its way into
// their registers while they multiply: in an iteration they store a tile, pass a barrier, load the
// next tile, and then read the stored one.
TEST(WorkgroupKernels, NextTilesAreLoadedIntoRegistersWhileOthersAreMultiplied) {
  for (const char* processor : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    const Target target = AmdTarget(*FindAmdProcessor(processor), 1);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      for (const ProductCase& c :
           {ProductCase{1, 64, 128, 160, false, false}, ProductCase{2, 70, 33, 137, true, false},
            ProductCase{1, 64, 65, 128, false, true}}) {
        SCOPED_TRACE(StrCat(processor, ", ", Name(dtype), ", ", c.m, " x ", c.n, " x ", c.k));
        Builder b;
        const RandomGraph graph = Product(b, c, dtype);
        EXPECT_EQ(DifferenceOn(graph, target), "");
        Budget budget;
        const auto schedule = ScheduleGraph(graph.sink, &budget);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        const auto program = Lower(schedule->kernels[0].graph, target, "k", &budget);
        ASSERT_TRUE(program.ok()) << program.status();
        EXPECT_THAT(program->moves, ::testing::HasSubstr("ring 2"));
        const TileSteps steps = StepsOf(*program);
        EXPECT_EQ(steps.barriers, 1);
        EXPECT_LT(steps.last_store, steps.barrier);
        EXPECT_LT(steps.barrier, steps.first_load);
        EXPECT_LT(steps.last_load, steps.first_read);
      }
    }
  }
}

// A workgroup that computes several products one after another fills local memory again only once
// all of its threads have read it, also where a product has one tile, and so has no loop.
TEST(WorkgroupKernels, LoopsAroundAProductFillItsTilesAnew) {
  const char* const kTile =
      "LOCAL r1 4 axis 1, UPCAST r1 4, LOCAL r2 8 axis 0, VECTORIZE r2 4, UNROLL r3 8, ";
  for (const char* stage :
       {"STAGE r3 8", "STAGE r3 8 ring 2", "STAGE r3 8 ring 3", "STAGE r3 8 ring 5"}) {
    for (const int64_t k : {8, 16, 24, 41}) {
      Builder b;
      const RandomGraph graph = Product(b, {3, 16, 32, k, false, false}, DType::kFloat32);
      const std::string moves = StrCat(kTile, stage, ", GROUP r1, GROUP r2");
      const auto run = [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
        return testing::RunLowered(
            sink, Gpu(1), variables, slots,
            [&](const auto&, const auto&, const auto&) -> absl::StatusOr<std::string> {
              return moves;
            });
      };
      EXPECT_EQ(testing::Compare(graph, run), "") << moves << ", " << k;
    }
  }
}

}  // namespace
}  // namespace telegrad
