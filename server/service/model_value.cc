// A sequence holds tensors or strings, never another sequence.
#include "server/service/model_value.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

using onnx::OnnxData;

absl::StatusOr<OnnxData> ToElement(v1::ModelElement& value) {
  OnnxData out;
  Shape shape(value.dims().begin(), value.dims().end());
  switch (value.kind()) {
    case v1::ModelElement::NOTHING:
      return out;
    case v1::ModelElement::STRINGS: {
      TG_ASSIGN_OR_RETURN(const int64_t count, CheckedByteSize(DType::kUInt8, shape));
      if (count != value.strings_size()) {
        return InvalidArgument("has ", value.strings_size(), " strings, expected ", count);
      }
      out.kind = OnnxData::Kind::kStrings;
      out.strings.shape = std::move(shape);
      for (std::string& s : *value.mutable_strings()) out.strings.values.push_back(std::move(s));
      return out;
    }
    case v1::ModelElement::TENSOR: {
      const auto dtype = DTypeFromWire(static_cast<int>(value.dtype()));
      if (!dtype) return InvalidArgument("unknown dtype ", value.dtype());
      TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(*dtype, shape));
      if (static_cast<int64_t>(value.data().size()) != bytes) {
        return InvalidArgument("has ", value.data().size(), " bytes, expected ", bytes);
      }
      out.kind = OnnxData::Kind::kTensor;
      out.tensor = {*dtype, std::move(shape), std::move(*value.mutable_data())};
      return out;
    }
    default:
      return InvalidArgument("is of kind ", static_cast<int>(value.kind()),
                             ", expected a tensor, strings or nothing");
  }
}

void ToElement(const OnnxValue& value, v1::ModelElement* out) {
  if (value.kind == OnnxValue::Kind::kTensor) {
    out->set_kind(v1::ModelElement::TENSOR);
    out->set_slot(static_cast<uint32_t>(value.slot));
    out->set_shape_slot(static_cast<uint32_t>(value.shape_slot + 1));
  } else if (value.fixed != nullptr && value.fixed->kind == OnnxData::Kind::kStrings) {
    out->set_kind(v1::ModelElement::STRINGS);
    const onnx::StringTensor& strings = value.fixed->strings;
    out->mutable_dims()->Add(strings.shape.begin(), strings.shape.end());
    out->mutable_strings()->Add(strings.values.begin(), strings.values.end());
  } else {
    out->set_kind(v1::ModelElement::NOTHING);
  }
}

}  // namespace

absl::StatusOr<OnnxData> ToOnnxData(v1::ModelValue& value) {
  if (!value.sequence()) {
    if (value.elements_size() == 1) return ToElement(*value.mutable_elements(0));
    return InvalidArgument("has ", value.elements_size(), " elements and is not a sequence");
  }
  OnnxData out{.kind = OnnxData::Kind::kSequence};
  for (v1::ModelElement& element : *value.mutable_elements()) {
    TG_ASSIGN_OR_RETURN(out.elements.emplace_back(), ToElement(element));
  }
  return out;
}

void ToProto(const OnnxValue& value, v1::ModelValue* out) {
  out->set_name(value.name);
  out->set_sequence(value.kind == OnnxValue::Kind::kSequence);
  if (!out->sequence()) return ToElement(value, out->add_elements());
  for (const OnnxValue& element : value.elements) ToElement(element, out->add_elements());
}

}  // namespace telegrad
