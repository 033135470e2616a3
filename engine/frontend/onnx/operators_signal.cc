// Fourier transforms, windows and filter banks.
#include <cmath>
#include <numbers>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/fourier.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxTransform = 65536;  // of the bins of a filter bank
constexpr int64_t kMaxMatrix = 1024;      // a matrix is the square of it

// A number that decides a shape, or `otherwise` if the input is left out.
absl::StatusOr<int64_t> LengthOr(NodeContext& c, int i, int64_t otherwise) {
  if (!c.HasInput(i)) return otherwise;
  TG_ASSIGN_OR_RETURN(const Axes numbers, c.Numbers(i));
  if (numbers.size() != 1) return InvalidArgument("input ", i, " has ", numbers.size(), " numbers");
  return numbers[0];
}

// Of the last axis, cut off or padded with zeros to `length`; `bins` of its results.
struct Transform {
  int64_t length, bins;
  bool inverse;
};

// exp(sign 2 pi i k n / length) for n < rows, k < columns, as weights: computing them takes longer
// than the product with them.
absl::StatusOr<Complex> MatrixOfRoots(NodeContext& c, const Transform& t, int64_t rows) {
  std::vector<double> real, imaginary;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < t.bins; ++k) {
      const double turn = static_cast<double>(k * n % t.length) / static_cast<double>(t.length);
      real.push_back(std::cos(2 * std::numbers::pi * turn));
      imaginary.push_back((t.inverse ? 1 : -1) * std::sin(2 * std::numbers::pi * turn));
    }
  }
  const Shape shape{rows, t.bins};
  Complex out;
  TG_ASSIGN_OR_RETURN(out.real, c.Weight(HostTensor::Of<double>(shape, real)));
  TG_ASSIGN_OR_RETURN(out.imaginary, c.Weight(HostTensor::Of<double>(shape, imaginary)));
  return Complex{out.real.Reshape(shape), out.imaginary.Reshape(shape)};
}

Complex Product(const Complex& x, const Complex& roots) {
  const Tensor real = x.real.MatMul(roots.real), imaginary = x.real.MatMul(roots.imaginary);
  if (!x.imaginary.valid()) return {real, imaginary};
  return {real - x.imaginary.MatMul(roots.imaginary), imaginary + x.imaginary.MatMul(roots.real)};
}

absl::StatusOr<Complex> Fourier(NodeContext& c, Complex x, const Transform& t) {
  const double sign = t.inverse ? 1 : -1;
  const double scale = t.inverse ? 1.0 / static_cast<double>(t.length) : 1;
  const int64_t rows = std::min(t.length, x.real.dim(-1));
  const auto fitted = [&](const Tensor& part) {
    std::vector<int64_t> pairs(static_cast<size_t>(2 * part.rank()), 0);
    pairs.back() = t.length - rows;
    return part.Slice(-1, 0, rows).Pad(pairs);
  };
  const auto output = [&](const Complex& out) {
    return Complex{out.real.Slice(-1, 0, t.bins) * scale,
                   out.imaginary.Slice(-1, 0, t.bins) * scale};
  };
  if (x.imaginary.valid() && IsFastLength(t.length)) {
    return output(FastFourier({fitted(x.real), fitted(x.imaginary)}, sign));
  }
  if (!x.imaginary.valid() && IsRealLength(t.length)) {
    return output(RealFourier(fitted(x.real), t.bins, sign));
  }
  if (!x.imaginary.valid() && IsOddLength(t.length)) {
    const Tensor real = fitted(x.real);
    return output(FastFourier({real, real * 0.0}, sign));
  }
  x.real = x.real.Slice(-1, 0, rows);
  if (x.imaginary.valid()) x.imaginary = x.imaginary.Slice(-1, 0, rows);
  if (IsChirpLength(t.length)) {
    TG_ASSIGN_OR_RETURN(const Complex out, ChirpFourier(c, x, t.length, t.bins, sign));
    return output(out);
  }
  if (t.length < 1 || t.length > kMaxMatrix) {
    return Unimplemented("a transform of length ", t.length, "; supported are those of 1 to ",
                         kMaxChirpLength, " elements and products of small primes");
  }
  TG_ASSIGN_OR_RETURN(const Complex roots, MatrixOfRoots(c, t, rows));
  const Complex out = Product(x, roots);
  return Complex{out.real * scale, out.imaginary * scale};
}

// In which a transform of [..., 1 or 2] is computed: the terms of a product with a matrix cancel,
// so those are f64. A fast transform loses so few bits that it is computed in the signal's own
// type.
DType TransformType(const Tensor& x, int64_t length) {
  const bool fast =
      IsChirpLength(length) ||
      (x.dim(-1) == 2 ? IsFastLength(length) : IsRealLength(length) || IsOddLength(length));
  return fast && x.dtype() == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
}

// The two parts of [..., 1 or 2] with `axis` moved last, as elements of that type.
absl::StatusOr<Complex> ReadComplex(const Tensor& x, int64_t axis, DType dtype) {
  if (x.rank() < 2 || (x.dim(-1) != 1 && x.dim(-1) != 2)) {
    return InvalidArgument("the signal has shape ", ToString(x.shape()),
                           ", expected a last axis of 1 or 2: real and imaginary part");
  }
  const Tensor wide = x.Cast(dtype);
  const auto part = [&](int64_t i) {
    return wide.Slice(-1, i, i + 1).Squeeze(-1).MoveAxis(axis, -1);
  };
  return Complex{part(0), x.dim(-1) == 2 ? part(1) : Tensor()};
}

Tensor Joined(const Complex& x, int64_t axis) {
  return Stack(std::vector<Tensor>{x.real.MoveAxis(-1, axis), x.imaginary.MoveAxis(-1, axis)}, -1);
}

// The real signal of the first half of its spectrum: its other half is the conjugate.
absl::StatusOr<Tensor> InverseOfHalf(NodeContext& c, Complex x, int64_t length) {
  const int64_t half = length / 2 + 1;
  const int64_t given = std::min(half, x.real.dim(-1));
  const auto padded = [&](const Tensor& t) {
    std::vector<int64_t> pairs(static_cast<size_t>(2 * t.rank()), 0);
    pairs.back() = half - given;
    return t.Slice(-1, 0, given).Pad(pairs);
  };
  const auto whole = [&](const Tensor& t, double sign) {
    const Tensor first = padded(t);
    const Tensor rest = first.Slice(-1, 1, half - (length % 2 == 0 ? 1 : 0)).Flip({-1}) * sign;
    return Concat(std::vector<Tensor>{first, rest}, -1);
  };
  if (!x.imaginary.valid()) x.imaginary = x.real * 0.0;
  // The mean and the middle of the spectrum have no imaginary part.
  const Tensor k = c.builder().Iota(DType::kInt64, half);
  Tensor alone = k.Eq(0);
  if (length % 2 == 0) alone = alone.Or(k.Eq(half - 1));
  const Tensor imaginary = alone.Where(0.0, padded(x.imaginary));
  const Complex spectrum{whole(x.real, 1), whole(imaginary, -1)};
  TG_ASSIGN_OR_RETURN(const Complex out, Fourier(c, spectrum, {length, length, true}));
  return out.real;
}

// The coefficients of a + b cos(x) + c cos(2 x) over a period.
absl::Status CosineWindow(NodeContext& c, double a, double b, double d) {
  TG_ASSIGN_OR_RETURN(const int64_t size, LengthOr(c, 0, 0));
  TG_ASSIGN_OR_RETURN(const int64_t periodic, c.Int("periodic", 1));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "output_datatype", DType::kFloat32));
  if (size < 0) return InvalidArgument("the size is ", size);
  const int64_t period = periodic != 0 ? size : size - 1;
  const Tensor at = c.builder().Iota(DType::kInt64, size).Cast(DType::kFloat64);
  const Tensor x = at * (2 * std::numbers::pi / static_cast<double>(period));
  return c.Output((x.Cos() * b + (x * 2.0).Cos() * d + a).Cast(dtype));
}

}  // namespace

// The axis is an attribute before opset 20, an input from then on.
absl::Status DftOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  int64_t given = 1;
  if (c.opset() < 20) {
    TG_ASSIGN_OR_RETURN(given, c.Int("axis", 1));
  } else {
    TG_ASSIGN_OR_RETURN(given, LengthOr(c, 2, -2));
  }
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("dft", given, x.rank()));
  if (axis == x.rank() - 1) return InvalidArgument("the axis is the one of the complex parts");
  TG_ASSIGN_OR_RETURN(const int64_t inverse, c.Int("inverse", 0));
  TG_ASSIGN_OR_RETURN(const int64_t onesided, c.Int("onesided", 0));
  const int64_t n = x.dim(axis);
  const bool half = inverse != 0 && onesided != 0;
  TG_ASSIGN_OR_RETURN(const int64_t length, LengthOr(c, 1, half ? 2 * (n - 1) : n));
  const DType type = half ? DType::kFloat64 : TransformType(x, length);
  TG_ASSIGN_OR_RETURN(const Complex parts, ReadComplex(x, axis, type));
  if (half) {
    TG_ASSIGN_OR_RETURN(const Tensor out, InverseOfHalf(c, parts, length));
    return c.Output(out.MoveAxis(-1, axis).Unsqueeze(-1).Cast(x.dtype()));
  }
  const int64_t bins = onesided != 0 ? length / 2 + 1 : length;
  TG_ASSIGN_OR_RETURN(const Complex out, Fourier(c, parts, {length, bins, inverse != 0}));
  return c.Output(Joined(out, axis).Cast(x.dtype()));
}

// Frames of the signal, times a window, transformed.
absl::Status StftOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() != 3) return InvalidArgument("the signal has shape ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const int64_t step, LengthOr(c, 1, 0));
  TG_ASSIGN_OR_RETURN(const int64_t onesided, c.Int("onesided", 1));
  Tensor window;
  int64_t length = x.dim(1);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(window, c.FloatInput(2));
    if (window.rank() != 1)
      return InvalidArgument("the window has shape ", ToString(window.shape()));
    length = window.dim(0);
  }
  TG_ASSIGN_OR_RETURN(length, LengthOr(c, 3, length));
  if (step < 1 || length < 1 || length > x.dim(1) || (window.valid() && window.dim(0) != length)) {
    return InvalidArgument("frames of ", length, " every ", step, " of a signal of ", x.dim(1));
  }
  TG_ASSIGN_OR_RETURN(Complex parts, ReadComplex(x, 1, TransformType(x, length)));
  const auto frames = [&](const Tensor& t) {
    const Tensor out = t.Unfold(-1, length, step);
    return window.valid() ? out * window.Cast(out.dtype()) : out;
  };
  parts.real = frames(parts.real);
  if (parts.imaginary.valid()) parts.imaginary = frames(parts.imaginary);
  const int64_t bins = onesided != 0 && x.dim(2) == 1 ? length / 2 + 1 : length;
  TG_ASSIGN_OR_RETURN(const Complex out, Fourier(c, parts, {length, bins, false}));
  return c.Output(Joined(out, -1).Cast(x.dtype()));
}

absl::Status HannWindowOp(NodeContext& c) { return CosineWindow(c, 0.5, -0.5, 0); }
absl::Status HammingWindowOp(NodeContext& c) { return CosineWindow(c, 25.0 / 46, -21.0 / 46, 0); }
absl::Status BlackmanWindowOp(NodeContext& c) { return CosineWindow(c, 0.42, -0.5, 0.08); }

// Triangles over the bins of a spectrum whose corners are equally far apart on the mel scale,
// 2595 log10(1 + f / 700).
absl::Status MelWeightMatrixOp(NodeContext& c) {
  double number[5];
  for (int i = 0; i < 5; ++i) {
    TG_ASSIGN_OR_RETURN(number[i], c.Number(i));
  }
  const auto [filters, length, rate, low, high] = number;
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "output_datatype", DType::kFloat32));
  if (!(filters >= 0 && filters <= kMaxTransform && length >= 1 && length <= kMaxTransform &&
        rate >= 1 && low >= 0 && high >= low)) {
    return InvalidArgument(filters, " bins of a transform of ", length, " at ", rate, " from ", low,
                           " to ", high, " hertz");
  }
  const auto columns = static_cast<int64_t>(filters), bins = static_cast<int64_t>(length) / 2 + 1;
  const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  std::vector<int64_t> corners;
  for (int64_t i = 0; i < columns + 2; ++i) {
    const double at = mel(low) + (mel(high) - mel(low)) * static_cast<double>(i) / (filters + 2);
    const double hertz = 700 * (std::pow(10, at / 2595) - 1);
    corners.push_back(static_cast<int64_t>(std::floor((length + 1) * hertz / rate)));
    if (corners.back() >= bins) {
      return InvalidArgument("the bin of ", hertz, " hertz is ", corners.back(), " of ", bins);
    }
  }
  std::vector<double> matrix(static_cast<size_t>(bins * columns), 0);
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t left = corners[i], middle = corners[i + 1], right = corners[i + 2];
    const auto set = [&](int64_t row, double value) { matrix[row * columns + i] = value; };
    if (left == middle) set(middle, 1);
    for (int64_t j = left; left < middle && j <= middle; ++j) {
      set(j, static_cast<double>(j - left) / static_cast<double>(middle - left));
    }
    for (int64_t j = middle; j < right; ++j) {
      set(j, static_cast<double>(right - j) / static_cast<double>(right - middle));
    }
  }
  const Shape shape{bins, columns};
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<double>(shape, matrix)));
  return c.Output(out.Reshape(shape).Cast(dtype));
}

}  // namespace telegrad::onnx
