// Each type that is computed with has a row of arithmetic.def, and rates keep the rows apart.
#include "engine/types/arithmetic.h"

#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(Arithmetic, EachTypeThatIsComputedWithHasAVectorRow) {
  for (const DTypeInfo& info : AllDTypes()) {
    const bool computed = info.dtype != DType::kVoid && !IsStorage(info.dtype);
    const auto row = VectorArithmetic(info.dtype);
    ASSERT_EQ(row.has_value(), computed) << info.text;
    if (!computed) continue;
    const ArithmeticInfo& found = kArithmetics[static_cast<size_t>(*row)];
    EXPECT_EQ(found.arithmetic, *row);
    EXPECT_EQ(found.unit, ArithmeticUnit::kVector) << info.text;
    EXPECT_EQ(IsFloat(found.dtype), IsFloat(info.dtype)) << info.text;
    if (info.bits > 8) {
      EXPECT_EQ(Info(found.dtype).bits, info.bits) << info.text;
    }
  }
  EXPECT_EQ(VectorArithmetic(DType::kFloat16), Arithmetic::kVectorF16);
  EXPECT_EQ(VectorArithmetic(DType::kBFloat16), Arithmetic::kVectorBF16);
  EXPECT_EQ(VectorArithmetic(DType::kFloat8E5M2), Arithmetic::kVectorF32);
  EXPECT_EQ(VectorArithmetic(DType::kBool), Arithmetic::kVectorI8);
  EXPECT_EQ(VectorArithmetic(DType::kUInt64), Arithmetic::kVectorI64);
}

TEST(Arithmetic, MatrixRowsAreOfTheirInputs) {
  EXPECT_EQ(MatrixArithmetic(DType::kFloat16), Arithmetic::kMatrixF16);
  EXPECT_EQ(MatrixArithmetic(DType::kBFloat16), Arithmetic::kMatrixBF16);
  EXPECT_EQ(MatrixArithmetic(DType::kFloat32), std::nullopt);
  EXPECT_EQ(Name(Arithmetic::kMatrixBF16), "matrix bf16");
}

TEST(Arithmetic, RatesAreByKind) {
  ArithmeticRates rates = {{Arithmetic::kVectorF32, 2}, {Arithmetic::kMatrixF16, 8}};
  EXPECT_EQ(rates[Arithmetic::kVectorF32], 2);
  EXPECT_EQ(rates[Arithmetic::kVectorF64], 0) << "unknown";
  rates[Arithmetic::kVectorF64] = 1;
  EXPECT_EQ(rates * 3, (ArithmeticRates{{Arithmetic::kVectorF64, 3},
                                        {Arithmetic::kVectorF32, 6},
                                        {Arithmetic::kMatrixF16, 24}}));
}

// The datasheets' figures of whole GPUs, from processors and clock: A100 (SXM, 108 at 1.41 GHz) and
// H100 (SXM, 132 at 1.83 GHz for matrices).
TEST(Arithmetic, NvidiaGpusAsTheirDatasheetsHaveThem) {
  const ArithmeticRates a100 = NvidiaOperationsPerCycle(8, 0) * (108 * 1.41e9);
  EXPECT_NEAR(a100[Arithmetic::kVectorF64], 9.7e12, 0.1e12);
  EXPECT_NEAR(a100[Arithmetic::kVectorF32], 19.5e12, 0.1e12);
  EXPECT_NEAR(a100[Arithmetic::kVectorF16], 78e12, 1e12);
  EXPECT_NEAR(a100[Arithmetic::kMatrixF16], 312e12, 1e12);
  const ArithmeticRates h100 = NvidiaOperationsPerCycle(9, 0) * (132 * 1.83e9);
  EXPECT_NEAR(h100[Arithmetic::kMatrixBF16], 989.4e12, 1e12);
  EXPECT_EQ(NvidiaOperationsPerCycle(8, 6)[Arithmetic::kMatrixF16], 0) << "not known";
  EXPECT_GT(NvidiaOperationsPerCycle(8, 6)[Arithmetic::kVectorF32], 0);
}

}  // namespace
}  // namespace telegrad
