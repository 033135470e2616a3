// Promotion against tinygrad's table, and the messages of elementwise operations.
#include "engine/frontend/tensor/promotion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(PromotionTest, IsThatOfTinygrad) {
  const std::map<std::string, Operand::Kind> numbers = {{"number:bool", Operand::Kind::kBool},
                                                        {"number:int", Operand::Kind::kInt},
                                                        {"number:float", Operand::Kind::kFloat}};
  std::map<std::string, DType, std::less<>> types;
  for (const DTypeInfo& row : AllDTypes()) types.emplace(row.text, row.dtype);
  std::ifstream file("tests/data/frontend/promotion.txt");
  std::string a, b, result;
  int rows = 0;
  while (file >> a >> b >> result) {
    const auto number = numbers.find(b);
    const DType got = number == numbers.end() ? PromoteTypes(types.at(a), types.at(b))
                                              : PromoteNumber(types.at(a), number->second);
    EXPECT_EQ(Name(got), result) << a << " with " << b;
    ++rows;
  }
  EXPECT_EQ(rows, 17 * 17 + 17 * 3);
}

TEST(PromotionTest, StorageTypesHaveNoPlaceInIt) {
  for (const DType type : {DType::kInt4, DType::kUInt2, DType::kFloat4E2M1, DType::kFloat8E8M0}) {
    EXPECT_EQ(PromoteTypes(type, DType::kFloat32), DType::kVoid) << Name(type);
  }
}

TEST(PromotionTest, NumbersKeepTheTypeThatHoldsThem) {
  Builder b;
  const Tensor u64 = b.Param(DType::kUInt64, {1}, "u64");
  EXPECT_EQ((u64 + ~uint64_t{0}).dtype(), DType::kUInt64);
  const Tensor i8 = b.Param(DType::kInt8, {1}, "i8");
  EXPECT_EQ((i8 + -128).dtype(), DType::kInt8);
  EXPECT_EQ((i8 * 0.5).dtype(), DType::kFloat32);
  EXPECT_EQ((i8 / 2).dtype(), DType::kFloat32);
  EXPECT_EQ(b.Const(DType::kBool, true).Where(1, 0).dtype(), DType::kInt32);
  EXPECT_EQ(b.Const(DType::kBool, true).Where(true, false).dtype(), DType::kBool);
  EXPECT_EQ(b.Const(DType::kBool, true).Where(1, 0.5).dtype(), DType::kFloat32);
  EXPECT_TRUE(b.status().ok()) << b.status();
}

TEST(PromotionTest, MistakesHaveMessages) {
  const struct {
    Tensor (*make)(const Tensor& f, const Tensor& i, const Tensor& mask);
    std::string_view message;
  } rows[] = {
      {[](const Tensor& f, const Tensor& i, const Tensor&) { return f.Lerp(i.Reshape({4, 1}), f); },
       "sub: shapes [4, 1] and [2, 3] do not broadcast: axis 0 has 4 and 2"},
      {[](const Tensor&, const Tensor& i, const Tensor&) { return i + 128; },
       "add: the number 128 is outside of i8"},
      {[](const Tensor&, const Tensor& i, const Tensor&) { return i.Lt(-129); },
       "lt: the number -129 is outside of i8"},
      {[](const Tensor& f, const Tensor&, const Tensor&) { return f & 1; },
       "and: element type f32 of [2, 3] and [] is a float, expected integers or bool"},
      {[](const Tensor& f, const Tensor& i, const Tensor&) { return i.Reshape({4, 1, 1}) << f; },
       "shl: element type f32 of [4, 2, 3] and [4, 2, 3] is a float, expected integers"},
      {[](const Tensor& f, const Tensor&, const Tensor&) { return ~f; },
       "bitwise_not: element type f32 of [2, 3] is a float, expected integers or bool"},
      {[](const Tensor&, const Tensor&, const Tensor& m) { return m - m; },
       "sub: bool [3] and [3] have no difference; ^ tells where they differ"},
      {[](const Tensor& f, const Tensor& i, const Tensor& m) { return m.Where(f, i); },
       "where: shapes [2, 3] and [4] do not broadcast: axis 1 has 3 and 4"},
      {[](const Tensor&, const Tensor& i, const Tensor& m) { return i.MaskedFill(m, 1); },
       "where: shapes [3] and [4] do not broadcast: axis 0 has 3 and 4"},
      {[](const Tensor& f, const Tensor&, const Tensor&) { return f.Glu(); },
       "glu: axis 1 of [2, 3] needs a fixed, even size"},
      {[](const Tensor& f, const Tensor&, const Tensor&) { return f.Bitcast(DType::kInt64); },
       "the last axis has 3 elements of 32 bits, expected a multiple of 64 bits"},
      {[](const Tensor& f, const Tensor&, const Tensor&) { return f.Atan2(Tensor()); },
       "atan2: an operand is an empty tensor"},
  };
  for (const auto& row : rows) {
    Builder b;
    const Tensor f = b.Param(DType::kFloat32, {2, 3}, "f");
    const Tensor i = b.Param(DType::kInt8, {4}, "i");
    const Tensor mask = b.Param(DType::kBool, {3}, "mask");
    EXPECT_FALSE(row.make(f, i, mask).valid()) << row.message;
    EXPECT_THAT(std::string(b.status().message()), HasSubstr(std::string(row.message)));
  }
}

TEST(PromotionTest, SymbolicSizesPass) {
  Builder b;
  const Dim n = b.Variable("n", 1, 8);
  const Tensor x = b.Iota(DType::kInt32, n).Cast(DType::kFloat32).Reshape({n, 1});
  const Tensor y = b.Param(DType::kFloat32, {3}, "y");
  const Dims both = {n, 3};
  for (const Tensor& t : {x + y, x.Gt(0).Where(x, y), x.Atan2(y), x % y, x.Gelu().Lerp(y, 0.5)}) {
    EXPECT_EQ(t.dims(), both);
  }
  EXPECT_EQ(Dim(x.SizeOf({0})), n);
  EXPECT_EQ(Dim(y.SizeOf({0})), Dim(3));
  EXPECT_TRUE(b.status().ok()) << b.status();
}

}  // namespace
}  // namespace telegrad
