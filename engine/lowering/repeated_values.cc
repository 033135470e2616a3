#include "engine/lowering/repeated_values.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int kMaxValueDepth = 64;
constexpr int64_t kMaxValueSteps = 4096;  // of one value: nodes and forms
// What begins an expression, beside ops.
enum Begins : int64_t { kOp = 0, kSum, kLeaf, kLoaded, kElement, kOuter, kStored, kLoops };

bool IsRegister(UOp memory) {
  return memory.is(Op::kBuffer) && memory.space() == AddressSpace::kRegister;
}

// The lanes of a place in registers are those of the value, and all else is a constant.
bool IsConstantPlace(const LinearForm& form, const Graph& g) {
  return std::ranges::all_of(form.terms,
                             [&](const auto& term) { return g.at(term.first).is(Op::kIota); });
}

// Elements from the least to the greatest one of a constant place.
WideBounds ElementsOf(const LinearForm& form, const Graph& g) {
  WideBounds out{form.constant, form.constant};
  for (const auto& [atom, c] : form.terms) {
    out = out + WideBounds{0, NumElements(g.at(atom).shape()) - 1} * c;
  }
  return out;
}

bool IsOfOneLane(UOp u) { return u.is(Op::kReshape) && NumElements(u.src(0).shape()) == 1; }

}  // namespace

RepeatedValues::RepeatedValues(const Program& program, BarrierOrder* barriers,
                               absl::flat_hash_set<int64_t> stored)
    : program_(program), g_(*program.graph), barriers_(*barriers), stored_(std::move(stored)) {
  for (size_t i = 0; i < program.order.size(); ++i) {
    const UOp u = g_.at(program.order[i]);
    positions_[u.id()] = i;
    if (!u.is(Op::kStore) && !u.is(Op::kLoad)) continue;
    const UOp memory = Memory(u.src(0));
    if (!IsRegister(memory)) continue;
    if (u.is(Op::kStore)) registers_[memory.id()].push_back(i);
    if (!IsConstantPlace(FormOf(u.src(0).src(1)), g_)) by_ranges_.insert(memory.id());
  }
}

bool RepeatedValues::Equal(const Store& a, const Store& b,
                           const absl::flat_hash_set<uint32_t>& same) {
  const Value value = Write(a, same);
  return value != kNone && value == Write(b, same);
}

RepeatedValues::Value RepeatedValues::Write(const Store& store,
                                            const absl::flat_hash_set<uint32_t>& same) {
  std::vector<int64_t> key{static_cast<int64_t>(store.at)};
  for (const LinearForm& part : store.position) {
    key.insert(key.end(), {std::ssize(part.terms), part.constant});
    for (const auto& [atom, c] : part.terms) key.insert(key.end(), {atom, c});
  }
  key.push_back(kLoops);
  std::vector<uint32_t> ranges(same.begin(), same.end());
  std::ranges::sort(ranges);
  key.insert(key.end(), ranges.begin(), ranges.end());
  ++work_;
  const auto [written, first] = written_.try_emplace(std::move(key), kNone);
  if (!first) return written->second;
  Writing w{.store = store, .same = same, .loops = barriers_.LoopsAround(store.at)};
  for (const size_t loop : w.loops) {
    w.in_other_iteration |= !same.contains(program_.order[loop]);
  }
  for (const LinearForm& part : store.position) {
    for (const auto& [atom, c] : part.terms) w.lanes |= g_.at(atom).is(Op::kIota);
  }
  const Value value = Of(&w, g_.at(program_.order[store.at]).src(1), 0);
  work_ += w.steps;
  return written->second = value;
}

RepeatedValues::Value RepeatedValues::Number(std::vector<int64_t> expression) {
  const auto next = static_cast<Value>(numbers_.size());
  return numbers_.try_emplace(std::move(expression), next).first->second;
}

RepeatedValues::Value RepeatedValues::Of(Writing* w, UOp u, int depth) {
  if (++w->steps > kMaxValueSteps || depth > kMaxValueDepth) return kNone;
  if (const auto at = w->known.find({u.id(), w->inside}); at != w->known.end()) return at->second;
  const size_t open = std::exchange(w->least_open, SIZE_MAX);
  Value value = kNone;
  const LinearForm form = IsInt(u.dtype()) && !u.is(Op::kIndex) ? FormOf(u) : LinearForm();
  const bool sum =
      !form.terms.empty() && (!form.terms.contains(u.id()) || IsInPosition(*w, u.id()));
  if (sum) {
    value = OfSum(w, form, depth);
  } else if (IsDivision(u) && w->same.contains(u.id())) {
    value = Number({kLeaf, -5, u.id()});
  } else if (u.is_const()) {
    value = Number({kLeaf, static_cast<int64_t>(u.dtype()), u.const_word()});
  } else if (u.is(Op::kVar) || u.is(Op::kParam)) {
    value = Number({kLeaf, -1, u.id()});
  } else if (u.is(Op::kRange)) {
    // Within a loop that has ended at the store, both go through the same iterations.
    const bool parallel =
        IsRangeOfThreads(u) || IsType(u, AxisType::kThread) || IsType(u, AxisType::kGroup);
    const bool around = parallel || std::ranges::any_of(w->loops, [&](size_t loop) {
                          return program_.order[loop] == u.id();
                        });
    const Value end = around ? (w->same.contains(u.id()) ? 0 : kNone) : Of(w, u.src(0), depth + 1);
    if (end != kNone) value = Number({kLeaf, -2, u.id(), end});
  } else if (u.is(Op::kIota)) {
    if (!w->lanes || w->inside) value = Number({kLeaf, -3, u.id()});
  } else if (u.is(Op::kLoad)) {
    value = OfLoad(w, u, depth);
  } else if (Is(u.op(), kAlu) || u.is(Op::kReduce) || IsOfOneLane(u)) {
    const bool inside = std::exchange(w->inside, w->inside || u.is(Op::kReduce));
    std::vector<int64_t> expression{kOp, static_cast<int64_t>(u.op()),
                                    static_cast<int64_t>(u.dtype()),
                                    u.shape().empty() ? 0 : NumElements(u.shape())};
    expression.insert(expression.end(), u.arg().begin(), u.arg().end());
    bool all = true;
    for (const uint32_t s : u.src_ids()) {
      expression.push_back(all ? Of(w, g_.at(s), depth + 1) : kNone);
      all &= expression.back() != kNone;
    }
    // Which of two NaNs the result is may differ.
    const bool commutes = Is(u.op(), kCommutes) || u.is(Op::kMulAcc);
    const auto operands = expression.end() - u.num_src();
    if (commutes && operands[1] < operands[0]) std::iter_swap(operands, operands + 1);
    if (all) value = Number(std::move(expression));
    w->inside = inside;
  }
  // What refers to an element that is being written is said in its place alone.
  if (w->least_open == SIZE_MAX) w->known[{u.id(), w->inside}] = value;
  w->least_open = std::min(w->least_open, open);
  return value;
}

bool RepeatedValues::IsInPosition(const Writing& w, uint32_t atom) const {
  if (w.inside && g_.at(atom).is(Op::kIota)) return false;
  return std::ranges::any_of(w.store.position,
                             [&](const LinearForm& part) { return part.terms.contains(atom); });
}

// Multiples of the parts of the position, and a rest.
RepeatedValues::Value RepeatedValues::OfSum(Writing* w, const LinearForm& form, int depth) {
  std::vector<int64_t> expression{kSum};
  std::vector<std::pair<int64_t, int64_t>> rest;
  Int128 constant = form.constant, all_by = 1;
  for (const LinearForm& part : w->store.position) {
    int64_t times = 0, by = 1;  // the quotient of each two coefficients
    for (const auto& [atom, c] : part.terms) {
      const auto it = form.terms.find(atom);
      if (it == form.terms.end() || !IsInPosition(*w, atom)) continue;
      const int64_t gcd = std::gcd(it->second, c);
      times = c < 0 ? -it->second / gcd : it->second / gcd;
      by = std::abs(c) / gcd;
      break;
    }
    expression.insert(expression.end(), {times, by});
    if (times == 0) continue;
    for (const auto& [atom, c] : part.terms) {
      const auto it = form.terms.find(atom);
      if (it == form.terms.end() || !IsInPosition(*w, atom) ||
          Int128{it->second} * by != Int128{c} * times) {
        return kNone;
      }
    }
    constant = constant * by - Int128{part.constant} * times * all_by;
    all_by *= by;
    if (all_by > LinearForm::kMaxCoefficient || constant > LinearForm::kMaxCoefficient ||
        constant < -LinearForm::kMaxCoefficient) {
      return kNone;
    }
  }
  for (const auto& [atom, c] : form.terms) {
    if (IsInPosition(*w, atom)) continue;
    const Value value = Of(w, g_.at(atom), depth + 1);
    if (value == kNone) return kNone;
    rest.emplace_back(value, c);
  }
  std::ranges::sort(rest);
  expression.insert(expression.end(),
                    {static_cast<int64_t>(constant), static_cast<int64_t>(all_by)});
  for (const auto& [value, c] : rest) expression.insert(expression.end(), {value, c});
  return Number(std::move(expression));
}

RepeatedValues::Value RepeatedValues::OfLoad(Writing* w, UOp load, int depth) {
  const UOp address = load.src(0), memory = Memory(address);
  if (IsRegister(memory)) return OfRegister(w, load, memory, depth);
  if (!memory.is(Op::kParam) || stored_.contains(memory.slot())) return kNone;
  std::vector<int64_t> expression{kLoaded, static_cast<int64_t>(load.dtype()), memory.id()};
  for (int i = 1; i < address.num_src(); ++i) {
    expression.push_back(Of(w, address.src(i), depth + 1));
    if (expression.back() == kNone) return kNone;
  }
  return Number(std::move(expression));
}

// An element is what all stores that may touch it store there, in their order and their loops; a
// load comes behind so many of them. One that is being written is said by how many around it are.
RepeatedValues::Value RepeatedValues::OfRegister(Writing* w, UOp load, UOp memory, int depth) {
  const bool whole = by_ranges_.contains(memory.id());
  const LinearForm place = whole ? LinearForm() : FormOf(load.src(0).src(1));
  if (load.src(0).num_src() == 3) return kNone;
  std::vector<size_t> stores;
  for (const size_t at : registers_[memory.id()]) {
    ++w->steps;
    const LinearForm other = whole ? place : FormOf(g_.at(program_.order[at]).src(0).src(1));
    if (other.terms != place.terms || other.constant != place.constant) {
      const WideBounds x = ElementsOf(place, g_), y = ElementsOf(other, g_);
      if (x.lo <= y.hi && y.lo <= x.hi) return kNone;
      continue;
    }
    stores.push_back(at);
  }
  const size_t at = positions_[load.id()];
  const std::span<const size_t> around = barriers_.LoopsAround(at);
  std::vector<int64_t> expression{kLoaded, static_cast<int64_t>(load.dtype()), -1};
  if (whole) {
    expression.push_back(Of(w, load.src(0).src(1), depth + 1));
    if (expression.back() == kNone) return kNone;
  }
  expression.push_back(std::ranges::count_if(stores, [&](size_t s) { return s < at; }));
  for (const size_t loop : around) expression.push_back(program_.order[loop]);
  expression.push_back(-kLoops);
  const auto is = [&](const Writing::Element& open) {
    return open.memory == memory.id() && open.inside == w->inside &&
           open.place.terms == place.terms && open.place.constant == place.constant;
  };
  const auto open = std::ranges::find_if(w->open, is);
  if (open != w->open.end()) {
    const auto number = static_cast<size_t>(open - w->open.begin());
    w->least_open = std::min(w->least_open, number);
    expression.insert(expression.end(),
                      {kOuter, std::ssize(w->open) - static_cast<int64_t>(number)});
    return Number(std::move(expression));
  }
  // Nothing may be left of other iterations.
  if (whole && w->in_other_iteration) return kNone;
  if (!whole) {
    if (stores.empty()) return kNone;
    const std::span<const size_t> first = barriers_.LoopsAround(stores[0]);
    const auto begins = [&](std::span<const size_t> loops) {
      return loops.size() >= first.size() && std::ranges::equal(first, loops.first(first.size()));
    };
    const bool in_all = std::ranges::all_of(w->loops, [&](size_t loop) {
      return w->same.contains(program_.order[loop]) || std::ranges::count(first, loop) > 0;
    });
    const auto inside = [&](size_t store) { return begins(barriers_.LoopsAround(store)); };
    if (!in_all || at < stores[0] || !begins(around) || !std::ranges::all_of(stores, inside) ||
        g_.at(program_.order[stores[0]]).src(0).num_src() == 3) {
      return kNone;
    }
  }
  w->open.push_back({memory.id(), place, w->inside});
  const size_t own = w->open.size() - 1;
  const size_t outer = std::exchange(w->least_open, SIZE_MAX);
  std::vector<int64_t> all{kElement};
  for (const size_t s : stores) {
    const UOp store = g_.at(program_.order[s]), address = store.src(0);
    all.push_back(kStored);
    for (const size_t loop : barriers_.LoopsAround(s)) {
      const UOp range = g_.at(program_.order[loop]);
      const bool both = std::ranges::count(w->loops, loop) > 0;  // in the iteration of the store
      all.push_back(both ? Number({kLeaf, -4, range.id()}) : Of(w, range, depth + 1));
      if (all.back() == kNone) break;
    }
    for (int i = whole ? 1 : 2; i < address.num_src() && all.back() != kNone; ++i) {
      all.push_back(Of(w, address.src(i), depth + 1));
    }
    if (all.back() != kNone) all.push_back(Of(w, store.src(1), depth + 1));
    if (all.back() == kNone) break;
  }
  const bool known = all.back() != kNone;
  w->open.pop_back();
  // It refers to itself, which its number says; to others, it depends on what is around it.
  w->least_open = std::min(outer, w->least_open < own ? w->least_open : SIZE_MAX);
  if (!known) return kNone;
  expression.push_back(Number(std::move(all)));
  return Number(std::move(expression));
}

}  // namespace telegrad
