// Dtype promotion, as tinygrad defines it (its table promo_lattice; the same as JAX's, "Type
// promotion semantics", but for numbers): the least type above both in
//
//   bool -> u8, i8;  u8 -> u16, i16;  i8 -> i16 -> i32 -> i64;  u16 -> u32, i32;  u32 -> u64, i64;
//   i64, u64 -> every f8;  f8 -> f16, bf16;  f16, bf16 -> f32 -> f64
//
// and f32 where the least is not one type: u64 with a signed type, as tinygrad has it (NumPy: f64).
// NumPy differs where an integer type meets a float of no more bits: i32 with f32 is f32 here, f64
// there. Storage types have no place in it: they must be cast.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/tensor.h"
#include "engine/types/dtype.h"

namespace telegrad {

// kVoid if there is none.
DType PromoteTypes(DType a, DType b);
// The type of a number that meets a tensor of type `tensor`, which is also what the tensor becomes:
// a float makes f32 of integers, an integer makes i32 of bool.
DType PromoteNumber(DType tensor, Operand::Kind number);
// f32 of integers and bool, else the type itself.
DType FloatType(DType type);

// `a` and `b` as tensors of one type and shape: promoted and broadcast, symbolic axes included; a
// scalar stays a scalar. Both invalid after an error, which names `op`, both types or shapes and
// the axis.
struct Pair {
  Tensor a, b;
};
Pair Unify(std::string_view op, const Operand& a, const Operand& b);

}  // namespace telegrad
