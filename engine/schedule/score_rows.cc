// Every node gets its part in a softmax, sources first: what begins with the maximum over an axis
// of what is computed from a stored value element by element, and what the parts before it make of
// that. A node that does something else with one of them ends it.
#include "engine/schedule/score_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ir/scalar.h"
#include "engine/schedule/cost.h"

namespace telegrad {
namespace {

enum class Role : uint8_t {
  kOther,
  kElement,     // a score, or computed from it: what the maximum is taken of
  kMaximum,     // of the row, or what takes its place where it is not finite
  kOfRow,       // computed from the maximum and the sum, the same for all of the row
  kDifference,  // the element less the maximum, perhaps scaled
  kWeight,      // an exponential of that, perhaps times or by something of the row
  kTerm,        // a weight times a value
};

struct SoftmaxPart {
  Role role = Role::kOther;
  uint32_t maximum = 0;  // the REDUCE that it begins with
};

bool IsFiniteConst(UOp u) {
  while (u.is(Op::kExpand) || u.is(Op::kReshape)) u = u.src(0);
  return u.is_const() && IsFloat(u.dtype()) &&
         std::isfinite(ScalarAsDouble(u.dtype(), u.const_word()));
}

bool IsPositiveConst(UOp u) {
  while (u.is(Op::kExpand) || u.is(Op::kReshape)) u = u.src(0);
  return IsFiniteConst(u) && ScalarAsDouble(u.dtype(), u.const_word()) > 0;
}

class ScoreFinder {
 public:
  ScoreFinder(const Graph& graph, const absl::flat_hash_set<uint32_t>& stored)
      : graph_(graph),
        stored_(stored),
        parts_(graph.size()),
        scores_(graph.size(), 0),
        latest_(graph.size(), 0) {}

  ScoreRows Run(std::span<const uint32_t> order) {
    for (const uint32_t id : order) {
      const UOp u = graph_.at(id);
      const SoftmaxPart part = PartOf(u);
      for (const uint32_t s : u.src_ids()) latest_[id] = std::max(latest_[id], latest_[s]);
      if (part.maximum == id) latest_[id] = id;
      if (part.maximum != 0) Put(u, part);
      FindScores(u);
    }
    ScoreRows rows;
    for (const auto& [maximum, memory] : memory_) {
      const bool whole =
          ended_.contains(maximum) || !summed_.contains(maximum) || read_.contains(memory.front());
      if (whole) continue;
      for (const uint32_t id : memory) rows[id] = {KeysOf(graph_.at(maximum)), maximum};
    }
    return rows;
  }

 private:
  // Elements of a row, along the last axis.
  static int64_t KeysOf(UOp maximum) { return maximum.src(0).shape().back(); }

  static bool IsOverLastAxis(UOp reduce) {
    const auto last = static_cast<int64_t>(reduce.src(0).shape().size()) - 1;
    return reduce.reduced_axes().size() == 1 && reduce.reduced_axes()[0] == last;
  }

  // Of which stored value's elements the node is computed one by one, and whether it reads scores
  // in another way than a softmax does.
  void FindScores(UOp u) {
    uint32_t& scores = scores_[u.id()];
    const bool plain =
        std::ranges::none_of(u.src_ids(), [&](uint32_t s) { return parts_[s].maximum != 0; });
    const bool elementwise = Is(u.op(), kAlu) || (u.is(Op::kReshape) && HasSameAxes(u));
    for (int i = 0; i < u.num_src() && elementwise && plain; ++i) {
      const uint32_t from = scores_[u.src(i).id()];
      if (from != 0) scores = scores == 0 || scores == from ? from : kSeveral;
    }
    const SoftmaxPart& part = parts_[u.id()];
    const bool softmax = part.role == Role::kDifference || part.maximum == u.id();
    for (int i = 0; i < u.num_src(); ++i) {
      const uint32_t from = scores_[u.src(i).id()];
      if (from == 0 || (plain && from == scores)) continue;
      if (!softmax || !IsElement(u.src(i), part.maximum)) read_.insert(from);
    }
    if (stored_.contains(u.id())) scores = parts_[u.id()].maximum == 0 ? u.id() : 0;
  }

  // The parts of a softmax over one stored value that the node's sources are.
  SoftmaxPart PartOf(UOp u) {
    if (u.is(Op::kReduce) && u.reduce_kind() == ReduceKind::kMax) {
      const uint32_t scores = scores_[u.src(0).id()];
      const bool begins = scores != 0 && scores != kSeveral && IsOverLastAxis(u) &&
                          IsFloat(u.dtype()) && ByteSize(u.dtype()) >= 4 && KeysOf(u) > 1 &&
                          parts_[u.src(0).id()].maximum == 0;
      if (begins) return {Role::kMaximum, u.id()};
    }
    SoftmaxPart part;
    for (int i = 0; i < u.num_src(); ++i) {
      const SoftmaxPart& of = parts_[u.src(i).id()];
      if (of.maximum == 0) continue;
      if (part.maximum != 0 && part.maximum != of.maximum) return End(of, part);
      part.maximum = of.maximum;
    }
    if (part.maximum == 0) return part;
    part.role = RoleOf(u, part.maximum);
    if (part.role == Role::kOther && !Uses(u)) return End(part, part);
    return part.role == Role::kOther ? SoftmaxPart{} : part;
  }

  SoftmaxPart End(SoftmaxPart x, SoftmaxPart y) {
    ended_.insert(x.maximum);
    ended_.insert(y.maximum);
    return {};
  }

  // Whether a node that has no part itself may use those that its sources have: results may use
  // what is the same for all of a row, and the sum of the terms is one.
  bool Uses(UOp u) {
    if (u.is(Op::kReduce) && parts_[u.src(0).id()].role == Role::kTerm) {
      summed_.insert(parts_[u.src(0).id()].maximum);
      return u.reduce_kind() == ReduceKind::kAdd && IsOverLastAxis(u) &&
             u.src(0).shape().back() == KeysOf(graph_.at(parts_[u.src(0).id()].maximum));
    }
    for (int i = 0; i < u.num_src(); ++i) {
      const Role role = parts_[u.src(i).id()].role;
      if (role != Role::kOther && role != Role::kOfRow && role != Role::kMaximum) return false;
    }
    return true;
  }

  // The element of a softmax, also before the maximum is known.
  bool IsElement(UOp u, uint32_t maximum) const { return u == graph_.at(maximum).src(0); }

  Role RoleOf(UOp u, uint32_t maximum) const {
    using enum Role;
    const auto role = [&](int i) {
      if (i >= u.num_src()) return kOther;
      return IsElement(u.src(i), maximum) ? kElement : parts_[u.src(i).id()].role;
    };
    const auto of_row = [&](int i) {
      return role(i) == kMaximum || role(i) == kOfRow || IsFiniteConst(u.src(i));
    };
    switch (u.op()) {
      case Op::kDetach:
      case Op::kReshape:
      case Op::kExpand:
        if (role(0) == kMaximum || role(0) == kOfRow) return role(0);
        return role(0) == kWeight && KeepsLastAxis(u) ? kWeight : kOther;
      case Op::kWhere:
        for (int i = 1; i < 3; ++i) {
          const bool replaces = role(i) == kMaximum && IsFiniteConst(u.src(3 - i));
          if (replaces && (role(0) == kMaximum || role(0) == kOfRow)) return kMaximum;
          // The weights of a row that has no visible score.
          const bool hides = role(i) == kWeight && IsFiniteConst(u.src(3 - i));
          if (hides && (role(0) == kMaximum || role(0) == kOfRow)) return kWeight;
        }
        break;
      case Op::kSub:
        if (role(0) == kElement && role(1) == kMaximum) return kDifference;
        break;
      case Op::kMul:
        for (int i = 0; i < 2; ++i) {
          const bool scaled = role(i) == kDifference && !u.src(i).is(Op::kMul);
          if (scaled && IsPositiveConst(u.src(1 - i))) return kDifference;
          if (role(i) == kWeight && of_row(1 - i)) return kWeight;
          // A value that is computed from the row's results is known only after the last block.
          const bool before = latest_[u.src(1 - i).id()] < maximum;
          if (role(i) == kWeight && role(1 - i) == kOther && before) return kTerm;
        }
        break;
      case Op::kFDiv:
        if (role(0) == kWeight && of_row(1)) return kWeight;
        break;
      case Op::kExp2:
        if (role(0) == kDifference) return kWeight;
        break;
      case Op::kReduce:
        // Of the exponentials as they are.
        if (u.reduce_kind() == ReduceKind::kAdd && IsOverLastAxis(u) && u.src(0).is(Op::kExp2)) {
          return role(0) == kWeight ? kOfRow : kOther;
        }
        return kOther;
      default:
        break;
    }
    if (!Is(u.op(), kAlu)) return kOther;
    for (int i = 0; i < u.num_src(); ++i) {
      const bool row = role(i) == kMaximum || role(i) == kOfRow;
      if (!row && !IsConst(u.src(i))) return kOther;
    }
    return kOfRow;
  }

  static bool IsConst(UOp u) {
    while (u.is(Op::kExpand) || u.is(Op::kReshape)) u = u.src(0);
    return u.is_const();
  }

  // A view that puts axes of size 1 in, or repeats the value along such.
  static bool KeepsLastAxis(UOp u) {
    if (u.is(Op::kDetach)) return true;
    const ShapeView from = u.src(0).shape(), to = u.shape();
    if (from.empty() || to.empty() || from.back() != to.back()) return false;
    return u.is(Op::kExpand) || HasSameAxes(u);
  }

  // Whether a view keeps all axes but those of size 1.
  static bool HasSameAxes(UOp u) {
    const ShapeView from = u.src(0).shape(), to = u.shape();
    std::vector<int64_t> before, after;
    std::ranges::copy_if(from, std::back_inserter(before), [](int64_t n) { return n != 1; });
    std::ranges::copy_if(to, std::back_inserter(after), [](int64_t n) { return n != 1; });
    return before == after;
  }

  void Put(UOp u, SoftmaxPart part) {
    parts_[u.id()] = part;
    const UOp maximum = graph_.at(part.maximum);
    const uint32_t scores = scores_[maximum.src(0).id()];
    if (u == maximum) {
      memory_[u.id()].push_back(scores);
      // Each score is one of a single softmax.
      if (!taken_.insert(scores).second) ended_.insert(u.id());
      for (const auto& [other, memory] : memory_) {
        if (other != u.id() && memory.front() == scores) ended_.insert(other);
      }
    }
    // All exponentials of a row have one shift and one scale.
    if (u.is(Op::kExp2) && exponential_.try_emplace(part.maximum, u.id()).first->second != u.id()) {
      ended_.insert(part.maximum);
    }
    if (!stored_.contains(u.id())) return;
    if (part.role == Role::kWeight) {
      memory_[part.maximum].push_back(u.id());
    } else {
      ended_.insert(part.maximum);  // it would be computed in a loop of its own
    }
  }

  const Graph& graph_;
  const absl::flat_hash_set<uint32_t>& stored_;
  std::vector<SoftmaxPart> parts_;  // by node
  std::vector<uint32_t> scores_;    // by node: the stored value that it is computed from
  std::vector<uint32_t> latest_;    // by node: of the maxima that it is computed from
  absl::flat_hash_map<uint32_t, uint32_t> exponential_;          // by maximum: the EXP2
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> memory_;  // by maximum: scores, weights
  absl::flat_hash_set<uint32_t> ended_, summed_;                 // maxima
  absl::flat_hash_set<uint32_t> taken_, read_;                   // scores
};

}  // namespace

ScoreRows FindScoreRows(const Graph& graph, std::span<const uint32_t> order,
                        const absl::flat_hash_set<uint32_t>& stored) {
  return ScoreFinder(graph, stored).Run(order);
}

}  // namespace telegrad
