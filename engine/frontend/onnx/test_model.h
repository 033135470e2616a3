// For tests only: writes small ONNX models, and runs imported plans on the reference evaluator.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/proto_reader.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad::onnx::test {

using Names = std::vector<std::string>;
// The bytes of a GraphProto.
struct Graph {
  std::string bytes;
};
using AttributeValue = std::variant<int64_t, float, std::string, std::vector<int64_t>,
                                    std::vector<float>, Names, HostTensor, Graph>;
using Attributes = std::map<std::string, AttributeValue>;

inline std::string ToProto(const std::string& name, const AttributeValue& value) {
  std::string out;
  PutBytesField(field::kAttributeName, name, &out);
  AttributeType type = AttributeType::kOther;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    type = AttributeType::kInt;
    PutVarintField(field::kI, static_cast<uint64_t>(*i), &out);
  } else if (const auto* f = std::get_if<float>(&value)) {
    type = AttributeType::kFloat;
    PutFloatField(field::kF, *f, &out);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    type = AttributeType::kString;
    PutBytesField(field::kS, *s, &out);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    type = AttributeType::kInts;
    for (int64_t v : *ints) PutVarintField(field::kInts, static_cast<uint64_t>(v), &out);
  } else if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    type = AttributeType::kFloats;
    for (float v : *floats) PutFloatField(field::kFloats, v, &out);
  } else if (const auto* strings = std::get_if<Names>(&value)) {
    type = AttributeType::kStrings;
    for (const std::string& v : *strings) PutBytesField(field::kStrings, v, &out);
  } else if (const auto* graph = std::get_if<Graph>(&value)) {
    type = AttributeType::kGraph;
    PutBytesField(field::kG, graph->bytes, &out);
  } else {
    type = AttributeType::kTensor;
    PutBytesField(field::kT, *WriteTensorFile(std::get<HostTensor>(value), ""), &out);
  }
  PutVarintField(field::kAttributeType, static_cast<uint64_t>(type), &out);
  return out;
}

class ModelWriter {
 public:
  // A dim of -1 is dynamic and named "N".
  ModelWriter& Input(std::string_view name, DType dtype, const Shape& shape) {
    return Value(field::kGraphInput, name, Info(dtype).onnx, shape);
  }
  ModelWriter& StringInput(std::string_view name, const Shape& shape) {
    return Value(field::kGraphInput, name, kStringType, shape);
  }
  ModelWriter& StringOutput(std::string_view name, const Shape& shape) {
    return Value(field::kGraphOutput, name, kStringType, shape);
  }
  ModelWriter& Output(std::string_view name) {
    std::string info;
    PutBytesField(field::kValueName, name, &info);
    PutBytesField(field::kGraphOutput, info, &graph_);
    return *this;
  }
  // With its type, as exporters write it.
  ModelWriter& Output(std::string_view name, DType dtype, const Shape& shape) {
    return Value(field::kGraphOutput, name, Info(dtype).onnx, shape);
  }
  ModelWriter& Initializer(std::string_view name, const HostTensor& tensor) {
    PutBytesField(field::kInitializer, *WriteTensorFile(tensor, name), &graph_);
    return *this;
  }
  // A serialized TensorProto as it is.
  ModelWriter& RawInitializer(std::string_view tensor) {
    PutBytesField(field::kInitializer, tensor, &graph_);
    return *this;
  }
  // A serialized ValueInfoProto as it is.
  ModelWriter& RawInput(std::string_view info) {
    PutBytesField(field::kGraphInput, info, &graph_);
    return *this;
  }
  // A serialized SparseTensorProto as it is.
  ModelWriter& RawSparseInitializer(std::string_view tensor) {
    PutBytesField(field::kSparseInitializer, tensor, &graph_);
    return *this;
  }
  const std::string& graph() const { return graph_; }
  ModelWriter& Node(std::string_view op, const Names& inputs, const Names& outputs,
                    const Attributes& attributes = {}, std::string_view domain = "") {
    std::string node;
    for (const std::string& name : inputs) PutBytesField(field::kNodeInput, name, &node);
    for (const std::string& name : outputs) PutBytesField(field::kNodeOutput, name, &node);
    PutBytesField(field::kOpType, op, &node);
    if (!domain.empty()) PutBytesField(field::kNodeDomain, domain, &node);
    for (const auto& [name, value] : attributes) {
      PutBytesField(field::kNodeAttribute, ToProto(name, value), &node);
    }
    PutBytesField(field::kNode, node, &graph_);
    return *this;
  }
  // With `ml_opset` of ai.onnx.ml, unless that is 0.
  // `other_opset`: of a second domain, unless it is 0.
  std::string File(int64_t opset, int64_t other_opset = 0,
                   std::string_view other = "ai.onnx.ml") const {
    std::string version, out;
    PutVarintField(field::kOpsetVersion, static_cast<uint64_t>(opset), &version);
    PutVarintField(field::kIrVersion, 7, &out);
    PutBytesField(field::kOpsetImport, version, &out);
    if (other_opset != 0) {
      std::string import;
      PutBytesField(field::kOpsetDomain, other, &import);
      PutVarintField(field::kOpsetVersion, static_cast<uint64_t>(other_opset), &import);
      PutBytesField(field::kOpsetImport, import, &out);
    }
    PutBytesField(field::kGraph, graph_, &out);
    return out;
  }

 private:
  ModelWriter& Value(uint32_t number, std::string_view name, int64_t elem_type,
                     const Shape& shape) {
    std::string dims, tensor, type, info;
    for (int64_t size : shape) {
      std::string dim;
      if (size >= 0) PutVarintField(field::kDimValue, static_cast<uint64_t>(size), &dim);
      if (size < 0) PutBytesField(field::kDimParam, "N", &dim);
      PutBytesField(field::kDim, dim, &dims);
    }
    PutVarintField(field::kElemType, static_cast<uint64_t>(elem_type), &tensor);
    PutBytesField(field::kTypeShape, dims, &tensor);
    PutBytesField(field::kTensorType, tensor, &type);
    PutBytesField(field::kValueName, name, &info);
    PutBytesField(field::kValueType, type, &info);
    PutBytesField(number, info, &graph_);
    return *this;
  }

  std::string graph_;
};

// The outputs in the model's order. `sizes` of the plan's variables, whose inputs may be smaller
// than their slots.
inline absl::StatusOr<std::vector<HostTensor>> Run(
    const OnnxPlan& onnx, const std::vector<HostTensor>& inputs,
    const std::map<std::string, int64_t>& sizes = {}) {
  std::vector<std::vector<uint8_t>> slots;
  for (const Slot& slot : onnx.plan.slots) {
    slots.emplace_back(NumElements(slot.shape) * ByteSize(slot.dtype));
  }
  const auto bind = [&](int slot, const HostTensor& value) {
    EXPECT_EQ(value.shape, onnx.plan.slots[slot].shape);
    EXPECT_EQ(value.dtype, onnx.plan.slots[slot].dtype);
    slots[slot].assign(value.bytes.begin(), value.bytes.end());
  };
  for (const OnnxWeight& weight : onnx.weights) bind(weight.slot, onnx.Value(weight));
  EXPECT_EQ(inputs.size(), onnx.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int slot = onnx.inputs[i].slot;
    const absl::StatusOr<HostTensor> whole =
        sizes.empty() ? inputs[i] : Widen(inputs[i], onnx.plan.slots[slot].shape);
    if (!whole.ok()) return whole.status();
    bind(slot, *whole);
  }
  reference::Variables variables;
  for (const PlanVariable& variable : onnx.plan.variables) {
    variables[variable.id] = sizes.at(variable.name);
  }
  Budget budget;
  const absl::Status status =
      reference::Evaluate(onnx.plan.graph.root(), slots, &budget, variables);
  if (!status.ok()) return status;
  std::vector<HostTensor> out;
  const auto read = [&](int number) {
    const Slot& slot = onnx.plan.slots[number];
    return HostTensor{slot.dtype, slot.shape,
                      std::string(slots[number].begin(), slots[number].end())};
  };
  for (const OnnxValue& output : onnx.outputs) {
    out.push_back(read(output.slot));
    if (output.shape_slot < 0) continue;
    absl::StatusOr<HostTensor> cut = Cut(out.back(), read(output.shape_slot).Values<int64_t>());
    if (!cut.ok()) return cut.status();
    out.back() = *std::move(cut);
  }
  return out;
}

}  // namespace telegrad::onnx::test
