// Element types: plain values described by one table, dtypes.def.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

namespace telegrad {

enum class DTypeKind : uint8_t { kVoid, kBoolean, kSigned, kUnsigned, kFloat };

enum class DType : uint8_t {
  kVoid = 0,  // the type of nodes without a value (STORE, SINK, END)
#define DTYPE(name, ...) name,
#include "engine/types/dtypes.def"
#undef DTYPE
};

// Which codes of a float format are no finite numbers.
enum class FloatSpecials : uint8_t {
  kNotFloat,
  kIeee,         // the largest exponent holds the infinities and NaNs
  kNanOnly,      // no infinity; all bits but the sign set is NaN ("fn")
  kNegZeroNan,   // no infinity, no -0; the code of -0 is NaN ("fnuz")
  kPowersOfTwo,  // an exponent only: no sign, no zero, no infinity; all bits set is NaN
  kFinite,       // neither infinity nor NaN
};

struct DTypeInfo {
  DType dtype;
  std::string_view text;
  int wire;
  int bits;
  DTypeKind kind;
  int exponent_bits;
  int mantissa_bits;  // explicit ones
  int bias;
  FloatSpecials specials;
  std::string_view numpy;
  int onnx;
  std::string_view safetensors;
};

// All rows, kVoid first, indexed by the enumerator.
std::span<const DTypeInfo> AllDTypes();
namespace internal {
extern const DTypeInfo kDTypeTable[];
}
inline const DTypeInfo& Info(DType dtype) {
  return internal::kDTypeTable[static_cast<size_t>(dtype)];
}

inline std::string_view Name(DType dtype) { return Info(dtype).text; }
// Several elements share a byte.
inline bool IsPacked(DType dtype) { return Info(dtype).bits < 8 && dtype != DType::kVoid; }
// Of one element in memory; of a type that is not packed.
inline int64_t ByteSize(DType dtype) { return Info(dtype).bits / 8; }
// Of `elements` elements next to each other; at most kMaxElements of them.
inline int64_t BytesOf(DType dtype, int64_t elements) {
  return (elements * Info(dtype).bits + 7) / 8;
}
// No arithmetic: see dtypes.def.
inline bool IsStorage(DType dtype) {
  return IsPacked(dtype) || Info(dtype).specials == FloatSpecials::kPowersOfTwo;
}
inline bool IsFloat(DType dtype) { return Info(dtype).kind == DTypeKind::kFloat; }
inline bool IsBool(DType dtype) { return dtype == DType::kBool; }
inline bool IsUnsigned(DType dtype) { return Info(dtype).kind == DTypeKind::kUnsigned; }
inline bool IsSigned(DType dtype) { return Info(dtype).kind == DTypeKind::kSigned; }
// A float type of less than 32 bits: arithmetic is done in f32 and rounded once.
inline bool IsNarrowFloat(DType dtype) { return IsFloat(dtype) && Info(dtype).bits < 32; }
// Signed or unsigned integers; not bool.
inline bool IsInt(DType dtype) { return IsSigned(dtype) || IsUnsigned(dtype); }

// A set of element types.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<DType> dtypes) {
    for (DType dtype : dtypes) bits_ |= Bit(dtype);
  }
  constexpr bool Has(DType dtype) const { return (bits_ & Bit(dtype)) != 0; }
  constexpr uint32_t bits() const { return bits_; }  // a different number for every set
  static constexpr DTypeSet FromBits(uint32_t bits) {
    DTypeSet set;
    set.bits_ = bits;
    return set;
  }
  friend constexpr bool operator==(const DTypeSet&, const DTypeSet&) = default;

 private:
  static constexpr uint32_t Bit(DType dtype) { return uint32_t{1} << static_cast<int>(dtype); }
  uint32_t bits_ = 0;
};

// Each is nullopt for an unknown or void type.
std::optional<DType> DTypeFromText(std::string_view text);
std::optional<DType> DTypeFromWire(int wire);
std::optional<DType> DTypeFromNumpy(std::string_view descr);
std::optional<DType> DTypeFromOnnx(int number);
std::optional<DType> DTypeFromSafetensors(std::string_view name);

}  // namespace telegrad
