// Sequences and optionals: lists of values whose length the importer knows.
#include <algorithm>
#include <optional>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

absl::StatusOr<ValueRef> SequenceInput(NodeContext& c, int i) {
  TG_ASSIGN_OR_RETURN(ValueRef value, c.Get(i));
  if (value->kind == Value::Kind::kSequence) return value;
  return InvalidArgument("input ", i, " is ", Name(value->kind), ", expected a sequence");
}

// ONNX has sequences of tensors only. One of sequences would be as deep as a loop is long.
absl::Status CheckElement(const Value& element) {
  if (element.kind != Value::Kind::kSequence) return absl::OkStatus();
  return Unimplemented("a sequence of sequences is not supported");
}

// Of a sequence of `size` elements, which stays while its name does.
absl::Status SpendCopy(NodeContext& c, size_t size) {
  return c.values().budget()->SpendSteps(static_cast<int64_t>(size) + 1);
}

ValueRef NewSequence(const Value& like) {
  return std::make_shared<Value>(
      Value{.kind = Value::Kind::kSequence, .element_type = like.element_type});
}

// A position in a sequence of `size`, or before its end where `past` allows it; `otherwise` if the
// input is missing.
absl::StatusOr<size_t> SequencePosition(NodeContext& c, int i, size_t size, bool past,
                                        size_t otherwise) {
  if (!c.HasInput(i)) return otherwise;
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, c.Numbers(i));
  if (numbers.size() != 1) return InvalidArgument("the position is not one number");
  const auto n = static_cast<int64_t>(size);
  const int64_t at = numbers[0] < 0 ? numbers[0] + n : numbers[0];
  if (at >= 0 && at < n + (past ? 1 : 0)) return static_cast<size_t>(at);
  return InvalidArgument("position ", numbers[0], " in a sequence of ", n);
}

absl::Status OutputBool(NodeContext& c, bool value) {
  return c.OutputKnown({DType::kBool, {}, std::string(1, value ? '\1' : '\0')});
}

}  // namespace

absl::Status SequenceEmptyOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t type, c.Int("dtype", Info(DType::kFloat32).onnx));
  auto out = std::make_shared<Value>(Value{.kind = Value::Kind::kSequence});
  if (const auto dtype = DTypeFromOnnx(static_cast<int>(type))) out->element_type = *dtype;
  return c.OutputValue(std::move(out));
}

absl::Status SequenceConstructOp(NodeContext& c) {
  auto out = std::make_shared<Value>(Value{.kind = Value::Kind::kSequence});
  for (int i = 0; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(out->elements.emplace_back(), c.Get(i));
    TG_RETURN_IF_ERROR(CheckElement(*out->elements.back()));
  }
  return c.OutputValue(std::move(out));
}

absl::Status SequenceInsertOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef sequence, SequenceInput(c, 0));
  TG_ASSIGN_OR_RETURN(ValueRef element, c.Get(1));
  TG_RETURN_IF_ERROR(CheckElement(*element));
  const size_t size = sequence->elements.size();
  TG_RETURN_IF_ERROR(SpendCopy(c, size));
  TG_ASSIGN_OR_RETURN(const size_t at, SequencePosition(c, 2, size, /*past=*/true, size));
  const ValueRef out = NewSequence(*sequence);
  out->elements = sequence->elements;
  out->elements.insert(out->elements.begin() + static_cast<ptrdiff_t>(at), std::move(element));
  return c.OutputValue(out);
}

absl::Status SequenceEraseOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef sequence, SequenceInput(c, 0));
  const size_t size = sequence->elements.size();
  if (size == 0) return InvalidArgument("the sequence is empty");
  TG_RETURN_IF_ERROR(SpendCopy(c, size));
  TG_ASSIGN_OR_RETURN(const size_t at, SequencePosition(c, 1, size, /*past=*/false, size - 1));
  const ValueRef out = NewSequence(*sequence);
  out->elements = sequence->elements;
  out->elements.erase(out->elements.begin() + static_cast<ptrdiff_t>(at));
  return c.OutputValue(out);
}

absl::Status SequenceAtOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef sequence, SequenceInput(c, 0));
  TG_ASSIGN_OR_RETURN(const size_t at,
                      SequencePosition(c, 1, sequence->elements.size(), /*past=*/false, 0));
  return c.OutputValue(sequence->elements[at]);
}

absl::Status SequenceLengthOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef sequence, SequenceInput(c, 0));
  const auto size = static_cast<int64_t>(sequence->elements.size());
  return c.OutputKnown(HostTensor::Of<int64_t>({}, {size}));
}

// Into parts of 1 without their axis unless `keepdims`, or of the sizes of `split`: one number for
// all but the last, or one each.
absl::Status SplitToSequenceOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
  TG_ASSIGN_OR_RETURN(const int64_t keepdims, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("split", given, x.rank()));
  std::vector<Tensor> parts;
  if (!c.HasInput(1)) {
    parts = x.Split(1, axis);
    for (Tensor& part : parts) {
      if (keepdims == 0) part = part.Squeeze(axis);
    }
  } else {
    TG_ASSIGN_OR_RETURN(const HostTensor* split, c.Content(1));
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, c.Numbers(1));
    if (std::ranges::any_of(sizes, [](int64_t s) { return s < 0; })) {
      return InvalidArgument("a size of the split is negative");
    }
    if (split->shape.empty() && sizes[0] == 0) return InvalidArgument("the split's size is 0");
    parts = split->shape.empty() ? x.Split(sizes[0], axis) : x.Split(sizes, axis);
  }
  TG_RETURN_IF_ERROR(c.builder().status());
  auto out =
      std::make_shared<Value>(Value{.kind = Value::Kind::kSequence, .element_type = x.dtype()});
  for (const Tensor& part : parts) out->elements.push_back(Values::FromTensor(part));
  return c.OutputValue(std::move(out));
}

absl::Status ConcatFromSequenceOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef sequence, SequenceInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Attribute* axis, c.Required("axis", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const int64_t new_axis, c.Int("new_axis", 0));
  if (sequence->elements.empty()) return InvalidArgument("the sequence is empty");
  std::vector<Tensor> parts;
  for (const ValueRef& element : sequence->elements) {
    TG_ASSIGN_OR_RETURN(parts.emplace_back(), c.values().ToTensor(element.get()));
  }
  return c.Output(new_axis != 0 ? Stack(parts, axis->i) : Concat(parts, axis->i));
}

absl::Status OptionalOp(NodeContext& c) {
  c.Ignore("type");  // the value has it
  if (!c.HasInput(0)) {
    return c.OutputValue(std::make_shared<Value>(Value{.kind = Value::Kind::kNothing}));
  }
  TG_ASSIGN_OR_RETURN(ValueRef value, c.Get(0));
  return c.OutputValue(std::move(value));
}

absl::Status OptionalHasElementOp(NodeContext& c) {
  if (!c.HasInput(0)) return OutputBool(c, false);
  TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(0));
  return OutputBool(c, value->kind != Value::Kind::kNothing);
}

absl::Status OptionalGetElementOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(ValueRef value, c.Get(0));
  if (value->kind == Value::Kind::kNothing) return InvalidArgument("the optional has no value");
  return c.OutputValue(std::move(value));
}

}  // namespace telegrad::onnx
