// Programs that access memory: loops, loads and stores, gates, private buffers and reductions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/ir/scalar.h"
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

std::vector<float> Numbers(int64_t n, float step = 0.25f) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i + 1) * step;
  return v;
}

void ExpectOnAllTargets(ProgramBuilder& b, const std::vector<std::shared_ptr<Memory>>& inputs,
                        const std::vector<float>& expected) {
  for (const auto& [name, target] : TestTargets()) {
    const auto out = Upload(std::vector<float>(expected.size(), -7));
    std::vector<std::shared_ptr<Memory>> memories = {out};
    memories.insert(memories.end(), inputs.begin(), inputs.end());
    ASSERT_EQ(RunOnce(b.Build(), memories, target), absl::OkStatus()) << name;
    EXPECT_EQ(Download<float>(*out), expected) << name;
  }
}

// out[i] = i < 5 ? x[i - 1 if that exists] : 0, the gate a scalar; loads and stores are both gated.
TEST(Gates, Scalar) {
  constexpr int64_t kSize = 9;
  ProgramBuilder b("gated");
  const UOp out = b.Argument(DType::kFloat32, kSize), in = b.Argument(DType::kFloat32, 5);
  const UOp i = b.Open(AxisType::kLoop, kSize);
  const UOp from = b.Do(Op::kSub, {i, b.Index(1)});
  const UOp low = b.Do(Op::kCmpLt, {b.Index(-1), from}),
            high = b.Do(Op::kCmpLt, {from, b.Index(5)});
  const UOp value = b.Load(in, from, b.Do(Op::kAnd, {low, high}));
  const UOp even = b.Do(Op::kCmpEq, {b.Do(Op::kFloorMod, {i, b.Index(2)}), b.Index(0)});
  b.Store(out, i, value, even);
  b.Close(i);
  const std::vector<float> x = {1, 2, 3, 4, 5};
  ExpectOnAllTargets(b, {Upload(x)}, {0, -7, 2, -7, 4, -7, 0, -7, 0});
}

// A scalar gate on a vector access, whose lanes are all inside or all outside.
TEST(Gates, ScalarGateOnVector) {
  ProgramBuilder b("gated");
  const UOp out = b.Argument(DType::kFloat32, 16), in = b.Argument(DType::kFloat32, 8);
  const UOp i = b.Open(AxisType::kThread, 4);
  const UOp at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(4)}), b.Iota(4)});
  b.Store(out, at, b.Load(in, at, b.Do(Op::kCmpLt, {i, b.Index(2)})));
  b.Close(i);
  ExpectOnAllTargets(b, {Upload(Numbers(8, 1))}, {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0});
}

// A mask per lane: the last vector is cut off at 13 elements, on both sides. The page after the
// input is not ours, so a full-width load would show.
TEST(Gates, LaneMask) {
  constexpr int64_t kSize = 13;
  ProgramBuilder b("masked");
  const UOp out = b.Argument(DType::kFloat32, kSize), in = b.Argument(DType::kFloat32, kSize);
  const UOp i = b.Open(AxisType::kLoop, 2);
  const UOp at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(8)}), b.Iota(8)});
  const UOp inside = b.Do(Op::kCmpLt, {at, b.Index(kSize)});
  b.Store(out, at, b.Load(in, at, inside), inside);
  b.Close(i);
  ExpectOnAllTargets(b, {Upload(Numbers(kSize))}, Numbers(kSize));
  // Beyond the end of the output lie bytes of the same allocation that stay.
  const auto out_memory = Upload(std::vector<float>(16, -7));
  ASSERT_EQ(RunOnce(b.Build(), {out_memory, Upload(Numbers(kSize))}, HostTarget(1)),
            absl::OkStatus());
  const auto all = Download<float>(*out_memory);
  for (int64_t k = kSize; k < 16; ++k) EXPECT_EQ(all[k], -7);
}

// Data-dependent rows: a gather whose wild indices are gated, lane by lane, and a scatter.
TEST(Gates, GatherAndScatter) {
  ProgramBuilder b("gather");
  const UOp out = b.Argument(DType::kFloat32, 8), in = b.Argument(DType::kFloat32, 4);
  const UOp index = b.Argument(DType::kInt32, 8), to = b.Argument(DType::kInt64, 8);
  const UOp lanes = b.Iota(8);
  const UOp at = b.Load(index, lanes);
  const UOp zero = b.graph().Const(DType::kInt32, 0), four = b.graph().Const(DType::kInt32, 4);
  const UOp low = b.Do(Op::kCmpLt, {b.graph().Const(DType::kInt32, -1), at});
  const UOp high = b.Do(Op::kCmpLt, {at, four});
  EXPECT_TRUE(zero.valid());
  const UOp value = b.Load(in, at, b.Do(Op::kAnd, {low, high}));
  const UOp where = b.Load(to, lanes);
  b.Store(out, where, value, b.Do(Op::kCmpNe, {where, b.Index(-1)}));
  const std::vector<int32_t> rows = {3, -1, 0, 1'000'000'000, 2, INT32_MIN, 1, 4};
  const std::vector<int64_t> targets = {0, 1, 2, 3, 7, 6, 5, -1};
  ExpectOnAllTargets(b, {Upload(std::vector<float>{10, 11, 12, 13}), Upload(rows), Upload(targets)},
                     {13, 0, 10, 0, -7, 11, 0, 12});
}

// A strided vector access is a gather, one from a narrow type that wraps is not taken for
// contiguous.
TEST(Access, VectorIndexForms) {
  ProgramBuilder b("strided");
  const UOp out = b.Argument(DType::kFloat32, 8), in = b.Argument(DType::kFloat32, 256);
  const UOp stride = b.Do(Op::kMul, {b.Iota(4), b.Index(3)});
  b.Store(out, b.Iota(4), b.Load(in, stride));
  const UOp start = b.Argument(DType::kUInt8, 1);
  const UOp narrow = b.Do(Op::kAdd, {b.Load(start, b.Index(0)), b.Iota(4, DType::kUInt8)});
  b.Store(out, b.Do(Op::kAdd, {b.Iota(4), b.Index(4)}), b.Load(in, narrow));
  const auto x = Numbers(256);
  ExpectOnAllTargets(b, {Upload(x), Upload(std::vector<uint8_t>{254})},
                     {x[0], x[3], x[6], x[9], x[254], x[255], x[0], x[1]});
}

TEST(Access, BoolIsAnyByteButZero) {
  for (const auto& [name, target] : TestTargets()) {
    ProgramBuilder b("bools");
    const UOp out = b.Argument(DType::kBool, 16), in = b.Argument(DType::kBool, 16);
    b.Store(out, b.Iota(8), b.Load(in, b.Iota(8)));
    const UOp i = b.Open(AxisType::kLoop, 8);
    const UOp at = b.Do(Op::kAdd, {i, b.Index(8)});
    b.Store(out, at, b.Load(in, at));
    b.Close(i);
    const std::vector<uint8_t> x = {0, 1, 2, 255, 0, 128, 0, 1, 0, 1, 2, 255, 0, 128, 0, 1};
    const auto memory = Upload(std::vector<uint8_t>(16, 9));
    ASSERT_EQ(RunOnce(b.Build(), {memory, Upload(x)}, target), absl::OkStatus());
    EXPECT_EQ(Download<uint8_t>(*memory),
              (std::vector<uint8_t>{0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1}))
        << name;
  }
}

// Rows of a matrix, summed in a register accumulator of one element; AFTER keeps the load behind
// the loop.
TEST(Registers, RowSums) {
  constexpr int64_t kRows = 6, kColumns = 10;
  ProgramBuilder b("row_sums");
  const UOp out = b.Argument(DType::kFloat32, kRows);
  const UOp in = b.Argument(DType::kFloat32, kRows * kColumns);
  const UOp acc = b.Register(DType::kFloat32, 1);
  const UOp i = b.Open(AxisType::kThread, kRows);
  const UOp start = b.Store(acc, b.Index(0), b.graph().ConstFloat(DType::kFloat32, 100));
  const UOp started = b.Do(Op::kAfter, {acc, start, i});
  const UOp k = b.Open(AxisType::kReduce, kColumns);
  const UOp at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(kColumns)}), k});
  const UOp sum = b.Do(Op::kAdd, {b.Load(started, b.Index(0)), b.Load(in, at)});
  b.Store(started, b.Index(0), sum);
  const UOp end = b.Close(k);
  b.Store(out, i, b.Load(b.Do(Op::kAfter, {started, end}), b.Index(0)));
  b.Close(i);
  const auto x = Numbers(kRows * kColumns);
  std::vector<float> expected(kRows, 100);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) expected[r] += x[r * kColumns + c];
  }
  ExpectOnAllTargets(b, {Upload(x)}, expected);
}

// A matrix product with a tile of vector accumulators, as the optimizer writes it: 3 rows by 2
// vectors of 8, rounded once for each multiply-add, in order of k.
TEST(Registers, TileOfVectors) {
  constexpr int64_t kM = 6, kN = 32, kK = 17, kRows = 3, kVectors = 2, kLanes = 8;
  ProgramBuilder b("matmul");
  const UOp out = b.Argument(DType::kFloat32, kM * kN);
  const UOp left = b.Argument(DType::kFloat32, kM * kK);
  const UOp right = b.Argument(DType::kFloat32, kK * kN);
  const UOp acc = b.Register(DType::kFloat32, kRows * kVectors * kLanes);
  const auto slot = [&](int64_t r, int64_t v) {
    return b.Do(Op::kAdd, {b.Index((r * kVectors + v) * kLanes), b.Iota(kLanes)});
  };
  const UOp i = b.Open(AxisType::kThread, kM / kRows);
  const UOp j = b.Open(AxisType::kLoop, kN / (kVectors * kLanes));
  const UOp row = b.Do(Op::kMul, {i, b.Index(kRows)});
  const UOp column = b.Do(Op::kMul, {j, b.Index(kVectors * kLanes)});
  UOp last;
  std::vector<UOp> lines;
  for (int64_t r = 0; r < kRows; ++r) {
    lines.push_back(b.Do(Op::kAdd, {row, b.Index(r)}));
    for (int64_t v = 0; v < kVectors; ++v) {
      last = b.Store(acc, slot(r, v), b.graph().ConstFloat(DType::kFloat32, 0));
    }
  }
  const UOp clean = b.Do(Op::kAfter, {acc, last});
  const UOp k = b.Open(AxisType::kReduce, kK);
  for (int64_t r = 0; r < kRows; ++r) {
    const UOp a = b.Load(left, b.Do(Op::kAdd, {b.Do(Op::kMul, {lines[r], b.Index(kK)}), k}));
    for (int64_t v = 0; v < kVectors; ++v) {
      const UOp from = b.Do(Op::kAdd, {b.Do(Op::kMul, {k, b.Index(kN)}), column});
      const UOp at = b.Do(Op::kAdd, {b.Do(Op::kAdd, {from, b.Index(v * kLanes)}), b.Iota(kLanes)});
      const UOp x = b.Load(right, at);
      b.Store(clean, slot(r, v), b.Do(Op::kMulAcc, {a, x, b.Load(clean, slot(r, v))}));
    }
  }
  const UOp done = b.Do(Op::kAfter, {clean, b.Close(k)});
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const UOp line = b.Do(Op::kMul, {lines[r], b.Index(kN)});
      const UOp to = b.Do(Op::kAdd, {b.Do(Op::kAdd, {line, column}), b.Index(v * kLanes)});
      b.Store(out, b.Do(Op::kAdd, {to, b.Iota(kLanes)}), b.Load(done, slot(r, v)));
    }
  }
  b.Close(j);
  b.Close(i);

  const auto x = Numbers(kM * kK, 0.3f), y = Numbers(kK * kN, 0.7f);
  std::vector<float> expected(kM * kN);
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      float sum = 0;
      for (int64_t q = 0; q < kK; ++q) sum = std::fma(x[m * kK + q], y[q * kN + n], sum);
      expected[m * kN + n] = sum;
    }
  }
  ExpectOnAllTargets(b, {Upload(x), Upload(y)}, expected);
}

// Local memory, and a private buffer that is read before it is written.
TEST(Registers, UnwrittenReadsAsZero) {
  for (AddressSpace space : {AddressSpace::kRegister, AddressSpace::kLocal}) {
    ProgramBuilder b("unwritten");
    const UOp out = b.Argument(DType::kFloat32, 100);
    const UOp mine = b.Register(DType::kFloat32, 100, space);
    b.Store(mine, b.Index(3), b.graph().ConstFloat(DType::kFloat32, 5));
    const UOp i = b.Open(AxisType::kLoop, 100);
    b.Store(out, i, b.Load(mine, i));
    b.Close(i);
    std::vector<float> expected(100, 0);
    expected[3] = 5;
    ExpectOnAllTargets(b, {}, expected);
  }
}

// Zero iterations, an end that the kernel reads, a narrow counter.
TEST(Loops, EndsOfEveryKind) {
  ProgramBuilder b("loops");
  const UOp out = b.Argument(DType::kInt32, 200), ends = b.Argument(DType::kUInt8, 3);
  const UOp one = b.graph().Const(DType::kInt32, 1);
  const UOp none = b.Open(AxisType::kLoop, int64_t{0});
  b.Store(out, b.Index(0), one);
  b.Close(none);
  const UOp i = b.Open(AxisType::kLoop, 3);
  const UOp j = b.Open(AxisType::kLoop, b.Load(ends, i));
  const UOp at = b.Cast(j, DType::kInt64);
  const UOp inside = b.Do(Op::kCmpLt, {at, b.Index(200)});
  b.Store(out, at, b.Do(Op::kAdd, {b.Load(out, at, inside), one}), inside);
  b.Close(j);
  b.Close(i);
  const auto memory = Upload(std::vector<int32_t>(200, 0));
  const std::vector<uint8_t> counts = {0, 150, 199};
  ASSERT_EQ(RunOnce(b.Build(), {memory, Upload(counts)}, HostTarget(1)), absl::OkStatus());
  const auto actual = Download<int32_t>(*memory);
  for (int k = 0; k < 200; ++k) EXPECT_EQ(actual[k], (k < 150) + (k < 199)) << k;
}

// The entry point cuts [begin, end) to the range, whatever it is called with.
TEST(Loops, LaunchIsCutToTheRange) {
  for (DType counter : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
    ProgramBuilder b("cut");
    const UOp out = b.Argument(DType::kInt32, 12);
    const UOp i = b.Open(AxisType::kThread, b.graph().Const(counter, 10));
    const UOp one = b.graph().Const(DType::kInt32, 1);
    b.Store(out, i, b.Do(Op::kAdd, {b.Load(out, i), one}));
    b.Close(i);
    Program program = b.Build();
    program.iterations = 1000;
    const auto memory = Upload(std::vector<int32_t>(12, 0));
    ASSERT_EQ(RunOnce(program, {memory}, HostTarget(1)), absl::OkStatus());
    EXPECT_EQ(Download<int32_t>(*memory),
              (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
  }
}

template <typename T>
std::vector<T> ReduceLanesOf(DType dtype, const std::vector<T>& x) {
  ProgramBuilder b("reduce");
  const auto n = static_cast<int64_t>(x.size());
  const UOp out = b.Argument(dtype, 3), in = b.Argument(dtype, n);
  const UOp value = b.Load(in, b.Iota(n));
  for (ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMul, ReduceKind::kMax}) {
    const auto k = static_cast<int64_t>(kind);
    const UOp folded = b.Do(Op::kReduce, DType::kVoid, {value}, {k, 0});
    b.Store(out, b.Index(k), b.Do(Op::kReshape, DType::kVoid, {folded}, {}));
  }
  const auto memory = Upload(std::vector<T>(3));
  EXPECT_EQ(RunOnce(b.Build(), {memory, Upload(x)}, HostTarget(1)), absl::OkStatus());
  return Download<T>(*memory);
}

TEST(Reduce, Lanes) {
  // Exact whatever the order.
  EXPECT_EQ(ReduceLanesOf<float>(DType::kFloat32, {1, 2, -4, 8, 0.5, 2, 1, -1}),
            (std::vector<float>{9.5, 64, 8}));
  EXPECT_EQ(ReduceLanesOf<double>(DType::kFloat64, {-1, -2, -4}),
            (std::vector<double>{-7, -8, -1}));
  EXPECT_EQ(ReduceLanesOf<int8_t>(DType::kInt8, {100, 100, -3, 2}),
            (std::vector<int8_t>{static_cast<int8_t>(199), static_cast<int8_t>(-60000), 100}));
  EXPECT_EQ(ReduceLanesOf<uint32_t>(DType::kUInt32, {1, 0xffffffff, 3, 5}),
            (std::vector<uint32_t>{8, static_cast<uint32_t>(-15), 0xffffffff}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float v : ReduceLanesOf<float>(DType::kFloat32, {1, nan, 3, 4})) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(ReduceLanesOf<int64_t>(DType::kInt64, {5}), (std::vector<int64_t>{5, 5, 5}));
}

TEST(Values, ExpandAndScalarOperandsBroadcast) {
  ProgramBuilder b("expand");
  const UOp out = b.Argument(DType::kFloat32, 4), in = b.Argument(DType::kFloat32, 1);
  const UOp one = b.Do(Op::kReshape, DType::kVoid, {b.Load(in, b.Index(0))}, {1});
  const UOp four = b.Do(Op::kExpand, DType::kVoid, {one}, {4});
  const UOp lanes = b.Cast(b.Iota(4), DType::kFloat32);
  const UOp half = b.graph().ConstFloat(DType::kFloat32, 0.5);
  b.Store(out, b.Iota(4), b.Do(Op::kAdd, {b.Do(Op::kMul, {four, lanes}), half}));
  ExpectOnAllTargets(b, {Upload(std::vector<float>{3})}, {0.5, 3.5, 6.5, 9.5});
}

TEST(Values, ConstantsOfEveryKind) {
  ProgramBuilder b("constants");
  const UOp out = b.Argument(DType::kFloat64, 6);
  const std::vector<double> values = {0.1, -0.0, INFINITY, -INFINITY, NAN, 5e-324};
  for (size_t k = 0; k < values.size(); ++k) {
    b.Store(out, b.Index(k), b.graph().ConstFloat(DType::kFloat64, values[k]));
  }
  const UOp narrow = b.Argument(DType::kFloat32, 1);
  b.Store(narrow, b.Index(0), b.graph().ConstFloat(DType::kFloat32, 0.1));
  const UOp wide = b.Argument(DType::kUInt64, 1);
  b.Store(wide, b.Index(0), b.graph().Const(DType::kUInt64, -1));
  const auto f64 = Upload(std::vector<double>(6)), f32 = Upload(std::vector<float>(1)),
             u64 = Upload(std::vector<uint64_t>(1));
  ASSERT_EQ(RunOnce(b.Build(), {f64, f32, u64}, HostTarget(1)), absl::OkStatus());
  const auto actual = Download<double>(*f64);
  EXPECT_EQ(std::memcmp(actual.data(), values.data(), 4 * sizeof(double)), 0);
  EXPECT_TRUE(std::isnan(actual[4]));
  EXPECT_EQ(actual[5], 5e-324);
  EXPECT_EQ(Download<float>(*f32)[0], 0.1f);
  EXPECT_EQ(Download<uint64_t>(*u64)[0], UINT64_MAX);
}

}  // namespace
}  // namespace telegrad
