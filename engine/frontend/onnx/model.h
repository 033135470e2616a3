// An ONNX model as plain structs whose strings are views of the file, which must outlive them.
// The format is onnx.proto of the ONNX project (github.com/onnx/onnx, Apache-2.0); the field
// numbers here are its field numbers, and nothing else is taken from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/host_tensor.h"

namespace telegrad::onnx {

// Field numbers, by message.
namespace field {
enum Model : uint32_t { kIrVersion = 1, kGraph = 7, kOpsetImport = 8, kFunctions = 25 };
enum Opset : uint32_t { kOpsetDomain = 1, kOpsetVersion = 2 };
enum GraphFields : uint32_t {
  kNode = 1,
  kGraphName = 2,
  kInitializer = 5,
  kGraphInput = 11,
  kGraphOutput = 12,
  kSparseInitializer = 15,
};
enum Node : uint32_t {
  kNodeInput = 1,
  kNodeOutput = 2,
  kNodeName = 3,
  kOpType = 4,
  kNodeAttribute = 5,
  kNodeDomain = 7,
};
enum Attribute : uint32_t {
  kAttributeName = 1,
  kF = 2,
  kI = 3,
  kS = 4,
  kT = 5,
  kFloats = 7,
  kInts = 8,
  kStrings = 9,
  kAttributeType = 20,
  kRefAttrName = 21,
};
enum TensorFields : uint32_t {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kTensorName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};
enum ValueInfo : uint32_t { kValueName = 1, kValueType = 2 };
enum Type : uint32_t { kTensorType = 1 };
enum TensorType : uint32_t { kElemType = 1, kTypeShape = 2 };
enum TensorShape : uint32_t { kDim = 1 };
enum Dimension : uint32_t { kDimValue = 1, kDimParam = 2 };
}  // namespace field

enum class AttributeType : uint8_t {
  kOther = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kFloats = 6,
  kInts = 7,
  kStrings = 8
};

// TensorProto. The elements stay in the file until ToHostTensor.
struct TensorProto {
  std::string_view name;
  int64_t data_type = 0;
  Shape dims;
  bool has_raw = false;
  bool elsewhere = false;  // segmented, or in another file
  std::string_view raw;
  std::string_view message;
};

struct Attribute {
  std::string_view name;
  AttributeType type = AttributeType::kOther;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::optional<TensorProto> t;
};

struct Node {
  std::string_view name;
  std::string_view op_type;
  std::string_view domain;
  std::vector<std::string_view> inputs;  // "" for an optional input that is left out
  std::vector<std::string_view> outputs;
  std::vector<Attribute> attributes;
};

struct Dimension {
  int64_t value = -1;      // -1: not given
  std::string_view param;  // the name of a size that is only known at run time, or ""
};

struct ValueInfo {
  std::string_view name;
  int64_t elem_type = 0;  // 0: not a tensor, or not said
  bool has_shape = false;
  std::vector<Dimension> shape;
};

struct Model {
  int64_t ir_version = 0;
  int64_t opset = 0;  // of the default domain
  bool has_functions = false;
  bool has_sparse = false;
  std::vector<Node> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
};

// INVALID_ARGUMENT if the bytes are not a model, RESOURCE_EXHAUSTED if it has more parts than any
// real model. Subgraphs of control flow are not looked into.
absl::StatusOr<Model> ParseModel(std::string_view file);

// A file that holds one TensorProto, as in ONNX's test data sets.
absl::StatusOr<TensorProto> ParseTensor(std::string_view file);
absl::StatusOr<HostTensor> ReadTensorFile(std::string_view file);
// UNIMPLEMENTED: an element type that this server does not have, or elements that lie in another
// file.
absl::StatusOr<DType> ElementType(const TensorProto& tensor);
// The elements. Errors as above, or INVALID_ARGUMENT.
absl::StatusOr<HostTensor> ToHostTensor(const TensorProto& tensor);
// OK if `raw` is what ToHostTensor would copy.
absl::Status CheckRaw(const TensorProto& tensor);
// A serialized TensorProto with raw_data.
absl::StatusOr<std::string> WriteTensorFile(const HostTensor& tensor, std::string_view name);

}  // namespace telegrad::onnx
