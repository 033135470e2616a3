// The elements of a TensorProto: raw bytes, or numbers in the field that belongs to the type.
#include "engine/base/status.h"
#include "engine/frontend/host_bytes.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/proto_reader.h"

namespace telegrad::onnx {
namespace {

// Where a type's elements are if not in raw_data.
struct TypedField {
  uint32_t number;
  WireType wire;
};

TypedField FieldOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {field::kFloatData, WireType::kFixed32};
    case DType::kFloat64:
      return {field::kDoubleData, WireType::kFixed64};
    case DType::kInt64:
      return {field::kInt64Data, WireType::kVarint};
    case DType::kUInt32:
    case DType::kUInt64:
      return {field::kUint64Data, WireType::kVarint};
    default:
      return {field::kInt32Data, WireType::kVarint};
  }
}

// Grows with what the file holds and stops at `size` bytes, which only the file claims.
absl::StatusOr<std::string> TypedBytes(const TensorProto& tensor, DType dtype, size_t size) {
  const TypedField typed = FieldOf(dtype);
  // Packed types come a byte at a time.
  const auto width = static_cast<size_t>(BytesOf(dtype, 1));
  std::string out;
  ProtoReader reader(tensor.message);
  Field field;
  while (reader.Next(&field)) {
    if (field.number != typed.number) continue;
    TG_RETURN_IF_ERROR(ForEachElement(field, typed.wire, [&](uint64_t value) -> absl::Status {
      if (out.size() >= size) return InvalidArgument("there are more elements than the dims say");
      out.append(reinterpret_cast<const char*>(&value), width);  // little-endian: the low bytes
      return absl::OkStatus();
    }));
  }
  TG_RETURN_IF_ERROR(reader.status());
  return out;
}

absl::StatusOr<DType> ReadType(const TensorProto& tensor) {
  // The field is an int32 on the wire; a wider number is not a type.
  const std::optional<DType> dtype = tensor.data_type >= 1 && tensor.data_type <= 1000
                                         ? DTypeFromOnnx(static_cast<int>(tensor.data_type))
                                         : std::nullopt;
  if (!dtype) return Unimplemented("element type ", tensor.data_type, " is not supported");
  if (tensor.elsewhere)
    return Unimplemented("its elements are in another file or segment; save the model as one file");
  return *dtype;
}

absl::StatusOr<HostTensor> Convert(const TensorProto& tensor) {
  TG_ASSIGN_OR_RETURN(const DType dtype, ReadType(tensor));
  if (tensor.has_raw) return HostTensorFromBytes(dtype, tensor.dims, tensor.raw);
  TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(dtype, tensor.dims));
  TG_ASSIGN_OR_RETURN(std::string bytes, TypedBytes(tensor, dtype, size));
  TG_RETURN_IF_ERROR(CheckHostBytes(dtype, tensor.dims, bytes));
  return HostTensor{dtype, tensor.dims, std::move(bytes)};
}

absl::Status Of(const TensorProto& tensor, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      StrCat("tensor '", tensor.name, "': ", ToStd(status.message())));
}

}  // namespace

absl::StatusOr<DType> ElementType(const TensorProto& tensor) {
  absl::StatusOr<DType> out = ReadType(tensor);
  if (out.ok()) return out;
  return Of(tensor, out.status());
}

absl::StatusOr<HostTensor> ToHostTensor(const TensorProto& tensor) {
  absl::StatusOr<HostTensor> out = Convert(tensor);
  if (out.ok()) return out;
  return Of(tensor, out.status());
}

absl::Status CheckRaw(const TensorProto& tensor) {
  TG_ASSIGN_OR_RETURN(const DType dtype, ElementType(tensor));
  return Of(tensor, CheckHostBytes(dtype, tensor.dims, tensor.raw));
}

absl::StatusOr<HostTensor> ReadTensorFile(std::string_view file) {
  TG_ASSIGN_OR_RETURN(const TensorProto tensor, ParseTensor(file));
  return ToHostTensor(tensor);
}

absl::StatusOr<std::string> WriteTensorFile(const HostTensor& tensor, std::string_view name) {
  TG_RETURN_IF_ERROR(CheckHostTensor(tensor));
  std::string out;
  for (int64_t dim : tensor.shape) PutVarintField(field::kDims, dim, &out);
  PutVarintField(field::kDataType, Info(tensor.dtype).onnx, &out);
  if (!name.empty()) PutBytesField(field::kTensorName, name, &out);
  PutBytesField(field::kRawData, tensor.bytes, &out);
  return out;
}

}  // namespace telegrad::onnx
