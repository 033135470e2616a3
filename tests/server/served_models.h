// Models that several tests serve.
#pragma once

#include <string>

#include "engine/frontend/onnx/test_model.h"

namespace telegrad {

// y = 2 * x - subtrahend, as a graph with a product, of rows of four floats.
inline std::string ScaleModel(float subtrahend) {
  return onnx::test::ModelWriter()
      .Input("x", DType::kFloat32, {-1, 4})
      .Output("y", DType::kFloat32, {-1, 4})
      .Initializer("two", HostTensor::Of<float>({1}, {2}))
      .Initializer("subtrahend", HostTensor::Of<float>({1}, {subtrahend}))
      .Node("Mul", {"x", "two"}, {"twice"})
      .Node("Sub", {"twice", "subtrahend"}, {"y"})
      .File(13);
}

// Of the floats x, what is not 0, as many as there are.
inline std::string SomeModel() {
  return onnx::test::ModelWriter()
      .Input("x", DType::kFloat32, {-1})
      .Output("y", DType::kFloat32, {-1})
      .Initializer("zero", HostTensor::Of<float>({1}, {0}))
      .Node("Equal", {"x", "zero"}, {"none"})
      .Node("Not", {"none"}, {"mask"})
      .Node("Compress", {"x", "mask"}, {"y"})
      .File(13);
}

}  // namespace telegrad
