// The types that a tensor of a GGUF file may have: plain values described by one table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/types/dtype.h"

namespace telegrad {

enum class GgufType : uint8_t {
#define GGUF_TYPE(enumerator, ...) enumerator,
#include "engine/frontend/io/gguf_types.def"
#undef GGUF_TYPE
};

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;
  uint32_t number;   // in files
  int64_t elements;  // of a block
  int64_t bytes;     // of a block
  DType dtype;       // kVoid: a quantized type
  bool quantized() const { return dtype == DType::kVoid; }
};

inline constexpr GgufTypeInfo kGgufTypes[] = {
#define GGUF_TYPE(enumerator, name, number, elements, bytes, dtype) \
  {GgufType::enumerator, name, number, elements, bytes, DType::dtype},
#include "engine/frontend/io/gguf_types.def"
#undef GGUF_TYPE
};

constexpr const GgufTypeInfo& Info(GgufType type) { return kGgufTypes[static_cast<size_t>(type)]; }

}  // namespace telegrad
