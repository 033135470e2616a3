#include "engine/ir/scalar.h"

#include <cmath>
#include <limits>

namespace telegrad {

int64_t ScalarFromInt(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kBool:
      return value != 0;
    case DType::kInt8:
      return static_cast<int8_t>(value);
    case DType::kInt16:
      return static_cast<int16_t>(value);
    case DType::kInt32:
      return static_cast<int32_t>(value);
    case DType::kUInt8:
      return static_cast<uint8_t>(value);
    case DType::kUInt16:
      return static_cast<uint16_t>(value);
    case DType::kUInt32:
      return static_cast<uint32_t>(value);
    case DType::kFloat32:
      return std::bit_cast<int64_t>(static_cast<double>(static_cast<float>(value)));
    case DType::kFloat64:
      return std::bit_cast<int64_t>(static_cast<double>(value));
    default:
      return value;
  }
}

int64_t ScalarFromDouble(DType dtype, double value) {
  if (dtype == DType::kFloat64) return std::bit_cast<int64_t>(value);
  if (dtype == DType::kFloat32) {
    return std::bit_cast<int64_t>(static_cast<double>(static_cast<float>(value)));
  }
  if (dtype == DType::kBool) return value != 0.0;
  if (std::isnan(value) || dtype == DType::kVoid) return 0;
  const int bits = Info(dtype).bits;
  if (IsUnsigned(dtype)) {
    if (value <= 0) return 0;
    const uint64_t max = bits == 64 ? std::numeric_limits<uint64_t>::max() : (1ull << bits) - 1;
    if (value >= std::ldexp(1.0, bits)) return static_cast<int64_t>(max);
    return static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  const double bound = std::ldexp(1.0, bits - 1);
  const int64_t max = static_cast<int64_t>((1ull << (bits - 1)) - 1);
  if (value >= bound) return max;
  if (value < -bound) return -max - 1;
  return static_cast<int64_t>(value);
}

int64_t ReduceIdentity(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kAdd) return ScalarFromInt(dtype, 0);
  if (kind == ReduceKind::kMul) return ScalarFromInt(dtype, 1);
  if (IsFloat(dtype)) return ScalarFromDouble(dtype, -std::numeric_limits<double>::infinity());
  if (IsUnsigned(dtype) || IsBool(dtype)) return 0;
  return -static_cast<int64_t>((1ull << (Info(dtype).bits - 1)) - 1) - 1;
}

int64_t ScalarToMemory(DType dtype, int64_t word) {
  if (dtype != DType::kFloat32) return word;
  return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(word)));
}

int64_t ScalarFromMemory(DType dtype, int64_t raw) {
  if (dtype == DType::kFloat64) return raw;
  if (dtype == DType::kFloat32) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(raw));
    return std::bit_cast<int64_t>(static_cast<double>(value));
  }
  if (dtype == DType::kBool) return static_cast<uint8_t>(raw) != 0;
  return ScalarFromInt(dtype, raw);
}

}  // namespace telegrad
