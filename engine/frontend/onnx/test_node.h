// For tests only: runs models of one node, whose results are compared with numbers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/status.h"
#include "engine/frontend/onnx/test_model.h"

namespace telegrad::onnx::test {

using ::testing::FloatNear;
using ::testing::Pointwise;

using Ints = std::vector<int64_t>;

inline HostTensor Floats(Shape shape, std::initializer_list<float> values) {
  return HostTensor::Of<float>(std::move(shape), values);
}

inline HostTensor Random(const Shape& shape, std::mt19937_64* random) {
  std::vector<float> values(NumElements(shape));
  for (float& v : values) v = static_cast<float>(static_cast<int>((*random)() % 33) - 16) / 8;
  return HostTensor::Of<float>(shape, values);
}

// One node whose inputs are inputs of the model, or with `fixed` (by position) initializers.
struct OneNode {
  std::string_view op;
  int64_t opset = 13;
  Attributes attributes = {};
  std::vector<bool> fixed = {};

  // Its one result, or all of those named.
  absl::StatusOr<HostTensor> operator()(const std::vector<HostTensor>& inputs) const {
    TG_ASSIGN_OR_RETURN(std::vector<HostTensor> out, Results(inputs, {"out"}));
    return std::move(out[0]);
  }
  absl::StatusOr<std::vector<HostTensor>> Results(const std::vector<HostTensor>& inputs,
                                                  const Names& results) const {
    ModelWriter writer;
    Names names;
    std::vector<HostTensor> bound;
    for (size_t i = 0; i < inputs.size(); ++i) {
      names.push_back(StrCat("in", i));
      if (i < fixed.size() && fixed[i]) {
        writer.Initializer(names.back(), inputs[i]);
      } else {
        writer.Input(names.back(), inputs[i].dtype, inputs[i].shape);
        bound.push_back(inputs[i]);
      }
    }
    writer.Node(op, names, results, attributes);
    for (const std::string& result : results) writer.Output(result);
    const std::string file = writer.File(opset);
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(file));
    return Run(onnx, bound);
  }
};

inline void Expect(const absl::StatusOr<HostTensor>& got, const HostTensor& want,
                   float within = 1e-5f) {
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->shape, want.shape);
  ASSERT_EQ(got->dtype, want.dtype);
  if (want.dtype == DType::kFloat32) {
    EXPECT_THAT(got->Values<float>(), Pointwise(FloatNear(within), want.Values<float>()));
  } else {
    EXPECT_EQ(got->bytes, want.bytes);
  }
}

}  // namespace telegrad::onnx::test
