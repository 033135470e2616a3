// Decompositions of transcendental functions are within 2 ulp of the true value, and products
// and sums of floats are fused only where the rules allow it.
#include "engine/rules/decompositions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <random>

#include "engine/base/strings.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/fold.h"

namespace telegrad {
namespace {

// The expression that replaces op(load), evaluated by the folding rules node after node.
class Decomposed {
 public:
  // Of two operands, the second is that constant. Of one, it is the load times `factor`.
  Decomposed(Op op, DType dtype, std::initializer_list<const RuleTable*> tables,
             std::optional<double> second = std::nullopt,
             std::optional<double> factor = std::nullopt) {
    Budget budget;
    Rewriter b(&graph_, tables, &budget);
    const UOp param = graph_.Param(0, dtype, Shape{1});
    leaf_ = b.Make(Op::kLoad, {b.Make(Op::kIndex, {param, graph_.Index(0)})});
    const UOp x = factor ? b.Make(Op::kMul, {leaf_, graph_.ConstFloat(dtype, *factor)}) : leaf_;
    root_ = second ? b.Make(op, {x, graph_.ConstFloat(dtype, *second)}) : b.Make(op, {x});
    EXPECT_TRUE(graph_.status().ok()) << graph_.status();
    for (uint32_t id : PostOrder(root_)) {
      EXPECT_TRUE(!Is(graph_.op(id), kAlu) || IsAt(graph_.op(id), kProgramLevel));
      if (Is(graph_.op(id), kAlu) || graph_.op(id) == Op::kConst) order_.push_back(id);
    }
    words_.resize(graph_.size());
  }

  double operator()(double v) {
    words_[leaf_.id()] = std::bit_cast<int64_t>(v);
    for (uint32_t id : order_) {
      const UOp u = graph_.at(id);
      if (u.is_const()) {
        words_[id] = u.const_word();
        continue;
      }
      std::vector<DType> types;
      std::vector<int64_t> words;
      for (uint32_t s : u.src_ids()) {
        types.push_back(graph_.dtype(s));
        words.push_back(words_[s]);
      }
      // Nothing only for the bits of a NaN that is not the CONST's.
      words_[id] = Fold(u.op(), u.dtype(), types, words)
                       .value_or(std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN()));
      if (u.is(Op::kMul)) underflows_ += Underflows(u.dtype(), words[0], words[1], words_[id]);
    }
    return std::bit_cast<double>(words_[root_.id()]);
  }

  // Products of two numbers, neither of them 0, that were subnormal or 0, in all calls so far.
  int underflows() const { return underflows_; }

  // Nodes that compute something, and constants.
  int size() const { return static_cast<int>(order_.size()); }

 private:
  static bool Underflows(DType dtype, int64_t a, int64_t b, int64_t product) {
    const double least = dtype == DType::kFloat32 ? std::numeric_limits<float>::min()
                                                  : std::numeric_limits<double>::min();
    return IsFloat(dtype) && std::bit_cast<double>(a) != 0 && std::bit_cast<double>(b) != 0 &&
           std::fabs(std::bit_cast<double>(product)) < least;
  }

  int underflows_ = 0;
  Graph graph_;
  UOp leaf_, root_;
  std::vector<uint32_t> order_;
  std::vector<int64_t> words_;
};

// The distance of `got` from the true value in units of the last place that the format has there.
double UlpError(DType dtype, double got, long double want) {
  const bool single = dtype == DType::kFloat32;
  const double rounded = single ? static_cast<float>(want) : static_cast<double>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) {
    if (rounded == got) return 0;
    // Next to the overflow threshold the largest finite value is as good.
    const double max =
        single ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
    return std::fabs(rounded) >= max && std::fabs(got) >= max ? 1 : 1e9;
  }
  int exponent;
  std::frexp(want == 0 ? 0.0L : want, &exponent);
  const int digits = single ? 24 : 53;
  const int lowest = single ? -149 : -1074;
  const int ulp = std::max(exponent - digits, lowest);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) /
                             std::ldexp(1.0L, ulp));
}

std::vector<double> Edges(DType dtype) {
  const bool single = dtype == DType::kFloat32;
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> out{0.0, -0.0, inf, -inf, std::nan(""), 1, -1, 0.5, -0.5, 2, 1e-30, 1e30};
  const auto around = [&](double v) {
    for (int sign : {1, -1}) {
      double up = sign * v, down = sign * v;
      for (int i = 0; i < 8; ++i) {
        out.push_back(up);
        out.push_back(down);
        up = single ? std::nextafterf(up, inf) : std::nextafter(up, inf);
        down = single ? std::nextafterf(down, -inf) : std::nextafter(down, -inf);
      }
    }
  };
  around(0);
  around(0.5);
  around(1);
  around(std::sqrt(0.5));
  around(std::sqrt(2.0));
  for (double v : single ? std::vector<double>{126, 127, 128, 149, 150, 253, 254, 255, 0x1p-126,
                                               0x1p-149, 0x1p127}
                         : std::vector<double>{1022, 1023, 1024, 1074, 1075, 2045, 2046, 2047,
                                               0x1p-1022, 0x1p1023}) {
    around(v);
  }
  return out;
}

struct Case {
  Op op;
  DType dtype;
  bool fused;
};

class TranscendentalTest : public ::testing::TestWithParam<Case> {};

TEST_P(TranscendentalTest, WithinTwoUlp) {
  const auto [op, dtype, fused] = GetParam();
  Decomposed f = fused ? Decomposed(op, dtype, {&kAlgebra, &kDivMod, &kDecompositions, &kMulAcc})
                       : Decomposed(op, dtype, {&kAlgebra, &kDivMod, &kDecompositions});
  const bool single = dtype == DType::kFloat32;
  const auto truth = [op = op](double v) {
    if (op == Op::kSin) return sinl(v);
    return op == Op::kExp2 ? exp2l(v) : log2l(v);
  };
  double worst = 0, worst_at = 0;
  const auto check = [&](double v) {
    if (single) v = static_cast<float>(v);
    const double error = UlpError(dtype, f(v), truth(v));
    if (error > worst) {
      worst = error;
      worst_at = v;
    }
  };
  for (double v : Edges(dtype)) check(v);
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  const double limit = single ? 256 : 2048;
  for (int i = 0; i < 15'000; ++i) {
    // All exponents and mantissas, the whole of exp2's domain, and the neighbourhood of 1 and 0.
    const uint64_t bits = random();
    check(single ? std::bit_cast<float>(static_cast<uint32_t>(bits)) : std::bit_cast<double>(bits));
    check(unit(random) * limit);
    check(1 + unit(random) / 2);
    check(1 + std::ldexp(unit(random), -static_cast<int>(random() % 30)));
    check(std::ldexp(unit(random), -static_cast<int>(random() % 30)));
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LE(worst, 2.0) << "at " << worst_at << ", seed " << seed;
}

// As clients spell it, whose factor is the number of the type next to log2 e times `times`.
TEST(ExpTest, IsWithinTwoUlpAtAllMagnitudes) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const bool single = dtype == DType::kFloat32;
    for (const double times : {1.0, -1.0, 2.0, -0.5}) {
      for (const bool fused : {false, true}) {
        const double c = times * std::numbers::log2e;
        Decomposed f =
            fused ? Decomposed(Op::kExp2, dtype, {&kAlgebra, &kDivMod, &kDecompositions, &kMulAcc},
                               {}, c)
                  : Decomposed(Op::kExp2, dtype, {&kAlgebra, &kDivMod, &kDecompositions}, {}, c);
        double worst = 0, worst_at = 0;
        const auto check = [&](double v) {
          if (single) v = static_cast<float>(v);
          const double error = UlpError(dtype, f(v), expl(times * static_cast<long double>(v)));
          if (error > worst) worst = error, worst_at = v;
        };
        for (const double v : Edges(dtype)) check(v);
        for (int i = 0; i < 10'000; ++i) {
          const uint64_t bits = random();
          check(single ? std::bit_cast<float>(static_cast<uint32_t>(bits))
                       : std::bit_cast<double>(bits));
          check(unit(random) * (single ? 180 : 1500) / times);
          check(std::ldexp(unit(random), -static_cast<int>(random() % 30)));
        }
        EXPECT_LE(worst, 2.0) << "e to the power of " << times << " times " << worst_at << ", seed "
                              << seed;
      }
    }
  }
}

// Of another factor the power is that of the rounded product, as the client wrote it.
TEST(ExpTest, AnotherFactorIsAProduct) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double c = dtype == DType::kFloat32 ? 1.442695f * (1 + 0x1p-22f) : 1.4426950408889;
    Decomposed f(Op::kExp2, dtype, {&kAlgebra, &kDivMod, &kDecompositions}, {}, c);
    for (const double v : {1.0, 3.25, 50.5, -70.125, 88.0}) {
      const double product =
          dtype == DType::kFloat32 ? static_cast<float>(v * static_cast<float>(c)) : v * c;
      EXPECT_LE(UlpError(dtype, f(v), exp2l(product)), 2) << v;
    }
  }
}

// Processors take a hundred cycles for a product that underflows, and an attention has one for each
// score that a mask hides.
TEST(Exp2Test, WhatAMaskHidesUnderflowsNowhere) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Decomposed f(Op::kExp2, dtype, {&kAlgebra, &kDivMod, &kDecompositions});
    const double lowest = dtype == DType::kFloat32 ? std::numeric_limits<float>::lowest()
                                                   : std::numeric_limits<double>::lowest();
    for (const double hidden : {-1e4, -1e9, lowest, -std::numeric_limits<double>::infinity()}) {
      EXPECT_EQ(f(hidden), 0) << hidden;
    }
    EXPECT_EQ(f.underflows(), 0);
    f(dtype == DType::kFloat32 ? -140 : -1060);
    EXPECT_GT(f.underflows(), 0);  // a subnormal result
  }
}

TEST(PowTest, SmallIntegerPowersAreProducts) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (int n = -1; n <= 5; ++n) {
      Decomposed f(Op::kPow, dtype, {&kAlgebra, &kDivMod, &kDecompositions}, n);
      EXPECT_LE(f.size(), n < 2 ? 2 : n < 4 ? n : n - 1) << n;
      double worst = 0, worst_at = 0;
      const auto check = [&](double v) {
        if (dtype == DType::kFloat32) v = static_cast<float>(v);
        const double error = UlpError(dtype, f(v), powl(v, n));
        if (error > worst) worst = error, worst_at = v;
      };
      for (const double v : Edges(dtype)) check(v);
      for (int i = 0; i < 4000; ++i) {
        const uint64_t bits = random();
        check(dtype == DType::kFloat32 ? std::bit_cast<float>(static_cast<uint32_t>(bits))
                                       : std::bit_cast<double>(bits));
        check(std::ldexp(static_cast<double>(bits % 4096) - 2048,
                         static_cast<int>(bits >> 12) % 90 - 45));
      }
      EXPECT_LE(worst, 4.0) << worst_at << " to the power of " << n << ", seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TranscendentalTest,
    ::testing::Values(
        Case{Op::kExp2, DType::kFloat32, false}, Case{Op::kLog2, DType::kFloat32, false},
        Case{Op::kExp2, DType::kFloat64, false}, Case{Op::kLog2, DType::kFloat64, false},
        Case{Op::kSin, DType::kFloat32, false}, Case{Op::kSin, DType::kFloat64, false},
        Case{Op::kSin, DType::kFloat32, true}, Case{Op::kSin, DType::kFloat64, true},
        Case{Op::kExp2, DType::kFloat32, true}, Case{Op::kLog2, DType::kFloat32, true},
        Case{Op::kExp2, DType::kFloat64, true}, Case{Op::kLog2, DType::kFloat64, true}),
    [](const auto& info) {
      return StrCat(Name(info.param.op), "_", Name(info.param.dtype),
                    info.param.fused ? "_fused" : "");
    });

TEST(MulAccTest, FusesFloatsOnly) {
  Graph graph;
  Budget budget;
  Rewriter b(&graph, {&kAlgebra, &kMulAcc}, &budget);
  for (DType dtype : {DType::kFloat32, DType::kInt32}) {
    const UOp p = graph.Param(0, dtype, Shape{4}), q = graph.Param(1, dtype, Shape{4}),
              r = graph.Param(2, dtype, Shape{4});
    const UOp sum = b.Make(Op::kAdd, {r, b.Make(Op::kMul, {p, q})});
    EXPECT_EQ(sum.op(), IsFloat(dtype) ? Op::kMulAcc : Op::kAdd);
    if (IsFloat(dtype)) {
      EXPECT_EQ(sum, graph.Make(Op::kMulAcc, {p, q, r}));
    }
  }
}

// Widened again, a byte is one operation; in another type it is left alone.
TEST(DecompositionsTest, AByteOfAnIntegerIsItsLowestBits) {
  Graph graph;
  Budget budget;
  Rewriter b(&graph, {&kDecompositions, &kAlgebra}, &budget);
  const UOp x = graph.Param(0, DType::kInt32, Shape{4});
  const auto through = [&](DType middle, DType to) {
    return b.Make(Op::kCast, to, {b.Make(Op::kCast, middle, {x}, {})}, {});
  };
  const UOp byte = through(DType::kUInt8, DType::kInt32);
  ASSERT_EQ(byte.op(), Op::kAnd);
  EXPECT_EQ(byte.src(0), x);
  EXPECT_EQ(byte.src(1).const_word(), 255);
  EXPECT_EQ(through(DType::kInt8, DType::kInt32).op(), Op::kCast);
  EXPECT_EQ(through(DType::kUInt8, DType::kInt64).op(), Op::kCast);
}

// An elementwise op that no program has is gone before programs are made.
TEST(DecompositionsTest, OpsOfNoProgramAreExpressedByOthers) {
  for (const OpInfo& info : AllOps()) {
    if (!Is(info.op, kAlu) || IsAt(info.op, kProgramLevel)) continue;
    const bool found = std::ranges::any_of(kDecompositions.rules(), [&](const Rule& rule) {
      return rule.lhs[0].kind == Token::kOp && rule.lhs[0].op == info.op;
    });
    EXPECT_TRUE(found) << "decompositions.cc has no rule for " << info.name;
  }
}

}  // namespace
}  // namespace telegrad
