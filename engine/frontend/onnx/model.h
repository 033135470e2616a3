// An ONNX model as plain structs whose strings are views of the file, which must outlive them.
// The format is onnx.proto of the ONNX project (github.com/onnx/onnx, Apache-2.0); the field
// numbers here are its field numbers, and nothing else is taken from it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad::onnx {

// Field numbers, by message.
namespace field {
enum Model : uint32_t { kIrVersion = 1, kGraph = 7, kOpsetImport = 8, kFunctions = 25 };
enum Opset : uint32_t { kOpsetDomain = 1, kOpsetVersion = 2 };
enum FunctionFields : uint32_t {
  kFunctionName = 1,
  kFunctionInput = 4,
  kFunctionOutput = 5,
  kFunctionAttribute = 6,
  kFunctionNode = 7,
  kFunctionOpsetImport = 9,
  kFunctionDomain = 10,
  kFunctionAttributeProto = 11,
  kFunctionOverload = 13,
};
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
  kNodeOverload = 8,
};
enum Attribute : uint32_t {
  kAttributeName = 1,
  kF = 2,
  kI = 3,
  kS = 4,
  kT = 5,
  kG = 6,
  kFloats = 7,
  kInts = 8,
  kStrings = 9,
  kTensors = 10,
  kAttributeType = 20,
  kRefAttrName = 21,
  kSparseTensor = 22,
};
enum SparseFields : uint32_t { kSparseValues = 1, kSparseIndices = 2, kSparseDims = 3 };
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
enum Type : uint32_t {
  kTensorType = 1,
  kSequenceType = 4,
  kMapType = 5,
  kSparseTensorType = 8,
  kOptionalType = 9,
};
enum WrappedType : uint32_t { kWrappedElement = 1 };       // of TypeProto.Sequence and Optional
enum Entry : uint32_t { kEntryKey = 1, kEntryValue = 2 };  // of StringStringEntryProto
// SequenceProto and OptionalProto number these alike; a sequence repeats them.
enum Container : uint32_t {
  kContainerName = 1,
  kContainerElemType = 2,
  kContainerTensor = 3,
  kContainerSparse = 4,
  kContainerSequence = 5,
  kContainerMap = 6,
  kContainerOptional = 7,
};
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
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kSparse = 11,
};
// ONNX's number of the type of strings, which no DType stands for.
inline constexpr int64_t kStringType = 8;

// TensorProto. The elements stay in the file until ToHostTensor.
struct TensorProto {
  std::string_view name;
  int64_t data_type = 0;
  Shape dims;
  bool has_raw = false;
  bool elsewhere = false;  // segmented, or in another file
  std::string_view raw;
  std::string_view message;
  // Of elements in another file.
  std::string_view location;
  int64_t offset = 0, length = -1;  // -1: to the end, as far as the dims say
};

// The elements of a tensor of strings.
struct StringTensor {
  Shape shape;
  std::vector<std::string> values;

  friend bool operator==(const StringTensor&, const StringTensor&) = default;
};

// SparseTensorProto: values at indices, either flat positions or coordinates.
struct SparseTensor {
  TensorProto values, indices;
  Shape dims;
};

struct GraphProto;

struct Attribute {
  std::string_view name;
  AttributeType type = AttributeType::kOther;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::string_view reference;  // in a function: the name of the function's attribute
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::vector<TensorProto> tensors;
  std::optional<TensorProto> t;
  std::shared_ptr<GraphProto> g;
  std::shared_ptr<const SparseTensor> sparse;
};

struct Node {
  std::string_view name;
  std::string_view op_type;
  std::string_view domain;
  std::string_view overload;
  std::vector<std::string_view> inputs;  // "" for an optional input that is left out
  std::vector<std::string_view> outputs;
  std::vector<Attribute> attributes;
};

struct Dimension {
  int64_t value = -1;      // -1: not given
  std::string_view param;  // the name of a size that is only known at run time, or ""
};

// What a type wraps around a tensor, from the outside in.
enum class Wrapper : uint8_t { kSequence, kOptional };

struct ValueInfo {
  std::string_view name;
  std::vector<Wrapper> wrappers;
  bool other = false;     // a map or a sparse tensor
  int64_t elem_type = 0;  // 0: not said
  bool has_shape = false;
  std::vector<Dimension> shape;
};

struct GraphProto {
  std::vector<Node> nodes;
  std::vector<TensorProto> initializers;
  std::vector<SparseTensor> sparse_initializers;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
};

// The version of each domain; the default one is "".
using OpsetVersions = std::map<std::string_view, int64_t>;

// A model's own operator.
struct Function {
  std::string_view domain, name, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<std::string_view> attributes;  // without a default
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
  OpsetVersions opsets;
};

struct Model : GraphProto {
  int64_t ir_version = 0;
  int64_t opset = 0;  // of the default domain
  OpsetVersions opsets;
  std::vector<Function> functions;
};

inline constexpr int kMaxGraphDepth = 32;  // of graphs in attributes of nodes

// INVALID_ARGUMENT if the bytes are not a model, RESOURCE_EXHAUSTED if it has more parts than any
// real model or graphs nested deeper than kMaxGraphDepth.
absl::StatusOr<Model> ParseModel(std::string_view file);

// A file that holds one TensorProto, as in ONNX's test data sets.
absl::StatusOr<TensorProto> ParseTensor(std::string_view file);
absl::StatusOr<HostTensor> ReadTensorFile(std::string_view file);

// What is bound to an input, or read from an output: a tensor, a tensor of strings, a sequence of
// such, or nothing, where an optional is empty.
struct OnnxData {
  enum class Kind : uint8_t { kTensor, kStrings, kSequence, kNothing };
  Kind kind = Kind::kNothing;
  HostTensor tensor = {};
  StringTensor strings = {};
  std::vector<OnnxData> elements = {};

  friend bool operator==(const OnnxData&, const OnnxData&) = default;
};

// A file of ONNX's test data sets: a TensorProto, or if `type` says so, a SequenceProto or an
// OptionalProto.
absl::StatusOr<OnnxData> ReadDataFile(std::string_view file, const ValueInfo& type);
// UNIMPLEMENTED: an element type that this server does not have, or elements that lie in another
// file.
absl::StatusOr<DType> ElementType(const TensorProto& tensor);
// The elements. Errors as above, or INVALID_ARGUMENT.
absl::StatusOr<HostTensor> ToHostTensor(const TensorProto& tensor);
// The elements of a tensor of strings.
absl::StatusOr<StringTensor> ToStrings(const TensorProto& tensor);
// The elements, 0 where none is given. INVALID_ARGUMENT also where two are given for one place.
absl::StatusOr<HostTensor> ToDense(const SparseTensor& sparse);
// OK if `raw` is what ToHostTensor would copy.
absl::Status CheckRaw(const TensorProto& tensor);
// A serialized TensorProto with raw_data.
absl::StatusOr<std::string> WriteTensorFile(const HostTensor& tensor, std::string_view name);

}  // namespace telegrad::onnx
