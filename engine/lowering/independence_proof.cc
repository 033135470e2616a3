#include "engine/lowering/independence_proof.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/lowering/evaluated_accesses.h"
#include "engine/lowering/program_accesses.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/repeated_values.h"
#include "engine/lowering/same_element.h"

namespace telegrad {
namespace {

constexpr int64_t kPairsBetweenLooks = 64;  // at the time

enum class Outcome { kProved, kRepeated, kUnproved };

// Where elements are repeated: what of both indices may differ, in parts, and the RANGEs, quotients
// and rests that have the same value in both, and that have it at the same position.
struct Repeat {
  std::vector<LinearForm> of_a, of_b;
  absl::flat_hash_set<uint32_t> same, at_position;
};

struct Verdict {
  Outcome outcome = Outcome::kUnproved;
  UOp range;            // that may differ
  bool within = false;  // it is one of the threads of one workgroup
  std::shared_ptr<const Repeat> repeat = {};
};

// Accesses of which the indices differ by constants alone, as those of an unrolled loop do.
struct Family {
  std::vector<const Touch*> all;
  int64_t least = INT64_MAX, most = INT64_MIN, width = 1;  // of the constants
};

class Independence {
 public:
  Independence(const Program& program, Budget* budget)
      : g_(*program.graph), program_(program), budget_(*budget), accesses_(program) {}

  absl::StatusOr<IndependenceReport> Run(bool local) {
    TG_RETURN_IF_ERROR(accesses_.Read(&budget_));
    evaluated_.emplace(g_, parallel());
    if (!parallel().empty()) {
      for (const auto& [slot, touches] : accesses_.arguments()) {
        TG_RETURN_IF_ERROR(ProveFamilies(touches, false));
      }
    }
    if (!local) return std::move(report_);
    for (const auto& [memory, touches] : accesses_.locals()) {
      TG_RETURN_IF_ERROR(ProveFamilies(touches, true));
    }
    return std::move(report_);
  }

 private:
  const std::vector<UOp>& parallel() const { return accesses_.parallel(); }

  static std::vector<Family> FamiliesOf(const ProgramAccesses::Touches& touches) {
    std::map<std::tuple<int, bool, int, bool>, size_t> numbers;
    std::vector<Family> out;
    for (const Touch& touch : touches) {
      const auto [at, first] = numbers.try_emplace(
          {touch.sum, touch.stores, touch.loops, touch.asynchronous}, out.size());
      if (first) out.emplace_back();
      Family& family = out[at->second];
      family.all.push_back(&touch);
      family.least = std::min(family.least, touch.form.constant);
      family.most = std::max(family.most, touch.form.constant);
      family.width = std::max(family.width, touch.width);
    }
    return out;
  }

  absl::Status ProveFamilies(const ProgramAccesses::Touches& touches, bool local) {
    const std::vector<Family> families = FamiliesOf(touches);
    for (size_t i = 0; i < families.size(); ++i) {
      for (size_t k = i; k < families.size(); ++k) {
        const Family &x = families[i], &y = families[k];
        if (!x.all[0]->stores && !y.all[0]->stores) continue;
        const bool together = local ? MeetApart(x, y) : AreApart(x, y);
        TG_RETURN_IF_ERROR(budget_.SpendSteps(1 + std::exchange(work_, 0)));
        if (together) {
          const auto n = std::ssize(x.all);
          (local ? report_.proved_local : report_.proved) +=
              i == k ? n * (n + 1) / 2 : n * std::ssize(y.all);
          continue;
        }
        for (size_t a = 0; a < x.all.size(); ++a) {
          for (size_t b = i == k ? a : 0; b < y.all.size(); ++b) {
            TG_RETURN_IF_ERROR(ProvePair(*x.all[a], *y.all[b], local));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  static bool AreOfThreads(const Family& x, const Family& y) {
    const auto asynchronous = [](const Touch* t) { return t->asynchronous; };
    return std::ranges::none_of(x.all, asynchronous) && std::ranges::none_of(y.all, asynchronous);
  }

  // As if each access of them touched all elements between the least and the most.
  bool AreApart(const Family& x, const Family& y) {
    if (x.all.size() == 1 && y.all.size() == 1) return false;
    if (!AreOfThreads(x, y)) return false;
    SameElement same = Of(x, y);
    same.Solve(FormOf(x), FormOf(y), NearOf(x, y), BitsOf(*x.all[0], *y.all[0]));
    work_ += same.work();
    return same.never() || !FirstThatDiffers(same).valid();
  }

  // So, in all ways in which any two of them meet. What runs beside a thread must not meet what the
  // same thread does either.
  bool MeetApart(const Family& x, const Family& y) {
    if (x.all.size() == 1 && y.all.size() == 1) return false;
    if (&x == &y && x.all[0]->asynchronous) return false;  // each meets itself
    Ways ways;
    for (const Touch* a : x.all) {
      for (const Touch* b : y.all) AddMeetings(*a, *b, &ways);
    }
    const std::vector<Meeting> meetings = AllOf(ways);
    return std::ranges::all_of(meetings, [&](const Meeting& meeting) {
      SameElement same = Of(x, y);
      AssumeIterations(meeting, &same);
      const auto cases = same.InIterations(meeting, FormOf(x), FormOf(y));
      work_ += same.work();
      return std::ranges::all_of(cases, [&](const auto& forms) {
        SameElement in_case = same;
        in_case.Solve(forms.first, forms.second, NearOf(x, y), BitsOf(*x.all[0], *y.all[0]));
        work_ += in_case.work() - same.work();
        return in_case.never() || (!meeting.under_way && !FirstThatDiffers(in_case).valid());
      });
    });
  }

  SameElement Of(const Family& x, const Family& y) {
    GatedBounds &in_a = BoundsUnder(UOp(), x.all[0]->loops, false),
                &in_b = BoundsUnder(UOp(), y.all[0]->loops, false);
    work_ += 1;
    return SameElement(g_, accesses_.values(), &in_a, &in_b);
  }
  static LinearForm FormOf(const Family& x) {
    LinearForm form = x.all[0]->form;
    form.constant = x.least;
    return form;
  }
  static WideBounds NearOf(const Family& x, const Family& y) {
    const int64_t together = Together(*x.all[0]);
    return {Int128{y.least} - y.most + 2 - together - y.width,
            Int128{x.most} - x.least + together - 2 + x.width};
  }
  void AssumeIterations(const Meeting& meeting, SameElement* same) const {
    for (const UOp range : parallel()) {
      if (!IsRangeOfThreads(range)) same->Assume(range);
    }
    for (const Meeting::Shift& s : meeting.shifts) {
      if (s.by == 0) same->Assume(g_.at(s.range));
    }
  }

  // Elements of less than a byte that share one.
  static int64_t Together(const Touch& a) {
    const DType dtype = Memory(a.address).dtype();
    return IsPacked(dtype) ? 8 / Info(dtype).bits : 1;
  }
  static int BitsOf(const Touch& a, const Touch& b) {
    return std::min(Info(a.address.src(1).dtype()).bits, Info(b.address.src(1).dtype()).bits);
  }

  absl::Status ProvePair(const Touch& x, const Touch& y, bool local) {
    if (!x.stores && !y.stores) return absl::OkStatus();
    const Touch &a = x.stores ? x : y, &b = x.stores ? y : x;
    TG_RETURN_IF_ERROR(budget_.SpendSteps());
    if (++pairs_ % kPairsBetweenLooks == 0) TG_RETURN_IF_ERROR(budget_.CheckTime());
    local ? CountLocal(a, b) : Count(a, b);
    return budget_.SpendSteps(std::exchange(work_, 0));
  }

  // What runs beside the threads is not followed in arguments.
  void Count(const Touch& a, const Touch& b) {
    if (a.asynchronous || b.asynchronous) {
      report_.unproved.push_back({a.address, b.address, {}, b.stores});
      return;
    }
    const Verdict verdict = Decide(a, b, nullptr);
    if (verdict.outcome == Outcome::kProved) {
      ++report_.proved;
    } else if (verdict.outcome == Outcome::kRepeated) {
      ++report_.repeated;
      // Where one is not shown, others of the kernel are not, and looking at all takes long.
      const bool shown = report_.declared == 0 && StoreEqualValues(a, b, verdict);
      report_.declared += shown ? 0 : 1;
    } else if (verdict.within && MeetingsOf(a, b).empty()) {
      ++report_.ordered;
    } else if (AreApart(a, b, {})) {
      ++report_.proved;
    } else {
      report_.unproved.push_back({a.address, b.address, verdict.range, b.stores});
    }
  }

  // What both store, if each does it once; else the earlier values of one may come last.
  bool StoreEqualValues(const Touch& a, const Touch& b, const Verdict& verdict) {
    if (!values_) {
      absl::flat_hash_set<int64_t> stored;
      for (const auto& [slot, touches] : accesses_.arguments()) stored.insert(slot);
      values_.emplace(program_, &accesses_.barriers(), std::move(stored));
    }
    const auto once = [&](const Execution& e) {
      return std::ranges::all_of(accesses_.barriers().LoopsAround(e.begin), [&](size_t loop) {
        return verdict.repeat->at_position.contains(program_.order[loop]);
      });
    };
    if (verdict.repeat == nullptr || !std::ranges::all_of(a.executions, once) ||
        !std::ranges::all_of(b.executions, once)) {
      return false;
    }
    const int64_t before = values_->work();
    bool equal = true;
    for (const Execution& x : a.executions) {
      for (const Execution& y : b.executions) {
        equal = equal && values_->Equal({x.begin, verdict.repeat->of_a},
                                        {y.begin, verdict.repeat->of_b}, verdict.repeat->same);
      }
    }
    work_ += values_->work() - before;
    return equal;
  }

  // The RANGEs, and quotients and rests, that have the same value in both executions.
  absl::flat_hash_set<uint32_t> SameNumbers(const SameElement& same) const {
    absl::flat_hash_set<uint32_t> out;
    for (const uint32_t id : program_.order) {
      const UOp u = g_.at(id);
      const bool one = u.is(Op::kRange) && u.src(0).is_const() && SizeOf(u) <= 1;
      if (one || (u.is(Op::kRange) && same.IsSame(u)) || (IsDivision(u) && same.IsFixed(u))) {
        out.insert(id);
      }
    }
    return out;
  }

  // The position of both in each part of their indices, constants included; false where these are
  // not as far apart as the parts.
  static bool AddPositions(const LinearForm& x, const LinearForm& y,
                           std::span<const SameElement::Part> parts, Repeat* out) {
    int64_t in_x = x.constant, in_y = y.constant;
    for (const SameElement::Part& part : parts) {
      out->of_a.push_back(part.a);
      out->of_b.push_back(part.b);
      // Of the constants, a part has multiples of its step, and the last one what is left.
      const int64_t step = &part == &parts.back() ? 1 : std::gcd(part.a.Gcd(), part.b.Gcd());
      if (step == 0) return false;
      const auto take = [&](int64_t* left) {
        const int64_t taken = *left - (*left % step + step) % step;
        *left -= taken;
        return taken;
      };
      out->of_a.back().constant = take(&in_x);
      out->of_b.back().constant = take(&in_y);
      if (part.difference + out->of_a.back().constant != out->of_b.back().constant) return false;
    }
    return true;
  }

  // In every way in which two threads of a workgroup may be there at the same time.
  void CountLocal(const Touch& a, const Touch& b) {
    const std::vector<Meeting> meetings = MeetingsOf(a, b);
    for (const Meeting& meeting : meetings) {
      const Verdict verdict = Decide(a, b, &meeting);
      if (verdict.outcome == Outcome::kProved || MeetApart(a, b, meeting)) continue;
      report_.unproved_local.push_back({a.address, b.address, verdict.range, b.stores});
      return;
    }
    ++(meetings.empty() ? report_.ordered : report_.proved_local);
  }

  // What their forms do not say, their elements may.
  bool AreApart(const Touch& a, const Touch& b, const EvaluatedAccesses::Iterations& iterations,
                bool any_thread = false) {
    const int64_t before = evaluated_->work();
    const bool apart = evaluated_->Apart({a.address, a.width}, {b.address, b.width}, iterations,
                                         Together(a), any_thread);
    work_ += evaluated_->work() - before;
    return apart;
  }
  // What runs beside a thread does not meet itself, but whatever else the thread does.
  bool MeetApart(const Touch& a, const Touch& b, const Meeting& meeting) {
    EvaluatedAccesses::Iterations iterations;
    for (const UOp range : parallel()) {
      if (!IsRangeOfThreads(range)) iterations.later.emplace_back(range, 0);
    }
    for (const Meeting::Shift& s : meeting.shifts) {
      iterations.later.emplace_back(g_.at(s.range), s.by);
    }
    for (const Meeting::Iteration& i : meeting.iterations) {
      (i.of_b ? iterations.of_b : iterations.of_a).emplace_back(g_.at(i.range), i.number);
    }
    const auto is_same = [&](UOp range) {
      return std::ranges::count(iterations.later, std::pair(range, int64_t{0})) > 0;
    };
    return AreApart(a, b, iterations, meeting.under_way && !IsOneExecution(a, meeting, is_same));
  }

  using Ways = absl::flat_hash_set<const std::vector<Meeting>*>;
  void AddMeetings(const Touch& a, const Touch& b, Ways* out) {
    BarrierOrder& barriers = accesses_.barriers();
    const int64_t before = barriers.work();
    for (const Execution& x : a.executions) {
      for (const Execution& y : b.executions) out->insert(&barriers.Meetings(x, y));
    }
    work_ += barriers.work() - before;
  }
  static std::vector<Meeting> AllOf(const Ways& ways) {
    std::vector<Meeting> out;
    for (const std::vector<Meeting>* way : ways) out.insert(out.end(), way->begin(), way->end());
    std::ranges::sort(out);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  }
  std::vector<Meeting> MeetingsOf(const Touch& a, const Touch& b) {
    Ways ways;
    AddMeetings(a, b, &ways);
    return AllOf(ways);
  }

  // By the indices alone, if that suffices, which many pairs have in common; then by their gates,
  // too. With a meeting, of memory that a workgroup shares.
  Verdict Decide(const Touch& a, const Touch& b, const Meeting* meeting) {
    const int number = meeting == nullptr ? -1 : NumberOf(*meeting);
    const auto key = std::tuple(std::pair(a.sum, a.loops), std::pair(b.sum, b.loops),
                                a.form.constant - b.form.constant, b.stores, Memory(a.address).id(),
                                a.width, b.width, number);
    const auto [at, first] = known_.try_emplace(key);
    if (first) at->second = Solve(a, b, meeting, false, false);
    Verdict best = at->second;
    if (best.outcome == Outcome::kProved) return best;
    for (const bool thorough : {false, true}) {
      if (!HasConditions(a) && !HasConditions(b)) break;
      const Verdict verdict = Solve(a, b, meeting, true, thorough);
      if (verdict.outcome == Outcome::kProved) return verdict;
      if (verdict.outcome == Outcome::kRepeated || verdict.within) best = verdict;
    }
    return best;
  }

  // The meetings of one pair are mostly those of the pair before.
  int NumberOf(const Meeting& meeting) {
    for (const auto& [known, number] : last_meetings_) {
      if (known == meeting) return number;
    }
    const auto next = static_cast<int>(meetings_.size());
    const int number = meetings_.try_emplace(meeting, next).first->second;
    if (last_meetings_.size() == kLastMeetings) last_meetings_.clear();
    last_meetings_.emplace_back(meeting, number);
    return number;
  }

  static UOp GateOf(UOp address) { return address.num_src() == 3 ? address.src(2) : UOp(); }

  static bool HasConditions(const Touch& a) { return GateOf(a.address).valid() || a.loops != 0; }

  GatedBounds& BoundsUnder(UOp gate, int loops, bool thorough) {
    const auto key =
        std::tuple(gate.valid() ? static_cast<int64_t>(gate.id()) : -1, loops, thorough);
    std::unique_ptr<GatedBounds>& bounds = bounds_[key];
    if (bounds == nullptr) {
      bounds = std::make_unique<GatedBounds>(g_, gate, accesses_.LoopsOf(loops));
      if (thorough) bounds->SetThorough();
      work_ += bounds->work();
    }
    bounds->Restart();
    return *bounds;
  }

  Verdict Solve(const Touch& a, const Touch& b, const Meeting* meeting, bool gated, bool thorough) {
    GatedBounds& in_a = BoundsUnder(gated ? GateOf(a.address) : UOp(), a.loops, thorough);
    GatedBounds& in_b = BoundsUnder(gated ? GateOf(b.address) : UOp(), b.loops, thorough);
    SameElement same(g_, accesses_.values(), &in_a, &in_b);
    if (gated) {
      for (const auto& [u, c] : GatedValues(a.address)) {
        const WideBounds x = ValueOf(in_a, u, c), y = ValueOf(in_b, u, c);
        if (x.lo == x.hi && y.lo == x.lo && y.hi == x.lo) same.Assume(u);
      }
      for (const LinearForm& sum : EqualSums(a, b)) same.AssumeZero(sum);
    }
    Verdict verdict;
    if (meeting == nullptr) {
      verdict = SolveForms(a, b, a.form, b.form, nullptr, &same);
    } else {
      AssumeIterations(*meeting, &same);
      verdict.outcome = Outcome::kProved;
      for (const auto& [x, y] : same.InIterations(*meeting, a.form, b.form)) {
        SameElement in_case = same;
        const Verdict one = SolveForms(a, b, x, y, meeting, &in_case);
        if (one.outcome != Outcome::kProved) verdict = one;
        work_ -= same.work();  // counted below
      }
      work_ += same.work();
    }
    work_ += in_a.work();
    return verdict;
  }

  Verdict SolveForms(const Touch& a, const Touch& b, const LinearForm& x, const LinearForm& y,
                     const Meeting* meeting, SameElement* same) {
    const int64_t together = Together(a);
    const WideBounds near{2 - together - b.width, together - 2 + a.width};
    same->Solve(x, y, near, BitsOf(a, b));
    work_ += same->work();
    if (same->never()) return {Outcome::kProved, {}};
    UOp differs = FirstThatDiffers(*same);
    if (!differs.valid()) {
      const bool apart =
          meeting == nullptr || !meeting->under_way ||
          IsOneExecution(a, *meeting, [&](UOp range) { return same->IsSame(range); });
      return {apart ? Outcome::kProved : Outcome::kUnproved, {}};
    }
    Verdict verdict{.range = differs, .within = std::ranges::all_of(parallel(), [&](UOp r) {
                                        return IsRangeOfThreads(r) || same->IsSame(r);
                                      })};
    if (meeting != nullptr || !b.stores || !IsType(differs, AxisType::kThread) ||
        !same->MayRepeat()) {
      return verdict;
    }
    const auto repeat = std::make_shared<Repeat>();
    bool known = report_.declared == 0 && near.lo == 0 && near.hi == 0;
    if (known) {
      const auto parts = same->PartsThatDiffer(x, y, near, BitsOf(a, b));
      known = parts && AddPositions(x, y, *parts, repeat.get());
    }
    if (known) repeat->same = SameNumbers(*same);
    if (!same->AssumeRepeated() || FirstThatDiffers(*same).valid()) return verdict;
    verdict.outcome = Outcome::kRepeated;
    if (known) {
      repeat->at_position = SameNumbers(*same);
      verdict.repeat = repeat;
    }
    return verdict;
  }

  // Of one thread: what runs beside it does not meet itself.
  template <typename IsSame>
  bool IsOneExecution(const Touch& a, const Meeting& meeting, const IsSame& is_same) {
    if (!meeting.itself) return false;
    return std::ranges::all_of(a.executions, [&](const Execution& e) {
      return std::ranges::all_of(accesses_.barriers().LoopsAround(e.begin),
                                 [&](size_t loop) { return is_same(g_.at(program_.order[loop])); });
    });
  }

  UOp FirstThatDiffers(const SameElement& same) const {
    const auto at = std::ranges::find_if_not(parallel(), [&](UOp r) { return same.IsSame(r); });
    return at == parallel().end() ? UOp() : *at;
  }

  // What is 0 where both are executed: where a loop is entered only if a range is a number.
  std::vector<LinearForm> EqualSums(const Touch& a, const Touch& b) const {
    std::vector<LinearForm> sums;
    for (const UOp range : accesses_.LoopsOf(a.loops)) {
      const std::vector<UOp>& others = accesses_.LoopsOf(b.loops);
      const UOp end = range.src(0);
      if (std::ranges::find(others, range) == others.end() || !end.is(Op::kWhere)) continue;
      const UOp condition = end.src(0);
      LinearForm sum;
      if (condition.is(Op::kCmpEq) && end.src(2).is_const() && end.src(2).const_word() <= 0 &&
          IsInt(condition.src(0).dtype()) && sum.Add(condition.src(0), 1) &&
          sum.Add(condition.src(1), -1)) {
        sums.push_back(std::move(sum));
      }
    }
    return sums;
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
          for (const auto& [atom, c] : telegrad::FormOf(g_.at(s)).terms)
            values.emplace_back(g_.at(atom), c);
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

  const Graph& g_;
  const Program& program_;
  Budget& budget_;
  ProgramAccesses accesses_;
  using PairKey = std::tuple<std::pair<int, int>, std::pair<int, int>, int64_t, bool, uint32_t,
                             int64_t, int64_t, int>;
  absl::flat_hash_map<PairKey, Verdict> known_;
  std::map<Meeting, int> meetings_;
  static constexpr size_t kLastMeetings = 8;
  std::vector<std::pair<Meeting, int>> last_meetings_;
  std::map<std::tuple<int64_t, int, bool>, std::unique_ptr<GatedBounds>> bounds_;
  std::optional<EvaluatedAccesses> evaluated_;
  std::optional<RepeatedValues> values_;
  IndependenceReport report_;
  int64_t pairs_ = 0;
  int64_t work_ = 0;
};

}  // namespace

absl::StatusOr<IndependenceReport> ProveIndependence(const Program& program, Budget* budget,
                                                     bool local) {
  const Budget::Doing doing(budget, "proving that parallel iterations are independent");
  return Independence(program, budget).Run(local);
}

}  // namespace telegrad
