// One function for each message: a loop over its fields. Unknown fields are skipped, as protobuf
// demands. No message that is read here contains itself (subgraphs are skipped), so the nesting is
// fixed. A counter bounds the parts of a model, because an empty message takes two bytes in a file
// and a hundred in memory.
#include "engine/frontend/onnx/model.h"

#include <bit>

#include "engine/base/status.h"
#include "engine/frontend/onnx/proto_reader.h"
#include "engine/types/limits.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxParts = 1'000'000;  // nodes, edges, attributes, numbers in attributes, ...

class Parser {
 public:
  absl::Status ReadModel(std::string_view bytes, Model* out);
  absl::Status ReadTensor(std::string_view bytes, TensorProto* out);

 private:
  absl::Status Part() {
    if (++parts_ <= kMaxParts) return absl::OkStatus();
    return ResourceExhausted("the model has more than ", kMaxParts, " parts");
  }
  // A new element of a list, against the limit.
  template <typename T>
  absl::Status Add(std::vector<T>* list) {
    TG_RETURN_IF_ERROR(Part());
    list->emplace_back();
    return absl::OkStatus();
  }

  absl::Status ReadOpset(std::string_view bytes, Model* out);
  absl::Status ReadGraph(std::string_view bytes, Model* out);
  absl::Status ReadNode(std::string_view bytes, Node* out);
  absl::Status ReadAttribute(std::string_view bytes, Attribute* out);
  absl::Status ReadValueInfo(std::string_view bytes, ValueInfo* out);
  absl::Status ReadTensorType(std::string_view bytes, ValueInfo* out);
  absl::Status ReadDimension(std::string_view bytes, Dimension* out);

  int64_t parts_ = 0;
};

// Reads every field of `bytes` with `read(field)`, which returns a Status.
template <typename F>
absl::Status ForEachField(std::string_view bytes, F read) {
  ProtoReader reader(bytes);
  Field field;
  while (reader.Next(&field)) TG_RETURN_IF_ERROR(read(field));
  return reader.status();
}

absl::Status Expect(const Field& field, WireType type, std::string_view message) {
  if (field.type == type) return absl::OkStatus();
  return BadWire(StrCat("field ", field.number, " of ", message, " has the wrong wire type"));
}

absl::Status Take(const Field& field, std::string_view message, std::string_view* out) {
  TG_RETURN_IF_ERROR(Expect(field, WireType::kBytes, message));
  *out = field.bytes;
  return absl::OkStatus();
}

absl::Status Take(const Field& field, std::string_view message, int64_t* out) {
  TG_RETURN_IF_ERROR(Expect(field, WireType::kVarint, message));
  *out = static_cast<int64_t>(field.value);
  return absl::OkStatus();
}

absl::Status Parser::ReadModel(std::string_view bytes, Model* out) {
  constexpr std::string_view kName = "ModelProto";
  bool has_graph = false;
  TG_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& f) -> absl::Status {
    std::string_view part;
    switch (f.number) {
      case field::kIrVersion:
        return Take(f, kName, &out->ir_version);
      case field::kOpsetImport:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadOpset(part, out);
      case field::kGraph:
        if (has_graph) return InvalidArgument("the model has two graphs");
        has_graph = true;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadGraph(part, out);
      case field::kFunctions:
        out->has_functions = true;
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  }));
  if (!has_graph) return InvalidArgument("the bytes are not an ONNX model: there is no graph");
  return absl::OkStatus();
}

absl::Status Parser::ReadOpset(std::string_view bytes, Model* out) {
  std::string_view domain;
  int64_t version = 0;
  TG_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kOpsetDomain) return Take(f, "OperatorSetIdProto", &domain);
    if (f.number == field::kOpsetVersion) return Take(f, "OperatorSetIdProto", &version);
    return absl::OkStatus();
  }));
  if (domain.empty() || domain == "ai.onnx") out->opset = version;
  return absl::OkStatus();
}

absl::Status Parser::ReadGraph(std::string_view bytes, Model* out) {
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    std::string_view part;
    switch (f.number) {
      case field::kNode:
        TG_RETURN_IF_ERROR(Take(f, "GraphProto", &part));
        TG_RETURN_IF_ERROR(Add(&out->nodes));
        return ReadNode(part, &out->nodes.back());
      case field::kInitializer:
        TG_RETURN_IF_ERROR(Take(f, "GraphProto", &part));
        TG_RETURN_IF_ERROR(Add(&out->initializers));
        return ReadTensor(part, &out->initializers.back());
      case field::kGraphInput:
        TG_RETURN_IF_ERROR(Take(f, "GraphProto", &part));
        TG_RETURN_IF_ERROR(Add(&out->inputs));
        return ReadValueInfo(part, &out->inputs.back());
      case field::kGraphOutput:
        TG_RETURN_IF_ERROR(Take(f, "GraphProto", &part));
        TG_RETURN_IF_ERROR(Add(&out->outputs));
        return ReadValueInfo(part, &out->outputs.back());
      case field::kSparseInitializer:
        out->has_sparse = true;
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status Parser::ReadNode(std::string_view bytes, Node* out) {
  constexpr std::string_view kName = "NodeProto";
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    switch (f.number) {
      case field::kNodeInput:
        TG_RETURN_IF_ERROR(Add(&out->inputs));
        return Take(f, kName, &out->inputs.back());
      case field::kNodeOutput:
        TG_RETURN_IF_ERROR(Add(&out->outputs));
        return Take(f, kName, &out->outputs.back());
      case field::kNodeName:
        return Take(f, kName, &out->name);
      case field::kOpType:
        return Take(f, kName, &out->op_type);
      case field::kNodeDomain:
        return Take(f, kName, &out->domain);
      case field::kNodeAttribute: {
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Add(&out->attributes));
        return ReadAttribute(part, &out->attributes.back());
      }
      default:
        return absl::OkStatus();
    }
  });
}

// The type is named by a field since IR version 2; before, the field in use tells it.
absl::Status Parser::ReadAttribute(std::string_view bytes, Attribute* out) {
  constexpr std::string_view kName = "AttributeProto";
  int64_t declared = -1;
  const auto used = [&](AttributeType type) { out->type = type; };
  TG_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& f) -> absl::Status {
    switch (f.number) {
      case field::kAttributeName:
        return Take(f, kName, &out->name);
      case field::kAttributeType:
        return Take(f, kName, &declared);
      case field::kF:
        used(AttributeType::kFloat);
        TG_RETURN_IF_ERROR(Expect(f, WireType::kFixed32, kName));
        out->f = std::bit_cast<float>(static_cast<uint32_t>(f.value));
        return absl::OkStatus();
      case field::kI:
        used(AttributeType::kInt);
        return Take(f, kName, &out->i);
      case field::kS:
        used(AttributeType::kString);
        return Take(f, kName, &out->s);
      case field::kT: {
        used(AttributeType::kTensor);
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadTensor(part, &out->t.emplace());
      }
      case field::kFloats:
        used(AttributeType::kFloats);
        return ForEachElement(f, WireType::kFixed32, [&](uint64_t bits) {
          out->floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
          return Part();
        });
      case field::kInts:
        used(AttributeType::kInts);
        return ForEachElement(f, WireType::kVarint, [&](uint64_t value) {
          out->ints.push_back(static_cast<int64_t>(value));
          return Part();
        });
      case field::kStrings:
        used(AttributeType::kStrings);
        TG_RETURN_IF_ERROR(Take(f, kName, &out->strings.emplace_back()));
        return Part();
      case field::kRefAttrName:
        return Unimplemented("attribute '", out->name, "' refers to that of a function");
      default:
        return absl::OkStatus();
    }
  }));
  if (declared < 0) return absl::OkStatus();
  const bool known = (declared >= 1 && declared <= 4) || (declared >= 6 && declared <= 8);
  const auto type = known ? static_cast<AttributeType>(declared) : AttributeType::kOther;
  // A number that is zero and a list that is empty may be left out.
  if (type == AttributeType::kTensor && !out->t) {
    return InvalidArgument("attribute '", out->name, "' says it is a tensor and has none");
  }
  if (out->type != AttributeType::kOther && out->type != type) {
    return InvalidArgument("attribute '", out->name, "' has a value of another type than it says");
  }
  out->type = type;
  return absl::OkStatus();
}

absl::Status Parser::ReadValueInfo(std::string_view bytes, ValueInfo* out) {
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kValueName) return Take(f, "ValueInfoProto", &out->name);
    if (f.number != field::kValueType) return absl::OkStatus();
    std::string_view type;
    TG_RETURN_IF_ERROR(Take(f, "ValueInfoProto", &type));
    return ForEachField(type, [&](const Field& t) -> absl::Status {
      if (t.number != field::kTensorType) return absl::OkStatus();
      std::string_view tensor;
      TG_RETURN_IF_ERROR(Take(t, "TypeProto", &tensor));
      return ReadTensorType(tensor, out);
    });
  });
}

absl::Status Parser::ReadTensorType(std::string_view bytes, ValueInfo* out) {
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kElemType) return Take(f, "TypeProto.Tensor", &out->elem_type);
    if (f.number != field::kTypeShape) return absl::OkStatus();
    std::string_view shape;
    TG_RETURN_IF_ERROR(Take(f, "TypeProto.Tensor", &shape));
    out->has_shape = true;
    return ForEachField(shape, [&](const Field& d) -> absl::Status {
      if (d.number != field::kDim) return absl::OkStatus();
      std::string_view dim;
      TG_RETURN_IF_ERROR(Take(d, "TensorShapeProto", &dim));
      TG_RETURN_IF_ERROR(Add(&out->shape));
      return ReadDimension(dim, &out->shape.back());
    });
  });
}

absl::Status Parser::ReadDimension(std::string_view bytes, Dimension* out) {
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kDimValue) return Take(f, "TensorShapeProto", &out->value);
    if (f.number == field::kDimParam) return Take(f, "TensorShapeProto", &out->param);
    return absl::OkStatus();
  });
}

absl::Status Parser::ReadTensor(std::string_view bytes, TensorProto* out) {
  constexpr std::string_view kName = "TensorProto";
  out->message = bytes;
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    switch (f.number) {
      case field::kDims:
        return ForEachElement(f, WireType::kVarint, [&](uint64_t dim) -> absl::Status {
          if (out->dims.size() == kMaxRank) {
            return InvalidArgument("a tensor's rank is over the limit of ", kMaxRank);
          }
          out->dims.push_back(static_cast<int64_t>(dim));
          return absl::OkStatus();
        });
      case field::kDataType:
        return Take(f, kName, &out->data_type);
      case field::kTensorName:
        return Take(f, kName, &out->name);
      case field::kRawData:
        out->has_raw = true;
        return Take(f, kName, &out->raw);
      case field::kSegment:
      case field::kExternalData:
        out->elsewhere = true;
        return absl::OkStatus();
      case field::kDataLocation: {
        int64_t location = 0;
        TG_RETURN_IF_ERROR(Take(f, kName, &location));
        out->elsewhere |= location != 0;
        return absl::OkStatus();
      }
      default:
        return absl::OkStatus();
    }
  });
}

}  // namespace

absl::StatusOr<Model> ParseModel(std::string_view file) {
  Model out;
  TG_RETURN_IF_ERROR(Parser().ReadModel(file, &out));
  return out;
}

absl::StatusOr<TensorProto> ParseTensor(std::string_view file) {
  TensorProto out;
  TG_RETURN_IF_ERROR(Parser().ReadTensor(file, &out));
  return out;
}

}  // namespace telegrad::onnx
