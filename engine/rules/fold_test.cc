// Folding against the tests' own evaluator: every ALU op, every element type, a grid of edge
// values.
#include "engine/rules/fold.h"

#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/rules/test_evaluator.h"

namespace telegrad {
namespace {

std::vector<int64_t> EdgeValues(DType dtype) {
  std::vector<int64_t> out;
  if (IsFloat(dtype)) {
    for (double v :
         {0.0, -0.0, 1.0, -1.5, 0.5, 3.0, 1e-42, -1e-310, 3.4e38, -1.7e308, 1e19, -300.7,
          std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::quiet_NaN()}) {
      out.push_back(ScalarFromDouble(dtype, v));
    }
    return out;
  }
  const uint64_t top = uint64_t{1} << (Info(dtype).bits - 1);
  for (uint64_t v : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{2}, uint64_t{7}, ~uint64_t{6},
                     top, top - 1, top + 1, uint64_t{63}, uint64_t{8}}) {
    out.push_back(ScalarFromInt(dtype, static_cast<int64_t>(v)));
  }
  return out;
}

void Check(Op op, DType dtype, DType type, std::vector<int64_t> words, bool condition = false) {
  std::vector<DType> types(words.size(), type);
  if (condition) types[0] = DType::kBool;
  std::vector<test::Value> values;
  for (size_t i = 0; i < words.size(); ++i) values.push_back(test::FromWord(types[i], words[i]));
  const std::optional<int64_t> word = Fold(op, dtype, types, words);
  if (op == Op::kBitcast && IsFloat(dtype) && !word) {  // a CONST cannot tell one NaN from another
    EXPECT_TRUE(std::isnan(test::EvalOp(op, dtype, values).f));
    return;
  }
  ASSERT_TRUE(word) << "fold.cc has no value of " << Name(op) << " on " << Name(type);
  const test::Value got = test::FromWord(dtype, *word);
  EXPECT_TRUE(test::Same(got, test::EvalOp(op, dtype, values)))
      << Name(op) << " to " << Name(dtype) << " of " << Name(type) << " words " << words[0] << ", "
      << words[words.size() > 1];
}

TEST(FoldTest, EveryOpOnEveryType) {
  for (const OpInfo& info : AllOps()) {
    // What other ops express (rows_test) need not fold by itself.
    if (!(info.traits & kAlu) || !IsAt(info.op, kProgramLevel)) continue;
    for (const DTypeInfo& row : AllDTypes()) {
      const DType type = row.dtype;
      // Storage types and Threefry: tests/conformance/dtypes_test.cc and the interpreter's own
      // tests.
      if (type == DType::kVoid || IsStorage(type)) continue;
      const bool allowed = info.elements == Elements::kAny || info.elements == Elements::kCompute ||
                           info.elements == Elements::kBoolOnly ||
                           (IsFloat(type) ? info.elements == Elements::kArith ||
                                                info.elements == Elements::kFloatOnly
                            : IsBool(type) ? info.elements == Elements::kLogic
                                           : info.elements == Elements::kArith ||
                                                 info.elements == Elements::kLogic ||
                                                 info.elements == Elements::kIntOnly);
      if (!allowed) continue;
      // Not exact: decompositions_test.
      if (info.op == Op::kExp2 || info.op == Op::kLog2 || info.op == Op::kSin ||
          info.op == Op::kPow) {
        continue;
      }
      for (int64_t x : EdgeValues(type)) {
        if (info.type_rule == TypeRule::kGiven) {
          for (const DTypeInfo& to : AllDTypes()) {
            if (to.dtype == DType::kVoid || IsStorage(to.dtype)) continue;
            if (info.op == Op::kBitcast && to.bits != row.bits) continue;
            Check(info.op, to.dtype, type, {x});
          }
          continue;
        }
        if (info.min_src == 1) Check(info.op, type, type, {x});
        if (info.min_src == 1) continue;
        for (int64_t y : EdgeValues(type)) {
          if (info.op == Op::kWhere) {
            Check(info.op, type, type, {1, x, y}, /*condition=*/true);
            Check(info.op, type, type, {0, x, y}, /*condition=*/true);
          } else if (info.min_src == 3) {
            for (int64_t z : EdgeValues(type)) Check(info.op, type, type, {x, y, z});
          } else {
            const bool compare = info.type_rule == TypeRule::kCompare;
            Check(info.op, compare ? DType::kBool : type, type, {x, y});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
