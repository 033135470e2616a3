// Programs with one thing changed: an offset, the end of a range, the width of vectors, a gate, a
// constant, the size of a buffer, the width of an index, the terms of an index, a barrier or where
// it stands, the number of copies that may still run behind a wait or where that stands, the place
// in a ring of tiles or how many it has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/program.h"

namespace telegrad::testing {

enum Mutation {
  kOffset,
  kRangeEnd,
  kRunEnd,
  kWidth,
  kGate,
  kConstant,
  kBuffer,
  kNarrow,
  kMutations,  // of these
  // Of what keeps threads apart:
  kDropTerm = kMutations,
  kSwapTerms,
  kBarrier,
  // Of a ring of tiles:
  kWaitCount,
  kPlace,
  kPlaces,  // of one access
  kDepth,   // of all accesses
  kWaitMoved,
  // Of memory that threads share:
  kBarrierMoved,
  kStride
};
inline constexpr std::string_view kMutationNames[] = {"offset",
                                                      "range end",
                                                      "end by the run",
                                                      "width",
                                                      "gate",
                                                      "constant",
                                                      "buffer",
                                                      "narrowing",
                                                      "term of an index",
                                                      "coefficients of an index",
                                                      "barrier",
                                                      "copies that run behind a wait",
                                                      "place in a ring",
                                                      "places of a ring",
                                                      "depth of a ring",
                                                      "wait elsewhere",
                                                      "barrier elsewhere",
                                                      "stride of an index"};

class Mutator {
 public:
  Mutator(const Program& program, std::mt19937_64* random)
      : from_(program), g_(*program.graph), random_(*random) {}

  // The program with one random change of that kind; nullopt where there is nothing to change.
  std::optional<Program> Mutate(Mutation kind);

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t Delta();
  // What makes an i32 wrap that it is added to, or nearly.
  int64_t HighBits();
  bool Suits(Mutation kind, UOp u) const;
  UOp Victim(Mutation kind);
  // The order with the victim at another place.
  std::vector<uint32_t> OrderWithMoved();
  // A copy of `u` in the mutant; mutated where it is the victim.
  UOp Copy(Mutation kind, UOp u);
  void Change(Mutation kind, UOp u, std::vector<UOp>* src, std::vector<int64_t>* arg);
  // A range that a launch is cut along has so many iterations.
  void Iterate(UOp range, int64_t most);
  // In place of an end that is computed from numbers of the run: one that is greater, or such a
  // number as it is, which may be anything.
  UOp OtherEnd(UOp end, UOp copy);
  // The index by way of a type that is too narrow for what is computed there.
  UOp Narrowed(UOp index);
  // The index of a store without a term, or with two coefficients exchanged.
  UOp OtherTerms(Mutation kind, UOp index, UOp copy);
  // Drops the whole gate or one of its conditions.
  void Weaken(UOp gate, std::vector<UOp>* src);

  UOp Place(UOp u);  // in the order, if it is not
  UOp Do(Op op, UOp x, int64_t y);
  UOp Cast(DType to, UOp x) { return Place(graph_->Make(Op::kCast, to, {x})); }

  const Program& from_;
  const Graph& g_;
  std::mt19937_64& random_;
  UOp victim_;
  Program out_;
  std::shared_ptr<Graph> graph_;
  std::vector<uint32_t> copied_, placed_;
  std::vector<bool> done_;  // by node: it is copied
  bool fewer_ = false;
};

}  // namespace telegrad::testing
