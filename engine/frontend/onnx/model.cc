// One function for each message: a loop over its fields. Unknown fields are skipped, as protobuf
// demands. Graphs and types contain themselves, to a fixed depth here. A counter bounds the parts
// of a model, because an empty message takes two bytes in a file and hundreds in memory.
#include "engine/frontend/onnx/model.h"

#include <bit>
#include <charconv>
#include <span>

#include "engine/base/status.h"
#include "engine/frontend/onnx/parser.h"
#include "engine/types/limits.h"

namespace telegrad::onnx {
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
        return ReadOpset(part, &out->opsets);
      case field::kGraph:
        if (has_graph) return InvalidArgument("the model has two graphs");
        has_graph = true;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadGraph(part, out);
      case field::kFunctions:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Add(&out->functions));
        return ReadFunction(part, &out->functions.back());
      default:
        return absl::OkStatus();
    }
  }));
  if (!has_graph) return InvalidArgument("the bytes are not an ONNX model: there is no graph");
  // Without any import, as before IR version 3, the first opset is meant.
  out->opset = out->opsets.emplace("", 1).first->second;
  return absl::OkStatus();
}

absl::Status Parser::ReadOpset(std::string_view bytes, OpsetVersions* out) {
  TG_RETURN_IF_ERROR(Part());
  std::string_view domain;
  int64_t version = 0;
  TG_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kOpsetDomain) return Take(f, "OperatorSetIdProto", &domain);
    if (f.number == field::kOpsetVersion) return Take(f, "OperatorSetIdProto", &version);
    return absl::OkStatus();
  }));
  (*out)[domain == "ai.onnx" ? "" : domain] = version;
  return absl::OkStatus();
}

absl::Status Parser::ReadFunction(std::string_view bytes, Function* out) {
  constexpr std::string_view kName = "FunctionProto";
  const auto name = [&](const Field& f, std::vector<std::string_view>* list) -> absl::Status {
    TG_RETURN_IF_ERROR(Add(list));
    return Take(f, kName, &list->back());
  };
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    std::string_view part;
    switch (f.number) {
      case field::kFunctionName:
        return Take(f, kName, &out->name);
      case field::kFunctionDomain:
        return Take(f, kName, &out->domain);
      case field::kFunctionOverload:
        return Take(f, kName, &out->overload);
      case field::kFunctionInput:
        return name(f, &out->inputs);
      case field::kFunctionOutput:
        return name(f, &out->outputs);
      case field::kFunctionAttribute:
        return name(f, &out->attributes);
      case field::kFunctionAttributeProto:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Add(&out->defaults));
        return ReadAttribute(part, &out->defaults.back());
      case field::kFunctionNode:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Add(&out->nodes));
        return ReadNode(part, &out->nodes.back());
      case field::kFunctionOpsetImport:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadOpset(part, &out->opsets);
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status Parser::ReadGraph(std::string_view bytes, GraphProto* out) {
  if (depth_ == kMaxGraphDepth) {
    return ResourceExhausted("graphs are nested deeper than ", kMaxGraphDepth);
  }
  ++depth_;
  const absl::Status status = ForEachField(bytes, [&](const Field& f) -> absl::Status {
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
        TG_RETURN_IF_ERROR(Take(f, "GraphProto", &part));
        TG_RETURN_IF_ERROR(Add(&out->sparse_initializers));
        return ReadSparse(part, &out->sparse_initializers.back());
      default:
        return absl::OkStatus();
    }
  });
  --depth_;
  return status;
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
      case field::kNodeOverload:
        return Take(f, kName, &out->overload);
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
          return Listed();
        });
      case field::kInts:
        used(AttributeType::kInts);
        return ForEachElement(f, WireType::kVarint, [&](uint64_t value) {
          out->ints.push_back(static_cast<int64_t>(value));
          return Listed();
        });
      case field::kStrings:
        used(AttributeType::kStrings);
        TG_RETURN_IF_ERROR(Listed());
        return Take(f, kName, &out->strings.emplace_back());
      case field::kTensors: {
        used(AttributeType::kTensors);
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Add(&out->tensors));
        return ReadTensor(part, &out->tensors.back());
      }
      case field::kG: {
        used(AttributeType::kGraph);
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Part());
        auto graph = std::make_shared<GraphProto>();
        TG_RETURN_IF_ERROR(ReadGraph(part, graph.get()));
        out->g = std::move(graph);
        return absl::OkStatus();
      }
      case field::kSparseTensor: {
        used(AttributeType::kSparse);
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        TG_RETURN_IF_ERROR(Part());
        auto sparse = std::make_shared<SparseTensor>();
        TG_RETURN_IF_ERROR(ReadSparse(part, sparse.get()));
        out->sparse = std::move(sparse);
        return absl::OkStatus();
      }
      case field::kRefAttrName:
        return Take(f, kName, &out->reference);
      default:
        return absl::OkStatus();
    }
  }));
  if (declared < 0) return absl::OkStatus();
  const bool known = (declared >= 1 && declared <= 9) || declared == 11;
  const auto type = known ? static_cast<AttributeType>(declared) : AttributeType::kOther;
  // A number that is zero and a list that is empty may be left out.
  if (out->reference.empty() && ((type == AttributeType::kTensor && !out->t) ||
                                 (type == AttributeType::kGraph && out->g == nullptr) ||
                                 (type == AttributeType::kSparse && out->sparse == nullptr))) {
    return InvalidArgument("attribute '", out->name, "' has no value of the type that it says");
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
    return ReadType(type, out);
  });
}

absl::Status Parser::ReadType(std::string_view bytes, ValueInfo* out) {
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    std::string_view part;
    switch (f.number) {
      case field::kTensorType:
        TG_RETURN_IF_ERROR(Take(f, "TypeProto", &part));
        return ReadTensorType(part, out);
      case field::kSequenceType:
      case field::kOptionalType: {
        TG_RETURN_IF_ERROR(Take(f, "TypeProto", &part));
        if (out->wrappers.size() == kMaxWrappers) {
          return ResourceExhausted("a type is nested deeper than ", kMaxWrappers);
        }
        out->wrappers.push_back(f.number == field::kSequenceType ? Wrapper::kSequence
                                                                 : Wrapper::kOptional);
        return ForEachField(part, [&](const Field& w) -> absl::Status {
          if (w.number != field::kWrappedElement) return absl::OkStatus();
          std::string_view type;
          TG_RETURN_IF_ERROR(Take(w, "TypeProto", &type));
          return ReadType(type, out);
        });
      }
      case field::kMapType:
      case field::kSparseTensorType:
        out->other = true;
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
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

absl::StatusOr<Model> ParseModel(std::string_view file) {
  Model out;
  TG_RETURN_IF_ERROR(Parser().ReadModel(file, &out));
  return out;
}

}  // namespace telegrad::onnx
