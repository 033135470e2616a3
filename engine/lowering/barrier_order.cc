#include "engine/lowering/barrier_order.h"

#include <algorithm>

#include "engine/lowering/ranges.h"
#include "engine/lowering/thread_values.h"

namespace telegrad {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr int64_t kMostIterationsLater = 16;

bool IsBarrierOfWorkgroup(UOp u) {
  return u.is(Op::kBarrier) && (u.scope() == Scope::kWorkgroup || u.scope() == Scope::kCluster);
}

bool IsRangeOfLaunch(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kGroup) || IsType(u, AxisType::kThread));
}

bool IsThreadsLoop(UOp u) {
  return u.is(Op::kRange) && !IsRangeOfThreads(u) && !IsRangeOfLaunch(u);
}

}  // namespace

BarrierOrder::BarrierOrder(const Program& program) : program_(program) {
  ReadLoops();
  ReadBlocks();
}

void BarrierOrder::ReadLoops() {
  const Graph& g = *program_.graph;
  const ThreadValues values(program_);
  chains_.emplace_back();
  std::vector<uint32_t> open{0};
  chain_.assign(program_.order.size(), 0);
  for (size_t i = 0; i < program_.order.size(); ++i) {
    const UOp u = g.at(program_.order[i]);
    known_ &= !u.is(Op::kRole) && !u.is(Op::kMBarrier);
    chain_[i] = open.back();
    if (IsThreadsLoop(u)) {
      chains_.push_back(chains_[open.back()]);
      chains_.back().push_back(i);
      open.push_back(static_cast<uint32_t>(chains_.size() - 1));
      loops_[i] = {};
    } else if (IsBarrierOfWorkgroup(u)) {
      for (const size_t loop : chains_[open.back()]) loops_[loop].has_barrier = true;
    } else if (u.is(Op::kEnd) && open.size() > 1) {
      const size_t range = chains_[open.back()].back();
      if (u.src_ids()[0] != program_.order[range]) continue;
      Loop& loop = loops_[range];
      loop.end = i;
      known_ &= !loop.has_barrier || values.AreSame(u.src(0).src(0));
      open.pop_back();
    }
  }
  known_ &= open.size() == 1;
}

void BarrierOrder::ReadBlocks() {
  block_.assign(program_.order.size(), 0);
  for (size_t i = 0; i < program_.order.size(); ++i) {
    block_[i] = static_cast<uint32_t>(last_.size());
    const UOp u = program_.graph->at(program_.order[i]);
    const bool ends = u.is(Op::kEnd) && std::ranges::any_of(LoopsAround(i), [&](size_t loop) {
                        return loops_.at(loop).end == i;
                      });
    if (IsBarrierOfWorkgroup(u) || IsThreadsLoop(u) || ends || i + 1 == program_.order.size()) {
      last_.push_back(i);
    }
  }
}

void BarrierOrder::Leave(size_t block, size_t within, std::vector<size_t>* next) const {
  const size_t at = last_[block];
  const UOp u = program_.graph->at(program_.order[at]);
  if (IsBarrierOfWorkgroup(u)) return;
  if (block + 1 < last_.size()) next->push_back(block + 1);
  if (IsThreadsLoop(u)) {
    const bool whole = u.src(0).is_const() && u.src(0).const_word() > 0;
    const size_t behind = block_[loops_.at(at).end] + 1;
    if (!whole && behind < last_.size()) next->push_back(behind);
  } else if (u.is(Op::kEnd) && !LoopsAround(at).empty()) {
    const size_t loop = LoopsAround(at).back();
    if (loops_.at(loop).end != at) return;
    const bool closed =
        within != kNone && (loop == within || std::ranges::count(LoopsAround(within), loop) > 0);
    if (!closed) next->push_back(block_[loop] + 1);
  }
}

const BarrierOrder::Blocks& BarrierOrder::ReachedFrom(size_t block, bool its_end, size_t within) {
  const auto [it, first] = reached_.try_emplace({block, its_end, within});
  if (!first) return it->second;
  Blocks& reached = it->second;
  reached.assign(last_.size(), false);
  std::vector<size_t> stack, next;
  if (its_end) {
    Leave(block, within, &stack);
  } else if (block < last_.size()) {
    stack.push_back(block);
  }
  while (!stack.empty()) {
    const size_t at = stack.back();
    stack.pop_back();
    if (reached[at]) continue;
    reached[at] = true;
    ++work_;
    Leave(at, within, &stack);
  }
  return reached;
}

bool BarrierOrder::Reaches(size_t from, size_t to, size_t within) {
  if (block_[from] == block_[to] && from < to) return true;
  return ReachedFrom(block_[from], true, within)[block_[to]];
}

bool BarrierOrder::HeadReaches(size_t loop, size_t to) {
  return ReachedFrom(block_[loop] + 1, false, loop)[block_[to]];
}

std::vector<size_t> BarrierOrder::LoopsWithBarrier(size_t position) const {
  std::vector<size_t> out;
  std::ranges::copy_if(LoopsAround(position), std::back_inserter(out),
                       [&](size_t loop) { return loops_.at(loop).has_barrier; });
  return out;
}

// The first `same` loops around both are in the same iteration, and then one in the next, if
// `next`. Loops around one alone are left or entered.
Meeting BarrierOrder::Way(const Execution& a, const Execution& b, size_t same, bool next) {
  const std::vector<size_t> left = LoopsWithBarrier(a.end), entered = LoopsWithBarrier(b.begin);
  const auto id = [&](size_t loop) { return program_.order[loop]; };
  const auto later = [&](size_t loop) { return loop == LoopsAround(a.end).back() ? a.later : 0; };
  Meeting out;
  for (size_t i = 0; i < same; ++i) out.shifts.push_back({id(left[i]), later(left[i])});
  if (next) {
    const size_t loop = left[same++];
    if (!MayPassNone(loop)) out.shifts.push_back({id(loop), later(loop) + 1});
  }
  for (size_t i = same; i < entered.size(); ++i) {
    if (!MayPassNone(entered[i])) out.iterations.push_back({id(entered[i]), 0, true});
  }
  for (size_t i = same; i < left.size(); ++i) {
    const UOp number = program_.graph->at(id(left[i])).src(0);
    if (MayPassNone(left[i]) || !number.is_const()) continue;
    out.iterations.push_back({id(left[i]), number.const_word() - 1 - later(left[i]), false});
  }
  return out;
}

void BarrierOrder::AddWays(const Execution& a, const Execution& b, bool swapped,
                           std::vector<Meeting>* out) {
  const std::vector<size_t> left = LoopsWithBarrier(a.end), entered = LoopsWithBarrier(b.begin);
  const auto common = static_cast<size_t>(std::ranges::mismatch(left, entered).in1 - left.begin());
  const auto add = [&](Meeting way) {
    out->push_back(swapped ? Swapped(std::move(way)) : std::move(way));
  };
  if (Reaches(a.end, b.begin, common == 0 ? kNone : left[common - 1])) {
    add(Way(a, b, common, false));
  }
  for (size_t i = 0; i < common; ++i) {
    if (Reaches(a.end, loops_.at(left[i]).end, left[i]) && HeadReaches(left[i], b.begin)) {
      add(Way(a, b, i, true));
    }
  }
}

// All from its beginning to the WAIT is in the same iterations of all loops but the innermost one.
void BarrierOrder::AddUnderWay(const Execution& a, const Execution& b, bool swapped,
                               std::vector<Meeting>* out) {
  const std::span<const size_t> around = LoopsAround(a.begin), others = LoopsAround(b.begin);
  if (others.size() < around.size() || !std::ranges::equal(around, others.first(around.size()))) {
    return;
  }
  for (int64_t d = 0; d <= a.later; ++d) {
    if ((d == 0 && b.begin < a.begin) || (d == a.later && b.begin > a.end)) continue;
    Meeting m{.under_way = true, .itself = d == 0 && a.begin == b.begin};
    for (const size_t loop : around) {
      if (!loops_.at(loop).has_barrier) break;
      m.shifts.push_back({program_.order[loop], loop == around.back() ? d : 0});
    }
    out->push_back(swapped ? Swapped(std::move(m)) : std::move(m));
  }
}

Meeting BarrierOrder::Swapped(Meeting m) {
  for (Meeting::Shift& s : m.shifts) s.by = -s.by;
  for (Meeting::Iteration& i : m.iterations) i.of_b = !i.of_b;
  return m;
}

std::vector<Meeting> BarrierOrder::FindMeetings(const Execution& a, const Execution& b) {
  std::vector<Meeting> out;
  const bool under_way = a.asynchronous || b.asynchronous;
  const int64_t later = std::max(a.later, b.later);
  if (!known_ || !a.waited_for || !b.waited_for || later > kMostIterationsLater) {
    return {{.under_way = under_way}};
  }
  if (a.begin == b.begin && !under_way) {
    Meeting& m = out.emplace_back(Meeting{.itself = true});
    for (const size_t loop : LoopsWithBarrier(a.begin)) m.shifts.push_back({program_.order[loop]});
  }
  AddWays(a, b, false, &out);
  AddWays(b, a, true, &out);
  if (a.asynchronous) AddUnderWay(a, b, false, &out);
  if (b.asynchronous) AddUnderWay(b, a, true, &out);
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

const std::vector<Meeting>& BarrierOrder::Meetings(const Execution& a, const Execution& b) {
  uint8_t order = 0;
  for (const bool is : {a.asynchronous, b.asynchronous, a.waited_for, b.waited_for,
                        a.begin < b.begin, b.begin < a.begin, a.end < b.begin, b.end < a.begin}) {
    order = static_cast<uint8_t>(order << 1 | (is ? 1 : 0));
  }
  const auto [it, first] = meetings_.try_emplace(Key{
      {block_[a.begin], block_[a.end], block_[b.begin], block_[b.end]}, {a.later, b.later}, order});
  if (first) it->second = std::make_unique<std::vector<Meeting>>(FindMeetings(a, b));
  return *it->second;
}

}  // namespace telegrad
