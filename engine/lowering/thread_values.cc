#include "engine/lowering/thread_values.h"

#include <algorithm>
#include <bit>

#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {

ThreadValues::ThreadValues(const Program& program)
    : g_(*program.graph), without_(*program.graph, 0) {
  for (const uint32_t id : program.order) {
    const UOp u = g_.at(id);
    if ((u.is(Op::kStore) || u.is(Op::kCopyAsync)) && Memory(u.src(0)).is(Op::kParam)) {
      stored_.insert(Memory(u.src(0)).slot());
    }
    if (IsRangeOfThreads(u) && SizeOf(u) > 1) ranges_.push_back({.range = u});
  }
  int64_t threads = 1;
  for (size_t i = ranges_.size(); i-- > 0;) {
    ranges_[i].stride = threads;
    if (__builtin_mul_overflow(threads, SizeOf(ranges_[i].range), &threads)) return;
  }
  const bool even = std::has_single_bit(static_cast<uint64_t>(threads));
  if (even && threads <= program.warp) lanes_ = threads;
  for (const uint32_t id : program.order) without_[id] = BitsWithout(g_.at(id));
}

uint64_t ThreadValues::BitsWithout(UOp u) const {
  if (IsRangeOfThreads(u)) return SizeOf(u) > 1 ? 0 : kAll;
  if (u.is(Op::kMma) || u.is(Op::kLoadMatrix)) return 0;
  if (u.is(Op::kAfter)) return kAll;  // a memory
  uint64_t bits = kAll;
  for (const uint32_t s : u.src_ids()) bits &= without_.at(s);
  if (bits == kAll) {
    if (!u.is(Op::kLoad)) return kAll;
    // Of local memory, threads load the same between the same two barriers: else one would store
    // there meanwhile, and a first race is found before it can lead to another one.
    const UOp memory = Memory(u.src(0));
    const bool kept = memory.is(Op::kParam) && !stored_.contains(memory.slot());
    const bool local = memory.is(Op::kBuffer) && memory.space() == AddressSpace::kLocal;
    return kept || local ? kAll : 0;
  }
  // What is equal as a number may have other bits: which one of two NaNs is a sum.
  if (u.is(Op::kLoad) || u.is(Op::kShuffle) || u.is(Op::kBitcast)) return 0;
  if (const uint64_t bit = ExchangedBit(u); bit != 0) {
    const auto all = static_cast<uint64_t>(lanes_ - 1);
    const UOp own = u.src(u.src(0).is(Op::kShuffle) ? 1 : 0);
    bits = without_.at(own.id()) | bit;
    if ((bits & all) == all) return kAll;
  }
  return bits;
}

uint64_t ThreadValues::ExchangedBit(UOp sum) const {
  if (lanes_ == 0 || !(sum.is(Op::kAdd) || sum.is(Op::kMul) || sum.is(Op::kMax))) return 0;
  for (const int k : {0, 1}) {
    const UOp shuffle = sum.src(k);
    if (!shuffle.is(Op::kShuffle) || shuffle.src(0) != sum.src(1 - k)) continue;
    const UOp lane = shuffle.src(1);
    if (!lane.is(Op::kXor)) return 0;
    for (const int i : {0, 1}) {
      if (!lane.src(i).is_const() || !IsThreadNumber(lane.src(1 - i))) continue;
      const int64_t bit = lane.src(i).const_word();
      if (bit > 0 && bit < lanes_ && std::has_single_bit(static_cast<uint64_t>(bit))) {
        return static_cast<uint64_t>(bit);
      }
    }
  }
  return 0;
}

bool ThreadValues::IsThreadNumber(UOp u) const {
  const LinearForm form = FormOf(u);
  if (form.constant != 0) return false;
  size_t found = 0;
  for (const auto& [atom, c] : form.terms) {
    const UOp range = WithoutCasts(g_.at(atom));
    const auto is = [&](const Threads& t) { return t.range == range && t.stride == c; };
    if (std::ranges::any_of(ranges_, is)) {
      ++found;
    } else if (!IsRangeOfThreads(range) || SizeOf(range) > 1) {
      return false;  // ranges of one iteration are 0
    }
  }
  return found == ranges_.size();
}

}  // namespace telegrad
