// A type's row is the one that has it; the types without a row of their own share another's.
#include "engine/types/arithmetic.h"

#include <algorithm>

namespace telegrad {
namespace {

std::optional<Arithmetic> RowOf(ArithmeticUnit unit, DType dtype) {
  const auto* const row = std::ranges::find_if(kArithmetics, [&](const ArithmeticInfo& info) {
    return info.unit == unit && info.dtype == dtype;
  });
  if (row == kArithmetics.end()) return std::nullopt;
  return row->arithmetic;
}

// The type in which one that has no row of its own is added and multiplied.
DType ComputedIn(DType dtype) {
  if (IsBool(dtype)) return DType::kInt8;
  if (IsFloat(dtype)) return Info(dtype).bits == 8 ? DType::kFloat32 : dtype;
  switch (Info(dtype).bits) {
    case 8:
      return DType::kInt8;
    case 16:
      return DType::kInt16;
    case 32:
      return DType::kInt32;
    default:
      return DType::kInt64;
  }
}

}  // namespace

std::optional<Arithmetic> VectorArithmetic(DType dtype) {
  if (dtype == DType::kVoid || IsStorage(dtype)) return std::nullopt;
  return RowOf(ArithmeticUnit::kVector, ComputedIn(dtype));
}

std::optional<Arithmetic> MatrixArithmetic(DType inputs) {
  return RowOf(ArithmeticUnit::kMatrix, inputs);
}

ArithmeticRates NvidiaOperationsPerCycle(int major, int minor) {
  using enum Arithmetic;
  if (major == 8 && minor == 0) {
    return {{kVectorF64, 64},   {kVectorF32, 128},  {kVectorF16, 512},
            {kVectorBF16, 256}, {kMatrixF16, 2048}, {kMatrixBF16, 2048}};
  }
  if (major == 9 && minor == 0) {
    return {{kVectorF64, 128},  {kVectorF32, 256},  {kVectorF16, 512},
            {kVectorBF16, 512}, {kMatrixF16, 4096}, {kMatrixBF16, 4096}};
  }
  return {{kVectorF32, 256}};
}

}  // namespace telegrad
