#include "engine/frontend/ops/composed.h"

namespace telegrad {

DType ComposedType(DType type) {
  return IsFloat(type) && Info(type).bits >= 32 ? type : DType::kFloat32;
}

Tensor MulAcc(const Tensor& x, const Tensor& y, const Tensor& z) {
  if (!x.valid() || !y.valid() || !z.valid()) return {};
  return x.builder()->Make(Op::kMulAcc, DType::kVoid, {x, y, z});
}

Tensor Polynomial(const Tensor& t, std::span<const double> c) {
  Tensor sum = t.Like(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = MulAcc(sum, t, t.Like(c[i]));
  return sum;
}

Tensor SignBit(const Tensor& x) {
  const int bits = Info(x.dtype()).bits;
  const DType type = bits == 8    ? DType::kInt8
                     : bits == 16 ? DType::kInt16
                     : bits == 32 ? DType::kInt32
                                  : DType::kInt64;
  return x.Bitcast(type).Lt(0);
}

}  // namespace telegrad
