#include "engine/frontend/onnx/values.h"

#include <cstring>

#include "engine/base/status.h"
#include "engine/frontend/shapes.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {

absl::Status Values::Define(std::string_view name, Value value) {
  if (name.empty()) return InvalidArgument("a value has no name");
  if (values_.emplace(name, value).second) return absl::OkStatus();
  return InvalidArgument("the value '", name, "' is defined twice");
}

absl::Status Values::DefineInitializer(const TensorProto* proto) {
  return Define(proto->name, {.tensor = {}, .proto = proto});
}

absl::Status Values::DefineTensor(std::string_view name, Tensor tensor) {
  return Define(name, {.tensor = tensor});
}

absl::Status Values::DefineKnown(std::string_view name, HostTensor value) {
  known_.push_back({std::move(value)});
  return Define(name, {.tensor = {}, .known = static_cast<int>(known_.size()) - 1});
}

absl::Status Values::DefineBoth(std::string_view name, Tensor tensor, HostTensor value) {
  known_.push_back({std::move(value)});
  return Define(name, {.tensor = tensor, .known = static_cast<int>(known_.size()) - 1});
}

// Also reads an initializer that has not been read.
absl::StatusOr<Values::Value*> Values::Find(std::string_view name) {
  const auto it = values_.find(name);
  if (it == values_.end()) {
    return InvalidArgument("'", name,
                           "' is not an input, an initializer or a result of a node "
                           "before it");
  }
  Value* value = &it->second;
  if (value->proto != nullptr) {
    TG_ASSIGN_OR_RETURN(HostTensor read, ToHostTensor(*value->proto));
    value->proto = nullptr;
    value->known = static_cast<int>(known_.size());
    known_.push_back({std::move(read)});
  }
  return value;
}

absl::StatusOr<const HostTensor*> Values::GetKnown(std::string_view name) {
  TG_ASSIGN_OR_RETURN(const Value* value, Find(name));
  return value->known < 0 ? nullptr : &known_[value->known].value;
}

absl::StatusOr<Tensor> Values::GetTensor(std::string_view name) {
  TG_ASSIGN_OR_RETURN(Value * value, Find(name));
  if (!value->tensor.valid()) {
    TG_ASSIGN_OR_RETURN(value->tensor, Materialize(name, &known_[value->known]));
  }
  return value->tensor;
}

absl::StatusOr<Tensor> Values::Materialize(std::string_view name, Known* known) {
  const HostTensor& value = known->value;
  Tensor out;
  if (NumElements(value.shape) == 1) {
    out = ConstantOf(*builder_, value).Expand(value.shape);
  } else {
    known->slot = static_cast<int>(builder_->slots().size());
    out = builder_->Param(value.dtype, value.shape, name, SlotRole::kState);
  }
  TG_RETURN_IF_ERROR(builder_->status());
  return out;
}

Tensor ConstantOf(Builder& builder, const HostTensor& value) {
  int64_t raw = 0;
  std::memcpy(&raw, value.bytes.data(), value.bytes.size());
  const int64_t word = ScalarFromMemory(value.dtype, raw);
  return Tensor(&builder, builder.graph().ConstWord(value.dtype, word));
}

std::vector<OnnxWeight> Values::TakeWeights() {
  std::vector<OnnxWeight> out;
  for (Known& known : known_) {
    if (known.slot >= 0) out.push_back({known.slot, std::move(known.value)});
  }
  known_.clear();
  values_.clear();
  return out;
}

}  // namespace telegrad::onnx
