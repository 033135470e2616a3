#include "server/serving/datatype.h"

namespace telegrad {
namespace {

struct Row {
  std::string_view name;
  DType dtype;
};
constexpr Row kDatatypes[] = {
    {"BOOL", DType::kBool},     {"UINT8", DType::kUInt8},   {"UINT16", DType::kUInt16},
    {"UINT32", DType::kUInt32}, {"UINT64", DType::kUInt64}, {"INT8", DType::kInt8},
    {"INT16", DType::kInt16},   {"INT32", DType::kInt32},   {"INT64", DType::kInt64},
    {"FP16", DType::kFloat16},  {"BF16", DType::kBFloat16}, {"FP32", DType::kFloat32},
    {"FP64", DType::kFloat64},
};

}  // namespace

std::optional<DType> FromDatatype(std::string_view name) {
  for (const Row& row : kDatatypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view DatatypeOf(DType dtype) {
  for (const Row& row : kDatatypes) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

bool IsDatatype(std::string_view name) {
  return name == kBytesDatatype || FromDatatype(name).has_value();
}

}  // namespace telegrad
