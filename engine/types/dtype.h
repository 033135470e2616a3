// Element types: plain values described by one table, dtypes.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace telegrad {

enum class DTypeKind : uint8_t { kVoid, kBoolean, kSigned, kUnsigned, kFloat };

enum class DType : uint8_t {
  kVoid = 0,  // the type of nodes without a value (STORE, SINK, END)
#define DTYPE(name, text, wire, bits, kind, numpy, onnx, safetensors) name,
#include "engine/types/dtypes.def"
#undef DTYPE
};

struct DTypeInfo {
  DType dtype;
  std::string_view text;
  int wire;
  int bits;
  DTypeKind kind;
  std::string_view numpy;
  int onnx;
  std::string_view safetensors;
};

// All rows, kVoid first, indexed by the enumerator.
std::span<const DTypeInfo> AllDTypes();
const DTypeInfo& Info(DType dtype);

inline std::string_view Name(DType dtype) { return Info(dtype).text; }
inline int64_t ByteSize(DType dtype) { return Info(dtype).bits / 8; }
inline bool IsFloat(DType dtype) { return Info(dtype).kind == DTypeKind::kFloat; }
inline bool IsBool(DType dtype) { return dtype == DType::kBool; }
inline bool IsUnsigned(DType dtype) { return Info(dtype).kind == DTypeKind::kUnsigned; }
inline bool IsSigned(DType dtype) { return Info(dtype).kind == DTypeKind::kSigned; }
// Signed or unsigned integers; not bool.
inline bool IsInt(DType dtype) { return IsSigned(dtype) || IsUnsigned(dtype); }

// Each is nullopt for an unknown or void type.
std::optional<DType> DTypeFromText(std::string_view text);
std::optional<DType> DTypeFromWire(int wire);
std::optional<DType> DTypeFromNumpy(std::string_view descr);
std::optional<DType> DTypeFromOnnx(int number);
std::optional<DType> DTypeFromSafetensors(std::string_view name);

}  // namespace telegrad
