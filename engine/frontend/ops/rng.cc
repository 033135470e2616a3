// The scheme is tinygrad's (tinygrad/mixin/rand.py and Tensor._next_counter of 0.14): a draw of n
// words at counter c takes the subkey Threefry(c; seed key) and enciphers the pairs (i, i + h), h =
// ceil(n / 2), under it; the first words of all pairs come first, then the second words. Where
// tinygrad carries pairs of u32 in tensors of two elements, one u64 is the pair here, which makes
// its carries plain additions.
//
// Bits become floats by putting the mantissa's worth of their highest bits under the exponent of 1,
// and subtracting 1.
#include "engine/frontend/ops/rng.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

// Words of one subkey; a larger draw goes on at the next counter.
constexpr int64_t kChunk = (int64_t{1} << 32) - 1;

// What tells the key of a device from others: the last word of the SHA-256 of its order, big-endian
// both.
uint32_t DeviceWord(uint32_t order) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(order >> (24 - 8 * i));
  const Digest digest = Sha256(bytes);
  uint32_t word = 0;
  for (size_t i = 28; i < 32; ++i) word = word << 8 | digest.bytes[i];
  return word;
}

DType UnsignedOf(int64_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kUInt8;
    case 2:
      return DType::kUInt16;
    case 4:
      return DType::kUInt32;
    default:
      return DType::kUInt64;
  }
}

double Product(const Shape& shape, size_t from) {
  double product = 1;
  for (size_t i = from; i < shape.size(); ++i) product *= static_cast<double>(shape[i]);
  return product;
}

// x * scale + offset, rounded once on f32 and f64, as tinygrad's backends do it.
Tensor MulAcc(const Tensor& x, double scale, double offset) {
  if (!x.valid()) return x;
  return x.builder()->Make(Op::kMulAcc, DType::kVoid, {x, x.Like(scale), x.Like(offset)});
}

}  // namespace

Rng::Rng(Builder* builder, const Options& options) : builder_(builder), options_(options) {
  Open(options.name, options.seed);
}

void Rng::ManualSeed(uint64_t seed) { Open(StrCat(options_.name, ".", ++streams_), seed); }

void Rng::Open(const std::string& name, uint64_t seed) {
  const auto low = static_cast<uint32_t>(seed);
  const Tensor word = builder_->State(DType::kUInt32, {}, name + ".seed", Init::Constant(low));
  counter_ = builder_->State(DType::kUInt64, {}, name + ".counter", Init::Constant(0));
  key_ = (word.Cast(DType::kUInt64) << 32).Or(int64_t{DeviceWord(options_.device_order)});
  drawn_ = 0;
}

Tensor Rng::RandomBits(int64_t n) {
  if (n < 0) return builder_->Fail(InvalidArgument("random_bits: ", n, " words"));
  const auto constant = [&](uint64_t value) {
    return Tensor(builder_, builder_->graph().Const(DType::kUInt64, static_cast<int64_t>(value)));
  };
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(n - begin, kChunk), half = CeilDiv(count, 2);
    const Tensor at = counter_ + constant(drawn_ + static_cast<uint64_t>(begin));
    const Tensor subkey = builder_->Make(Op::kThreefry, DType::kVoid, {at, key_});
    const Tensor i = builder_->Iota(DType::kUInt64, half);
    const Tensor second = (i + constant(static_cast<uint64_t>(half))) << 32;
    const Tensor pairs = builder_->Make(Op::kThreefry, DType::kVoid, {second.Or(i), subkey});
    // Row 0 takes the first words, row 1 the second ones.
    const Tensor shift = builder_->Iota(DType::kUInt64, 2).Reshape({2, 1}) * 32;
    const Tensor words = pairs.Reshape({1, half}) >> shift;
    parts.push_back(words.Cast(DType::kUInt32).Reshape({2 * half}).Slice(0, 0, count));
  }
  drawn_ += static_cast<uint64_t>(n);
  if (parts.empty()) return builder_->Full(DType::kUInt32, {0}, 0);
  builder_->Update(counter_, counter_ + constant(drawn_));
  return parts.size() == 1 ? parts[0] : Concat(parts, 0);
}

Tensor Rng::Fraction(const Shape& shape, DType dtype) {
  if (!IsFloat(dtype) || IsStorage(dtype)) {
    return builder_->Fail(
        InvalidArgument("rand: element type ", Name(dtype), " is not a float type of arithmetic"));
  }
  const absl::StatusOr<int64_t> bytes = CheckedByteSize(dtype, shape);
  if (!bytes.ok()) {
    return builder_->Fail(
        InvalidArgument("rand: shape ", ToString(shape), ": ", ToStd(bytes.status().message())));
  }
  if (*bytes == 0) return builder_->Full(dtype, shape, 0);
  const DTypeInfo& info = Info(dtype);
  const DType type = UnsignedOf(ByteSize(dtype));
  const Tensor bits = RandomBits(CeilDiv(*bytes, 4)).Bitcast(type);
  const Tensor mantissa = bits >> (info.bits - info.mantissa_bits);
  const Tensor one(
      builder_, builder_->graph().Const(type, ScalarToMemory(dtype, ScalarFromDouble(dtype, 1))));
  const Tensor wide = (mantissa | one).Bitcast(dtype);
  return (wide.Slice(0, 0, NumElements(shape)) - 1.0).Reshape(shape);
}

Tensor Rng::Rand(const Shape& shape, DType dtype) { return Fraction(shape, dtype).Contiguous(); }

// Box and Muller 1958. The cosine is a sine of the complement, as tinygrad has it.
Tensor Rng::Randn(const Shape& shape, DType dtype) {
  if (!IsFloat(dtype) || IsStorage(dtype)) {
    return builder_->Fail(
        InvalidArgument("randn: element type ", Name(dtype), " is not a float type of arithmetic"));
  }
  Shape two = shape;
  two.insert(two.begin(), 2);
  const Tensor both = Rand(two);
  if (!both.valid()) return both;
  const Tensor angle =
      MulAcc(both.Slice(0, 0, 1).Reshape(shape), -2 * std::numbers::pi, std::numbers::pi / 2);
  const Tensor rest = 1.0 - both.Slice(0, 1, 2).Reshape(shape);
  const Tensor radius = (rest.Log2() * std::numbers::ln2 * -2.0).Sqrt();
  return (angle.Sin() * radius).Cast(dtype);
}

Tensor Rng::RandInt(const Shape& shape, int64_t low, int64_t high, DType dtype) {
  int64_t range = 0;
  if (!IsInt(dtype) || IsStorage(dtype) || low >= high ||
      __builtin_sub_overflow(high, low, &range)) {
    return builder_->Fail(InvalidArgument("randint: [", low, ", ", high, ") of ", Name(dtype),
                                          ", expected low < high, less than 2^63 apart, of an "
                                          "integer type of arithmetic"));
  }
  const Tensor begin(builder_, builder_->graph().Const(dtype, low));
  // Through i64: a cast from a float saturates, and what the bounds ask for is to wrap.
  return (Rand(shape) * static_cast<double>(range)).Cast(DType::kInt64).Cast(dtype) + begin;
}

Tensor Rng::Normal(const Shape& shape, double mean, double std, DType dtype) {
  if (!(std >= 0)) return builder_->Fail(InvalidArgument("normal: standard deviation ", std));
  return MulAcc(Randn(shape, dtype), std, mean);
}

Tensor Rng::Uniform(const Shape& shape, double low, double high, DType dtype) {
  if (!(low < high) || !IsFloat(dtype)) {
    return builder_->Fail(InvalidArgument("uniform: [", low, ", ", high, ") of ", Name(dtype),
                                          ", expected low < high of a float type"));
  }
  const Tensor x = Rand(shape);
  if (dtype == DType::kFloat32) return MulAcc(x, high - low, low);
  return (x * (high - low)).Cast(dtype) + low;
}

Tensor Rng::ScaledUniform(const Shape& shape, DType dtype) {
  return Uniform(shape, -1, 1, dtype) * std::pow(Product(shape, 0), -0.5);
}

bool Rng::HasFan(std::string_view op, const Shape& shape) {
  if (!shape.empty() && Product(shape, 0) > 0) return true;
  builder_->Fail(InvalidArgument(op, ": shape ", ToString(shape), " has no fan"));
  return false;
}

Tensor Rng::GlorotUniform(const Shape& shape, DType dtype) {
  if (!HasFan("glorot_uniform", shape)) return {};
  const double bound = std::sqrt(6 / (static_cast<double>(shape[0]) + Product(shape, 1)));
  return Uniform(shape, -bound, bound, dtype);
}

Tensor Rng::KaimingUniform(const Shape& shape, double a, DType dtype) {
  if (!HasFan("kaiming_uniform", shape)) return {};
  const double bound = std::sqrt(6 / (1 + a * a) / Product(shape, 1));
  return Uniform(shape, -bound, bound, dtype);
}

Tensor Rng::KaimingNormal(const Shape& shape, double a, DType dtype) {
  if (!HasFan("kaiming_normal", shape)) return {};
  return Normal(shape, 0, std::sqrt(2 / (1 + a * a) / Product(shape, 1)), dtype);
}

Tensor Rng::RandPerm(int64_t n, DType dtype) {
  if (!IsInt(dtype) || IsStorage(dtype)) {
    return builder_->Fail(
        InvalidArgument("randperm: element type ", Name(dtype), " is not an integer type"));
  }
  return Rand({n}).ArgSort(0).Cast(dtype);
}

Tensor Rng::Multinomial(const Tensor& weights, int64_t samples, bool replacement) {
  if (!weights.valid() || weights.rank() < 1 || weights.rank() > 2 || samples < 1 ||
      weights.shape().back() < (replacement ? 1 : samples)) {
    return builder_->Fail(InvalidArgument(
        "multinomial: ", samples, " samples of weights ", ToString(weights.shape()),
        ", expected weights of one or two axes and, without replacement, one for each sample"));
  }
  const int64_t n = weights.shape().back();
  const Tensor rows = weights.Reshape({-1, n});
  Tensor picks;  // [rows, samples]
  if (replacement || samples == 1) {
    const Tensor cdf = rows.CumSum(1).Cast(DType::kFloat32);
    const Tensor share = cdf * cdf.Slice(1, n - 1, n).Reciprocal();
    const Tensor draw = Rand({samples, rows.dim(0), 1});
    picks = draw.Ge(share).Sum({2}).Transpose(0, 1);
  } else {  // Efraimidis and Spirakis 2006
    const Tensor keys = Rand(ToShape(rows.shape())).Log2() / rows.Cast(DType::kFloat32);
    picks = keys.TopK(samples, 1).second;
  }
  return weights.rank() == 1 ? picks.Reshape({samples}) : picks;
}

Tensor Rng::Dropout(const Tensor& x, double p) {
  if (!x.valid() || !(p >= 0 && p <= 1)) {
    return builder_->Fail(InvalidArgument("dropout: probability ", p, ", expected 0 to 1"));
  }
  if (p == 0) return x;
  if (p == 1) return x.Like(0).Expand(ToShape(x.shape()));
  // The mask, not its numbers, is what a gradient keeps.
  const Tensor kept =
      Fraction(ToShape(x.shape()), DType::kFloat32).Ge(builder_->Const(DType::kFloat32, p));
  return kept.Contiguous().Where(x, x.Like(0)) * (1 / (1 - p));
}

}  // namespace telegrad
