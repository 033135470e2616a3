// What the layers are made of: named, initialized parameters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/frontend/tensor/builder.h"

namespace telegrad::nn {

struct Options {
  uint64_t seed = 0;
  bool bias = true;
  DType dtype = DType::kFloat32;
};

// One number, or several: a kernel's sizes, a normalized shape.
class Sizes {
 public:
  Sizes(int64_t one) : values_{one} {}                                 // NOLINT: a number is one
  Sizes(std::initializer_list<int64_t> several) : values_(several) {}  // NOLINT: so is a list
  Sizes(const Shape& several) : values_(several) {}                    // NOLINT
  const Shape& values() const { return values_; }
  // `n` of them: as they are, or the one number n times.
  Shape Spread(size_t n) const { return values_.size() == 1 ? Shape(n, values_[0]) : values_; }

 private:
  Shape values_;
};

// The trainable slot "<layer>.<name>", uniform in +-bound from a stream of its own for each name;
// constant; or from a normal distribution.
Tensor UniformParameter(Builder* builder, std::string_view layer, std::string_view name,
                        const Shape& shape, double bound, const Options& options);
Tensor ConstantParameter(Builder* builder, std::string_view layer, std::string_view name,
                         const Shape& shape, double value, const Options& options);
Tensor NormalParameter(Builder* builder, std::string_view layer, std::string_view name,
                       const Shape& shape, double deviation, const Options& options);

// 1 / sqrt(fan in): He et al. 2015 with the gain that PyTorch uses for its layers.
double FanBound(int64_t fan_in);

// A parameter that a layer was made with, not one left out.
inline bool Has(const Tensor& parameter) { return parameter.builder() != nullptr; }

}  // namespace telegrad::nn
