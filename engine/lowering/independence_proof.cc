#include "engine/lowering/independence_proof.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "engine/base/status.h"
#include "engine/lowering/barrier_order.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/same_element.h"

namespace telegrad {
namespace {

constexpr int64_t kPairsBetweenLooks = 64;  // at the time

bool IsParallelRange(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kThread) || IsType(u, AxisType::kGroup) ||
                              IsType(u, AxisType::kLocal) || IsType(u, AxisType::kWarp));
}

struct Touch {
  UOp address;
  bool stores = false;
  std::vector<size_t> positions = {};  // in the order
  LinearForm form = {};
  int sum = 0;        // number of the form, but for its constant
  int64_t width = 1;  // elements from there on
};

enum class Outcome { kProved, kRepeated, kUnproved };

struct Verdict {
  Outcome outcome = Outcome::kUnproved;
  UOp range;            // that may differ
  bool within = false;  // it is one of the threads of one workgroup
};

// The accesses to a memory.
struct Touches {
  std::vector<Touch> all;
  bool asynchronous = false;  // some run beside the threads
};

bool IsRangeOfWorkgroup(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kLocal) || IsType(u, AxisType::kWarp));
}

class Independence {
 public:
  Independence(const Program& program, bool local, Budget* budget)
      : g_(*program.graph),
        program_(program),
        budget_(*budget),
        values_(g_),
        barriers_(program),
        local_(local) {}

  absl::StatusOr<IndependenceReport> Run() {
    TG_RETURN_IF_ERROR(Read());
    if (parallel_.empty()) return std::move(report_);
    for (const auto& [slot, touches] : arguments_) TG_RETURN_IF_ERROR(ProvePairs(touches, false));
    for (const auto& [memory, touches] : locals_) {
      if (touches.asynchronous) {
        ++report_.asynchronous_local;
      } else {
        TG_RETURN_IF_ERROR(ProvePairs(touches, true));
      }
    }
    return std::move(report_);
  }

 private:
  // The accesses, and how values are computed.
  absl::Status Read() {
    for (uint32_t id : program_.order) {
      const UOp u = g_.at(id);
      if (u.is(Op::kStore) && Memory(u.src(0)).is(Op::kParam)) {
        arguments_.try_emplace(Memory(u.src(0)).arg(0));
      }
    }
    for (size_t i = 0; i < program_.order.size(); ++i) {
      const UOp u = g_.at(program_.order[i]);
      TG_RETURN_IF_ERROR(budget_.SpendSteps());
      ReadValue(u);
      if (IsParallelRange(u) && SizeOf(u) > 1) parallel_.push_back(u);
      if (u.is(Op::kStore) || u.is(Op::kLoad) || u.is(Op::kLoadMatrix)) {
        const int64_t width = u.is(Op::kLoadMatrix) ? kMatrixRows : 1;
        AddTouch({.address = u.src(0), .stores = u.is(Op::kStore), .width = width}, i);
      } else if (u.is(Op::kCopyAsync) || u.is(Op::kMmaAsync)) {
        for (const int k : {0, 1}) AddTouch({.address = u.src(k), .width = kAnyWidth}, i);
      }
    }
    return absl::OkStatus();
  }

  void ReadValue(UOp u) {
    const auto all = [&](const NodeMap<bool>& map) {
      return std::ranges::all_of(u.src_ids(), [&](uint32_t s) { return map.at(s); });
    };
    bool pure = false, uniform = false;
    if (u.is_const() || u.is(Op::kVar) || u.is(Op::kParam)) {
      pure = uniform = true;
    } else if (u.is(Op::kIota) || u.is(Op::kRange)) {
      pure = true;
    } else if (u.is(Op::kLoad)) {
      const UOp memory = Memory(u.src(0));
      const bool kept = memory.is(Op::kParam) && !arguments_.contains(memory.arg(0));
      pure = kept && all(values_.pure);
      uniform = kept && all(values_.uniform);
    } else if (Is(u.op(), kAlu) || u.is(Op::kIndex)) {
      pure = all(values_.pure);
      uniform = all(values_.uniform);
    }
    values_.pure[u] = pure;
    values_.uniform[u] = uniform;
  }

  Touches* TouchesOf(UOp memory) {
    if (memory.is(Op::kParam)) {
      const auto at = arguments_.find(memory.arg(0));
      return at == arguments_.end() ? nullptr : &at->second;
    }
    const bool shared =
        memory.is(Op::kBuffer) && memory.arg(0) == static_cast<int64_t>(AddressSpace::kLocal);
    return shared && local_ ? &locals_[memory.id()] : nullptr;
  }

  void AddTouch(Touch touch, size_t position) {
    Touches* const touches = TouchesOf(Memory(touch.address));
    if (touches == nullptr) return;
    touches->asynchronous |= touch.width == kAnyWidth;
    for (Touch& t : touches->all) {
      if (t.address != touch.address || t.stores != touch.stores) continue;
      t.width = std::max(t.width, touch.width);
      t.positions.push_back(position);
      return;
    }
    touch.positions.push_back(position);
    touch.form = FormOf(touch.address.src(1));
    LinearForm sum = touch.form;
    sum.constant = 0;
    touch.sum = sums_.try_emplace(sum.terms, static_cast<int>(sums_.size())).first->second;
    touches->all.push_back(std::move(touch));
  }

  absl::Status ProvePairs(const Touches& touches, bool local) {
    int64_t pairs = 0;
    for (size_t i = 0; i < touches.all.size(); ++i) {
      for (size_t k = i; k < touches.all.size(); ++k) {
        const Touch* a = &touches.all[i];
        const Touch* b = &touches.all[k];
        if (!a->stores && !b->stores) continue;
        if (!a->stores) std::swap(a, b);
        TG_RETURN_IF_ERROR(budget_.SpendSteps());
        if (++pairs % kPairsBetweenLooks == 0) TG_RETURN_IF_ERROR(budget_.CheckTime());
        Count(*a, *b, local);
        TG_RETURN_IF_ERROR(budget_.SpendSteps(std::exchange(work_, 0)));
      }
    }
    return absl::OkStatus();
  }

  void Count(const Touch& a, const Touch& b, bool local) {
    if (local && Separated(a, b)) {
      ++report_.ordered;
      return;
    }
    const Verdict verdict = Decide(a, b, local);
    if (verdict.outcome == Outcome::kProved) {
      ++(local ? report_.proved_local : report_.proved);
    } else if (verdict.outcome == Outcome::kRepeated) {
      ++report_.repeated;
    } else if (!local && verdict.within && Separated(a, b)) {
      ++report_.ordered;
    } else {
      (local ? report_.unproved_local : report_.unproved)
          .push_back({a.address, b.address, verdict.range, b.stores});
    }
  }

  bool Separated(const Touch& a, const Touch& b) {
    return std::ranges::all_of(a.positions, [&](size_t i) {
      return std::ranges::all_of(b.positions, [&](size_t k) { return barriers_.Separates(i, k); });
    });
  }

  // By the indices alone, if that suffices, which many pairs have in common; then by their gates,
  // too.
  Verdict Decide(const Touch& a, const Touch& b, bool local) {
    const auto key = std::tuple(a.sum, b.sum, a.form.constant - b.form.constant, b.stores,
                                Memory(a.address).id(), std::max(a.width, b.width));
    const auto [at, first] = known_.try_emplace(key);
    if (first) at->second = Solve(a, b, local, false, false);
    if (at->second.outcome == Outcome::kProved) return at->second;
    Verdict best = at->second;
    for (const bool thorough : {false, true}) {
      if (a.address.num_src() == 2 && b.address.num_src() == 2) break;
      const Verdict verdict = Solve(a, b, local, true, thorough);
      if (verdict.outcome == Outcome::kProved) return verdict;
      if (verdict.outcome == Outcome::kRepeated || verdict.within) best = verdict;
    }
    return best;
  }

  static UOp GateOf(UOp address) { return address.num_src() == 3 ? address.src(2) : UOp(); }

  GatedBounds& BoundsUnder(UOp gate, bool thorough) {
    const auto key = std::pair(gate.valid() ? static_cast<int64_t>(gate.id()) : -1, thorough);
    std::unique_ptr<GatedBounds>& bounds = bounds_[key];
    if (bounds == nullptr) {
      bounds = std::make_unique<GatedBounds>(g_, gate);
      if (thorough) bounds->SetThorough();
    }
    bounds->Restart();
    return *bounds;
  }

  Verdict Solve(const Touch& a, const Touch& b, bool local, bool gated, bool thorough) {
    GatedBounds& in_a = BoundsUnder(gated ? GateOf(a.address) : UOp(), thorough);
    GatedBounds& in_b = BoundsUnder(gated ? GateOf(b.address) : UOp(), thorough);
    SameElement same(g_, values_, &in_a, &in_b);
    for (const UOp range : parallel_) {
      if (local && !IsRangeOfWorkgroup(range)) same.Assume(range);
    }
    if (gated) {
      for (const auto& [u, c] : GatedValues(a.address)) {
        const WideBounds x = ValueOf(in_a, u, c), y = ValueOf(in_b, u, c);
        if (x.lo == x.hi && y.lo == x.lo && y.hi == x.lo) same.Assume(u);
      }
    }
    const DType dtype = Memory(a.address).dtype();
    const int64_t together = IsPacked(dtype) ? 8 / Info(dtype).bits : 1;
    const int64_t width = together - 1 + std::max(a.width, b.width);
    const int bits =
        std::min(Info(a.address.src(1).dtype()).bits, Info(b.address.src(1).dtype()).bits);
    same.Solve(a.form, b.form, width, bits);
    work_ += same.work() + in_a.work();
    if (same.never()) return {Outcome::kProved, {}};
    UOp differs = FirstThatDiffers(same);
    if (!differs.valid()) return {Outcome::kProved, {}};
    Verdict verdict{.range = differs, .within = std::ranges::all_of(parallel_, [&](UOp r) {
                                        return IsRangeOfWorkgroup(r) || same.IsSame(r);
                                      })};
    if (b.stores && IsType(differs, AxisType::kThread) && same.AssumeRepeated()) {
      differs = FirstThatDiffers(same);
      if (!differs.valid()) verdict.outcome = Outcome::kRepeated;
    }
    return verdict;
  }

  UOp FirstThatDiffers(const SameElement& same) const {
    const auto at = std::ranges::find_if_not(parallel_, [&](UOp r) { return same.IsSame(r); });
    return at == parallel_.end() ? UOp() : *at;
  }

  // What comparisons in the gate are about, with coefficients.
  std::vector<std::pair<UOp, int64_t>> GatedValues(UOp address) const {
    std::vector<std::pair<UOp, int64_t>> values;
    std::vector<UOp> stack{GateOf(address)};
    while (!stack.empty() && values.size() < kMaxGatedValues) {
      const UOp u = stack.back();
      stack.pop_back();
      if (!u.valid()) continue;
      if (u.is(Op::kAnd)) {
        stack.push_back(u.src(0));
        stack.push_back(u.src(1));
      } else if (u.is(Op::kCmpLt) || u.is(Op::kCmpEq)) {
        for (const uint32_t s : u.src_ids()) {
          for (const auto& [atom, c] : FormOf(g_.at(s)).terms) values.emplace_back(g_.at(atom), c);
        }
      }
    }
    return values;
  }

  // Of c * u, divided by c.
  static WideBounds ValueOf(GatedBounds& gated, UOp u, int64_t c) {
    LinearForm form;
    form.terms[u.id()] = std::abs(c);
    const WideBounds bounds = gated.Integer(form);
    const Int128 by = std::abs(c);
    const auto floor = [&](Int128 x) { return x / by - (x % by < 0 ? 1 : 0); };
    return {-floor(-bounds.lo), floor(bounds.hi)};
  }

  static constexpr size_t kMaxGatedValues = 64;
  static constexpr int64_t kAnyWidth = int64_t{1} << 48;

  const Graph& g_;
  const Program& program_;
  Budget& budget_;
  ProgramValues values_;
  std::vector<UOp> parallel_;
  std::map<int64_t, Touches> arguments_;  // by slot: those that are stored to
  std::map<uint32_t, Touches> locals_;
  std::map<std::map<uint32_t, int64_t>, int> sums_;
  std::map<std::tuple<int, int, int64_t, bool, uint32_t, int64_t>, Verdict> known_;
  std::map<std::pair<int64_t, bool>, std::unique_ptr<GatedBounds>> bounds_;
  BarrierOrder barriers_;
  const bool local_;
  IndependenceReport report_;
  int64_t work_ = 0;
};

}  // namespace

absl::StatusOr<IndependenceReport> ProveIndependence(const Program& program, Budget* budget,
                                                     bool local) {
  const Budget::Doing doing(budget, "proving that parallel iterations are independent");
  return Independence(program, local, budget).Run();
}

}  // namespace telegrad
