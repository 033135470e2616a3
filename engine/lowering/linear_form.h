// Linear forms for the bounds proof: a constant plus atoms times coefficients, an atom being any
// node that is neither a sum nor a multiple. Shares nothing with the simplifier's Linear on
// purpose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "engine/ir/graph.h"

namespace telegrad {

__extension__ using Int128 = __int128;

// Inclusive bounds over the integers. Sums and multiples of forms stay far below 2^127.
struct WideBounds {
  Int128 lo, hi;
  bool empty() const { return lo > hi; }
  bool within(const WideBounds& outer) const { return outer.lo <= lo && hi <= outer.hi; }
};

WideBounds operator+(const WideBounds& a, const WideBounds& b);
WideBounds operator*(const WideBounds& a, int64_t factor);
WideBounds Intersect(const WideBounds& a, const WideBounds& b);
// Every value that an integer or bool type can hold.
WideBounds ValuesOf(DType dtype);

// The value that the machine computes is the form's modulo 2^width.
struct LinearForm {
  std::map<uint32_t, int64_t> terms;  // atom -> coefficient, never 0
  int64_t constant = 0;

  // this += factor * u; false where there would be more than kMaxTerms terms or a coefficient or
  // constant beyond kMaxCoefficient.
  [[nodiscard]] bool Add(UOp u, int64_t factor);
  [[nodiscard]] bool Add(const LinearForm& other, int64_t factor);
  // The greatest common divisor of the coefficients; 0 if there are none.
  int64_t Gcd() const;
  // k such that this - k * part has none of part's atoms; 0 if there is no such k.
  int64_t MultipleOf(const LinearForm& part) const;

  static constexpr size_t kMaxTerms = 64;
  static constexpr int64_t kMaxCoefficient = int64_t{1} << 54;

 private:
  bool AddTerm(uint32_t atom, int64_t coefficient);
};

}  // namespace telegrad
