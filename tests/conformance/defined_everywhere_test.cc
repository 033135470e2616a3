// What the libraries leave open: division by zero, oversized shifts, NaN and infinity to integers,
// overflow. Both evaluators of elementwise ops have the one result that ops.def names, and agree
// with each other on every op and type.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "engine/ir/infer.h"
#include "tests/conformance/evaluators.h"

namespace telegrad::testing {
namespace {

TEST(DefinedEverywhere, IntegersAreDefinedEverywhere) {
  for (DType type : kInts) {
    const int bits = Info(type).bits;
    const Lane least = IsSigned(type) ? Lane{1} << (bits - 1) : 0, all = Mask(type);
    for (Evaluator evaluator : kBoth) {
      SCOPED_TRACE(StrCat(Name(type), " by ", evaluator == kLanes ? "lanes" : "folding"));
      const auto apply = [&](Op op, Lane x, Lane y) {
        return Apply(evaluator, op, type, type, x, y);
      };
      for (Lane x : {Lane{0}, Lane{1}, Lane{7}, least, all, all >> 1}) {
        for (Op op : {Op::kFloorDiv, Op::kFloorMod, Op::kCDiv, Op::kCMod}) {
          EXPECT_EQ(apply(op, x, 0), 0u) << std::string(Name(op)) << " of " << x << " by 0";
        }
        const Lane gone = IsSigned(type) && (x >> (bits - 1)) != 0 ? all : 0;
        for (Lane y :
             {static_cast<Lane>(bits), static_cast<Lane>(bits + 1), all >> 1, all, least}) {
          if (y == 0) continue;
          EXPECT_EQ(apply(Op::kShl, x, y), 0u) << x << " << " << y;
          EXPECT_EQ(apply(Op::kShr, x, y), gone) << x << " >> " << y;
        }
      }
      if (!IsSigned(type)) continue;
      EXPECT_EQ(apply(Op::kFloorDiv, least, all), least);
      EXPECT_EQ(apply(Op::kCDiv, least, all), least);
      EXPECT_EQ(apply(Op::kFloorMod, least, all), 0u);
      EXPECT_EQ(apply(Op::kCMod, least, all), 0u);
      EXPECT_EQ(apply(Op::kNeg, least, 0), least);
    }
  }
}

TEST(DefinedEverywhere, FloatsBecomeIntegersEverywhere) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DTypeInfo& from : AllDTypes()) {
    if (!IsFloat(from.dtype)) continue;
    for (const DTypeInfo& to : AllDTypes().subspan(1)) {
      if (IsFloat(to.dtype)) continue;
      const Lane all = Mask(to.dtype);
      const bool is_signed = IsSigned(to.dtype);
      const Lane most = is_signed ? all >> 1 : all, least = is_signed ? all ^ most : 0;
      for (Evaluator evaluator : kBoth) {
        const auto cast = [&](double value) {
          const Lane x =
              Apply(evaluator, Op::kCast, DType::kFloat64, from.dtype, std::bit_cast<Lane>(value));
          return Apply(evaluator, Op::kCast, from.dtype, to.dtype, x);
        };
        SCOPED_TRACE(StrCat(from.text, " to ", to.text));
        const bool infinite = from.specials == FloatSpecials::kIeee;
        if (IsBool(to.dtype)) {
          EXPECT_EQ(cast(std::nan("")), HasNan(from.dtype) ? 1u : 0u);
          if (infinite) {
            EXPECT_EQ(cast(-kInf), 1u);
          }
          continue;
        }
        EXPECT_EQ(cast(std::nan("")), 0u);
        EXPECT_EQ(cast(1), 1u);
        if (infinite) {
          EXPECT_EQ(cast(kInf), most);
          EXPECT_EQ(cast(-kInf), least);
        }
        if (from.dtype == DType::kFloat64) {
          EXPECT_EQ(cast(1e300), most);
          EXPECT_EQ(cast(-1e300), least);
          EXPECT_EQ(cast(std::ldexp(1, to.bits)), most);
          EXPECT_EQ(cast(-0.999), 0u);
        }
      }
    }
  }
}

TEST(DefinedEverywhere, FloatsAreDefinedEverywhere) {
  for (const DTypeInfo& row : AllDTypes()) {
    const DType type = row.dtype;
    if (!IsFloat(type) || IsStorage(type)) continue;
    const auto code = [&](double value) {
      return static_cast<Lane>(ScalarToMemory(type, ScalarFromDouble(type, value))) & Mask(type);
    };
    const Lane nan = code(std::nan("")), inf = code(std::numeric_limits<double>::infinity());
    for (Evaluator evaluator : kBoth) {
      SCOPED_TRACE(StrCat(row.text, " by ", evaluator == kLanes ? "lanes" : "folding"));
      const auto apply = [&](Op op, double x, double y = 0) {
        return Apply(evaluator, op, type, type, code(x), code(y));
      };
      EXPECT_EQ(apply(Op::kFDiv, 0, 0), nan);
      EXPECT_EQ(apply(Op::kFDiv, 1, 0), inf);  // NaN where there is no infinity
      EXPECT_EQ(apply(Op::kRecip, 0), inf);
      EXPECT_EQ(apply(Op::kSqrt, -1), nan);
      EXPECT_EQ(apply(Op::kLog2, -1), nan);
      EXPECT_EQ(apply(Op::kLog2, 0), code(-std::numeric_limits<double>::infinity()));
      EXPECT_EQ(apply(Op::kExp2, std::nan("")), nan);
      EXPECT_EQ(apply(Op::kMax, std::nan(""), 1), nan);
      EXPECT_EQ(apply(Op::kMax, 1, std::nan("")), nan);
      EXPECT_EQ(apply(Op::kMax, -0.0, 0.0), code(0));
      EXPECT_EQ(apply(Op::kPow, 2, 3), code(8));
      EXPECT_EQ(apply(Op::kPow, std::nan(""), 0), code(1));
      EXPECT_EQ(apply(Op::kSin, 0), code(0));
    }
  }
}

// --- folding against the lanes ---

std::vector<Lane> Edges(DType dtype) {
  std::vector<Lane> out;
  const int bits = Info(dtype).bits;
  if (bits <= 8) {
    for (Lane code = 0; code < Lane{1} << bits; ++code) {
      if (!IsBool(dtype) || code < 2) out.push_back(code);
    }
    return out;
  }
  if (IsFloat(dtype)) {
    for (double v : {0.0, -0.0, 1.0, -1.5, 0.5, 3.0, 2.25, 6e-8, 1e-42, -1e-310, 65504.0, 3.4e38,
                     -1.7e308, 1e19, -300.7, std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity(), std::nan("")}) {
      out.push_back(static_cast<Lane>(ScalarToMemory(dtype, ScalarFromDouble(dtype, v))) &
                    Mask(dtype));
    }
    return out;
  }
  const Lane top = Lane{1} << (bits - 1);
  for (Lane v : {Lane{0}, Lane{1}, ~Lane{0}, Lane{2}, Lane{7}, ~Lane{6}, top, top - 1, top + 1,
                 Lane{63}, Lane{8}}) {
    out.push_back(v & Mask(dtype));
  }
  return out;
}

// In units of the last place; at least one of them is no NaN.
double UlpsApart(DType dtype, Lane a, Lane b) {
  const auto value = [&](Lane x) {
    return std::bit_cast<double>(ScalarFromMemory(dtype, static_cast<int64_t>(x)));
  };
  if (std::isnan(value(a)) || std::isnan(value(b))) return std::numeric_limits<double>::infinity();
  if (value(a) == value(b)) return 0;
  const double size = std::fmax(std::fabs(value(a)), std::fabs(value(b)));
  return std::fabs(value(a) - value(b)) /
         std::ldexp(1, std::ilogb(size) - Info(dtype).mantissa_bits);
}

// Every op on every type that it allows: 8-bit types exhaustively, others on edges.
TEST(DefinedEverywhere, FoldingAgreesWithTheInterpreter) {
  for (const OpInfo& info : AllOps()) {
    if (!Is(info.op, kAlu) || info.min_src == 3) continue;  // WHERE and MULACC: below
    if (!IsAt(info.op, kProgramLevel)) continue;            // other ops express it
    for (const DTypeInfo& row : AllDTypes().subspan(1)) {
      const DType type = row.dtype;
      if (!Allows(info.elements, type)) continue;
      // Two libraries' functions, each within an ulp.
      const bool inexact =
          type == DType::kFloat64 && (info.op == Op::kExp2 || info.op == Op::kLog2 ||
                                      info.op == Op::kSin || info.op == Op::kPow);
      const std::vector<Lane> edges = Edges(type);
      for (const DTypeInfo& to : AllDTypes().subspan(1)) {
        const bool given = info.type_rule == TypeRule::kGiven;
        const DType out = given                                  ? to.dtype
                          : info.type_rule == TypeRule::kCompare ? DType::kBool
                                                                 : type;
        if (out != to.dtype) continue;
        if (info.op == Op::kBitcast && (to.bits != row.bits || (IsBool(out) && !IsBool(type)))) {
          continue;
        }
        for (Lane edge : edges) {
          // A CONST has but one NaN, and its bits show.
          const Lane x = info.op == Op::kBitcast ? OneNan(type, edge) : edge;
          for (Lane y : info.min_src == 1 ? std::vector<Lane>{0} : edges) {
            const Lane want = Apply(kLanes, info.op, type, out, x, y);
            const Lane got = Apply(kFolding, info.op, type, out, x, y);
            if (got == want || (inexact && UlpsApart(out, got, want) <= 2)) continue;
            FAIL() << std::string(info.name) << " " << std::string(row.text) << " to "
                   << std::string(to.text) << " of " << std::hex << x << ", " << y << ": folds to "
                   << got << ", expected " << want;
          }
        }
      }
    }
  }
}

TEST(DefinedEverywhere, MulAccAndWhereFoldAsTheyAreInterpreted) {
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    const DType type = row.dtype;
    std::vector<Lane> edges = Edges(type);
    if (edges.size() > 24) {  // every eleventh code
      for (size_t i = 0; i < 24; ++i) edges[i] = edges[11 * i];
      edges.resize(24);
    }
    const auto check = [&](Op op, DType first, Lane x, Lane y, Lane z) {
      const DType types[] = {first, type, type};
      const int64_t words[] = {ScalarFromMemory(first, static_cast<int64_t>(x)),
                               ScalarFromMemory(type, static_cast<int64_t>(y)),
                               ScalarFromMemory(type, static_cast<int64_t>(z))};
      const std::optional<int64_t> word = Fold(op, type, types, words);
      ASSERT_TRUE(word);
      ASSERT_EQ(
          OneNan(type, static_cast<Lane>(ScalarToMemory(type, *word)) & Mask(type)),
          OneNan(type, reference::FindLaneFn(op, op == Op::kWhere ? type : first, type)(x, y, z)))
          << std::string(Name(op)) << " " << std::string(row.text) << " of " << x << ", " << y
          << ", " << z;
    };
    for (Lane y : edges) {
      for (Lane z : edges) {
        check(Op::kWhere, DType::kBool, 0, y, z);
        check(Op::kWhere, DType::kBool, 1, y, z);
        if (!Allows(Elements::kArith, type)) continue;
        for (Lane x : edges) check(Op::kMulAcc, type, x, y, z);
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
