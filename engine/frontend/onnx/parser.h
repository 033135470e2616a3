// What reads the messages of ONNX's files: a loop over its fields for each. Unknown fields are
// skipped, as protobuf demands. A counter bounds the parts of a model, because an empty message
// takes two bytes in a file and hundreds in memory.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/proto_reader.h"

namespace telegrad::onnx {

inline constexpr int64_t kMaxParts = 1'000'000;  // nodes, edges, attributes, ...
// Numbers and strings in lists of attributes, of which a forest of trees has millions. Each takes
// 16 bytes at most.
inline constexpr int64_t kMaxListed = int64_t{1} << 24;
inline constexpr size_t kMaxWrappers = 8;  // of a type

class Parser {
 public:
  absl::Status ReadModel(std::string_view bytes, Model* out);
  absl::Status ReadTensor(std::string_view bytes, TensorProto* out);
  absl::Status ReadData(std::string_view bytes, std::span<const Wrapper> wrappers, OnnxData* out);

 private:
  absl::Status Part() {
    if (++parts_ <= kMaxParts) return absl::OkStatus();
    return ResourceExhausted("the model has more than ", kMaxParts, " parts");
  }
  absl::Status Listed() {
    if (++listed_ <= kMaxListed) return absl::OkStatus();
    return ResourceExhausted("the attributes have more than ", kMaxListed, " numbers and strings");
  }
  // A new element of a list, against the limit.
  template <typename T>
  absl::Status Add(std::vector<T>* list) {
    TG_RETURN_IF_ERROR(Part());
    list->emplace_back();
    return absl::OkStatus();
  }

  absl::Status ReadOpset(std::string_view bytes, OpsetVersions* out);
  absl::Status ReadFunction(std::string_view bytes, Function* out);
  absl::Status ReadGraph(std::string_view bytes, GraphProto* out);
  absl::Status ReadSparse(std::string_view bytes, SparseTensor* out);
  absl::Status ReadExternal(std::string_view bytes, TensorProto* out);
  absl::Status ReadDim(uint64_t dim, Shape* out);
  absl::Status ReadNode(std::string_view bytes, Node* out);
  absl::Status ReadAttribute(std::string_view bytes, Attribute* out);
  absl::Status ReadValueInfo(std::string_view bytes, ValueInfo* out);
  absl::Status ReadType(std::string_view bytes, ValueInfo* out);
  absl::Status ReadTensorType(std::string_view bytes, ValueInfo* out);
  absl::Status ReadDimension(std::string_view bytes, Dimension* out);

  int64_t parts_ = 0, listed_ = 0;
  int depth_ = 0;  // of the graph that is read
};

// Reads every field of `bytes` with `read(field)`, which returns a Status.
template <typename F>
absl::Status ForEachField(std::string_view bytes, F read) {
  ProtoReader reader(bytes);
  Field field;
  while (reader.Next(&field)) TG_RETURN_IF_ERROR(read(field));
  return reader.status();
}

inline absl::Status Expect(const Field& field, WireType type, std::string_view message) {
  if (field.type == type) return absl::OkStatus();
  return BadWire(StrCat("field ", field.number, " of ", message, " has the wrong wire type"));
}

inline absl::Status Take(const Field& field, std::string_view message, std::string_view* out) {
  TG_RETURN_IF_ERROR(Expect(field, WireType::kBytes, message));
  *out = field.bytes;
  return absl::OkStatus();
}

inline absl::Status Take(const Field& field, std::string_view message, int64_t* out) {
  TG_RETURN_IF_ERROR(Expect(field, WireType::kVarint, message));
  *out = static_cast<int64_t>(field.value);
  return absl::OkStatus();
}

}  // namespace telegrad::onnx
