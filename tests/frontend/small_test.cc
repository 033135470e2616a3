// Methods whose results one can write down: each row's expression against the numbers that NumPy
// (for Nonzero with a size, JAX) gives, on the reference interpreter and on the CPU device.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

struct Row {
  const char* name;
  Tensor (*run)(Builder& b);
  DType dtype;
  Shape shape;
  std::vector<double> want;
};

Tensor Ints(Builder& b, const Shape& shape, const std::vector<double>& values) {
  return b.Literal(DType::kInt32, shape, values);
}
Tensor Floats(Builder& b, const Shape& shape, const std::vector<double>& values) {
  return b.Literal(DType::kFloat32, shape, values);
}

const Row kRows[] = {
    {"Nonzero",
     [](Builder& b) { return Ints(b, {2, 3}, {0, 7, 0, -1, 0, 2}).Nonzero(3); },
     DType::kInt64,
     {3, 2},
     {0, 1, 1, 0, 1, 2}},
    {"Nonzero, too few",
     [](Builder& b) { return Ints(b, {4}, {0, 7, 0, 1}).Nonzero(4, -9); },
     DType::kInt64,
     {4, 1},
     {1, 3, -9, -9}},
    {"Nonzero, too many",
     [](Builder& b) { return Ints(b, {4}, {5, 7, 0, 1}).Nonzero(2); },
     DType::kInt64,
     {2, 1},
     {0, 1}},
    {"Nonzero of nothing",
     [](Builder& b) { return b.Zeros({0, 2}).Nonzero(1); },
     DType::kInt64,
     {1, 2},
     {-1, -1}},
    {"CountNonzero",
     [](Builder& b) { return Floats(b, {2, 2}, {0, -0.0, 1e-30, -2}).CountNonzero(); },
     DType::kInt64,
     {},
     {2}},
    {"CountNonzero of nothing",
     [](Builder& b) { return b.Zeros({0}).CountNonzero(); },
     DType::kInt64,
     {},
     {0}},
    {"AllClose",
     [](Builder& b) { return Floats(b, {2}, {1, 2}).AllClose(Floats(b, {2}, {1, 2.00001})); },
     DType::kBool,
     {},
     {1}},
    {"AllClose, not",
     [](Builder& b) { return Floats(b, {2}, {1, 2}).AllClose(Floats(b, {2}, {1, 2.001})); },
     DType::kBool,
     {},
     {0}},
    {"AllClose of nothing",
     [](Builder& b) { return b.Zeros({0}).AllClose(b.Ones({0})); },
     DType::kBool,
     {},
     {1}},
    {"SizeOf",
     [](Builder& b) { return b.Zeros({4, 5, 6}).SizeOf({0, -1}); },
     DType::kInt64,
     {},
     {24}},
    {"SizeOf no axis", [](Builder& b) { return b.Zeros({4}).SizeOf({}); }, DType::kInt64, {}, {1}},
    {"Not",
     [](Builder& b) { return Ints(b, {3}, {0, 1, -5}).Not(); },
     DType::kBool,
     {3},
     {1, 0, 0}},
    {"Or",
     [](Builder& b) { return Ints(b, {2}, {5, -8}).Or(Ints(b, {2}, {3, 1})); },
     DType::kInt32,
     {2},
     {7, -7}},
    {"Xor", [](Builder& b) { return Ints(b, {2}, {5, -1}).Xor(3); }, DType::kInt32, {2}, {6, -4}},
    {"ShiftRight",
     [](Builder& b) {
       return Ints(b, {4}, {9, -9, 9, -9}).ShiftRight(Ints(b, {4}, {1, 1, 40, 40}));
     },
     DType::kInt32,
     {4},
     {4, -5, 0, -1}},
    {"Swish",
     [](Builder& b) { return Floats(b, {2}, {0, -200}).Swish(); },
     DType::kFloat32,
     {2},
     {0, 0}},
};

TEST(SmallTest, Values) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    Builder b;
    const Tensor out = row.run(b);
    ASSERT_TRUE(b.status().ok()) << b.status();
    b.Output(out, "out");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
      const auto got = RunPlan(*plan, {}, device);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(Name(got->at("out").dtype), Name(row.dtype));
      EXPECT_EQ(got->at("out").shape, row.shape);
      EXPECT_EQ(got->at("out").AsDoubles(), row.want);
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
