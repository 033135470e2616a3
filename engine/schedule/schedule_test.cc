// What the schedule must get right: how many kernels, which order, whose memory.
#include "engine/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/schedule/memory_plan.h"

namespace telegrad {
namespace {

class ScheduleTest : public ::testing::Test {
 protected:
  UOp Param(int64_t slot, Shape dims) { return g_.Param(slot, DType::kFloat32, dims); }
  UOp Reduce(ReduceKind kind, UOp x, int64_t axis) {
    return g_.Make(Op::kReduce, DType::kVoid, {x}, {static_cast<int64_t>(kind), axis});
  }
  UOp To(Op op, UOp x, std::vector<int64_t> arg) { return g_.Make(op, {x}, arg); }
  UOp Store(UOp to, UOp value) { return g_.Make(Op::kStore, {to, value}); }

  Schedule Run(std::vector<UOp> stores) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    Budget budget;
    auto schedule = ScheduleGraph(sink, &budget);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    if (schedule.ok()) ExpectArgumentsApart(*schedule);
    return schedule.ok() ? *std::move(schedule) : Schedule{};
  }

  // Renderers say of arguments that they do not overlap: no buffer is two of them.
  static void ExpectArgumentsApart(const Schedule& s) {
    for (const ScheduledKernel& kernel : s.kernels) {
      for (size_t i = 0; i < kernel.arguments.size(); ++i) {
        EXPECT_EQ(0, std::count(kernel.arguments.begin() + static_cast<ptrdiff_t>(i) + 1,
                                kernel.arguments.end(), kernel.arguments[i]))
            << "argument " << i << " is bound twice";
      }
    }
  }

  static BufferRef Slot(int32_t i) { return {BufferRef::Kind::kSlot, i}; }

  Graph g_;
};

TEST_F(ScheduleTest, ElementwiseChainIsOneKernel) {
  const UOp a = Param(0, {4, 8}), b = Param(1, {4, 8});
  const UOp sum = g_.Make(Op::kAdd, {a, b});
  const Schedule s = Run({Store(Param(2, {4, 8}), g_.Make(Op::kMul, {sum, sum}))});
  ASSERT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0].arguments, (std::vector<BufferRef>{Slot(2), Slot(0), Slot(1)}));
  EXPECT_TRUE(s.temporaries.empty());
}

// However many kernels read a constant, it is computed from nothing in each.
TEST_F(ScheduleTest, AConstantIsNotStored) {
  const UOp number = g_.Make(Op::kNeg, {To(Op::kReshape, g_.Const(DType::kFloat32, 3), {1})});
  std::vector<UOp> stores;
  for (int64_t i = 0; i < 40; ++i) {
    const Shape shape = {i + 2};
    const UOp sum = g_.Make(Op::kAdd, {Param(2 * i, shape), To(Op::kExpand, number, shape)});
    stores.push_back(Store(Param(2 * i + 1, shape), sum));
  }
  const Schedule s = Run(stores);
  EXPECT_EQ(s.kernels.size(), stores.size());
  EXPECT_TRUE(s.temporaries.empty());
}

// Nine products for each of 96 x 784 elements, of which 32 sums of products are made, as of an
// image's channels: computing them again for each of two tiles would take longer than storing them,
// because a product's tile shares none of their loads; and so would computing them for one tile,
// whose lanes they do not have.
TEST_F(ScheduleTest, ASumAmongTheTermsOfAProductIsStored) {
  const int64_t channels = 96, pixels = 784;
  const auto stores = [&](int64_t outputs) {
    const Shape wide = {outputs, channels, pixels};
    const UOp taps = To(Op::kExpand, Param(2, {channels, 1, 9}), {channels, pixels, 9});
    const UOp products = g_.Make(Op::kMul, {Param(1, {channels, pixels, 9}), taps});
    const UOp sums = To(Op::kReshape, Reduce(ReduceKind::kAdd, products, 2), {1, channels, pixels});
    const UOp weight = To(Op::kExpand, Param(3, {outputs, channels, 1}), wide);
    const UOp all = g_.Make(Op::kMul, {weight, To(Op::kExpand, sums, wide)});
    const UOp sum = Reduce(ReduceKind::kAdd, all, 1);
    return Run({Store(Param(0, {outputs, 1, pixels}), sum)}).temporaries.size();
  };
  EXPECT_EQ(stores(32), 1u);
  EXPECT_EQ(stores(16), 1u);
}

// Windows of 16 along each row, as of a depthwise convolution: no loop reads the same elements in
// all of its iterations, so no register tile has them, and exponentials under them are stored.
TEST_F(ScheduleTest, WhatNoTileSharesIsStoredBelowAProduct) {
  const int64_t rows = 64, pixels = 64, taps = 16, results = pixels - taps + 1;
  const UOp x = g_.Make(Op::kExp2, {g_.Make(Op::kSqrt, {Param(1, {rows, 1, pixels})})});
  UOp windows = To(Op::kReshape, To(Op::kExpand, x, {rows, taps, pixels}), {rows, taps * pixels});
  windows = To(Op::kPad, windows, {0, rows, 0, taps * (pixels + 1)});
  windows = To(Op::kReshape, windows, {rows, taps, pixels + 1});
  windows = To(Op::kShrink, windows, {0, rows, 0, taps, 0, results});
  const UOp weights = To(Op::kExpand, Param(2, {rows, taps, 1}), {rows, taps, results});
  const UOp sum = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {windows, weights}), 1);
  EXPECT_EQ(Run({Store(Param(0, {rows, 1, results}), sum)}).temporaries.size(), 1u);
}

// Channels that are scaled by their means, which a product of 320 outputs reads: each of its tiles
// would scale an element by itself while all lanes of the sum wait. A scaled weight is computed
// once for many runs.
TEST_F(ScheduleTest, WhatAllLanesOfAProductShareIsScaledOnce) {
  const int64_t channels = 64, outputs = 320, pixels = 196;
  const auto arguments = [&](bool weight) {
    const auto product = [&](int64_t n, UOp a, UOp b) {
      const Shape wide = {n, channels, pixels};
      const UOp rows = To(Op::kExpand, To(Op::kReshape, a, {n, channels, 1}), wide);
      const UOp columns = To(Op::kExpand, To(Op::kReshape, b, {1, channels, pixels}), wide);
      return To(Op::kReshape, Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {rows, columns}), 1),
                {n, pixels});
    };
    const Shape image = {channels, pixels};
    const UOp x = weight ? Param(2, image)
                         : product(channels, Param(1, {channels, channels}), Param(2, image));
    const UOp sum = weight ? Param(4, {channels, 1}) : Reduce(ReduceKind::kAdd, x, 1);
    const UOp scaled = g_.Make(Op::kMul, {x, To(Op::kExpand, sum, image)});
    const Schedule s = Run({Store(Param(0, {outputs, pixels}),
                                  product(outputs, Param(3, {outputs, channels}), scaled))});
    return s.kernels.empty() ? 0 : s.kernels.back().arguments.size();
  };
  EXPECT_EQ(arguments(false), 3u) << "the result, the weight and what is scaled";
  EXPECT_EQ(arguments(true), 4u);
}

// An argmax finds no element that equals the maximum if one of the two was computed with other
// bits.
TEST_F(ScheduleTest, SumsThatAreComparedWithThemselvesAreComputedOnce) {
  const Shape shape = {8, 16};
  const auto c = [&](double x) { return g_.ConstFloat(DType::kFloat32, x); };
  const auto temporaries = [&](UOp compared) {
    const UOp one = g_.Make(Op::kWhere, {compared, c(1), c(0)});
    return Run({Store(g_.Param(2, DType::kFloat32, shape), one)}).temporaries.size();
  };
  const auto row = [&](UOp x) { return To(Op::kExpand, Reduce(ReduceKind::kMax, x, 1), shape); };
  const UOp wide = To(Op::kReshape, Reduce(ReduceKind::kAdd, Param(0, {8, 16, 4}), 2), shape);
  const UOp sum = g_.Make(Op::kAdd, {wide, c(0.5)}), negated = g_.Make(Op::kNeg, {sum});
  const UOp mask = g_.Param(1, DType::kBool, shape);
  const UOp masked = g_.Make(Op::kWhere, {mask, sum, c(-1e9)});
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpEq, {sum, row(sum)})), 1u) << "argmax";
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpEq, {sum, g_.Make(Op::kNeg, {row(negated)})})), 1u)
      << "argmin";
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpEq, {sum, row(masked)})), 1u) << "argmax of some";
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpLt, {sum, To(Op::kFlip, sum, {1})})), 1u) << "sorting";
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpLt, {sum, c(0)})), 0u) << "a constant";
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpLt, {g_.Make(Op::kSub, {sum, row(sum)}), c(0)})), 0u)
      << "one value, which is computed once for each element";
  const UOp plain = Param(0, shape);
  EXPECT_EQ(temporaries(g_.Make(Op::kCmpEq, {g_.Make(Op::kNeg, {plain}), row(plain)})), 0u)
      << "no sum";
}

TEST_F(ScheduleTest, EpilogueJoinsTheReduction) {
  const UOp a = To(Op::kExpand, To(Op::kReshape, Param(0, {8, 4}), {8, 4, 1}), {8, 4, 16});
  const UOp b = To(Op::kExpand, To(Op::kReshape, Param(1, {4, 16}), {1, 4, 16}), {8, 4, 16});
  const UOp product = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {a, b}), 1);
  const UOp relu = g_.Make(Op::kMax, {product, g_.ConstFloat(DType::kFloat32, 0)});
  EXPECT_EQ(Run({Store(Param(2, {8, 1, 16}), relu)}).kernels.size(), 1u);
}

TEST_F(ScheduleTest, SoftmaxIsOneKernel) {
  const UOp x = Param(0, {64, 128});
  const UOp max = To(Op::kExpand, Reduce(ReduceKind::kMax, x, 1), {64, 128});
  const UOp e = g_.Make(Op::kExp2, {g_.Make(Op::kSub, {x, max})});
  const UOp sum = To(Op::kExpand, Reduce(ReduceKind::kAdd, e, 1), {64, 128});
  const Schedule s = Run({Store(Param(1, {64, 128}), g_.Make(Op::kFDiv, {e, sum}))});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_TRUE(s.temporaries.empty());
}

// Computing an exponential again takes longer than keeping a row of them, if a thread has several
// rows to go through; one row leaves threads without work, and a few operations are soon done
// again.
TEST_F(ScheduleTest, AThreadKeepsTheExponentialsOfARow) {
  const auto exponentials = [&](int64_t rows, Op op, int64_t columns = 128) {
    const Shape shape = {rows, columns};
    const UOp x = Param(0, shape);
    const UOp max = To(Op::kExpand, Reduce(ReduceKind::kMax, x, 1), shape);
    const UOp e = g_.Make(op, {g_.Make(Op::kSub, {x, max})});
    const UOp sum = To(Op::kExpand, Reduce(ReduceKind::kAdd, e, 1), shape);
    const UOp sink =
        g_.Make(Op::kSink, DType::kVoid, {Store(Param(1, shape), g_.Make(Op::kFDiv, {e, sum}))});
    Budget budget;
    ScheduleOptions options;
    options.private_bytes = 1 << 20;
    const auto schedule = ScheduleGraph(sink, &budget, options);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->kernels.size(), 1u);
    EXPECT_TRUE(schedule->temporaries.empty());
    int found = 0;
    for (const uint32_t id : PostOrder(schedule->kernels[0].graph.root())) {
      if (schedule->kernels[0].graph.root().graph()->op(id) == op) ++found;
    }
    return found;
  };
  EXPECT_EQ(exponentials(64, Op::kExp2), 1);
  EXPECT_EQ(exponentials(1, Op::kExp2), 2);
  EXPECT_EQ(exponentials(64, Op::kExp2, 1 << 20), 2) << "a row is more than private memory has";
  EXPECT_EQ(exponentials(64, Op::kNeg), 2);
}

// What a kernel reads again after it is stored, in this graph, is no result.
TEST_F(ScheduleTest, AResultIsWhatNoKernelReads) {
  const Shape shape = {64, 128};
  const UOp a = Param(0, shape), kept = Param(1, shape);
  const UOp store = Store(kept, g_.Make(Op::kExp2, {a}));
  const UOp again = g_.Make(Op::kAfter, {kept, store});
  const UOp sum = Reduce(ReduceKind::kAdd, again, 0);
  const Schedule s = Run({store, Store(Param(2, {1, 128}), sum)});
  std::set<int32_t> results;
  for (const ScheduledKernel& kernel : s.kernels) {
    for (const int32_t argument : kernel.results) {
      const BufferRef& ref = kernel.arguments[static_cast<size_t>(argument)];
      EXPECT_EQ(ref.kind, BufferRef::Kind::kSlot);
      results.insert(ref.index);
    }
  }
  EXPECT_EQ(results, std::set<int32_t>{2});
}

TEST_F(ScheduleTest, LayerNormIsOneKernel) {
  const UOp x = Param(0, {64, 128});
  const auto mean = [&](UOp of) {
    const UOp sum = Reduce(ReduceKind::kAdd, of, 1);
    const UOp part =
        To(Op::kExpand, g_.Make(Op::kMul, {sum, g_.ConstFloat(DType::kFloat32, 1.0 / 128)}),
           {64, 128});
    return part;
  };
  const UOp centered = g_.Make(Op::kSub, {x, mean(x)});
  const UOp variance = mean(g_.Make(Op::kMul, {centered, centered}));
  const UOp y =
      g_.Make(Op::kMul, {centered, g_.Make(Op::kRecip, {g_.Make(Op::kSqrt, {variance})})});
  EXPECT_EQ(Run({Store(Param(1, {64, 128}), y)}).kernels.size(), 1u);
}

// Scores, softmax and weighted sum: nests of one kernel, which share the loop over the heads.
TEST_F(ScheduleTest, AttentionIsOneKernel) {
  const Shape wide = {16, 32, 32, 64};
  const UOp q = To(Op::kExpand, To(Op::kReshape, Param(0, {16, 32, 64}), {16, 32, 1, 64}), wide);
  const UOp k = To(Op::kExpand, To(Op::kReshape, Param(1, {16, 32, 64}), {16, 1, 32, 64}), wide);
  const UOp scores =
      To(Op::kReshape, Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {q, k}), 3), {16, 32, 32});
  const UOp max = To(Op::kExpand, Reduce(ReduceKind::kMax, scores, 2), {16, 32, 32});
  const UOp e = g_.Make(Op::kExp2, {g_.Make(Op::kSub, {scores, max})});
  const UOp sum = To(Op::kExpand, Reduce(ReduceKind::kAdd, e, 2), {16, 32, 32});
  const UOp p = To(Op::kReshape, g_.Make(Op::kFDiv, {e, sum}), {16, 32, 32, 1});
  const UOp v = To(Op::kExpand, To(Op::kReshape, Param(2, {16, 32, 64}), {16, 1, 32, 64}), wide);
  const UOp y = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {To(Op::kExpand, p, wide), v}), 2);
  const Schedule s = Run({Store(Param(3, {16, 32, 1, 64}), y)});
  ASSERT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0].reasons.back(), "3 nests inside of 2 loops");
  EXPECT_EQ(s.temporaries.size(), 2u);
}

// A result and a part of it: the part's nest reads the whole from the result's slot, by the
// argument that the first nest writes. By another one, which the compiler takes for other memory,
// it would read what was there before.
TEST_F(ScheduleTest, ANestReadsASlotByTheArgumentThatIsWritten) {
  UOp y = Param(0, {4, 3, 2});
  for (const Op op : {Op::kSqrt, Op::kExp2, Op::kLog2, Op::kSin}) y = g_.Make(op, {y});
  const Schedule s = Run({Store(Param(1, {4, 3, 2}), y),
                          Store(Param(2, {4, 3, 1}), To(Op::kShrink, y, {0, 4, 0, 3, 1, 1}))});
  ASSERT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0].arguments, (std::vector<BufferRef>{Slot(1), Slot(0), Slot(2)}));
}

// A convolution in groups of 16 channels, and the mean of each channel's pixels. The 16 outputs of
// a group read the same channels, so a loop over all 320 would read these 16 times and have no
// lanes.
TEST_F(ScheduleTest, NestsShareGroupsOfAConvolutionAndNotItsChannels) {
  const Shape wide = {20, 16, 16, 64};
  const UOp x = To(Op::kReshape, Param(0, {320, 64}), {20, 1, 16, 64});
  const UOp w = To(Op::kReshape, Param(1, {320, 16}), {20, 16, 16, 1});
  const UOp product = g_.Make(Op::kMul, {To(Op::kExpand, x, wide), To(Op::kExpand, w, wide)});
  const UOp sum = To(Op::kReshape, Reduce(ReduceKind::kAdd, product, 2), {320, 64});
  const UOp y = g_.Make(Op::kMax, {sum, g_.ConstFloat(DType::kFloat32, 0)});
  const Schedule s = Run(
      {Store(Param(2, {320, 64}), y), Store(Param(3, {320, 1}), Reduce(ReduceKind::kAdd, y, 1))});
  ASSERT_EQ(s.kernels.size(), 1u);
  const UOp nest = s.kernels[0].graph.root().src(0);
  ASSERT_TRUE(nest.is(Op::kEnd));
  EXPECT_EQ(nest.src(1).src(0).const_word(), 20) << "tiles of 16 channels";
}

TEST_F(ScheduleTest, ResultsThatShareLoadsAreOneKernel) {
  const UOp a = Param(0, {4, 8}), b = Param(1, {4, 8});
  const UOp sum = g_.Make(Op::kAdd, {a, b});
  const Schedule s = Run({Store(Param(4, {4, 8}), g_.Make(Op::kAdd, {sum, Param(2, {4, 8})})),
                          Store(Param(5, {4, 8}), g_.Make(Op::kAdd, {sum, Param(3, {4, 8})}))});
  ASSERT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0].arguments.size(), 6u);
}

// Adam: both moments and the weight, read and written in place.
TEST_F(ScheduleTest, AnOptimizerStepIsOneKernel) {
  const UOp w = Param(0, {1024}), m = Param(1, {1024}), v = Param(2, {1024}), g = Param(3, {1024});
  const auto c = [&](double x) { return g_.ConstFloat(DType::kFloat32, x); };
  const auto blend = [&](UOp x, UOp y, double beta) {
    return g_.Make(Op::kAdd,
                   {g_.Make(Op::kMul, {x, c(beta)}), g_.Make(Op::kMul, {y, c(1 - beta)})});
  };
  const UOp m1 = blend(m, g, 0.9), v1 = blend(v, g_.Make(Op::kMul, {g, g}), 0.999);
  const UOp step = g_.Make(Op::kFDiv, {m1, g_.Make(Op::kAdd, {g_.Make(Op::kSqrt, {v1}), c(1e-8)})});
  const Schedule s = Run({Store(m, m1), Store(v, v1),
                          Store(w, g_.Make(Op::kSub, {w, g_.Make(Op::kMul, {step, c(1e-3)})}))});
  ASSERT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0].arguments.size(), 4u);
}

TEST_F(ScheduleTest, AScatterWritesItsOutput) {
  const UOp base = Param(0, {8, 4}), rows = Param(1, {3, 4});
  const UOp index = g_.Param(2, DType::kInt32, Shape{3});
  const int64_t add[] = {static_cast<int64_t>(ScatterKind::kAdd)};
  const UOp scatter = g_.Make(Op::kScatter, DType::kVoid, {{base, index, rows}}, add);
  const Schedule s = Run({Store(To(Op::kReshape, Param(3, {32}), {8, 4}), scatter)});
  EXPECT_EQ(s.kernels.size(), 2u);
  EXPECT_TRUE(s.temporaries.empty());
}

TEST_F(ScheduleTest, LargeSumsAreSplit) {
  const Schedule s = Run({Store(Param(1, {1}), Reduce(ReduceKind::kAdd, Param(0, {1 << 20}), 0))});
  ASSERT_EQ(s.kernels.size(), 2u);
  ASSERT_EQ(s.temporaries.size(), 1u);
  EXPECT_EQ(s.temporaries[0].bytes, 64 * 4);
  // A prime number of elements leaves some over.
  EXPECT_EQ(Run({Store(Param(1, {1}), Reduce(ReduceKind::kMax, Param(0, {1'000'003}), 0))})
                .kernels.size(),
            2u);
}

TEST_F(ScheduleTest, ResultsReplaceOperandsThatDie) {
  const Shape wide = {64, 64, 64};
  const auto product = [&](UOp x, UOp y) {
    x = To(Op::kExpand, To(Op::kReshape, x, {64, 64, 1}), wide);
    y = To(Op::kExpand, To(Op::kReshape, y, {1, 64, 64}), wide);
    return To(Op::kReshape, Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {x, y}), 1), {64, 64});
  };
  const UOp x = product(Param(0, {64, 64}), Param(1, {64, 64}));
  const UOp h = g_.Make(Op::kContiguous, {g_.Make(Op::kExp2, {To(Op::kFlip, x, {0})})});
  const UOp y = g_.Make(Op::kAdd, {product(h, Param(2, {64, 64})), x});
  const Schedule s = Run({Store(Param(3, {64, 64}), To(Op::kFlip, y, {0})),
                          Store(Param(4, {64, 64}), To(Op::kFlip, y, {1}))});
  ASSERT_EQ(s.kernels.size(), 5u);
  EXPECT_EQ(s.temporaries.size(), 2u) << "y lies where x was";
  EXPECT_EQ(s.kernels[2].arguments.size(), 3u);
}

// The last tile of a product of 37 rows is moved back over rows that are computed already: from an
// operand that is written over they would come out different.
TEST_F(ScheduleTest, ProductsOfUnevenSizeReplaceNoOperand) {
  for (const int64_t rows : {48, 37}) {
    SCOPED_TRACE(rows);
    const auto product = [&](UOp x, UOp y) {
      x = To(Op::kExpand, To(Op::kReshape, x, {rows, 64, 1}), {rows, 64, 64});
      y = To(Op::kExpand, To(Op::kReshape, y, {1, 64, 64}), {rows, 64, 64});
      const UOp sum = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {x, y}), 1);
      return To(Op::kReshape, sum, {rows, 64});
    };
    const UOp x = product(Param(0, {rows, 64}), Param(1, {64, 64}));
    const UOp h = g_.Make(Op::kContiguous, {g_.Make(Op::kExp2, {To(Op::kFlip, x, {0})})});
    const UOp y = g_.Make(Op::kAdd, {product(h, Param(2, {64, 64})), x});
    const Schedule s = Run({Store(Param(3, {rows, 64}), To(Op::kFlip, y, {0})),
                            Store(Param(4, {rows, 64}), To(Op::kFlip, y, {1}))});
    EXPECT_EQ(s.temporaries.size(), rows == 48 ? 2u : 3u);
  }
}

// Nothing else reads it from memory.
TEST_F(ScheduleTest, AContiguousValueOfOneElementwiseUserIsNotStored) {
  const UOp x = g_.Make(Op::kContiguous, {g_.Make(Op::kNeg, {Param(0, {64})})});
  const Schedule s = Run({Store(Param(1, {64}), g_.Make(Op::kSqrt, {x}))});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_TRUE(s.temporaries.empty());
}

// Steps that read one row each of what was computed for all of them: the rows are parts of one
// temporary, and the kernels the same.
TEST_F(ScheduleTest, StepsOverRowsOfATemporaryAreOneKernel) {
  const UOp x = g_.Make(Op::kContiguous, {g_.Make(Op::kNeg, {Param(0, {6, 64})})});
  UOp h = Param(1, {64});
  for (int64_t t = 0; t < 6; ++t) {
    const UOp row = To(Op::kReshape, To(Op::kShrink, x, {t, 1, 0, 64}), {64});
    const UOp sum = To(Op::kExpand, Reduce(ReduceKind::kAdd, h, 0), {64});
    h = g_.Make(Op::kContiguous, {g_.Make(Op::kExp2, {g_.Make(Op::kAdd, {sum, row})})});
  }
  const Schedule s = Run({Store(Param(2, {64}), h)});
  ASSERT_EQ(s.kernels.size(), 7u);
  std::set<Digest> kernels;
  for (size_t t = 0; t < 6; ++t) {
    const ScheduledKernel& kernel = s.kernels[1 + t];
    kernels.insert(ContentHash(kernel.graph.root()));
    const int64_t at = static_cast<int64_t>(t) * 256;
    EXPECT_TRUE(std::ranges::any_of(kernel.arguments, [&](const BufferRef& ref) {
      return ref.kind == BufferRef::Kind::kTemporary && ref.offset == at &&
             s.temporaries[ref.index].bytes == 6 * 256;
    })) << t;
  }
  EXPECT_LE(kernels.size(), 3u) << "the first, which reads a slot, the last, and the others";
}

// Rows of 40 bytes do not begin where memory may be bound, and what is written stays whole.
TEST_F(ScheduleTest, PartsThatDoNotBeginAtAnAlignmentReadTheirSurroundings) {
  const UOp x = g_.Make(Op::kContiguous, {g_.Make(Op::kNeg, {Param(0, {200, 10})})});
  const UOp row = To(Op::kShrink, x, {30, 1, 0, 10}), all = Reduce(ReduceKind::kAdd, x, 0);
  const Schedule s =
      Run({Store(Param(1, {1, 10}), g_.Make(Op::kExp2, {row})), Store(Param(2, {1, 10}), all)});
  int parts = 0;
  for (const ScheduledKernel& kernel : s.kernels) {
    for (const BufferRef& ref : kernel.arguments) {
      if (ref.offset == 0) continue;
      ++parts;
      EXPECT_EQ(ref.offset, 30 * 40 / 256 * 256);
    }
  }
  EXPECT_EQ(parts, 1);
}

TEST_F(ScheduleTest, ReaderOfTheOldValueRunsBeforeTheStore) {
  const UOp w = Param(0, {4});
  const UOp half = g_.Make(Op::kMul, {w, g_.ConstFloat(DType::kFloat32, 0.5)});
  const UOp total = Reduce(ReduceKind::kAdd, w, 0);
  const Schedule s = Run({Store(w, half), Store(Param(1, {1}), total)});
  ASSERT_EQ(s.kernels.size(), 2u);
  EXPECT_EQ(s.kernels[0].arguments[0], Slot(1)) << "the sum reads w before it is halved";
  EXPECT_EQ(s.kernels[1].arguments, std::vector<BufferRef>{Slot(0)}) << "halved in place";
}

TEST_F(ScheduleTest, ReaderOfTheNewValueRunsAfterTheStore) {
  const UOp w = Param(0, {4});
  const UOp store = Store(w, g_.Make(Op::kNeg, {w}));
  const UOp after = g_.Make(Op::kAfter, {w, store});
  const Schedule s = Run({Store(Param(1, {1}), Reduce(ReduceKind::kAdd, after, 0)), store});
  ASSERT_EQ(s.kernels.size(), 2u);
  EXPECT_EQ(s.kernels[0].arguments[0], Slot(0));
}

TEST_F(ScheduleTest, SwappedBuffersGoThroughTemporaries) {
  const UOp a = Param(0, {4}), b = Param(1, {4});
  const Schedule s = Run({Store(a, b), Store(b, a)});
  ASSERT_GE(s.kernels.size(), 3u);
  EXPECT_FALSE(s.temporaries.empty());
}

TEST_F(ScheduleTest, FlippingInPlaceGoesThroughATemporary) {
  const UOp a = Param(0, {4});
  const Schedule s = Run({Store(a, To(Op::kFlip, a, {0}))});
  EXPECT_EQ(s.kernels.size(), 2u);
  EXPECT_EQ(s.temporaries.size(), 1u);
}

TEST_F(ScheduleTest, OldAndNewValueInOneKernel) {
  const UOp a = Param(0, {4});
  const UOp store = Store(a, g_.Make(Op::kNeg, {a}));
  const UOp after = g_.Make(Op::kAfter, {a, store});
  const Schedule s = Run({Store(Param(1, {4}), g_.Make(Op::kSub, {after, a})), store});
  EXPECT_GE(s.kernels.size(), 3u);
}

// A kernel that stores a value to a slot, and reads it there in its next nest, has the slot once.
TEST_F(ScheduleTest, AWrittenSlotIsOneArgument) {
  const UOp w = To(Op::kExpand, Param(3, {21, 1, 12}), {21, 42, 12});
  const UOp sum = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {Param(0, {21, 42, 12}), w}), 2);
  const UOp mean = Reduce(ReduceKind::kAdd, g_.Make(Op::kMul, {sum, sum}), 1);
  const UOp sink =
      g_.Make(Op::kSink, {Store(Param(1, {21, 42, 1}), sum), Store(Param(2, {21, 1, 1}), mean)});
  Budget budget;
  const Target target = *NvidiaTarget(8, 0, 108, 163 << 10);
  const auto s = ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target));
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(s->kernels.size(), 1u);
  EXPECT_EQ(s->kernels[0].arguments, (std::vector<BufferRef>{Slot(1), Slot(0), Slot(3), Slot(2)}));
}

TEST_F(ScheduleTest, EqualKernelsAreEqualGraphs) {
  std::vector<UOp> stores;
  for (int i = 0; i < 2; ++i) {
    stores.push_back(Store(Param(2 * i + 1, {8}), g_.Make(Op::kNeg, {Param(2 * i, {8})})));
  }
  const Schedule s = Run(stores);
  ASSERT_EQ(s.kernels.size(), 2u);
  EXPECT_EQ(Print(s.kernels[0].graph.root()), Print(s.kernels[1].graph.root()));
}

// A mask that two layers share is made after the scores of the first one and before the others'.
TEST_F(ScheduleTest, LayersThatShareAMaskHaveEqualKernels) {
  const Shape square = {64, 64}, wide = {64, 64, 32};
  const auto scores = [&](int64_t slot) {
    const UOp q = To(Op::kReshape, Param(slot, {64, 32}), {64, 1, 32});
    const UOp k = To(Op::kReshape, Param(slot + 1, {64, 32}), {1, 64, 32});
    const UOp product = g_.Make(Op::kMul, {To(Op::kExpand, q, wide), To(Op::kExpand, k, wide)});
    return To(Op::kReshape, Reduce(ReduceKind::kAdd, product, 2), square);
  };
  const UOp first = scores(0), mask = Param(9, square);
  std::vector<UOp> stores;
  for (int64_t i = 0; i < 2; ++i) {
    const UOp shown = g_.Make(Op::kAdd, {i == 0 ? first : scores(2), mask});
    const UOp most =
        To(Op::kExpand, To(Op::kReshape, Reduce(ReduceKind::kMax, shown, 1), {64, 1}), square);
    const UOp weights = g_.Make(Op::kExp2, {g_.Make(Op::kSub, {shown, most})});
    stores.push_back(Store(Param(4 + i, square), weights));
  }
  const Schedule s = Run(stores);
  std::set<std::string> different;
  for (const ScheduledKernel& kernel : s.kernels) different.insert(Print(kernel.graph.root()));
  EXPECT_EQ(2 * different.size(), s.kernels.size());
}

TEST_F(ScheduleTest, WindowsLeaveNoDivision) {
  // Windows of 3 over 8 elements by repeat, shrink and reshape: 3 * (8 + 1) of 4 * 8 repeated
  // elements.
  UOp x = To(Op::kExpand, To(Op::kReshape, Param(0, {8}), {1, 8}), {4, 8});
  x = To(Op::kShrink, To(Op::kReshape, x, {32}), {0, 27});
  x = To(Op::kShrink, To(Op::kReshape, x, {3, 9}), {0, 3, 0, 6});
  const Schedule s = Run({Store(Param(1, {1, 6}), Reduce(ReduceKind::kAdd, x, 0))});
  ASSERT_EQ(s.kernels.size(), 1u);
  const std::string text = Print(s.kernels[0].graph.root());
  EXPECT_EQ(text.find("floordiv"), std::string::npos) << text;
  EXPECT_EQ(text.find("floormod"), std::string::npos) << text;
}

TEST_F(ScheduleTest, LongChainsAreCutIntoKernelsOfBoundedSize) {
  constexpr int kLength = 20'000;
  UOp x = Param(0, {16});
  for (int i = 0; i < kLength; ++i) x = g_.Make(i % 2 == 0 ? Op::kSqrt : Op::kNeg, {x});
  const Schedule s = Run({Store(Param(1, {16}), x)});
  EXPECT_GE(s.kernels.size(), 19u);
  EXPECT_LE(s.kernels.size(), 30u);
  for (const ScheduledKernel& k : s.kernels) EXPECT_LT(k.graph.graph->size(), 2000u);
}

TEST_F(ScheduleTest, ExponentialSharingIsNotRecomputedExponentially) {
  UOp x = Param(0, {16});
  for (int i = 0; i < 100; ++i) x = g_.Make(Op::kAdd, {x, To(Op::kFlip, x, {0})});
  const Schedule s = Run({Store(Param(1, {16}), x)});
  for (const ScheduledKernel& k : s.kernels) EXPECT_LT(k.graph.graph->size(), 2000u);
}

TEST(MemoryPlanTest, DisjointLifetimesShareAndOverlappingOnesDoNot) {
  const Lifetime lifetimes[] = {{0, 1}, {1, 2}, {2, 3}};
  Temporary temporaries[] = {{1000, 0}, {1000, 0}, {1000, 0}};
  EXPECT_EQ(PlanMemory(lifetimes, temporaries), 2048);
  EXPECT_EQ(temporaries[0].offset, temporaries[2].offset);
  EXPECT_NE(temporaries[0].offset, temporaries[1].offset);
}

// By birth, the large ones would lie behind the small one that is alive with both.
TEST(MemoryPlanTest, ALargeOneDoesNotLieBehindAHole) {
  const Lifetime lifetimes[] = {{0, 1}, {0, 4}, {2, 4}};
  Temporary temporaries[] = {{1024, 0}, {256, 0}, {4096, 0}};
  EXPECT_EQ(PlanMemory(lifetimes, temporaries), 4096 + 256);
}

TEST(MemoryPlanTest, RandomLifetimesNeverShareWhileBothAreAlive) {
  int64_t all = 0, least = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto number = [&](int64_t from, int64_t to) {
      return std::uniform_int_distribution<int64_t>(from, to)(random);
    };
    std::vector<Lifetime> lifetimes(static_cast<size_t>(number(1, 60)));
    std::vector<Temporary> temporaries;
    for (Lifetime& l : lifetimes) {
      l.first = number(0, 40);
      l.last = l.first + number(0, 10);
      temporaries.push_back({number(0, 1) == 0 ? number(0, 3000) : number(0, 100000), 0});
    }
    const int64_t end = PlanMemory(lifetimes, temporaries);
    const auto size = [](const Temporary& t) { return (t.bytes + 255) / 256 * 256; };
    int64_t peak = 0;
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(temporaries[i].offset % kTemporaryAlignment, 0);
      EXPECT_LE(temporaries[i].offset + size(temporaries[i]), end);
      int64_t alive = 0;
      for (size_t j = 0; j < lifetimes.size(); ++j) {
        if (lifetimes[j].first <= lifetimes[i].first && lifetimes[i].first <= lifetimes[j].last) {
          alive += size(temporaries[j]);
        }
        if (i == j || lifetimes[j].last < lifetimes[i].first) continue;
        if (lifetimes[i].last < lifetimes[j].first) continue;
        const bool apart = temporaries[i].offset + size(temporaries[i]) <= temporaries[j].offset ||
                           temporaries[j].offset + size(temporaries[j]) <= temporaries[i].offset;
        EXPECT_TRUE(apart) << i << " and " << j;
      }
      peak = std::max(peak, alive);
    }
    EXPECT_GE(end, peak);
    all += end;
    least += peak;
  }
  EXPECT_LE(static_cast<double>(all), 1.1 * static_cast<double>(least));
}

}  // namespace
}  // namespace telegrad
