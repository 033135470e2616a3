#include "engine/lowering/program_accesses.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int64_t kAnyWidth = int64_t{1} << 48;

bool IsParallelRange(UOp u) {
  return IsRangeOfThreads(u) ||
         (u.is(Op::kRange) && (IsType(u, AxisType::kThread) || IsType(u, AxisType::kGroup)));
}

}  // namespace

absl::Status ProgramAccesses::Read(Budget* budget) {
  ReadStores();
  for (size_t i = 0; i < program_.order.size(); ++i) {
    const UOp u = g_.at(program_.order[i]);
    TG_RETURN_IF_ERROR(budget->SpendSteps());
    ReadValue(u);
    ReadLoops(u);
    if (IsParallelRange(u) && SizeOf(u) > 1) parallel_.push_back(u);
    ReadAccess(u, i);
  }
  return absl::OkStatus();
}

void ProgramAccesses::ReadStores() {
  for (size_t i = 0; i < program_.order.size(); ++i) {
    const UOp u = g_.at(program_.order[i]);
    if ((u.is(Op::kStore) || u.is(Op::kCopyAsync)) && Memory(u.src(0)).is(Op::kParam)) {
      arguments_.try_emplace(Memory(u.src(0)).slot());
    }
    if (!u.is(Op::kWait)) continue;
    for (const uint32_t copy : u.src_ids()) waits_[copy].push_back(i);
  }
}

void ProgramAccesses::ReadValue(UOp u) {
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
    const bool kept = memory.is(Op::kParam) && !arguments_.contains(memory.slot());
    pure = kept && all(values_.pure);
    uniform = kept && all(values_.uniform);
  } else if (Is(u.op(), kAlu) || u.is(Op::kIndex)) {
    pure = all(values_.pure);
    uniform = all(values_.uniform);
  }
  values_.pure[u] = pure;
  values_.uniform[u] = uniform;
}

// Whoever has a value of a RANGE is in its loop. What is loaded may be from before.
void ProgramAccesses::ReadLoops(UOp u) {
  const bool starts = u.is(Op::kRange) && !u.src(0).is_const();
  if (!starts && (loop_sets_.size() == 1 || u.num_src() == 0)) return;
  if (!starts && !Is(u.op(), kAlu) && !u.is(Op::kIndex)) return;
  int all = 0;
  for (int i = u.is(Op::kIndex) ? 1 : 0; i < u.num_src(); ++i) {
    all = Together(all, LoopsAt(u.src(i)));
  }
  if (starts) {
    std::vector<UOp> with = LoopsOf(all);
    with.push_back(u);
    all = NumberOf(std::move(with));
  }
  if (all != 0) loops_[u.id()] = all;
}

int ProgramAccesses::Together(int a, int b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const auto [at, first] = together_.try_emplace({std::min(a, b), std::max(a, b)}, 0);
  if (!first) return at->second;
  std::vector<UOp> all = LoopsOf(a);
  for (const UOp range : LoopsOf(b)) {
    if (std::ranges::find(all, range) == all.end()) all.push_back(range);
  }
  return at->second = NumberOf(std::move(all));
}

int ProgramAccesses::NumberOf(std::vector<UOp> loops) {
  std::ranges::sort(loops, {}, &UOp::id);
  const auto at = std::ranges::find(loop_sets_, loops);
  const auto number = static_cast<int>(at - loop_sets_.begin());
  if (at == loop_sets_.end()) loop_sets_.push_back(std::move(loops));
  return number;
}

void ProgramAccesses::ReadAccess(UOp u, size_t position) {
  if (u.is(Op::kStore) || u.is(Op::kLoad) || u.is(Op::kLoadMatrix)) {
    const int64_t width = u.is(Op::kLoadMatrix) ? kMatrixRows : 1;
    Add({.address = u.src(0), .stores = u.is(Op::kStore), .width = width},
        {.begin = position, .end = position});
  } else if (u.is(Op::kCopyAsync)) {
    const Execution execution = ExecutionOf(u, position);
    for (const int k : {0, 1}) {
      const int64_t stride = k == 0 ? u.to_stride() : u.from_stride();
      const int64_t width = (u.box_rows() - 1) * stride + u.box_columns();
      Add({.address = u.src(k), .stores = k == 0, .asynchronous = true, .width = width}, execution);
    }
  } else if (u.is(Op::kMmaAsync)) {
    for (const int k : {0, 1}) {
      Add({.address = u.src(k), .asynchronous = true, .width = kAnyWidth},
          {.begin = position, .end = position, .asynchronous = true, .waited_for = false});
    }
  }
}

// A copy is complete at a WAIT in the same loops: that of its own iteration, or so many later as
// may still run behind it. Its gate must then say that there are as many.
Execution ProgramAccesses::ExecutionOf(UOp copy, size_t position) {
  Execution out{.begin = position, .end = position, .asynchronous = true, .waited_for = false};
  if (copy.num_src() == 3) return out;
  const std::span<const size_t> loops = barriers().LoopsAround(position);
  for (const size_t wait : waits_[copy.id()]) {
    const int64_t later = g_.at(program_.order[wait]).number();
    if (wait < position || (out.waited_for && out.later <= later) ||
        !std::ranges::equal(loops, barriers().LoopsAround(wait)) ||
        (later > 0 && !AreLeft(copy.src(0), loops, later))) {
      continue;
    }
    out.end = wait;
    out.later = later;
    out.waited_for = true;
  }
  return out;
}

bool ProgramAccesses::AreLeft(UOp address, std::span<const size_t> loops,
                              int64_t iterations) const {
  if (loops.empty()) return false;
  const UOp range = g_.at(program_.order[loops.back()]);
  LinearForm left;
  if (!left.Add(range.src(0), 1) || !left.Add(range, -1)) return false;
  GatedBounds bounds(g_, address.num_src() == 3 ? address.src(2) : UOp());
  return bounds.Integer(left).lo > iterations;
}

ProgramAccesses::Touches* ProgramAccesses::TouchesOf(UOp memory) {
  if (memory.is(Op::kParam)) {
    const auto at = arguments_.find(memory.slot());
    return at == arguments_.end() ? nullptr : &at->second;
  }
  const bool shared = memory.is(Op::kBuffer) && memory.space() == AddressSpace::kLocal;
  return shared ? &locals_[memory.id()] : nullptr;
}

void ProgramAccesses::Add(Touch touch, const Execution& execution) {
  Touches* const touches = TouchesOf(Memory(touch.address));
  if (touches == nullptr) return;
  const auto [at, first] = touches_.try_emplace(
      Key{touch.address.id(), touch.stores, touch.asynchronous}, touches->size());
  if (!first) {
    Touch& known = (*touches)[at->second];
    known.width = std::max(known.width, touch.width);
    known.executions.push_back(execution);
    return;
  }
  touch.executions.push_back(execution);
  touch.form = FormOf(touch.address.src(1));
  touch.loops = LoopsAt(touch.address);
  touch.sum = sums_.try_emplace(touch.form.terms, static_cast<int>(sums_.size())).first->second;
  touches->push_back(std::move(touch));
}

}  // namespace telegrad
