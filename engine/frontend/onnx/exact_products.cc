#include "engine/frontend/onnx/exact_products.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kExact = int64_t{1} << 24;  // f32 has all integers up to here
constexpr int64_t kMostParts = 16;            // of a sum; each is added to the result in memory

int64_t LargestOf(const Tensor& x) {
  const int64_t low = x.uop().vmin(), high = x.uop().vmax();
  return low < -kExact ? kExact : std::max(-low, high);
}

// The terms of a product of x and y that f32 adds up exactly; 0: none.
int64_t ExactTerms(const Tensor& x, const Tensor& y) {
  if (!x.valid() || !y.valid() || x.dtype() != DType::kInt32 || y.dtype() != DType::kInt32) {
    return 0;
  }
  const int64_t a = std::max<int64_t>(LargestOf(x), 1), b = std::max<int64_t>(LargestOf(y), 1);
  return a >= kExact || b >= kExact ? 0 : kExact / (a * b);
}

}  // namespace

Tensor MatMulOfIntegers(const Tensor& a, const Tensor& b) {
  const int64_t most = ExactTerms(a, b);
  if (most == 0 || a.rank() < 2 || b.rank() < 2 || !a.dims()[a.rank() - 1].is_static() ||
      a.dims()[a.rank() - 1] != b.dims()[b.rank() - 2]) {
    return a.MatMul(b);
  }
  const int64_t k = a.dim(-1), parts = CeilDiv(k, most);
  if (k == 0 || parts > kMostParts) return a.MatMul(b);
  const int64_t each = CeilDiv(k, parts);
  Tensor sum;
  for (int64_t i = 0; i < k; i += each) {
    const auto part = [&](const Tensor& t, int64_t axis) {
      return t.Slice(axis, i, std::min(i + each, k)).Cast(DType::kFloat32);
    };
    const Tensor product = part(a, -1).MatMul(part(b, -2)).Cast(DType::kInt32);
    sum = sum.valid() ? sum + product : product;
  }
  return sum;
}

absl::StatusOr<Tensor> ConvolutionOfIntegers(const Tensor& x, const Tensor& w,
                                             const Convolve& conv) {
  const int64_t most = ExactTerms(x, w);
  if (most == 0 || w.rank() < 3 || !w.dims().is_static() || w.size() == 0) return conv(x, w);
  const int64_t channels = w.dim(1), window = w.size() / w.dim(0) / channels;
  const int64_t parts = CeilDiv(channels, std::max<int64_t>(most / window, 1));
  const bool groups = x.dims()[1] != w.dims()[1];
  if (window > most || parts > kMostParts || (groups && parts > 1)) return conv(x, w);
  const int64_t each = CeilDiv(channels, parts);
  Tensor sum;
  for (int64_t i = 0; i < channels; i += each) {
    const auto part = [&](const Tensor& t) {
      const Tensor all = t.Cast(DType::kFloat32);
      return parts == 1 ? all : all.Slice(1, i, std::min(i + each, channels));
    };
    TG_ASSIGN_OR_RETURN(Tensor product, conv(part(x), part(w)));
    product = product.Cast(DType::kInt32);
    sum = sum.valid() ? sum + product : product;
  }
  return sum;
}

}  // namespace telegrad::onnx
