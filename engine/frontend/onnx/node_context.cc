#include "engine/frontend/onnx/node_context.h"

#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kMaxNumbers = 65536;  // of an input that decides a shape

}  // namespace

absl::StatusOr<std::vector<int64_t>> ToIntegers(const HostTensor& tensor) {
  if (tensor.dtype == DType::kInt64) return tensor.Values<int64_t>();
  if (tensor.dtype == DType::kInt32) {
    const std::vector<int32_t> values = tensor.Values<int32_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  }
  return InvalidArgument("element type ", Name(tensor.dtype), ", expected i64 or i32");
}

absl::StatusOr<ValueRef> NodeContext::Get(int i) {
  if (!HasInput(i)) return InvalidArgument("input ", i, " is missing");
  return values_->Get(node_->inputs[i]);
}

absl::StatusOr<Tensor> NodeContext::Input(int i) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
  return values_->ToTensor(value.get());
}

absl::StatusOr<Tensor> NodeContext::ScalarInput(int i) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Input(i));
  if (x.size() == 1 && x.dims().is_static()) return x.Reshape(Shape{});
  return InvalidArgument("input ", i, " has the shape ", ToString(x.dims()),
                         ", expected one element");
}

absl::StatusOr<Tensor> NodeContext::FloatInput(int i) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Input(i));
  if (IsFloat(x.dtype())) return x;
  return Unimplemented("input ", i, " has element type ", Name(x.dtype()),
                       "; only floats are supported here");
}

absl::StatusOr<const HostTensor*> NodeContext::Known(int i, int64_t most_bytes) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
  if (value->kind != Value::Kind::kTensor) return nullptr;
  return values_->ToHost(value.get(), Effort::kKnown, most_bytes);
}

absl::StatusOr<const HostTensor*> NodeContext::Content(int i) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
  TG_ASSIGN_OR_RETURN(const HostTensor* known, values_->ToHost(value.get(), Effort::kInputs));
  if (known != nullptr) return known;
  const std::string names = values_->Unknown(*value);
  if (names.empty()) {
    return Unimplemented("input ", i, " ('", node_->inputs[i],
                         "') decides a shape and takes too much to compute at import");
  }
  return Unimplemented("input ", i, " ('", node_->inputs[i], "') decides a shape and depends on ",
                       names, ", only known when the model runs: give values of inputs at import");
}

absl::StatusOr<std::vector<int64_t>> NodeContext::Numbers(int i) {
  TG_ASSIGN_OR_RETURN(const HostTensor* known, Content(i));
  if (known->bytes.size() > kMaxNumbers * 8) {
    return InvalidArgument("input ", i, " has too many elements for a shape");
  }
  return ToIntegers(*known);
}

absl::StatusOr<Dims> NodeContext::Sizes(int i) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
  if (value->sizes != nullptr && !IsBool(value->sizes->dtype)) {
    const std::vector<Dim>& sizes = value->sizes->values;
    Dims out;
    out.assign(sizes.begin(), sizes.end());
    return out;
  }
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, Numbers(i));
  return Dims(numbers);
}

absl::StatusOr<bool> NodeContext::DecidedByRun(std::initializer_list<int> inputs) {
  for (const int i : inputs) {
    if (!HasInput(i)) continue;
    TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
    if (value->kind != Value::Kind::kTensor) continue;
    TG_ASSIGN_OR_RETURN(const HostTensor* known, values_->ToHost(value.get(), Effort::kConstants));
    if (known != nullptr) continue;
    values_->AskRunSize();
    return values_->run_sizes() == RunSizes::kBounded;
  }
  return false;
}

absl::StatusOr<double> NodeContext::Number(int i) {
  TG_ASSIGN_OR_RETURN(const HostTensor* known, Content(i));
  if (NumElements(known->shape) != 1) {
    return InvalidArgument("input ", i, " has the shape ", ToString(known->shape),
                           ", expected one element");
  }
  return known->AsDoubles()[0];
}

absl::StatusOr<const StringTensor*> NodeContext::InputStrings(int i) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, Get(i));
  if (value->kind == Value::Kind::kStrings) return value->strings.get();
  return InvalidArgument("input ", i, " is ", Name(value->kind), ", expected strings");
}

const Attribute* NodeContext::Peek(std::string_view name) const {
  for (const Attribute& attribute : node_->attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

absl::StatusOr<const Attribute*> NodeContext::Take(std::string_view name, AttributeType type) {
  const Attribute* attribute = Peek(name);
  if (attribute == nullptr) return nullptr;
  read_.insert(attribute->name);
  if (attribute->type != type) {
    return InvalidArgument("attribute '", name, "' is of another type than the operator's");
  }
  return attribute;
}

absl::StatusOr<const Attribute*> NodeContext::Required(std::string_view name, AttributeType type) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, type));
  if (attribute == nullptr) return InvalidArgument("attribute '", name, "' is missing");
  return attribute;
}

absl::StatusOr<int64_t> NodeContext::Int(std::string_view name, int64_t otherwise) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kInt));
  return attribute == nullptr ? otherwise : attribute->i;
}

absl::StatusOr<float> NodeContext::Float(std::string_view name, float otherwise) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kFloat));
  return attribute == nullptr ? otherwise : attribute->f;
}

absl::StatusOr<std::string_view> NodeContext::String(std::string_view name,
                                                     std::string_view otherwise) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kString));
  return attribute == nullptr ? otherwise : attribute->s;
}

absl::StatusOr<std::vector<int64_t>> NodeContext::Ints(std::string_view name,
                                                       std::vector<int64_t> otherwise) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kInts));
  return attribute == nullptr ? std::move(otherwise) : attribute->ints;
}

absl::StatusOr<std::vector<float>> NodeContext::Floats(std::string_view name,
                                                       std::vector<float> otherwise) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kFloats));
  return attribute == nullptr ? std::move(otherwise) : attribute->floats;
}

absl::StatusOr<std::vector<std::string_view>> NodeContext::Strings(std::string_view name) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Take(name, AttributeType::kStrings));
  return attribute == nullptr ? std::vector<std::string_view>{} : attribute->strings;
}

absl::StatusOr<const GraphProto*> NodeContext::Body(std::string_view name) {
  TG_ASSIGN_OR_RETURN(const Attribute* attribute, Required(name, AttributeType::kGraph));
  return attribute->g.get();
}

absl::StatusOr<std::vector<int64_t>> NodeContext::IntsOrInput(std::string_view name, int i,
                                                              int64_t since) {
  if (opset_ < since) {
    if (HasInput(i)) return InvalidArgument("input ", i, " exists only since opset ", since);
    return Ints(name, {});
  }
  if (!HasInput(i)) return std::vector<int64_t>{};
  return Numbers(i);
}

absl::Status NodeContext::OutputValue(ValueRef value) {
  const size_t i = outputs_++;
  if (!WantsOutput(i)) return absl::OkStatus();
  return values_->Define(node_->outputs[i], std::move(value));
}

absl::Status NodeContext::Output(const Tensor& tensor) {
  TG_RETURN_IF_ERROR(builder().status());
  if (!tensor.valid()) return Internal("an operator made no tensor and no error");
  return OutputValue(Values::FromTensor(tensor));
}

absl::Status NodeContext::OutputKnown(HostTensor value) {
  TG_ASSIGN_OR_RETURN(ValueRef out, values_->FromKnown(std::move(value)));
  return OutputValue(std::move(out));
}

absl::Status NodeContext::OutputKnown(const TensorProto* value) {
  TG_ASSIGN_OR_RETURN(ValueRef out, values_->FromProto(value));
  return OutputValue(std::move(out));
}

absl::Status NodeContext::OutputBoth(const Tensor& tensor, HostTensor value) {
  TG_RETURN_IF_ERROR(builder().status());
  TG_ASSIGN_OR_RETURN(const ValueRef out, values_->FromKnown(std::move(value)));
  out->tensor = tensor;
  return OutputValue(out);
}

absl::Status NodeContext::OutputStrings(StringTensor value) {
  TG_ASSIGN_OR_RETURN(ValueRef out, values_->FromStrings(std::move(value)));
  return OutputValue(std::move(out));
}

absl::StatusOr<Tensor> NodeContext::Weight(HostTensor value) {
  TG_ASSIGN_OR_RETURN(const ValueRef out, values_->FromKnown(std::move(value)));
  return values_->ToTensor(out.get());
}

absl::StatusOr<Tensor> NodeContext::Constant(const HostTensor& value) {
  const Tensor out = ConstantOf(builder(), value);
  TG_RETURN_IF_ERROR(builder().status());
  return out;
}

absl::Status NodeContext::Finish() const {
  for (const Attribute& attribute : node_->attributes) {
    // It told early implementations which inputs they may overwrite.
    if (attribute.name == "consumed_inputs" && opset_ < 6) continue;
    if (!read_.contains(attribute.name)) {
      return Unimplemented("attribute '", attribute.name, "' is not supported in opset ", opset_);
    }
  }
  for (size_t i = outputs_; i < node_->outputs.size(); ++i) {
    if (!node_->outputs[i].empty()) return Unimplemented("result ", i, " is not supported");
  }
  return absl::OkStatus();
}

}  // namespace telegrad::onnx
