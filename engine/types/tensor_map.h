// A description of a tensor in a buffer, by which a program copies boxes of it: part of an argument
// of a launch. Its first dimension is the innermost. A plain value; devices/api/check_tensor_map.h
// has its limits.
//
// The box at coordinates c has, along each dimension i, the elements c[i], c[i] + steps[i], ...
// below c[i] + boxes[i]. Coordinates may be outside of the tensor, also negative: what a box has
// there is filled in when it is read, and skipped when it is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/types/dtype.h"

namespace telegrad {

inline constexpr int64_t kTensorMapRank = 5;  // the most

// How the innermost dimension of a tensor of at least three is divided: not at all, or into slices
// of 16 or of 32 bytes.
enum class TensorInterleave : uint8_t { kNone, k16Bytes, k32Bytes };

// How a box is permuted in the workgroup's memory, so that its columns lie in different banks: not
// at all, or chunks of 16 bytes within spans of so many.
enum class TensorSwizzle : uint16_t { kNone, k32Bytes, k64Bytes, k128Bytes };

// What elements outside of the tensor are read as. The widths of these leave no gap in a TensorMap.
enum class TensorFill : uint32_t { kZero, kNan };

struct TensorMap {
  using PerDimension = std::array<int64_t, kTensorMapRank>;

  int64_t rank = 1;
  // Beyond the rank, dimensions are as here.
  PerDimension sizes = {1, 1, 1, 1, 1};  // elements of the tensor
  PerDimension strides = {};             // bytes to the next index; the first: of an element
  PerDimension boxes = {1, 1, 1, 1, 1};  // indices that a box spans
  PerDimension steps = {1, 1, 1, 1, 1};  // indices from one element of a box to the next
  DType element = DType::kFloat32;
  TensorInterleave interleave = TensorInterleave::kNone;
  TensorSwizzle swizzle = TensorSwizzle::kNone;
  TensorFill fill = TensorFill::kZero;

  // What the address of the tensor is a multiple of, in bytes.
  int64_t alignment() const { return interleave == TensorInterleave::k32Bytes ? 32 : 16; }

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

// A map of a tensor at an address of the host, as code of x86-64 takes it (program_signature.h): at
// these offsets.
struct HostTensorMap {
  uint64_t address = 0;
  TensorMap map;
};
static_assert(offsetof(HostTensorMap, address) == 0);
static_assert(offsetof(HostTensorMap, map) == 8 && offsetof(TensorMap, rank) == 0);
static_assert(offsetof(TensorMap, sizes) == 8 && offsetof(TensorMap, strides) == 48);
static_assert(offsetof(TensorMap, boxes) == 88 && offsetof(TensorMap, steps) == 128);
static_assert(std::has_unique_object_representations_v<HostTensorMap>);
static_assert(offsetof(TensorMap, element) == 168 && offsetof(TensorMap, fill) == 172);

}  // namespace telegrad
