// Whose matrix instructions a processor has. engine/ir/mma.def says which these are.
#pragma once

#include <cstdint>

namespace telegrad {

enum class MatrixUnit : uint8_t { kNone, kSm80, kSm90, kAmx, kMfma, kRdna3, kRdna4, kInvented };
inline constexpr MatrixUnit kLastMatrixUnit = MatrixUnit::kInvented;

}  // namespace telegrad
