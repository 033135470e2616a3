// What a gate says of index arithmetic: bounds of values, and of sums of them, where it holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/graph.h"
#include "engine/lowering/linear_form.h"

namespace telegrad {

// A division with floor, or its rest, by a positive constant.
bool IsDivision(UOp u);

// The form of `u`. A sum of too much is one atom: what a gate says of it is still known.
LinearForm FormOf(UOp u);

// An index is read as a linear form, its gate as facts lo <= form <= hi. The machine computes a
// form modulo 2^width, so a derivation may replace parts by what is congruent to them; where the
// bounds that it ends with lie within the type, they hold for the machine's value. What may be
// anything is an atom with the bounds of its type.
//
// A value is bounded in several ways, and what all of them allow is left:
//   intervals    atom by atom
//   gate facts   multiples of facts are taken out, the rest is bounded atom by atom: first only
//                multiples that leave nothing of a fact's atoms, and any if that does not suffice
//   greatest     where it takes more time: the greatest of two values is one of them, and none is
//   more congruence   y = c * (y / c) + y % c, where the form holds y next to one of the others;
//   and the
//                bounds of a fact are multiples of the greatest common divisor of its coefficients
class GatedBounds {
 public:
  // Without a gate where that is invalid. Within the loops whose RANGEs are `loops`: each is below
  // its end, which may be computed. Graph and gate outlive this.
  GatedBounds(const Graph& graph, UOp gate, std::span<const UOp> loops = {});

  int work() const { return work_; }  // forms bounded since the start
  // Bounds as many forms again. Beyond that many, all bounds are those of the type.
  void Restart() { work_ = 0; }
  // Whether the gate is never true.
  bool never() const { return never_; }

  // Takes more time from here on, and shows more.
  void SetThorough() {
    thorough_ = true;
    BoundAgain();
  }

  // Of the machine's value of `u`, where the gate holds.
  WideBounds Value(UOp u, int depth = 0) { return Bound(FormOf(u), u.dtype(), depth); }
  // Of the sum over the integers, its atoms being the machine's values: it does not wrap.
  WideBounds Integer(const LinearForm& form);

 private:
  static constexpr size_t kMaxFacts = 64;

  // The form has constant 0. The fact is exact where nothing has wrapped in the comparison: then it
  // is one about the integers, and the coefficients have no common divisor. Else it is one about
  // the machine's value of form + offset, less the offset.
  struct Fact {
    LinearForm form = {};
    WideBounds bounds = {};
    bool exact = true;
    int64_t offset = 0;
  };

  // Of the machine's value of the form.
  WideBounds Bound(const LinearForm& form, DType dtype, int depth);
  WideBounds Sum(const LinearForm& form, int depth);
  // With whole multiples of the facts, but for one. With exact facts alone, the bounds are the
  // form's over the integers, whether they lie within the type or not.
  WideBounds WithFacts(LinearForm form, int depth, size_t without = kMaxFacts, bool exact = false);
  WideBounds WithMultiple(LinearForm form, size_t fact, int64_t times, int depth,
                          bool exact = false);
  // k * y + a * (y / c) + b * (y % c) + rest is (a + k * c) * (y / c) + (b + k) * (y % c) + rest.
  WideBounds WithQuotient(LinearForm form, UOp division, int depth);
  // Where facts are about y % c: k * y + rest is k * c * (y / c) + k * (y % c) + rest.
  WideBounds WithRemainder(const LinearForm& form, UOp remainder, int depth);
  WideBounds Divided(LinearForm form, int64_t k, const LinearForm& y, UOp remainder, int depth);
  // Of a value that is no sum: what its op and its facts say.
  WideBounds Atom(UOp u, int depth);
  WideBounds ByOp(UOp u, int depth);

  // One level of the above: not what the greatest of two values is.
  WideBounds Plain(const LinearForm& form);
  // With either operand in place of a MAX.
  WideBounds WithGreatest(const LinearForm& form, UOp greatest);

  void ReadGate(UOp gate);
  // The integer `range` is below sign * u, which is 1 or more.
  void ReadEnd(UOp range, UOp u, int sign, int depth = 0);
  void UseFacts();
  // What `u` is computed from, operands first: ends of loops are deeper than kMaxDepth.
  void ReadOrder(UOp u);
  // Forgets what was bounded with fewer facts.
  void BoundAgain();
  // Divisions that facts are about.
  void FindDivisions();
  // Whether the machine's value of `u` is its form's.
  bool Exact(UOp u);
  // The machine's value of y less that of x is as given.
  void AddFact(UOp x, UOp y, const WideBounds& given);
  // Of sign * y less x.
  void AddExact(UOp x, UOp y, const WideBounds& given, int sign = 1);
  void AddBelow(UOp range, UOp u, int sign);
  void AddMachine(UOp u, const WideBounds& value);
  void Keep(Fact fact);

  const Graph& graph_;
  std::vector<Fact> facts_;
  std::vector<UOp> quotients_, remainders_;
  std::vector<UOp> order_;
  absl::flat_hash_map<uint32_t, WideBounds> atoms_;
  bool never_ = false;
  bool thorough_ = false;
  int work_ = 0;
};

}  // namespace telegrad
