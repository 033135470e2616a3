// A tensor in host memory: what files hold, and what is bound to the slots of a plan.
#pragma once

#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"
#include "engine/types/dtype.h"

namespace telegrad {

// The element type that a C++ type stands for.
template <typename T>
inline constexpr DType kDTypeOf = DType::kVoid;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::kUInt16;
template <>
inline constexpr DType kDTypeOf<uint32_t> = DType::kUInt32;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::kUInt64;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;

struct HostTensor {
  DType dtype = DType::kVoid;
  Shape shape;
  std::string
      bytes;  // row-major, little-endian; exactly NumElements(shape) * ByteSize(dtype) of them

  template <typename T>
  static HostTensor Of(Shape shape, std::span<const T> values) {
    static_assert(kDTypeOf<T> != DType::kVoid);
    HostTensor out{kDTypeOf<T>, std::move(shape), {}};
    out.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return out;
  }
  template <typename T>
  static HostTensor Of(Shape shape, std::initializer_list<T> values) {
    return Of(std::move(shape), std::span<const T>(values.begin(), values.size()));
  }

  // The elements; T must be the type of `dtype`.
  template <typename T>
  std::vector<T> Values() const {
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
    return out;
  }
  // The elements as doubles, of any dtype; exact up to 53 bits.
  std::vector<double> AsDoubles() const;

  friend bool operator==(const HostTensor&, const HostTensor&) = default;
};

// The bytes that a tensor occupies. The error says which limit or sign its dims break; dims come
// from files and strangers, so nothing is allocated before this has passed.
absl::StatusOr<int64_t> CheckedByteSize(DType dtype, ShapeView shape);

}  // namespace telegrad
