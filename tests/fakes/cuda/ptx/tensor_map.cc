// The fields, packed, with a checksum behind them, and all of it behind a mask: code that takes the
// bytes for anything it knows finds garbage, and bytes from elsewhere do not pass.
#include "tests/fakes/cuda/ptx/tensor_map.h"

#include <cstring>

namespace fakecuda {
namespace {

struct Packed {
  uint64_t address;
  std::array<uint64_t, kMostDimensions> strides;
  std::array<uint32_t, kMostDimensions> last;  // indices: a size of 2^32 has no 32 bits
  std::array<uint8_t, kMostDimensions> last_of_box;
  std::array<uint8_t, kMostDimensions> steps;
  uint8_t rank, element_bytes, interleave, span, fills_nan;
  uint64_t checksum;
};
static_assert(sizeof(Packed) <= sizeof(TensorMapBytes));

// Of the bytes before the checksum.
uint64_t Checksum(const TensorMapBytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < offsetof(Packed, checksum); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

void Mask(TensorMapBytes* bytes) {
  uint64_t state = 0x9e3779b97f4a7c15;
  for (uint8_t& byte : *bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte ^= static_cast<uint8_t>(state >> 56);
  }
}

}  // namespace

TensorMapBytes EncodeTensorMap(const TensorMap& map) {
  Packed packed;
  std::memset(&packed, 0, sizeof(packed));
  packed.address = map.address;
  packed.strides = map.strides;
  for (uint32_t i = 0; i < map.rank; ++i) {
    packed.last[i] = static_cast<uint32_t>(map.sizes[i] - 1);
    packed.last_of_box[i] = static_cast<uint8_t>(map.boxes[i] - 1);
    packed.steps[i] = static_cast<uint8_t>(map.steps[i]);
  }
  packed.rank = static_cast<uint8_t>(map.rank);
  packed.element_bytes = static_cast<uint8_t>(map.element_bytes);
  packed.interleave = static_cast<uint8_t>(map.interleave);
  packed.span = static_cast<uint8_t>(map.span);
  packed.fills_nan = map.fills_nan ? 1 : 0;
  TensorMapBytes bytes = {};
  std::memcpy(bytes.data(), &packed, sizeof(packed));
  packed.checksum = Checksum(bytes);
  std::memcpy(bytes.data(), &packed, sizeof(packed));
  Mask(&bytes);
  return bytes;
}

std::optional<TensorMap> DecodeTensorMap(const TensorMapBytes& encoded) {
  TensorMapBytes bytes = encoded;
  Mask(&bytes);
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof(packed));
  if (packed.checksum != Checksum(bytes)) return std::nullopt;
  TensorMap map{.address = packed.address,
                .rank = packed.rank,
                .element_bytes = packed.element_bytes,
                .strides = packed.strides,
                .interleave = packed.interleave,
                .span = packed.span,
                .fills_nan = packed.fills_nan != 0};
  for (uint32_t i = 0; i < map.rank; ++i) {
    map.sizes[i] = uint64_t{packed.last[i]} + 1;
    map.boxes[i] = uint32_t{packed.last_of_box[i]} + 1;
    map.steps[i] = packed.steps[i];
  }
  return map;
}

}  // namespace fakecuda
