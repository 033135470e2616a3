// The ops that the scheduler rewrites before it makes kernels, on the CPU device and in the
// interpreter, against values computed here by hand.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::Slots;

template <typename T>
std::vector<uint8_t> Bytes(const std::vector<T>& values) {
  std::vector<uint8_t> out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <typename T>
std::vector<T> Values(const std::vector<uint8_t>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class LegalizeTest : public ::testing::Test {
 protected:
  UOp Param(int64_t slot, DType dtype, Shape dims) { return g_.Param(slot, dtype, dims); }
  UOp Store(UOp to, UOp value) { return g_.Make(Op::kStore, {to, value}); }
  UOp To(Op op, UOp x, std::vector<int64_t> arg) { return g_.Make(op, {x}, arg); }
  UOp Var(int64_t id, int64_t min, int64_t max, int64_t multiple = 1) {
    return g_.Make(Op::kVar, DType::kVoid, {}, {id, min, max, multiple});
  }
  UOp Arg(int64_t i, DType dtype, Shape dims) {
    std::vector<int64_t> arg{i, 0};
    arg.insert(arg.end(), dims.begin(), dims.end());
    return g_.Make(Op::kArg, dtype, std::span<const UOp>{}, arg);
  }
  UOp Get(UOp tuple, int64_t i) { return g_.Make(Op::kGetTuple, DType::kVoid, {tuple}, {i}); }

  // Every way must leave the same; returns that.
  Slots Run(std::vector<UOp> stores, const Slots& slots,
            const std::vector<VarValue>& variables = {}) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    if (!sink.valid()) return slots;
    EXPECT_TRUE(Verify(sink, kTensorLevel).ok()) << Verify(sink, kTensorLevel);
    Slots first = slots;
    auto status = testing::RunLowered(sink, 32, variables, &first);
    EXPECT_TRUE(status.ok()) << status << "\n" << Print(sink);
    auto cpu = testing::CpuRunner::Open();
    EXPECT_TRUE(cpu.ok()) << cpu.status();
    Slots second = slots;
    status = (*cpu)->Run(sink, variables, &second);
    EXPECT_TRUE(status.ok()) << status << "\n" << Print(sink);
    EXPECT_EQ(first, second);
    return first;
  }

  absl::Status Schedule(std::vector<UOp> stores, const std::vector<VarValue>& variables = {}) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    EXPECT_TRUE(Verify(sink, kTensorLevel).ok()) << Verify(sink, kTensorLevel);
    Budget budget;
    return ScheduleGraph(sink, variables, &budget).status();
  }

  Graph g_;
};

constexpr DType kI32 = DType::kInt32, kF32 = DType::kFloat32;

TEST_F(LegalizeTest, CatOfManySources) {
  std::vector<UOp> sources;
  std::vector<int32_t> want;
  const std::vector<int32_t> x{10, 20, 30, 40, 50};
  const UOp p = Param(0, kI32, {5});
  for (int i = 0; i < 40; ++i) {
    const int64_t offset = i % 5, size = i % 3 == 0 ? 0 : 5 - offset;
    const UOp part = g_.Make(Op::kShrink, {p}, std::vector<int64_t>{offset, size});
    sources.push_back(g_.Make(Op::kAdd, {part, g_.Const(kI32, i)}));
    for (int64_t k = 0; k < size; ++k) want.push_back(x[offset + k] + i);
  }
  const auto n = static_cast<int64_t>(want.size());
  const int64_t axis[] = {0};
  const UOp cat = g_.Make(Op::kCat, DType::kVoid, sources, axis);
  const Slots out = Run({Store(Param(1, kI32, {n}), cat)}, {Bytes(x), Bytes(want)});
  EXPECT_EQ(Values<int32_t>(out[1]), want);
}

TEST_F(LegalizeTest, ScatterCombinesInTheOrderOfTheIndex) {
  const std::vector<float> base{1, 2, 3, 4, 5, 6}, rows{1, -2, 0.5, 8, -3, 2, 7, 7, 4, 4};
  const std::vector<int32_t> index{2, 0, 2, -1, 2};
  for (const ScatterKind kind : {ScatterKind::kSet, ScatterKind::kAdd, ScatterKind::kMul,
                                 ScatterKind::kMin, ScatterKind::kMax}) {
    std::vector<float> want = base;
    for (size_t i = 0; i < index.size(); ++i) {
      if (index[i] < 0) continue;
      for (size_t k = 0; k < 2; ++k) {
        float& to = want[index[i] * 2 + k];
        const float with = rows[i * 2 + k];
        switch (kind) {
          case ScatterKind::kSet:
            to = with;
            break;
          case ScatterKind::kAdd:
            to += with;
            break;
          case ScatterKind::kMul:
            to *= with;
            break;
          case ScatterKind::kMin:
            to = std::min(to, with);
            break;
          case ScatterKind::kMax:
            to = std::max(to, with);
            break;
        }
      }
    }
    const UOp scatter =
        g_.Make(Op::kScatter, DType::kVoid,
                {Param(0, kF32, {3, 2}), Param(1, kI32, {5}), Param(2, kF32, {5, 2})},
                {static_cast<int64_t>(kind)});
    // Used twice, so that neither use can be the memory it is made in.
    const Slots out = Run({Store(Param(3, kF32, {3, 2}), scatter),
                           Store(Param(4, kF32, {3, 2}), g_.Make(Op::kNeg, {scatter}))},
                          {Bytes(base), Bytes(index), Bytes(rows), Bytes(base), Bytes(base)});
    EXPECT_EQ(Values<float>(out[3]), want) << Name(kind);
    for (float& w : want) w = -w;
    EXPECT_EQ(Values<float>(out[4]), want) << Name(kind);
  }
}

TEST_F(LegalizeTest, ScatterOfScatterWithOneTarget) {
  // A histogram: every position adds one to the same few rows, then once more.
  const UOp index =
      g_.Make(Op::kFloorMod, {g_.Make(Op::kIota, kI32, {}, {100}), g_.Const(kI32, 7)});
  const UOp one = To(Op::kExpand, To(Op::kReshape, g_.Const(kI32, 1), {1}), {100});
  const UOp zero = To(Op::kExpand, To(Op::kReshape, g_.Const(kI32, 0), {1}), {7});
  const int64_t add = static_cast<int64_t>(ScatterKind::kAdd);
  const UOp once = g_.Make(Op::kScatter, DType::kVoid, {zero, index, one}, {add});
  const UOp twice = g_.Make(Op::kScatter, DType::kVoid, {once, index, one}, {add});
  const Slots out = Run({Store(Param(0, kI32, {7}), twice)}, {std::vector<uint8_t>(28)});
  EXPECT_EQ(Values<int32_t>(out[0]), (std::vector<int32_t>{30, 30, 28, 28, 28, 28, 28}));
}

TEST_F(LegalizeTest, ScatterOfNoRowsIsItsBase) {
  const UOp scatter = g_.Make(Op::kScatter, DType::kVoid,
                              {g_.Make(Op::kNeg, {Param(0, kI32, {2, 1})}), Param(1, kI32, {0, 1}),
                               Param(2, kI32, {0, 1, 1})},
                              {static_cast<int64_t>(ScatterKind::kMin)});
  const Slots out = Run({Store(Param(3, kI32, {2, 1}), scatter)},
                        {Bytes<int32_t>({5, -6}), {}, {}, std::vector<uint8_t>(8)});
  EXPECT_EQ(Values<int32_t>(out[3]), (std::vector<int32_t>{-5, 6}));
}

TEST_F(LegalizeTest, CallsAndLoops) {
  const UOp a = Arg(0, kI32, {3}), b = Arg(1, kI32, {3});
  const UOp body = g_.Make(Op::kTuple, {g_.Make(Op::kAdd, {a, b}), g_.Make(Op::kMul, {a, b})});
  const UOp x = Param(0, kI32, {3}), y = Param(1, kI32, {3});
  const UOp call = g_.Make(Op::kCall, {body, x, y});
  const UOp again = g_.Make(Op::kCall, {body, Get(call, 0), Get(call, 1)});  // (x+y) + x*y, ...
  // Fibonacci: (a, b) -> (b, a + b), 10 times.
  const UOp p = Arg(1, kI32, {3}), q = Arg(2, kI32, {3});
  const UOp step = g_.Make(Op::kTuple, {q, g_.Make(Op::kAdd, {p, q})});
  const UOp fixed = g_.Make(Op::kLoop, {step, g_.Index(10), x, y});
  const UOp chosen = g_.Make(Op::kLoop, {step, Var(4, -1, 12), x, y});
  const UOp scalar = To(Op::kReshape, Param(2, kI32, {1}), {});
  const UOp bounded = g_.Make(Op::kVar, DType::kVoid, {scalar}, {9, 0, 12, 4});
  const UOp device = g_.Make(Op::kLoop, {step, bounded, x, y});
  std::vector<UOp> stores;
  Slots slots{Bytes<int32_t>({1, 2, 3}), Bytes<int32_t>({1, 5, 0}), Bytes<int32_t>({11})};
  for (const UOp u :
       {Get(again, 0), Get(again, 1), Get(fixed, 0), Get(chosen, 0), Get(device, 0)}) {
    stores.push_back(Store(Param(static_cast<int64_t>(slots.size()), kI32, {3}), u));
    slots.push_back(std::vector<uint8_t>(12));
  }
  const auto fibonacci = [](int n) {
    std::vector<int32_t> u{1, 2, 3}, v{1, 5, 0};
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < 3; ++k) {
        const int32_t sum = u[k] + v[k];
        u[k] = v[k];
        v[k] = sum;
      }
    }
    return u;
  };
  for (const int64_t trips : {-1, 0, 7, 12}) {
    const Slots out = Run(stores, slots, {{4, trips}});
    EXPECT_EQ(Values<int32_t>(out[3]), (std::vector<int32_t>{3, 17, 3}));
    EXPECT_EQ(Values<int32_t>(out[4]), (std::vector<int32_t>{2, 70, 0}));
    EXPECT_EQ(Values<int32_t>(out[5]), fibonacci(10));
    EXPECT_EQ(Values<int32_t>(out[6]), fibonacci(static_cast<int>(trips)));
    EXPECT_EQ(Values<int32_t>(out[7]), fibonacci(8)) << "11, rounded down to a multiple of 4";
  }
}

TEST_F(LegalizeTest, Devices) {
  const UOp x = Param(0, kI32, {2, 3});
  const UOp two = To(Op::kCopy, x, {0, 1});
  const UOp other = To(Op::kCopy, g_.Make(Op::kNeg, {x}), {1});
  const UOp stack = g_.Make(Op::kMStack, {x, other});
  const UOp both = g_.Make(Op::kAdd, {two, stack});  // 2x, 0
  const auto home = [&](UOp u) { return To(Op::kCopy, To(Op::kMSelect, u, {1}), {0}); };
  const UOp sum = home(To(Op::kAllReduce, g_.Make(Op::kAdd, {both, g_.Const(kI32, 1)}), {0}));
  const UOp joined = home(To(Op::kUnshard, both, {1}));
  const Slots out =
      Run({Store(Param(1, kI32, {2, 3}), sum), Store(Param(2, kI32, {2, 6}), joined)},
          {Bytes<int32_t>({1, 2, 3, 4, 5, 6}), std::vector<uint8_t>(24), std::vector<uint8_t>(48)});
  EXPECT_EQ(Values<int32_t>(out[1]), (std::vector<int32_t>{4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(Values<int32_t>(out[2]), (std::vector<int32_t>{2, 4, 6, 0, 0, 0, 8, 10, 12, 0, 0, 0}));
}

TEST_F(LegalizeTest, WideBitcasts) {
  const UOp x = Param(0, DType::kUInt32, {2, 2});
  const UOp bytes = g_.Make(Op::kBitcast, DType::kUInt8, {x});     // [2, 8]
  const UOp wide = g_.Make(Op::kBitcast, DType::kInt64, {bytes});  // [2, 1]
  const UOp nibbles = g_.Make(Op::kBitcast, DType::kUInt4, {x});   // [2, 16]
  const UOp values = g_.Make(Op::kCast, DType::kUInt8, {nibbles});
  const std::vector<uint32_t> in{0x04030201, 0xfffefdfc, 7, 0x80000000};
  const Slots out = Run(
      {Store(Param(1, DType::kUInt8, {2, 8}), bytes), Store(Param(2, DType::kInt64, {2, 1}), wide),
       Store(Param(3, DType::kUInt8, {2, 16}), values)},
      {Bytes(in), std::vector<uint8_t>(16), std::vector<uint8_t>(16), std::vector<uint8_t>(32)});
  EXPECT_EQ(out[1], Bytes(in));
  EXPECT_EQ(out[2], Bytes(in));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[3][i], Bytes(in)[i / 2] >> (i % 2 * 4) & 15) << i;
}

TEST_F(LegalizeTest, PackedTypes) {
  // All codes of i4 and f4e2m1, as ml_dtypes decodes them.
  const std::vector<uint8_t> codes{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  const std::vector<float> floats{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.f, -0.5, -1, -1.5, -2, -3, -4, -6};
  const UOp i4 = Param(0, DType::kInt4, {16}), f4 = Param(1, DType::kFloat4E2M1, {4, 4});
  const UOp reversed = To(Op::kFlip, i4, {0});
  const UOp from_float = g_.Make(Op::kCast, DType::kFloat4E2M1, {Param(5, kF32, {7})});
  const std::vector<float> ties{0.25, 0.75, -2.5, 100, 5.1, -0.f, 3.5};
  const Slots out =
      Run({Store(Param(2, DType::kInt8, {16}), g_.Make(Op::kCast, DType::kInt8, {i4})),
           Store(Param(3, kF32, {4, 4}), g_.Make(Op::kCast, kF32, {f4})),
           Store(Param(4, DType::kInt4, {16}), reversed),
           Store(Param(6, DType::kFloat4E2M1, {7}), from_float)},
          {codes, codes, std::vector<uint8_t>(16), std::vector<uint8_t>(64),
           std::vector<uint8_t>(8), Bytes(ties), std::vector<uint8_t>(4)});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Values<int8_t>(out[2])[i], i < 8 ? i : i - 16);
  EXPECT_EQ(out[3], Bytes(floats));
  EXPECT_EQ(out[4], (std::vector<uint8_t>{0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01}));
  // 0, 1, -2, 6, 6, -0, 4: the last half byte stays 0.
  EXPECT_EQ(out[6], (std::vector<uint8_t>{0x20, 0x7c, 0x87, 0x06}));
}

TEST_F(LegalizeTest, SymbolicSizes) {
  const UOp n = Var(3, 1, 8), x = Param(0, kI32, {8});
  const UOp twice = g_.Make(Op::kMul, {n, g_.Index(2)});
  const UOp part = g_.Make(Op::kShrink, DType::kVoid, {x, n}, {0, -2});
  const UOp pairs = g_.Make(Op::kExpand, DType::kVoid,
                            {g_.Make(Op::kReshape, DType::kVoid, {part, n}, {-2, 1}), n}, {-2, 2});
  const UOp flat = g_.Make(Op::kReshape, DType::kVoid, {pairs, twice}, {-2});
  const UOp whole = g_.Make(Op::kPad, {flat}, std::vector<int64_t>{0, 16});
  // A part from n on: what is beyond the source reads as 0.
  const UOp beyond = g_.Make(Op::kShrink, DType::kVoid, {x, n}, {-2, 4});
  const Slots slots{Bytes<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}), std::vector<uint8_t>(64),
                    std::vector<uint8_t>(16)};
  const std::vector<UOp> stores{Store(Param(1, kI32, {16}), whole),
                                Store(Param(2, kI32, {4}), beyond)};
  for (const int64_t value : {1, 5, 6, 8}) {
    const Slots out = Run(stores, slots, {{3, value}});
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(Values<int32_t>(out[1])[i], i < 2 * value ? i / 2 + 1 : 0) << value << " " << i;
    }
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(Values<int32_t>(out[2])[i], value + i < 8 ? value + i + 1 : 0) << value << " " << i;
    }
  }
}

TEST_F(LegalizeTest, VariablesAreChecked) {
  const UOp n = g_.Make(Op::kCast, kI32, {Var(3, 2, 8, 2)});
  const std::vector<UOp> stores{Store(Param(0, kI32, {}), n)};
  const auto error = [&](std::vector<VarValue> variables) {
    const absl::Status status = Schedule(stores, variables);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(ToStd(status.message()));
  };
  EXPECT_TRUE(Schedule(stores, {{3, 4}}).ok());
  EXPECT_EQ(error({}), "variable 3 has no value, expected one in [2, 8]");
  EXPECT_EQ(error({{3, 5}}), "variable 3 is 5, expected a multiple of 2 in [2, 8]");
  EXPECT_EQ(error({{3, 10}}), "variable 3 is 10, expected a multiple of 2 in [2, 8]");
  EXPECT_EQ(error({{3, 4}, {1, 0}}), "variable 1 is none of the graph's");
  EXPECT_EQ(error({{3, 4}, {3, 4}}), "variable 3 is given twice");
}

TEST_F(LegalizeTest, GrowthIsBounded) {
  // 40 calls nested so that the innermost body would run 2^40 times, on values that differ.
  UOp body = g_.Make(Op::kTuple, {g_.Make(Op::kAdd, {Arg(0, kI32, {}), g_.Const(kI32, 1)})});
  for (int i = 0; i < 40; ++i) {
    const UOp once = Get(g_.Make(Op::kCall, {body, Arg(0, kI32, {})}), 0);
    body = g_.Make(Op::kTuple, {Get(g_.Make(Op::kCall, {body, once}), 0)});
  }
  const UOp x = Param(0, kI32, {});
  const UOp call = Get(g_.Make(Op::kCall, {body, x}), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(Schedule({Store(Param(1, kI32, {}), call)})));

  const UOp p = Arg(1, kI32, {});
  const UOp step = g_.Make(Op::kTuple, {g_.Make(Op::kAdd, {p, g_.Make(Op::kMul, {p, p})})});
  const UOp inner = Get(g_.Make(Op::kLoop, {step, g_.Index(1 << 20), p}), 0);
  const UOp outer = g_.Make(Op::kLoop, {g_.Make(Op::kTuple, {inner}), g_.Index(1 << 20), x});
  const absl::Status status = Schedule({Store(Param(1, kI32, {}), Get(outer, 0))});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

}  // namespace
}  // namespace telegrad
