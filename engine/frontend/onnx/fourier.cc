// A transform of length r m is r transforms of length m of sums of its elements that are m apart,
// each times a root of one (Cooley and Tukey, decimation in frequency). Done for each factor in
// turn, with the axes [done, r, m] becoming [r, done, m] (Stockham), the results come out in their
// order. Factors 4 are taken together; of odd ones, elements k and r - k share their products.
#include "engine/frontend/onnx/fourier.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxFactor = 13, kMaxFastLength = int64_t{1} << 22;

// A factor of 2 first, then fours, then odd ones; empty if one is too large.
std::vector<int64_t> FactorsOf(int64_t length) {
  std::vector<int64_t> out;
  for (; length % 4 == 0; length /= 4) out.push_back(4);
  if (length % 2 == 0) {
    out.insert(out.begin(), 2);
    length /= 2;
  }
  for (int64_t factor = 3; factor <= kMaxFactor; factor += 2) {
    for (; length % factor == 0; length /= factor) out.push_back(factor);
  }
  return length == 1 ? out : std::vector<int64_t>();
}

Complex operator+(const Complex& a, const Complex& b) {
  return {a.real + b.real, a.imaginary + b.imaginary};
}
Complex operator-(const Complex& a, const Complex& b) {
  return {a.real - b.real, a.imaginary - b.imaginary};
}
Complex operator*(const Complex& a, double b) { return {a.real * b, a.imaginary * b}; }
// Times i or -i.
Complex Turned(const Complex& a, double sign) {
  return sign > 0 ? Complex{-a.imaginary, a.real} : Complex{a.imaginary, -a.real};
}

// The transform of as many elements as there are, which is small.
std::vector<Complex> Butterfly(const std::vector<Complex>& x, double sign) {
  const size_t n = x.size();
  if (n == 2) return {x[0] + x[1], x[0] - x[1]};
  if (n == 4) {
    const Complex even = x[0] + x[2], odd = x[1] + x[3];
    const Complex rest = x[0] - x[2], turned = Turned(x[1] - x[3], sign);
    return {even + odd, rest + turned, even - odd, rest - turned};
  }
  std::vector<Complex> out(n), sums(n / 2), differences(n / 2);
  out[0] = x[0];
  for (size_t j = 1; j <= n / 2; ++j) {
    sums[j - 1] = x[j] + x[n - j];
    differences[j - 1] = x[j] - x[n - j];
    out[0] = out[0] + sums[j - 1];
  }
  for (size_t k = 1; k <= n / 2; ++k) {
    Complex even = x[0], odd;
    for (size_t j = 1; j <= n / 2; ++j) {
      // The root of k j, from the half of the circle that has it.
      const size_t at = k * j % n;
      const bool mirrored = at > n / 2;
      const double angle = 2 * std::numbers::pi * static_cast<double>(mirrored ? n - at : at) /
                           static_cast<double>(n);
      const double sine = mirrored ? -std::sin(angle) : std::sin(angle);
      even = even + sums[j - 1] * std::cos(angle);
      const Complex part = differences[j - 1] * sine;
      odd = j == 1 ? part : odd + part;
    }
    const Complex turned = Turned(odd, sign);
    out[k] = even + turned;
    out[n - k] = even - turned;
  }
  return out;
}

}  // namespace

Complex Roots(Builder& b, int64_t length, int64_t rows, int64_t columns, double sign, DType type) {
  const Tensor product = b.Iota(DType::kInt64, rows).Unsqueeze(1) * b.Iota(DType::kInt64, columns);
  const Tensor angle = product.FloorMod(length).Cast(DType::kFloat64) *
                       (2 * std::numbers::pi / static_cast<double>(length));
  return {angle.Cos().Cast(type), (angle.Sin() * sign).Cast(type)};
}

bool IsFastLength(int64_t length) {
  return length > 1 && length <= kMaxFastLength && !FactorsOf(length).empty();
}

Complex FastFourier(const Complex& given, double sign) {
  const Shape shape = ToShape(given.real.shape());
  const Shape outer(shape.begin(), shape.end() - 1);
  const auto shaped = [&](const Tensor& t, std::initializer_list<int64_t> last) {
    Shape to = outer;
    to.insert(to.end(), last);
    return t.Reshape(to);
  };
  Complex x = given;
  int64_t done = 1, left = shape.back();
  for (const int64_t factor : FactorsOf(shape.back())) {
    left /= factor;
    std::vector<Complex> parts;
    for (int64_t j = 0; j < factor; ++j) {
      const auto part = [&](const Tensor& t) {
        return shaped(t, {done, factor, left}).Slice(-2, j, j + 1).Squeeze(-2);
      };
      parts.push_back({part(x.real), part(x.imaginary)});
    }
    parts = Butterfly(parts, sign);
    std::vector<Tensor> real, imaginary;
    for (const Complex& part : parts) {
      real.push_back(part.real);
      imaginary.push_back(part.imaginary);
    }
    // [..., factor, done, left]; each is stored, or the next factor would compute it several times.
    x = {Stack(real, -3).Contiguous(), Stack(imaginary, -3).Contiguous()};
    if (left > 1) {
      const Complex roots =
          Roots(*x.real.builder(), factor * left, factor, left, sign, x.real.dtype());
      const Tensor c = roots.real.Unsqueeze(1), s = roots.imaginary.Unsqueeze(1);
      x = {x.real * c - x.imaginary * s, x.imaginary * c + x.real * s};
    }
    done *= factor;
  }
  return {x.real.Reshape(shape), x.imaginary.Reshape(shape)};
}

}  // namespace telegrad::onnx
