// The messages that hold elements: tensors, sparse tensors, and the sequences and optionals of data
// files.
#include <charconv>

#include "engine/frontend/onnx/parser.h"
#include "engine/types/limits.h"

namespace telegrad::onnx {

absl::Status Parser::ReadSparse(std::string_view bytes, SparseTensor* out) {
  constexpr std::string_view kName = "SparseTensorProto";
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    std::string_view part;
    switch (f.number) {
      case field::kSparseValues:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadTensor(part, &out->values);
      case field::kSparseIndices:
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadTensor(part, &out->indices);
      case field::kSparseDims:
        return ForEachElement(f, WireType::kVarint,
                              [&](uint64_t dim) { return ReadDim(dim, &out->dims); });
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status Parser::ReadTensor(std::string_view bytes, TensorProto* out) {
  constexpr std::string_view kName = "TensorProto";
  out->message = bytes;
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    switch (f.number) {
      case field::kDims:
        return ForEachElement(f, WireType::kVarint,
                              [&](uint64_t dim) { return ReadDim(dim, &out->dims); });
      case field::kDataType:
        return Take(f, kName, &out->data_type);
      case field::kTensorName:
        return Take(f, kName, &out->name);
      case field::kRawData:
        out->has_raw = true;
        return Take(f, kName, &out->raw);
      case field::kSegment:
        out->elsewhere = true;
        return absl::OkStatus();
      case field::kExternalData: {
        out->elsewhere = true;
        std::string_view part;
        TG_RETURN_IF_ERROR(Take(f, kName, &part));
        return ReadExternal(part, out);
      }
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

absl::Status Parser::ReadDim(uint64_t dim, Shape* out) {
  if (out->size() == kMaxRank) {
    return InvalidArgument("a tensor's rank is over the limit of ", kMaxRank);
  }
  out->push_back(static_cast<int64_t>(dim));
  return absl::OkStatus();
}

absl::Status Parser::ReadExternal(std::string_view bytes, TensorProto* out) {
  std::string_view key, value;
  TG_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number == field::kEntryKey) return Take(f, "StringStringEntryProto", &key);
    if (f.number == field::kEntryValue) return Take(f, "StringStringEntryProto", &value);
    return absl::OkStatus();
  }));
  if (key == "location") out->location = value;
  if (key != "offset" && key != "length") return absl::OkStatus();
  int64_t* const number = key == "offset" ? &out->offset : &out->length;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
  if (error == std::errc() && end == value.data() + value.size() && *number >= 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("the ", key, " of external data is '", value.substr(0, 64),
                         "', expected a number from 0");
}

// Sequences and optionals hold each other to the depth of the type.
absl::Status Parser::ReadData(std::string_view bytes, std::span<const Wrapper> wrappers,
                              OnnxData* out) {
  TG_RETURN_IF_ERROR(Part());
  if (wrappers.empty()) {
    TensorProto tensor;
    TG_RETURN_IF_ERROR(ReadTensor(bytes, &tensor));
    if (tensor.data_type == kStringType) {
      out->kind = OnnxData::Kind::kStrings;
      TG_ASSIGN_OR_RETURN(out->strings, ToStrings(tensor));
      return absl::OkStatus();
    }
    out->kind = OnnxData::Kind::kTensor;
    TG_ASSIGN_OR_RETURN(out->tensor, ToHostTensor(tensor));
    return absl::OkStatus();
  }
  const bool sequence = wrappers[0] == Wrapper::kSequence;
  if (sequence) out->kind = OnnxData::Kind::kSequence;
  const auto inner = wrappers.subspan(1);
  return ForEachField(bytes, [&](const Field& f) -> absl::Status {
    if (f.number < field::kContainerTensor) return absl::OkStatus();
    const bool fits = f.number == (inner.empty()                    ? field::kContainerTensor
                                   : inner[0] == Wrapper::kSequence ? field::kContainerSequence
                                                                    : field::kContainerOptional);
    if (!fits) return Unimplemented("an element is of another type than the model declares");
    std::string_view part;
    TG_RETURN_IF_ERROR(Take(f, sequence ? "SequenceProto" : "OptionalProto", &part));
    if (!sequence) return ReadData(part, inner, out);
    TG_RETURN_IF_ERROR(Add(&out->elements));
    return ReadData(part, inner, &out->elements.back());
  });
}

absl::StatusOr<OnnxData> ReadDataFile(std::string_view file, const ValueInfo& type) {
  if (type.other) return Unimplemented("maps and sparse tensors are not supported");
  OnnxData out;
  TG_RETURN_IF_ERROR(Parser().ReadData(file, type.wrappers, &out));
  return out;
}

absl::StatusOr<TensorProto> ParseTensor(std::string_view file) {
  TensorProto out;
  TG_RETURN_IF_ERROR(Parser().ReadTensor(file, &out));
  return out;
}

}  // namespace telegrad::onnx
