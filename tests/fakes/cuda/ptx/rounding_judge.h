// The judge of rounding in the tests. It computes in 113-bit floats, rounded to odd, so that one
// rounding more gives the exact result's (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums: proved algorithms using rounding to odd"); half formats are rounded by looking at
// all of their values.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace fakecuda {

using Quad = __float128;

// The result of an operation rounded to odd: toward zero, and where that is inexact with the last
// bit set.
template <class F>
Quad Odd(F operation) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(FE_TOWARDZERO);
  volatile Quad result = operation();
  const bool inexact = std::fetestexcept(FE_INEXACT) != 0;
  std::fesetround(FE_TONEAREST);
  if (!inexact) return result;
  auto bits = std::bit_cast<unsigned __int128>(static_cast<Quad>(result));
  return std::bit_cast<Quad>(bits | 1);
}

template <class T>
T Exact(const std::string& op, T x, T y, T z) {
  volatile Quad a = x;
  volatile Quad b = y;
  volatile Quad c = z;
  if (op == "add") {
    if (x == 0 && y == 0) return x + y;
    return static_cast<T>(Odd([&] { return a + b; }));
  }
  if (op == "sub") return Exact<T>("add", x, -y, z);
  if (op == "mul") return static_cast<T>(Odd([&] { return a * b; }));
  if (op == "div") return static_cast<T>(Odd([&] { return a / b; }));
  // Products of two T are exact here.
  if ((x == 0 || y == 0) && z == 0) return x * y + z;
  volatile Quad product = a * b;
  const Quad sum = Odd([&] { return product + c; });
  if (sum == 0) return 0;  // a difference of equal numbers, to nearest
  return static_cast<T>(sum);
}

// Edge values, numbers near 1 and random bits, as f32 or f64.
inline std::vector<uint64_t> FloatBits(bool wide, size_t count) {
  std::mt19937_64 random(11);
  std::vector<uint64_t> edges;
  const int mantissa = wide ? 52 : 23;
  const int top = wide ? 63 : 31;
  const uint64_t infinity = wide ? uint64_t{0x7ff} << 52 : uint64_t{0xff} << 23;
  const uint64_t one = wide ? uint64_t{0x3ff} << 52 : uint64_t{0x7f} << 23;
  for (const uint64_t v : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << mantissa) - 1,
                           uint64_t{1} << mantissa, one, one + 1, one - 1, infinity - 1, infinity,
                           infinity + 1, infinity | uint64_t{1} << (mantissa - 1)}) {
    edges.push_back(v);
    edges.push_back(v | uint64_t{1} << top);
  }
  std::vector<uint64_t> values;
  while (values.size() < count) {
    const uint64_t r = random();
    // Close exponents, so that sums cancel and round.
    const uint64_t near =
        one + ((r >> 4) % 7) * (uint64_t{1} << mantissa) + random() % (uint64_t{1} << mantissa);
    const uint64_t any = wide ? random() : random() & 0xffffffff;
    values.push_back(r % 3 == 0 ? edges[random() % edges.size()] : r % 3 == 1 ? near : any);
  }
  return values;
}

template <class T>
T Value(uint64_t bits) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if constexpr (sizeof(T) == 8) return std::bit_cast<double>(bits);
}
template <class T>
uint64_t BitsOf(T x) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(x);
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(x);
}

// A 16-bit format by all of its finite values.
class HalfTable {
 public:
  explicit HalfTable(bool brain) : brain_(brain) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const double v = ValueOf(bits);
      if (std::isfinite(v) && bits != 0x8000) by_value_[v] = bits;
    }
  }
  double ValueOf(uint64_t bits) const {
    if (brain_) return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = static_cast<double>(bits & 1023) / 1024;
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    return sign *
           (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
  }
  // The nearest value's bits, ties to even; beyond half a unit above the largest, infinity.
  uint64_t Nearest(Quad x, bool negative_zero) const {
    if (x != x) return 0x7fff;
    if (x == 0) return negative_zero ? 0x8000 : 0;
    const auto largest = by_value_.rbegin();
    const auto before = std::next(largest);
    const Quad limit =
        static_cast<Quad>(largest->first) + (static_cast<Quad>(largest->first) - before->first) / 2;
    const Quad size = x < 0 ? -x : x;
    if (size >= limit) return (x < 0 ? 0x8000u : 0u) | (largest->second + 1);
    if (size > largest->first) return (x < 0 ? 0x8000u : 0u) | largest->second;
    const auto above = by_value_.lower_bound(static_cast<double>(size));
    auto high = above;
    while (high != by_value_.begin() && static_cast<Quad>(std::prev(high)->first) >= size) --high;
    while (static_cast<Quad>(high->first) < size) ++high;
    uint64_t bits = high->second;
    if (static_cast<Quad>(high->first) != size) {
      const auto low = std::prev(high);
      const Quad up = static_cast<Quad>(high->first) - size;
      const Quad down = size - low->first;
      bits = down < up                ? low->second
             : up < down              ? high->second
             : (low->second & 1) == 0 ? low->second
                                      : high->second;
    }
    return (x < 0 ? 0x8000u : 0u) | bits;
  }

 private:
  bool brain_;
  std::map<double, uint64_t> by_value_;
};

}  // namespace fakecuda
