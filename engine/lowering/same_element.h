// What follows for two executions of accesses from that they touch the same element: which ranges
// have the same value in both. Threads are told apart by the values of their parallel ranges, so
// this is what a proof of independence asks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/ir/graph.h"
#include "engine/lowering/barrier_order.h"
#include "engine/lowering/gated_bounds.h"

namespace telegrad {

// How the nodes of a program get their values.
struct ProgramValues {
  explicit ProgramValues(const Graph& graph) : pure(graph, false), uniform(graph, false) {}

  NodeMap<bool> pure;     // by the values of ranges and lanes alone: no memory that is written
  NodeMap<bool> uniform;  // nor by those: the same in all threads and iterations
};

// Two executions, each in a thread and an iteration of its own: `a` may be the same access as `b`.
//
// Let D be the difference of both addresses, as a sum of differences of the atoms of their linear
// forms times coefficients. It is 0. Where the coefficients of some atoms have a common divisor g,
// and the bounds of all other terms leave room for one multiple of g only, the sum of those others
// is that multiple, and so the terms of g sum up to its negative. In this way D is cut into sums of
// fewer terms, the largest coefficients first: each iteration of a parallel range has elements of
// its own if its coefficient is larger than the span of all smaller terms. A sum of one term says
// whether its atom is the same in both. Where x / c and x % c are, x is, and the form of x is cut
// likewise.
class SameElement {
 public:
  // The bounds are those under the gates of `a` and of `b`.
  SameElement(const Graph& graph, const ProgramValues& values, GatedBounds* a, GatedBounds* b)
      : g_(graph), values_(values), a_(*a), b_(*b) {}

  // Is known before: `u` has the same value in both.
  void Assume(UOp u) { MarkSame(u); }
  // Is known before: the integer that the form is, modulo 2^bits, is 0 in both. If all of its atoms
  // but one are the same in both, that one is, too.
  void AssumeZero(const LinearForm& sum);
  // Is known before Solve: the iterations of loops. Takes out of both forms what follows from them
  // alone, and adds to `a` what is known of it: the pairs of forms that are left, of which one
  // holds. The place in a ring of n tiles is (i + c) % n, and where the iterations i differ by a
  // known number, two places differ by one of two.
  std::vector<std::pair<LinearForm, LinearForm>> InIterations(const Meeting& meeting, LinearForm a,
                                                              LinearForm b);
  // The values of both forms, indices of so many bits, and something in `near` sum up to 0, where b
  // counts negative: accesses of several elements touch the same one, or those of one byte. Call
  // once.
  void Solve(const LinearForm& a, const LinearForm& b, const WideBounds& near, int bits);

  // No two executions touch the same element.
  bool never() const { return never_; }
  // `range` has the same value in both.
  bool IsSame(UOp range) const { return same_.contains(range.id()); }
  // So has `u`, as far as is known.
  bool IsFixed(UOp u, int depth = 0) const;
  // Whether tiles overlap at what both touch, see below.
  bool MayRepeat() const { return !overlapping_.empty(); }
  // Where tiles overlap because the last one begins earlier, and both executions are at the same
  // position of the range that has the tiles: from now on, the number of the tile and the places
  // within it count as the same. False where there are none.
  bool AssumeRepeated();

  // A sum of terms of a's form less one of b's that is known; together they have all that may
  // differ. Those of equal atoms that are the same in both are left out.
  struct Part {
    LinearForm a = {}, b = {};  // without constants
    int64_t difference = 0;
  };
  // After Solve, of the same forms; nullopt where a sum is none of values of both.
  std::optional<std::vector<Part>> PartsThatDiffer(const LinearForm& a, const LinearForm& b,
                                                   const WideBounds& near, int bits);

  int64_t work() const { return work_; }

 private:
  struct Term {
    int64_t c = 0;
    UOp atom;
    bool in_a = true, in_b = true;
    bool fixed = false;  // the atom is the same in both: in neither, and c is the difference
  };
  // floor(base / by) % below; below 0: without a rest.
  struct Digit {
    UOp base;
    int64_t by = 1, below = 0;
  };

  // Of the integer that the form is in both executions, b's less a's, where iterations say so.
  std::optional<int64_t> Difference(const Meeting& meeting, UOp a, UOp b);
  // Where the iterations say what the value is.
  std::optional<int64_t> ValueIn(const Meeting& meeting, UOp u, bool of_b);
  void PutValues(const Meeting& meeting, bool of_b, LinearForm* form);
  // x % n is x where the bounds say so.
  void PutSmall(GatedBounds& bounds, LinearForm* form);
  static Digit DigitOf(UOp u, int depth = 0);
  // Whether digits that are the same in both say what the division is.
  bool HasKnownDigits(UOp u) const;
  // Whether different values of the integer become different ones.
  bool KeepsValue(UOp cast);
  void MarkSame(UOp u);
  void JoinDigits();
  // The terms of the difference, the largest coefficients first.
  std::vector<Term> TermsOf(const LinearForm& a, const LinearForm& b) const;
  WideBounds BoundsOf(std::span<const Term> terms);
  // Their sum, `rest` and something in `near` is 0.
  void Cut(const std::vector<Term>& terms, Int128 rest, const WideBounds& near, int bits);
  // The sum of these terms is `sum`.
  void Take(std::span<const Term> terms, Int128 sum);
  void TakeOverlap(std::span<const Term> terms);
  // Of two sums that are known, one has x / n and the other one x % n, as of rows with gaps between
  // them: multiplied so that they have n * (x / n) + x % n, they are one of x.
  void JoinSums();
  Int128 SpanOf(const Term& t);
  void FindThreads(UOp u, absl::flat_hash_set<uint32_t>* threads) const;
  bool ArePlaces(std::span<const UOp> places, std::span<const UOp> numbers) const;
  bool AreDigits(const LinearForm& form);
  // max(-size * number, least), where the last of several tiles begins earlier, so that it is
  // whole; the number is a sum of digits.
  struct Tiles {
    int64_t size = 0;
    std::vector<UOp> numbers;
  };
  std::optional<Tiles> MovedBack(UOp u);

  const Graph& g_;
  const ProgramValues& values_;
  GatedBounds& a_;
  GatedBounds& b_;
  absl::flat_hash_set<uint32_t> same_;
  std::vector<Digit> digits_;
  std::vector<UOp> overlapping_;
  std::vector<UOp> exchanged_;  // of these, x ^ y
  std::vector<UOp> bases_;      // whose forms are still to be cut
  struct Sum {
    std::vector<Term> terms;
    Int128 sum = 0;
  };
  std::vector<Sum> known_;            // that may be joined
  std::vector<Sum>* sums_ = nullptr;  // where to add those of more than an atom that is the same
  bool never_ = false;
  int64_t work_ = 0;
};

}  // namespace telegrad
