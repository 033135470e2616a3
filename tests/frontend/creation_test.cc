// Methods that create tensors: value cases, see cases.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

using In = const Inputs&;
using ::testing::HasSubstr;

constexpr Case kCases[] = {
    {"Arange", "arange",
     [](Builder& b, In) {
       return Inputs{
           b.Arange(2, 9, 3),
           b.Arange(5, -4, -2),
           b.Arange(3, 3),
           b.Arange(0, 1, 0.1),
           b.Arange(2.0, 7.0),
           b.Arange(0, 1, 0.3, DType::kFloat64),
           b.Arange(-(int64_t{1} << 40), int64_t{1} << 40, int64_t{1} << 39, DType::kInt64),
           b.Arange(0, 250, 50, DType::kUInt8),
           b.Arange(3, -1, -0.7, DType::kFloat16)};
     },
     0},
    {"Linspace", "linspace",
     [](Builder& b, In) {
       return Inputs{
           b.Linspace(0, 1, 7), b.Linspace(3, -2, 4, DType::kFloat64), b.Linspace(5, 9, 1),
           b.Linspace(0, 1, 0), b.Linspace(-1, 10, 5, DType::kInt32),  b.Linspace(0.1, 0.7, 1000)};
     },
     0},
    {"Eye", "eye",
     [](Builder& b, In) {
       return Inputs{b.Eye(3), b.Eye(2, 4, DType::kInt8), b.Eye(3, 2, DType::kBool), b.Eye(0)};
     },
     0},
    {"Full", "full",
     [](Builder& b, In) {
       return Inputs{b.Full(DType::kInt16, {2, 3}, 7), b.Full(DType::kFloat32, {}, -0.5),
                     b.Zeros({2, 0}), b.Ones({3}, DType::kUInt8), b.Full(DType::kBool, {2}, true)};
     },
     0},
    {"FullLike", "like",
     [](Builder&, In in) {
       return Inputs{in[0].FullLike(2.5), in[0].ZerosLike(), in[0].OnesLike(),
                     in[0].FullLike(3, DType::kInt64), in[0].Like(1.5)};
     },
     0},
    {"Literal", "literal",
     [](Builder& b, In) {
       const double four[] = {1, 2, 3, 4};
       return Inputs{b.Literal({1.5, -2, 3}), b.Literal(DType::kInt8, {2, 2}, four)};
     },
     0},
    {"From", "from",
     [](Builder& b, In in) {
       const HostTensor tens = HostTensor::Of<int64_t>({3}, {10, 20, 30});
       return Inputs{in[0] + b.From(tens, "tens")};
     },
     0},
};

TEST(CreationTest, Values) { CheckValues("creation", kCases); }

TEST(CreationTest, MistakesHaveMessages) {
  const struct {
    Tensor (*make)(Builder& b);
    std::string_view message;
  } rows[] = {
      {[](Builder& b) { return b.Arange(0, 5, 0); }, "arange: from 0 to 5 by 0 has no end"},
      {[](Builder& b) { return b.Arange(0, b.Const(DType::kInt32, 5)); },
       "arange: expects numbers, got a tensor"},
      {[](Builder& b) { return b.Arange(0, 1e30, 1e-5); }, "has too many elements"},
      {[](Builder& b) { return b.Linspace(0, 1, -1); }, "linspace: -1 elements"},
      {[](Builder& b) { return b.Eye(2, -3); }, "eye: 2 rows, -3 columns"},
      {[](Builder& b) { return b.From({DType::kInt32, {2}, "abc"}, "x"); },
       "from: 'x' is i32 [2] of 8 bytes, got 3"},
      {[](Builder& b) { return b.Zeros({2}).FullLike(b.Zeros({2})); },
       "const: expects a number, got a tensor"},
  };
  for (const auto& row : rows) {
    Builder b;
    EXPECT_FALSE(row.make(b).valid());
    EXPECT_THAT(std::string(b.status().message()), HasSubstr(std::string(row.message)));
  }
}

}  // namespace
}  // namespace telegrad::testing
