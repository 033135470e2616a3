// The bounds that a conjunction of comparisons implies for linear forms, and the simplification of
// an index under them.
#pragma once

#include <optional>
#include <vector>

#include "engine/rules/linear.h"

namespace telegrad {

class Facts {
 public:
  // Takes x < y and x == y of signed values that have not wrapped; ignores other conditions.
  void Add(UOp condition);
  void AddAll(UOp conjunction);
  bool empty() const { return facts_.empty(); }

  // The bounds of a form's true value where all facts hold; nullopt if it may wrap elsewhere.
  std::optional<Linear::Bounds> Range(const Linear& sum) const;
  // Whether x < y holds wherever the facts do, or nowhere; nullopt if neither is known.
  std::optional<bool> Decide(UOp condition) const;

 private:
  struct Fact {
    Linear form;  // without a constant, coefficients without a common divisor
    Linear::Bounds bounds;
  };
  std::vector<Fact> facts_;
};

// An expression that equals `index` wherever `gate` is true; its divisions are removed where the
// gate leaves only one quotient.
UOp SimplifyUnder(Rewriter& b, UOp gate, UOp index);

}  // namespace telegrad
