#include "engine/types/dtype.h"

namespace telegrad {
constexpr DTypeInfo internal::kDTypeTable[] = {
    {DType::kVoid, "void", 0, 0, DTypeKind::kVoid, 0, 0, 0, FloatSpecials::kNotFloat, "", 0, ""},
#define DTYPE(name, text, wire, bits, kind, exponent, mantissa, bias, specials, numpy, onnx, \
              safetensors)                                                                   \
  {DType::name,                                                                              \
   text,                                                                                     \
   wire,                                                                                     \
   bits,                                                                                     \
   DTypeKind::kind,                                                                          \
   exponent,                                                                                 \
   mantissa,                                                                                 \
   bias,                                                                                     \
   FloatSpecials::specials,                                                                  \
   numpy,                                                                                    \
   onnx,                                                                                     \
   safetensors},
#include "engine/types/dtypes.def"
#undef DTYPE
};

namespace {

template <typename Key>
std::optional<DType> Find(Key DTypeInfo::* column, const Key& key) {
  if (key == Key{}) return std::nullopt;  // what a format lacks
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    if (row.*column == key) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::span<const DTypeInfo> AllDTypes() { return internal::kDTypeTable; }

std::optional<DType> DTypeFromText(std::string_view text) { return Find(&DTypeInfo::text, text); }
std::optional<DType> DTypeFromWire(int wire) { return Find(&DTypeInfo::wire, wire); }
std::optional<DType> DTypeFromNumpy(std::string_view d) { return Find(&DTypeInfo::numpy, d); }
std::optional<DType> DTypeFromOnnx(int number) { return Find(&DTypeInfo::onnx, number); }
std::optional<DType> DTypeFromSafetensors(std::string_view name) {
  return Find(&DTypeInfo::safetensors, name);
}

}  // namespace telegrad
