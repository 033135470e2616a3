// What all sums of products (matrix products, einsum, convolutions) agree on: operands of two types
// are promoted; products and sums of f16, bf16 and f8 are made in f32 and rounded once, those of
// bool count in i32, so that the result says whether any product holds.
#pragma once

#include <string_view>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// The type that products of `type` are made in.
DType FactorType(DType type);

struct Factors {
  Tensor a, b;                // of the type that their products are summed in
  DType type = DType::kVoid;  // that of the result
  bool valid() const { return a.valid() && b.valid(); }
};
// Both invalid after an error, which names `op` and both operands.
Factors ToFactors(std::string_view op, const Tensor& a, const Tensor& b);

}  // namespace telegrad
