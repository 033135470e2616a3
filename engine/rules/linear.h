// Linear forms: an integer expression as a sum of coefficient times atom, plus a constant.
//
// A form holds in the ring of integers modulo 2^width, whatever wrapped on the way. Division and
// comparison need the true value; Range gives its bounds over the integers, and where these lie
// within the type, nothing has wrapped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

__extension__ using Wide = __int128;

int64_t FloorDivide(int64_t a, int64_t b);  // b > 0
Wide FloorDivideWide(Wide a, Wide b);       // b > 0
int64_t Gcd(int64_t a, int64_t b);          // of the absolute values; Gcd(0, b) = |b|

class Linear {
 public:
  struct Term {
    UOp atom;
    int64_t coefficient;
  };
  struct Bounds {
    Wide lo, hi;
    // The quotient that all values in the bounds have by `divisor` > 0, if it is one.
    std::optional<int64_t> Quotient(int64_t divisor) const;
  };

  explicit Linear(DType dtype, int64_t constant = 0) : dtype_(dtype), constant_(constant) {}
  // nullopt for a sum that is too long or whose coefficients overflow.
  static std::optional<Linear> Of(UOp u);

  DType dtype() const { return dtype_; }
  int64_t constant() const { return constant_; }
  const std::vector<Term>& terms() const { return terms_; }  // sorted, no coefficient is 0
  bool is_constant() const { return terms_.empty(); }

  // this += factor * (...); false on overflow, after which the value is unspecified.
  [[nodiscard]] bool AddConstant(int64_t value, int64_t factor = 1);
  [[nodiscard]] bool AddTerm(UOp atom, int64_t coefficient);
  [[nodiscard]] bool AddScaled(const Linear& other, int64_t factor);

  // this = c * quotient + rest, both 0 before; c > 0. The coefficients of `rest` are what C's %
  // leaves, or the nearest to 0; its constant is in [0, c).
  enum class Residues { kTruncated, kNearest };
  [[nodiscard]] bool DivideBy(int64_t c, Residues residues, Linear* quotient, Linear* rest) const;

  // The greatest common divisor of the coefficients; 0 if there are none.
  int64_t GcdOfTerms() const;
  // The bounds of the true value; nullopt if they may lie outside of the type.
  std::optional<Bounds> Range() const;
  // The expression, in canonical form.
  UOp Build(Rewriter& b) const;

 private:
  DType dtype_;
  int64_t constant_;
  std::vector<Term> terms_;
};

}  // namespace telegrad
