// Converts tensors, sequences and strings to the messages of compute.proto and back, and checks
// what a server has sent.
#include "client/cc/model_value.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

using onnx::OnnxData;

void ToElement(const OnnxData& data, v1::ModelElement* out) {
  if (data.kind == OnnxData::Kind::kTensor) {
    out->set_kind(v1::ModelElement::TENSOR);
    out->set_dtype(static_cast<uint32_t>(Info(data.tensor.dtype).wire));
    out->mutable_dims()->Add(data.tensor.shape.begin(), data.tensor.shape.end());
    out->set_data(data.tensor.bytes);
  } else if (data.kind == OnnxData::Kind::kStrings) {
    out->set_kind(v1::ModelElement::STRINGS);
    out->mutable_dims()->Add(data.strings.shape.begin(), data.strings.shape.end());
    out->mutable_strings()->Add(data.strings.values.begin(), data.strings.values.end());
  } else {
    out->set_kind(v1::ModelElement::NOTHING);
  }
}

absl::StatusOr<OnnxValue> FromElement(const std::string& name, const v1::ModelElement& value,
                                      size_t slots) {
  OnnxValue out{.name = name};
  switch (value.kind()) {
    case v1::ModelElement::TENSOR:
      if (value.slot() >= slots || value.shape_slot() > slots) {
        return Internal("'", name, "' is in slot ", value.slot(), " of ", slots);
      }
      out.slot = static_cast<int>(value.slot());
      out.shape_slot = static_cast<int>(value.shape_slot()) - 1;
      return out;
    case v1::ModelElement::STRINGS: {
      out.kind = OnnxValue::Kind::kFixed;
      auto fixed = std::make_shared<OnnxData>(OnnxData{.kind = OnnxData::Kind::kStrings});
      fixed->strings.shape.assign(value.dims().begin(), value.dims().end());
      fixed->strings.values.assign(value.strings().begin(), value.strings().end());
      out.fixed = std::move(fixed);
      return out;
    }
    case v1::ModelElement::NOTHING:
      out.kind = OnnxValue::Kind::kFixed;
      out.fixed = std::make_shared<const OnnxData>();
      return out;
    default:
      return Internal("'", name, "' is of kind ", static_cast<int>(value.kind()));
  }
}

}  // namespace

void ToProto(const OnnxData& data, v1::ModelValue* out) {
  out->set_sequence(data.kind == OnnxData::Kind::kSequence);
  if (!out->sequence()) return ToElement(data, out->add_elements());
  for (const OnnxData& element : data.elements) ToElement(element, out->add_elements());
}

absl::StatusOr<OnnxValue> ToOnnxValue(const v1::ModelValue& value, size_t slots) {
  if (!value.sequence()) {
    if (value.elements_size() == 1) return FromElement(value.name(), value.elements(0), slots);
    return Internal("'", value.name(), "' has ", value.elements_size(), " elements");
  }
  OnnxValue out{.name = value.name(), .kind = OnnxValue::Kind::kSequence};
  for (const v1::ModelElement& element : value.elements()) {
    TG_ASSIGN_OR_RETURN(out.elements.emplace_back(), FromElement(value.name(), element, slots));
  }
  return out;
}

}  // namespace telegrad
