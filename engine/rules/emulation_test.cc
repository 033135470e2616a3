// Every op and cast of the narrow floats before and after, on random values.
#include "engine/rules/emulation.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/base/strings.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/test_evaluator.h"

namespace telegrad {
namespace {

using test::Value;

class EmulationTest : public ::testing::TestWithParam<bool> {
 protected:
  // The target converts f16 itself or it does not.
  static Target MakeTarget() {
    Target target;
    if (GetParam()) target.converts = {DType::kFloat16};
    return target;
  }

  Value RandomValue(DType dtype) {
    if (IsNarrowFloat(dtype)) return {dtype, 0, test::DecodeFloat(dtype, random_())};
    if (!IsFloat(dtype)) return test::WrapInt(dtype, random_() >> (random_() % 64));
    const double v = std::ldexp(static_cast<double>(random_() >> 11) - 0x1p52,
                                -static_cast<int>(random_() % 90) - 20);
    // Half of them midpoints or values of a narrow type.
    const int bits = static_cast<int>(random_() % 24);
    const double cut = std::ldexp(std::trunc(std::ldexp(v, bits)), -bits);
    return test::RoundFloat(dtype, random_() % 2 == 0 ? v : cut);
  }

  // Whether the target computes `u`.
  static bool Computes(const Target& target, UOp u) {
    if (!Is(u.op(), kAlu) || u.is(Op::kBitcast) || u.is(Op::kWhere)) return true;
    const DType from = u.src(0).dtype(), to = u.dtype();
    const auto plain = [&](DType dtype) {
      return !IsNarrowFloat(dtype) || (u.is(Op::kCast) && target.converts.Has(dtype));
    };
    return plain(from) && plain(to);
  }

  void Check(Op op, DType to, const std::vector<DType>& from, int trials) {
    const Target target = MakeTarget();
    Graph graph;
    Budget budget;
    std::vector<const RuleTable*> tables = EmulationTables(target);
    tables.insert(tables.end(), {&kDecompositions, &kAlgebra, &kDivMod});
    Rewriter late(&graph, tables, &budget);
    Rewriter simplify(&graph, {&kAlgebra, &kDivMod}, &budget);
    std::vector<UOp> leaves;
    for (size_t i = 0; i < from.size(); ++i) {
      const UOp param = graph.Param(static_cast<int64_t>(i), from[i], Shape{1});
      leaves.push_back(graph.Make(Op::kLoad, {graph.Make(Op::kIndex, {param, graph.Index(0)})}));
    }
    const UOp before = graph.Make(op, to, leaves);
    // As in lowering: later passes simplify once more.
    const UOp after = simplify.Rewrite(late.Rewrite(before));
    ASSERT_TRUE(after.valid()) << graph.status();
    for (uint32_t id : PostOrder(after)) {
      ASSERT_TRUE(Computes(target, graph.at(id))) << Name(op) << " left " << Name(graph.op(id));
    }
    for (int i = 0; i < trials; ++i) {
      test::Environment values;
      std::string text;
      for (UOp leaf : leaves) {
        values[leaf.id()] = RandomValue(leaf.dtype());
        StrAppend(&text, " ", values[leaf.id()].f, "|", static_cast<int64_t>(values[leaf.id()].i));
      }
      const Value want = test::Evaluate(before, values), got = test::Evaluate(after, values);
      ASSERT_TRUE(test::Same(want, got))
          << Name(op) << " of " << Name(from[0]) << " to " << Name(to) << " of" << text << ": "
          << got.f << "|" << static_cast<int64_t>(got.i) << ", expected " << want.f << "|"
          << static_cast<int64_t>(want.i) << ", seed " << seed_;
    }
  }

  const uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
};

TEST_P(EmulationTest, CastsRoundOnce) {
  for (const DTypeInfo& from : AllDTypes().subspan(1)) {
    for (const DTypeInfo& to : AllDTypes().subspan(1)) {
      if (from.dtype == to.dtype) continue;
      if (!IsNarrowFloat(from.dtype) && !IsNarrowFloat(to.dtype)) continue;
      if (IsPacked(from.dtype) || IsPacked(to.dtype)) continue;
      Check(Op::kCast, to.dtype, {from.dtype}, 60);
    }
  }
}

TEST_P(EmulationTest, OpsRoundOnce) {
  constexpr Op kOps[] = {Op::kNeg,   Op::kSqrt,  Op::kRecip, Op::kTrunc, Op::kFloor,
                         Op::kAdd,   Op::kSub,   Op::kMul,   Op::kFDiv,  Op::kMax,
                         Op::kCmpLt, Op::kCmpEq, Op::kCmpNe, Op::kMulAcc};
  for (const DTypeInfo& type : AllDTypes().subspan(1)) {
    if (!IsNarrowFloat(type.dtype) || IsStorage(type.dtype)) continue;
    for (Op op : kOps) {
      const bool compares = Info(op).type_rule == TypeRule::kCompare;
      const std::vector<DType> from(Info(op).min_src, type.dtype);
      Check(op, compares ? DType::kBool : type.dtype, from, 40);
    }
  }
}

TEST_P(EmulationTest, ReducesFoldInF32) {
  const Target target = MakeTarget();
  Graph graph;
  Budget budget;
  std::vector<const RuleTable*> tables = EmulationTables(target);
  Rewriter late(&graph, tables, &budget);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E5M2}) {
    const UOp param = graph.Param(0, dtype, Shape{64});
    const UOp range = graph.Range(0, AxisType::kReduce, graph.Index(64));
    const UOp value = graph.Make(Op::kLoad, {graph.Make(Op::kIndex, {param, range})});
    const UOp reduce = graph.Make(Op::kReduce, DType::kVoid, {value, range},
                                  {static_cast<int64_t>(ReduceKind::kAdd)});
    const UOp after = late.Rewrite(reduce);
    ASSERT_TRUE(after.valid()) << graph.status();
    EXPECT_EQ(after.dtype(), dtype);
    int reduces = 0;
    for (uint32_t id : PostOrder(after)) {
      if (graph.op(id) != Op::kReduce) continue;
      ++reduces;
      EXPECT_EQ(graph.dtype(id), DType::kFloat32);
    }
    EXPECT_EQ(reduces, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Casts, EmulationTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "NativeF16" : "Emulated"; });

}  // namespace
}  // namespace telegrad
