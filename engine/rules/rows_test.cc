// Every row of every table, on random instances: the names of its pattern become loop ranges,
// loads, constants and small expressions of every element type the row admits; where the row
// matches, both sides must have the same value whatever the leaves are. A row that never matches
// fails.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/base/strings.h"
#include "engine/ir/infer.h"
#include "engine/rewrite/match.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/test_evaluator.h"

namespace telegrad {
namespace {

using test::Environment;
using test::Value;

constexpr DType kTypes[] = {
    DType::kBool,    DType::kInt8,    DType::kInt16,    DType::kInt32,      DType::kInt64,
    DType::kUInt8,   DType::kUInt16,  DType::kUInt32,   DType::kUInt64,     DType::kFloat32,
    DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2Fnuz};

class Instances {
 public:
  Instances(Graph* graph, std::mt19937_64* random) : g_(*graph), random_(*random) {}

  // A node that has the structure of `lhs` and an operand of type `type`; invalid where chance
  // produced contradicting types.
  UOp Make(const Pat& lhs, DType type) {
    vars_ = {};
    consts_ = {};
    operand_type_ = type;
    if (lhs[0].kind == Token::kVar) return Expression(type, 1 + static_cast<int>(Below(2)));
    DType want = type;
    const Op op = lhs[0].op;
    if (!Allows(Info(op).elements, type)) return {};
    if (Info(op).type_rule == TypeRule::kCompare) want = DType::kBool;
    if (op == Op::kCast || op == Op::kBitcast || op == Op::kWhere) want = AnyType();
    return Build(lhs, 0, want);
  }

  Environment Values() {
    Environment out;
    for (const auto& [leaf, end] : leaves_) {
      out[leaf.id()] = end > 0 ? Value{leaf.dtype(), static_cast<int64_t>(random_() % end), 0}
                               : test::FromWord(leaf.dtype(), Word(leaf.dtype()));
    }
    return out;
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }
  DType AnyType() { return kTypes[Below(std::size(kTypes))]; }

  int64_t Word(DType dtype) {
    if (IsFloat(dtype)) {
      static constexpr double kEdges[] = {0.0,    -0.0,  1.0,    -1.0,     2.0,     0.5,   -0.5,
                                          1e-310, 1e-42, 3.4e38, -1.7e308, 65536.0, 127.5, 1e10};
      switch (Below(8)) {
        case 0:
          return ScalarFromDouble(dtype, std::numeric_limits<double>::infinity());
        case 1:
          return ScalarFromDouble(dtype, -std::numeric_limits<double>::infinity());
        case 2:
          return std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());
        case 3:
          return ScalarFromDouble(dtype, std::ldexp(static_cast<double>(Below(1 << 24)) - 8388608,
                                                    static_cast<int>(Below(60)) - 40));
        default:
          return ScalarFromDouble(dtype, kEdges[Below(std::size(kEdges))]);
      }
    }
    switch (Below(4)) {
      case 0: {
        const int bits = Info(dtype).bits;
        const int64_t edges[] = {0,
                                 1,
                                 -1,
                                 2,
                                 static_cast<int64_t>(uint64_t{1} << (bits - 1)),
                                 static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1),
                                 bits,
                                 bits - 1};
        return ScalarFromInt(dtype, edges[Below(std::size(edges))]);
      }
      case 1:
        return ScalarFromInt(dtype, static_cast<int64_t>(random_()));
      default:
        return ScalarFromInt(dtype, Below(24) - 6);
    }
  }

  UOp Leaf(DType dtype) {
    if (IsInt(dtype) && Below(3) > 0) {
      const int64_t end = 1 + Below(40);
      const UOp range = g_.Range(next_++, AxisType::kLoop, g_.Const(dtype, end));
      leaves_.push_back({range, end});
      return range;
    }
    const UOp param = g_.Param(next_++, dtype, Shape{1});
    const UOp load = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {param, g_.Index(0)})});
    leaves_.push_back({load, 0});
    return load;
  }

  UOp Const(DType dtype) { return g_.ConstWord(dtype, Word(dtype)); }

  UOp Expression(DType dtype, int depth) {
    if (depth == 0) return Below(4) == 0 ? Const(dtype) : Leaf(dtype);
    const auto sub = [&] { return Expression(dtype, depth - 1); };
    const auto any = [&] { return Below(2) == 0 ? Const(dtype) : sub(); };
    if (IsBool(dtype)) {
      const DType of = AnyType();
      switch (Below(4)) {
        case 0:
          return g_.Make(Op::kCmpLt, {Expression(of, depth - 1), Expression(of, depth - 1)});
        case 1:
          return g_.Make(Below(2) == 0 ? Op::kCmpEq : Op::kCmpNe,
                         {Expression(of, depth - 1), Expression(of, depth - 1)});
        default:
          return g_.Make(Below(2) == 0 ? Op::kAnd : Op::kOr, {sub(), any()});
      }
    }
    if (Below(8) == 0) return g_.Make(Op::kCast, dtype, {Expression(AnyType(), depth - 1)});
    if (Below(8) == 0) {
      return g_.Make(Op::kWhere, {Expression(DType::kBool, depth - 1), sub(), any()});
    }
    static constexpr Op kInt[] = {Op::kAdd,      Op::kAdd,      Op::kSub, Op::kMul,
                                  Op::kFloorDiv, Op::kFloorMod, Op::kMax, Op::kShl,
                                  Op::kShr,      Op::kAnd,      Op::kXor};
    static constexpr Op kFloat[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kFDiv, Op::kMax};
    const Op op = IsFloat(dtype) ? kFloat[Below(std::size(kFloat))] : kInt[Below(std::size(kInt))];
    UOp a = sub(), b = any();
    if (Below(3) == 0) std::swap(a, b);
    return g_.Make(op, {a, b});
  }

  UOp Name(std::array<UOp, 3>* names, int index, DType dtype, bool constant) {
    UOp& u = (*names)[index];
    if (!u.valid()) {
      u = constant ? Const(dtype) : Below(3) == 0 ? Expression(dtype, 1) : Leaf(dtype);
    }
    return u.valid() && u.dtype() == dtype ? u : UOp();
  }

  UOp Build(const Pat& pat, int i, DType want) {
    const Token& token = pat[i];
    switch (token.kind) {
      case Token::kVar:
        return Name(&vars_, token.index, want, /*constant=*/false);
      case Token::kConst:
        return Name(&consts_, token.index, want, /*constant=*/true);
      case Token::kInt:
        return g_.Const(want, token.value);
      case Token::kFloat:
        return IsFloat(want) ? g_.ConstFloat(want, std::bit_cast<double>(token.value)) : UOp();
      default:
        break;
    }
    const Op op = token.op;
    DType operand = want;
    if (Info(op).type_rule == TypeRule::kCompare) {
      if (!IsBool(want)) return {};
      operand = i == 0 ? operand_type_ : AnyType();
    } else if (op == Op::kCast || op == Op::kBitcast) {
      operand = i == 0 ? operand_type_ : AnyType();
      if (op == Op::kBitcast && Info(operand).bits != Info(want).bits) return {};
      if (op == Op::kBitcast && IsBool(want) != IsBool(operand)) return {};  // not a bitcast
    }
    if (op != Op::kWhere && !Allows(Info(op).elements, operand)) return {};
    std::vector<UOp> src;
    for (int at = i + 1, end = pat.Skip(i); at < end; at = pat.Skip(at)) {
      const bool condition = op == Op::kWhere && src.empty();
      src.push_back(Build(pat, at, condition ? DType::kBool : operand));
      if (!src.back().valid()) return {};
    }
    return g_.Make(op, want, src);
  }

  struct LeafInfo {
    UOp u;
    int64_t end;  // 0: any value of the type
  };

  Graph& g_;
  std::mt19937_64& random_;
  std::array<UOp, 3> vars_, consts_;
  DType operand_type_ = DType::kVoid;
  std::vector<LeafInfo> leaves_;
  int64_t next_ = 0;
};

// The C library's pow of doubles may be the neighbour of the nearest number (glibc's manual, "Known
// Maximum Errors in Math Functions"), which a product of two numbers is not.
bool SameUpToPow(const Rule& rule, const Value& a, const Value& b) {
  if (test::Same(a, b)) return true;
  const bool pow = rule.lhs[0].kind == Token::kOp && rule.lhs[0].op == Op::kPow;
  return pow && a.dtype == DType::kFloat64 && std::nextafter(a.f, b.f) == b.f;
}

class RowsTest : public ::testing::TestWithParam<const RuleTable*> {};

TEST_P(RowsTest, EveryRowKeepsTheValue) {
  const RuleTable& table = *GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  constexpr int kHits = 25, kTrials = 3000;
  for (const Rule& rule : table.rules()) {
    // Functions of floats have a bound in ulp: decompositions_test.
    const bool bounded =
        rule.lhs[0].kind == Token::kOp && Info(rule.lhs[0].op).elements == Elements::kFloatOnly;
    if (&table == &kDecompositions && bounded) continue;
    int hits = 0;
    for (DType type : kTypes) {
      if (!Has(rule.when.types, type)) continue;
      if (rule.lhs[0].kind == Token::kOp && !Allows(Info(rule.lhs[0].op).elements, type)) continue;
      int hits_of_type = 0;
      for (int trial = 0; trial < kTrials && hits_of_type < kHits; ++trial) {
        Graph graph;
        Budget budget;
        Instances instances(&graph, &random);
        const UOp lhs = instances.Make(rule.lhs, type);
        if (!lhs.valid()) {
          ASSERT_TRUE(graph.status().ok()) << graph.status();
          continue;
        }
        // With no other rule, and among all of them.
        Rewriter alone(&graph, {}, &budget, Shapes::kExact);
        Rewriter among(&graph, {&kAlgebra, &kDivMod}, &budget, Shapes::kExact);
        const UOp rhs = Apply(rule, lhs, trial % 2 == 0 ? alone : among);
        ASSERT_TRUE(graph.status().ok()) << Text(rule) << ": " << graph.status();
        if (!rhs.valid()) continue;
        ++hits_of_type;
        for (int i = 0; i < 8; ++i) {
          const Environment values = instances.Values();
          const Value a = test::Evaluate(lhs, values), b = test::Evaluate(rhs, values);
          ASSERT_TRUE(SameUpToPow(rule, a, b))
              << table.name() << ":" << rule.line << " " << Text(rule) << " on " << Name(type)
              << ": " << static_cast<int64_t>(a.i) << "|" << a.f << " became "
              << static_cast<int64_t>(b.i) << "|" << b.f;
        }
      }
      // A row of two patterns and no condition matches whatever has its structure.
      if (rule.fn == nullptr && rule.when.condition.empty() && IsInt(type) &&
          rule.lhs[0].op != Op::kCast && rule.lhs[0].op != Op::kBitcast) {
        EXPECT_GT(hits_of_type, 0) << table.name() << ":" << rule.line << " " << Text(rule)
                                   << " never matched on " << Name(type);
      }
      hits += hits_of_type;
    }
    EXPECT_GT(hits, 0) << table.name() << ":" << rule.line << " " << Text(rule) << " never matched";
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, RowsTest,
                         ::testing::Values(&kAlgebra, &kDivMod, &kDecompositions, &kStrength),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace telegrad
