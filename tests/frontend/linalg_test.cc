// Linear algebra: value cases, see cases.h.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

#define ONE(expression) [](Builder&, const Inputs& in) { return Inputs{expression}; }

// A symmetric positive definite matrix.
Tensor Definite(const Tensor& x) {
  const Tensor unit = x.builder()->Eye(x.dim(-1), {}, x.dtype());
  return x.MatMul(x.Transpose()) + unit;
}

// Q R, Q^T Q, R and the sizes of R's diagonal.
Inputs OfQr(Builder&, const Inputs& in) {
  const auto [q, r] = in[0].Qr();
  return {q.MatMul(r), q.Transpose().MatMul(q), r * r};
}

// U S V^T, the products of U and V with themselves, S.
Inputs OfSvd(Builder&, const Inputs& in) {
  const auto [u, s, v] = in[0].Svd();
  return {(u * s.Unsqueeze(-2)).MatMul(v), u.Transpose().MatMul(u), v.MatMul(v.Transpose()), s};
}

constexpr Case kCases[] = {
    {"Trace", "trace", ONE(in[0].Trace()), 4, Case::kLargest, true},
    {"Outer", "outer", ONE(in[0].Outer(in[1])), 0, Case::kElement, true},
    {"Cross", "cross", ONE(in[0].Cross(in[1])), 8, Case::kLargest, true},
    {"Cross", "cross_first", ONE(in[0].Cross(in[1], 0)), 8, Case::kLargest, true},
    {"NewtonSchulz", "newton_schulz", ONE(in[0].NewtonSchulz(3, {3.4445, -4.7750, 2.0315})), 32,
     Case::kLargest, true},
    {"Cholesky", "cholesky", ONE(Definite(in[0]).Cholesky()), 32, Case::kLargest, true},
    {"Inverse", "inverse", ONE(in[0].Inverse()), 256, Case::kLargest, true, 0.2, 3},
    {"Determinant", "determinant", ONE(in[0].Determinant()), 64, Case::kLargest, true, 0.2, 3},
    {"Qr", "qr", OfQr, 64, Case::kLargest, true},
    {"Svd", "svd", OfSvd, 64, Case::kLargest},
};

#undef ONE

TEST(LinalgTest, Values) { CheckValues("linalg", kCases); }
TEST(LinalgTest, Gradients) { CheckGradients("linalg", kCases); }

}  // namespace
}  // namespace telegrad::testing
