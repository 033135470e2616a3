// Rng: random tensors, reproducible on every device and bit-identical to tinygrad's for the same
// seed and the same order of calls.
//
// A stream is Threefry-2x32 under a key made of the seed, read at a counter of 32-bit words. The
// counter is device state, a u64 slot that every run of the plan advances by as many words as the
// plan draws: a plan gives new numbers in each run, and the same runs in the same order give the
// same numbers. Seed and counter are the two state slots "<name>.seed" and "<name>.counter"; saving
// and loading them resumes the stream, and graphs of different seeds are one graph.
//
// Integers, bits and uniform numbers are those of tinygrad bit by bit. Randn and all that is made
// of it goes through SIN, LOG2 and SQRT: at most 4 ulp of f32 from those functions correctly
// rounded, before the cast to the type asked for (tinygrad's own code for CPUs is up to 2^-24 off
// there).
#pragma once

#include <cstdint>
#include <string>

#include "engine/frontend/tensor/builder.h"

namespace telegrad {

class Rng {
 public:
  struct Options {
    uint64_t seed = 0;  // the low 32 bits count
    std::string name = "rng";
    // tinygrad gives each device a stream of its own, told apart by how many devices have drawn
    // before it.
    uint32_t device_order = 0;
  };

  explicit Rng(Builder* builder) : Rng(builder, Options()) {}
  Rng(Builder* builder, const Options& options);

  // What is drawn from here on comes from a fresh stream of this seed, in slots "<name>.<k>.seed"
  // and "<name>.<k>.counter", k = 1 for the second stream.
  void ManualSeed(uint64_t seed);

  // The next `n` words of the stream, u32.
  Tensor RandomBits(int64_t n);

  // In [0, 1), as many steps as the float type has mantissa bits.
  Tensor Rand(const Shape& shape, DType dtype = DType::kFloat32);
  Tensor Randn(const Shape& shape, DType dtype = DType::kFloat32);
  Tensor RandLike(const Tensor& like) { return Rand(ShapeOf(like), like.dtype()); }
  Tensor RandnLike(const Tensor& like) { return Randn(ShapeOf(like), like.dtype()); }
  // Integers in [low, high), made of 23 random bits each. (Where the range does not fit the type,
  // tinygrad leaves to its compiler what comes out; here every integer of the range does.)
  Tensor RandInt(const Shape& shape, int64_t low, int64_t high, DType dtype = DType::kInt32);

  Tensor Normal(const Shape& shape, double mean, double std, DType dtype = DType::kFloat32);
  Tensor Uniform(const Shape& shape, double low, double high, DType dtype = DType::kFloat32);
  // In +-1 / sqrt(number of elements).
  Tensor ScaledUniform(const Shape& shape, DType dtype = DType::kFloat32);
  // Glorot and Bengio 2010; the fans are the first axis and the product of the others.
  Tensor GlorotUniform(const Shape& shape, DType dtype = DType::kFloat32);
  // He et al. 2015, for a leaky relu of slope `a`; the fan is the product of all axes but the
  // first.
  Tensor KaimingUniform(const Shape& shape, double a = 0.01, DType dtype = DType::kFloat32);
  Tensor KaimingNormal(const Shape& shape, double a = 0.01, DType dtype = DType::kFloat32);

  // 0, 1, ... n - 1 in a random order.
  Tensor RandPerm(int64_t n, DType dtype = DType::kInt32);
  // i32 positions [samples] or [rows, samples] drawn by the weights [n] or [rows, n], which are not
  // negative and need no particular sum.
  Tensor Multinomial(const Tensor& weights, int64_t samples, bool replacement = false);
  // x with each element 0 with probability p and the others divided by 1 - p.
  Tensor Dropout(const Tensor& x, double p);

 private:
  static Shape ShapeOf(const Tensor& t) { return {t.shape().begin(), t.shape().end()}; }
  void Open(const std::string& name, uint64_t seed);
  Tensor Fraction(const Shape& shape, DType dtype);
  // Kaiming's bounds need a second axis.
  bool HasFan(std::string_view op, const Shape& shape);

  Builder* builder_;
  Options options_;
  int streams_ = 0;
  Tensor key_, counter_;  // u64 scalars
  uint64_t drawn_ = 0;    // words of the stream, in this plan
};

}  // namespace telegrad
