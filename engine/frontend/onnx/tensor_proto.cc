// The elements of a TensorProto: raw bytes, or numbers in the field that belongs to the type.
#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/proto_reader.h"
#include "engine/frontend/tensor/host_bytes.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxDenseBytes = int64_t{1} << 30;  // of a sparse tensor, which files only claim

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

absl::StatusOr<StringTensor> ConvertStrings(const TensorProto& tensor) {
  if (tensor.data_type != kStringType) {
    return InvalidArgument("element type ", tensor.data_type, ", expected strings");
  }
  if (tensor.elsewhere) return InvalidArgument("strings can't be in another file");
  TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(DType::kInt8, tensor.dims));
  StringTensor out{tensor.dims, {}};
  ProtoReader reader(tensor.message);
  Field field;
  while (reader.Next(&field)) {
    if (field.number != field::kStringData) continue;
    if (field.type != WireType::kBytes) return BadWire("a string has the wrong wire type");
    if (static_cast<int64_t>(out.values.size()) == size) {
      return InvalidArgument("there are more elements than the dims say");
    }
    out.values.emplace_back(field.bytes);
  }
  TG_RETURN_IF_ERROR(reader.status());
  if (static_cast<int64_t>(out.values.size()) == size) return out;
  return InvalidArgument("has ", out.values.size(), " strings, the dims say ", size);
}

// Flat positions of the elements, of which there are `count`.
absl::StatusOr<std::vector<int64_t>> SparsePositions(const SparseTensor& sparse, int64_t count) {
  TG_ASSIGN_OR_RETURN(const HostTensor indices, Convert(sparse.indices));
  if (indices.dtype != DType::kInt64) return InvalidArgument("its indices are not i64");
  const auto rank = static_cast<int64_t>(sparse.dims.size());
  const bool flat = indices.shape == Shape{count};
  if (!flat && indices.shape != Shape{count, rank}) {
    return InvalidArgument("its indices have the shape ", ToString(indices.shape), ", expected [",
                           count, "] or [", count, ", ", rank, "]");
  }
  const auto numbers = indices.Values<int64_t>();
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = flat ? numbers[i] : 0;
    bool inside = flat ? at >= 0 && at < NumElements(sparse.dims) : true;
    for (int64_t axis = 0; !flat && axis < rank; ++axis) {
      const int64_t index = numbers[i * rank + axis];
      inside = inside && index >= 0 && index < sparse.dims[axis];
      if (inside) at = at * sparse.dims[axis] + index;
    }
    if (!inside) return InvalidArgument("element ", i, " lies outside of ", ToString(sparse.dims));
    out.push_back(at);
  }
  return out;
}

absl::StatusOr<HostTensor> ConvertSparse(const SparseTensor& sparse) {
  TG_ASSIGN_OR_RETURN(const HostTensor values, Convert(sparse.values));
  TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(values.dtype, sparse.dims));
  if (values.shape.size() != 1) return InvalidArgument("its values are not a list");
  if (IsPacked(values.dtype)) return Unimplemented("sparse tensors of ", Name(values.dtype));
  if (bytes > kMaxDenseBytes) {
    return ResourceExhausted("takes ", bytes, " bytes when dense; the limit is ", kMaxDenseBytes);
  }
  TG_ASSIGN_OR_RETURN(const auto positions, SparsePositions(sparse, values.shape[0]));
  const auto width = static_cast<size_t>(ByteSize(values.dtype));
  HostTensor out{values.dtype, sparse.dims, std::string(static_cast<size_t>(bytes), '\0')};
  std::vector<bool> given(static_cast<size_t>(NumElements(sparse.dims)), false);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (given[positions[i]]) return InvalidArgument("two elements are given for one place");
    given[positions[i]] = true;
    out.bytes.replace(positions[i] * width, width, values.bytes, i * width, width);
  }
  return out;
}

}  // namespace

absl::StatusOr<StringTensor> ToStrings(const TensorProto& tensor) {
  absl::StatusOr<StringTensor> out = ConvertStrings(tensor);
  if (out.ok()) return out;
  return Of(tensor, out.status());
}

absl::StatusOr<HostTensor> ToDense(const SparseTensor& sparse) {
  absl::StatusOr<HostTensor> out = ConvertSparse(sparse);
  if (out.ok()) return out;
  return Of(sparse.values, out.status());
}

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
