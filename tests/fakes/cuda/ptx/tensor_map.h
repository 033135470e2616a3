// The fake driver's tensor maps: 128 bytes that only its interpreter can read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace fakecuda {

inline constexpr uint32_t kMostDimensions = 5;

struct TensorMap {
  uint64_t address = 0;
  uint32_t rank = 0;
  uint32_t element_bytes = 0;
  std::array<uint64_t, kMostDimensions> sizes = {};    // elements
  std::array<uint64_t, kMostDimensions> strides = {};  // bytes; the first is an element's
  std::array<uint32_t, kMostDimensions> boxes = {};
  std::array<uint32_t, kMostDimensions> steps = {};
  uint32_t interleave = 0;  // by the driver's number
  uint32_t span = 0;        // bytes that a swizzle permutes; 0: none
  bool fills_nan = false;

  // Elements of a box along a dimension.
  uint32_t Elements(uint32_t i) const { return (boxes[i] + steps[i] - 1) / steps[i]; }
};

using TensorMapBytes = std::array<uint8_t, 128>;

// Of a map within the limits of cuTensorMapEncodeTiled.
TensorMapBytes EncodeTensorMap(const TensorMap& map);
// nullopt for bytes that the other did not make.
std::optional<TensorMap> DecodeTensorMap(const TensorMapBytes& bytes);

}  // namespace fakecuda
