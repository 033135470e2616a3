// A transform of length r m is r transforms of length m of sums of its elements that are m apart,
// each times a root of one (Cooley and Tukey, decimation in frequency). Done for each factor in
// turn, with the axes [done, r, m] becoming [r, done, m] (Stockham), the results come out in their
// order. Factors 4 are taken together; of odd ones, elements k and r - k share their products.
//
// A length with a large prime factor is a convolution of another length (Bluestein): as 2 k n is
// k^2 + n^2 - (k - n)^2, result k is the sum over n of x_n c_n times the conjugate of c_(k - n),
// times c_k, where c_n is the root of one with the angle of n^2 over 2 length.
//
// A real signal is half as many complex numbers, of which the even elements are the real parts; its
// spectrum follows from theirs.
#include "engine/frontend/onnx/fourier.h"

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxFactor = 13, kMaxFastLength = int64_t{1} << 22;
constexpr int64_t kLeastChirp = 100, kLeastReal = 100;  // where a matrix is slower

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

// exp(sign 2 pi i k n / length) for n < rows, k < columns; k n is taken modulo the length first, so
// that the angle is exact.
Complex Roots(Builder& b, int64_t length, int64_t rows, int64_t columns, double sign, DType type) {
  const Tensor product = b.Iota(DType::kInt64, rows).Unsqueeze(1) * b.Iota(DType::kInt64, columns);
  const Tensor angle = product.FloorMod(length).Cast(DType::kFloat64) *
                       (2 * std::numbers::pi / static_cast<double>(length));
  return {angle.Cos().Cast(type), (angle.Sin() * sign).Cast(type)};
}

// The whole of a product, or of a real factor.
Complex Times(const Complex& a, const Complex& b) {
  if (!a.imaginary.valid()) return {a.real * b.real, a.real * b.imaginary};
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

// As few as at least `least`, with the factors that take the least time.
int64_t LengthFrom(int64_t least) {
  for (int64_t length = least;; ++length) {
    int64_t left = length;
    for (const int64_t factor : {2, 3, 5}) {
      while (left % factor == 0) left /= factor;
    }
    if (left == 1) return length;
  }
}

// exp(sign pi i n^2 / length) of integers n.
Complex Chirp(const Tensor& n, int64_t length, double sign, DType type) {
  const Tensor angle = (n * n).FloorMod(2 * length).Cast(DType::kFloat64) *
                       (std::numbers::pi / static_cast<double>(length));
  return {angle.Cos().Cast(type), (angle.Sin() * sign).Cast(type)};
}

using HostComplex = std::vector<std::complex<double>>;

// The transform of a length of LengthFrom. As deep as that has factors.
HostComplex TransformOnHost(const HostComplex& x) {
  const size_t n = x.size();
  if (n == 1) return x;
  const size_t factor = n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : 5, left = n / factor;
  HostComplex out(n);
  for (size_t j = 0; j < factor; ++j) {
    HostComplex part(left);
    for (size_t i = 0; i < left; ++i) part[i] = x[i * factor + j];
    part = TransformOnHost(part);
    for (size_t k = 0; k < n; ++k) {
      const double turn = static_cast<double>(j * k % n) / static_cast<double>(n);
      out[k] += std::polar(1.0, -2 * std::numbers::pi * turn) * part[k % left];
    }
  }
  return out;
}

// Of the conjugates of c_0 to c_(bins - 1) and, before them in a circle, of c_1 to c_(rows - 1).
absl::StatusOr<Complex> ChirpSpectrum(NodeContext& c, int64_t length, int64_t rows, int64_t bins,
                                      int64_t whole, double sign) {
  HostComplex kernel(static_cast<size_t>(whole));
  for (int64_t at = 0; at < whole; ++at) {
    if (at >= bins && at <= whole - rows) continue;
    const int64_t n = at < bins ? at : whole - at;
    const double turn = static_cast<double>(n * n % (2 * length)) / static_cast<double>(length);
    kernel[static_cast<size_t>(at)] = std::polar(1.0, -sign * std::numbers::pi * turn);
  }
  std::vector<double> real, imaginary;
  for (const std::complex<double>& value : TransformOnHost(kernel)) {
    real.push_back(value.real());
    imaginary.push_back(value.imag());
  }
  Complex out;
  TG_ASSIGN_OR_RETURN(out.real, c.Weight(HostTensor::Of<double>({whole}, real)));
  TG_ASSIGN_OR_RETURN(out.imaginary, c.Weight(HostTensor::Of<double>({whole}, imaginary)));
  return out;
}

Tensor PaddedLast(const Tensor& t, int64_t length) {
  std::vector<int64_t> pairs(static_cast<size_t>(2 * t.rank()), 0);
  pairs.back() = length - t.dim(-1);
  return t.Pad(pairs);
}

}  // namespace

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

bool IsChirpLength(int64_t length) {
  return length >= kLeastChirp && length <= kMaxChirpLength && !IsFastLength(length);
}

bool IsOddLength(int64_t length) {
  return length >= kLeastReal && length % 2 == 1 && IsFastLength(length);
}

bool IsRealLength(int64_t length) {
  return length >= kLeastReal && length % 2 == 0 && IsFastLength(length / 2);
}

absl::StatusOr<Complex> ChirpFourier(NodeContext& c, const Complex& x, int64_t length, int64_t bins,
                                     double sign) {
  const DType type = x.real.dtype();
  const int64_t rows = x.real.dim(-1), whole = LengthFrom(rows + bins - 1);
  const Tensor n = c.builder().Iota(DType::kInt64, rows);
  const Complex before = Times(x, Chirp(n, length, sign, type));
  TG_ASSIGN_OR_RETURN(const Complex kernel, ChirpSpectrum(c, length, rows, bins, whole, sign));
  const Complex spectrum =
      FastFourier({PaddedLast(before.real, whole), PaddedLast(before.imaginary, whole)}, -1);
  const Complex weights = {kernel.real.Cast(type), kernel.imaginary.Cast(type)};
  const Complex sums = FastFourier(Times(spectrum, weights), 1);
  const Complex cut = {sums.real.Slice(-1, 0, bins), sums.imaginary.Slice(-1, 0, bins)};
  const Tensor k = c.builder().Iota(DType::kInt64, bins);
  return Times(cut, Chirp(k, length, sign, type) * (1.0 / static_cast<double>(whole)));
}

Complex RealFourier(const Tensor& x, int64_t bins, double sign) {
  const int64_t length = x.dim(-1), half = length / 2;
  const Tensor shifted = x.Slice(-1, 1, length);
  const Complex z = FastFourier({x.Stride(-1, 2), shifted.Stride(-1, 2)}, sign);
  const auto joined = [](const Tensor& a, const Tensor& b) {
    return Concat(std::vector<Tensor>{a, b}, -1);
  };
  // Of results 0 to half, and those opposite to them on the circle.
  const auto around = [&](const Tensor& t) { return joined(t, t.Slice(-1, 0, 1)); };
  const auto opposite = [&](const Tensor& t) { return joined(t.Slice(-1, 0, 1), t.Flip({-1})); };
  const Complex there = {around(z.real), around(z.imaginary)};
  const Complex back = {opposite(z.real), -opposite(z.imaginary)};
  // The spectra of the even elements, and of the odd ones times i.
  const Complex even = (there + back) * 0.5, odd = (there - back) * 0.5;
  const Tensor angle = x.builder()->Iota(DType::kInt64, half + 1).Cast(DType::kFloat64) *
                       (2 * std::numbers::pi / static_cast<double>(length));
  const Complex root = {angle.Cos().Cast(x.dtype()), (angle.Sin() * sign).Cast(x.dtype())};
  const Complex first = even + Turned(Times(odd, root), -1);
  if (bins <= half + 1) return {first.real.Slice(-1, 0, bins), first.imaginary.Slice(-1, 0, bins)};
  // The other half is the conjugate of this one.
  const int64_t rest = bins - half - 1;
  const auto mirrored = [&](const Tensor& t) { return t.Slice(-1, half - rest, half).Flip({-1}); };
  return {joined(first.real, mirrored(first.real)),
          joined(first.imaginary, -mirrored(first.imaginary))};
}

}  // namespace telegrad::onnx
