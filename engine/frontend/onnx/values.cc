#include "engine/frontend/onnx/values.h"

#include <algorithm>
#include <cstring>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/frontend/shapes.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kMaxNameBytes = 4096;

}  // namespace

absl::Status Values::Define(std::string_view name, Value value) {
  if (name.empty()) return InvalidArgument("a value has no name");
  if (name.size() > kMaxNameBytes) {
    return ResourceExhausted("the name of a value has ", name.size(), " bytes; the limit is ",
                             kMaxNameBytes);
  }
  if (!IsUtf8(name)) return InvalidArgument("the name of a value is not UTF-8");
  if (values_.emplace(name, std::move(value)).second) return absl::OkStatus();
  return InvalidArgument("the value '", name, "' is defined twice");
}

absl::Status Values::Keep(HostTensor value, Value* out) {
  TG_RETURN_IF_ERROR(held_.Grow(static_cast<int64_t>(value.bytes.size())));
  out->known = std::make_shared<const HostTensor>(std::move(value));
  return absl::OkStatus();
}

absl::Status Values::DefineProto(std::string_view name, const TensorProto* proto) {
  return Define(name, {.proto = proto});
}

absl::Status Values::DefineTensor(std::string_view name, Tensor tensor) {
  return Define(name, {.tensor = tensor});
}

absl::Status Values::DefineKnown(std::string_view name, HostTensor value) {
  return DefineBoth(name, {}, std::move(value));
}

absl::Status Values::DefineBoth(std::string_view name, Tensor tensor, HostTensor value) {
  Value out{.tensor = tensor};
  TG_RETURN_IF_ERROR(Keep(std::move(value), &out));
  return Define(name, std::move(out));
}

absl::StatusOr<Values::Value*> Values::Find(std::string_view name) {
  const auto it = values_.find(name);
  if (it == values_.end()) {
    return InvalidArgument("'", name,
                           "' is not an input, an initializer or a result of a node "
                           "before it");
  }
  return &it->second;
}

// The proto into memory of its own.
absl::Status Values::Read(Value* value) {
  if (value->proto == nullptr || value->known != nullptr) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(HostTensor read, ToHostTensor(*value->proto));
  return Keep(std::move(read), value);
}

absl::StatusOr<const HostTensor*> Values::GetKnown(std::string_view name, int64_t most_bytes) {
  TG_ASSIGN_OR_RETURN(Value * value, Find(name));
  if (value->proto != nullptr) {
    TG_ASSIGN_OR_RETURN(const DType dtype, ElementType(*value->proto));
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(dtype, value->proto->dims));
    if (bytes > most_bytes) return nullptr;
    TG_RETURN_IF_ERROR(Read(value));
  }
  const HostTensor* known = value->known.get();
  if (known == nullptr || static_cast<int64_t>(known->bytes.size()) > most_bytes) return nullptr;
  return known;
}

absl::StatusOr<Tensor> Values::GetTensor(std::string_view name) {
  TG_ASSIGN_OR_RETURN(Value * value, Find(name));
  if (!value->tensor.valid()) {
    TG_ASSIGN_OR_RETURN(value->tensor, Materialize(name, value));
  }
  return value->tensor;
}

absl::StatusOr<Tensor> Values::Materialize(std::string_view name, Value* value) {
  const TensorProto* proto = value->proto;
  OnnxWeight weight{.slot = static_cast<int>(builder_->slots().size()), .bytes = {}};
  DType dtype;
  Shape shape;
  // Nobody has checked a proto's dims yet, so they are not multiplied.
  const auto is_one = [](int64_t dim) { return dim == 1; };
  if (proto != nullptr && proto->has_raw && !std::ranges::all_of(proto->dims, is_one)) {
    TG_RETURN_IF_ERROR(CheckRaw(*proto));
    TG_ASSIGN_OR_RETURN(dtype, ElementType(*proto));
    shape = proto->dims;
    weight.bytes = proto->raw;
  } else {
    TG_RETURN_IF_ERROR(Read(value));
    dtype = value->known->dtype;
    shape = value->known->shape;
    weight.bytes = value->known->bytes;
    weight.value = value->known;
  }
  Tensor out;
  if (NumElements(shape) == 1) {
    out = ConstantOf(*builder_, *value->known).Expand(shape);
    TG_RETURN_IF_ERROR(builder_->status());
    return out;
  }
  out = builder_->Param(dtype, shape, name, SlotRole::kState);
  TG_RETURN_IF_ERROR(builder_->status());
  weights_.push_back(std::move(weight));
  return out;
}

absl::StatusOr<Tensor> Values::Weight(HostTensor value) {
  Value out;
  TG_RETURN_IF_ERROR(Keep(std::move(value), &out));
  return Materialize(StrCat("(constant ", ++unnamed_, ")"), &out);
}

Tensor ConstantOf(Builder& builder, const HostTensor& value) {
  int64_t raw = 0;
  std::memcpy(&raw, value.bytes.data(), value.bytes.size());
  const int64_t word = ScalarFromMemory(value.dtype, raw);
  return Tensor(&builder, builder.graph().ConstWord(value.dtype, word));
}

}  // namespace telegrad::onnx
