// Inputs become slots of the plan, or values that the caller has given; results become its outputs.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/importer.h"
#include "engine/types/limits.h"

namespace telegrad::onnx {

absl::StatusOr<Dims> Importer::InputDims(const ValueInfo& input) {
  if (const auto it = options_.input_shapes.find(input.name); it != options_.input_shapes.end()) {
    return Dims(it->second);
  }
  if (!input.has_shape) return OptionsError("has no shape: give one in input_shapes");
  Dims out;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    const Dimension& dim = input.shape[i];
    const auto given = options_.dims.find(dim.param);
    const auto range = options_.ranges.find(dim.param);
    if (!dim.param.empty() && range != options_.ranges.end()) {
      const auto [min, max] = range->second;
      if (min < 0 || max < min || max > kMaxElements) {
        return OptionsError("axis ", i, ": '", dim.param, "' has sizes from ", min, " to ", max);
      }
      auto [it, added] = variables_.emplace(dim.param, Dim(max));
      if (added && min < max) it->second = Dim(builder_.Variable(dim.param, min, max));
      TG_RETURN_IF_ERROR(builder_.status());
      out.push_back(it->second);
    } else if (!dim.param.empty() && given != options_.dims.end()) {
      out.push_back(given->second);
    } else if (dim.param.empty() && dim.value >= 0) {
      out.push_back(dim.value);
    } else {
      return OptionsError("axis ", i, " has the dynamic dimension '", dim.param,
                          "': give its size in dims, or a shape in input_shapes");
    }
  }
  return out;
}

absl::StatusOr<ValueRef> Importer::InputTensor(const ValueInfo& input, const Dims& dims,
                                               std::string_view name, OnnxValue* out) {
  const auto dtype = input.elem_type >= 1 && input.elem_type <= 1000
                         ? DTypeFromOnnx(static_cast<int>(input.elem_type))
                         : std::nullopt;
  if (!dtype) return Unimplemented("element type ", input.elem_type, " is not supported");
  out->slot = static_cast<int>(builder_.slots().size());
  Tensor tensor = builder_.Param(*dtype, dims.sizes(), values_.SlotName(name));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i].is_static()) tensor = tensor.Narrow(static_cast<int64_t>(i), 0, dims[i]);
  }
  TG_RETURN_IF_ERROR(builder_.status());
  input_of_slot_[out->slot] = std::string(input.name);
  return Values::FromTensor(tensor);
}

// An input, or an element of it, whose content the caller has given.
absl::StatusOr<ValueRef> Importer::InputOf(const ValueInfo& input, const OnnxData& data,
                                           std::string_view name, OnnxValue* out) {
  switch (data.kind) {
    case OnnxData::Kind::kTensor: {
      TG_ASSIGN_OR_RETURN(ValueRef value, InputTensor(input, data.tensor.shape, name, out));
      if (data.tensor.dtype != builder_.slots()[out->slot].dtype) {
        return OptionsError("has element type ", Name(builder_.slots()[out->slot].dtype),
                            ", a value of ", Name(data.tensor.dtype), " is given");
      }
      values_.GiveInput(out->slot, &data.tensor);
      return value;
    }
    case OnnxData::Kind::kSequence: {
      out->kind = OnnxValue::Kind::kSequence;
      guards_.insert(std::string(input.name));
      auto value = std::make_shared<Value>(Value{.kind = Value::Kind::kSequence});
      if (const auto dtype = DTypeFromOnnx(static_cast<int>(input.elem_type))) {
        value->element_type = *dtype;
      }
      for (const OnnxData& element : data.elements) {
        const std::string of = StrCat(name, ".", out->elements.size());
        out->elements.push_back({.name = of});
        if (element.kind == OnnxData::Kind::kSequence) {
          return Unimplemented("a sequence of sequences is not supported");
        }
        TG_ASSIGN_OR_RETURN(ValueRef part, InputOf(input, element, of, &out->elements.back()));
        value->elements.push_back(std::move(part));
      }
      return value;
    }
    case OnnxData::Kind::kStrings:
    case OnnxData::Kind::kNothing:
      break;
  }
  out->kind = OnnxValue::Kind::kFixed;
  out->fixed = std::make_shared<const OnnxData>(data);
  guards_.insert(std::string(input.name));
  if (data.kind == OnnxData::Kind::kStrings) return values_.FromStrings(data.strings);
  return std::make_shared<Value>(Value{.kind = Value::Kind::kNothing});
}

absl::StatusOr<ValueRef> Importer::Input(const ValueInfo& input, OnnxValue* out) {
  if (input.other) return Unimplemented("is a map or a sparse tensor, which is not supported");
  const auto given = options_.values.find(input.name);
  if (given != options_.values.end() && given->second != nullptr) {
    return InputOf(input, *given->second, input.name, out);
  }
  const auto is_sequence = [](Wrapper w) { return w == Wrapper::kSequence; };
  if (std::ranges::any_of(input.wrappers, is_sequence) || input.elem_type == kStringType) {
    return Unimplemented("holds ", input.elem_type == kStringType ? "strings" : "a sequence",
                         ": give its value at import");
  }
  TG_ASSIGN_OR_RETURN(const Dims dims, InputDims(input));
  return InputTensor(input, dims, input.name, out);
}

// Before IR version 4 initializers are listed among the inputs, as defaults.
absl::Status Importer::Inputs() {
  std::set<std::string_view> names;
  for (const ValueInfo& input : model_.inputs) {
    if (!names.insert(input.name).second) {
      return InvalidArgument("ONNX: input '", input.name.substr(0, kShownBytes),
                             "' is defined twice");
    }
    if (values_.Has(input.name)) continue;  // an initializer, its default
    OnnxValue out{.name = std::string(input.name)};
    absl::StatusOr<ValueRef> value = Input(input, &out);
    if (value.ok()) {
      (*value)->name = input.name;
      TG_RETURN_IF_ERROR(values_.Define(input.name, *std::move(value)));
      out_.inputs.push_back(std::move(out));
      continue;
    }
    return At(StrCat("input '", input.name.substr(0, kShownBytes), "'"), value.status());
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> Importer::Output(const ValueInfo& output, Value* value) {
  OnnxValue out{.name = std::string(output.name)};
  switch (value->kind) {
    case Value::Kind::kTensor: {
      TG_ASSIGN_OR_RETURN(const Tensor tensor, values_.ToTensor(value));
      if (output.elem_type != 0 && output.elem_type != Info(tensor.dtype()).onnx) {
        return InvalidArgument("is declared with element type ", output.elem_type,
                               " and computed as ", Name(tensor.dtype()));
      }
      // Zeros up to the bounds, so that nobody reads what lay in the output's memory before.
      out.slot = builder_.Output(WithBounds(tensor), values_.SlotName(output.name));
      stores_ = true;
      if (!tensor.dims().is_static()) {
        if (IsPacked(tensor.dtype())) {  // its rows need not begin at a byte
          return Unimplemented("has element type ", Name(tensor.dtype()),
                               " and a shape that each run decides");
        }
        SizeList sizes{DType::kInt64, false, tensor.dims()};
        TG_ASSIGN_OR_RETURN(const ValueRef shape, values_.FromSizes(std::move(sizes)));
        out.shape_slot = builder_.Output(shape->tensor, values_.SlotName(output.name, ".shape"));
      }
      TG_RETURN_IF_ERROR(builder_.status());
      TG_RETURN_IF_ERROR(SpendGrowth());
      return out;
    }
    case Value::Kind::kSequence:
      out.kind = OnnxValue::Kind::kSequence;
      for (size_t i = 0; i < value->elements.size(); ++i) {
        TG_RETURN_IF_ERROR(budget_->SpendSteps());
        TG_RETURN_IF_ERROR(budget_->CheckTime());
        ValueInfo element = output;
        const std::string name = StrCat(output.name, ".", i);
        element.name = name;
        TG_ASSIGN_OR_RETURN(OnnxValue part, Output(element, value->elements[i].get()));
        out.elements.push_back(std::move(part));
      }
      return out;
    case Value::Kind::kStrings:
      out.kind = OnnxValue::Kind::kFixed;
      out.fixed = std::make_shared<const OnnxData>(
          OnnxData{.kind = OnnxData::Kind::kStrings, .strings = *value->strings});
      return out;
    case Value::Kind::kNothing:
      out.kind = OnnxValue::Kind::kFixed;
      out.fixed = std::make_shared<const OnnxData>();
      return out;
    case Value::Kind::kUnsupported:
      break;
  }
  return Internal("is a result that is not supported");
}

// A slot of the plan needs a name of its own, even if the output is an input or a weight.
absl::Status Importer::Outputs() {
  for (const ValueInfo& output : model_.outputs) {
    const std::string where = StrCat("output '", output.name.substr(0, kShownBytes), "'");
    const absl::StatusOr<ValueRef> value = values_.Get(output.name);
    if (!value.ok()) return At(where, value.status());
    absl::StatusOr<OnnxValue> out = Output(output, value->get());
    if (!out.ok()) return At(where, out.status());
    out_.outputs.push_back(*std::move(out));
  }
  if (!stores_) {  // what is known already needs no run, but a plan must store something
    builder_.Output(builder_.Const(DType::kBool, 1), values_.SlotName("nothing"));
  }
  return builder_.status();
}

}  // namespace telegrad::onnx
