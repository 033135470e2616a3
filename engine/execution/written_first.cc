// The first kernel that has a temporary as its argument must fill it: a STORE without a gate, whose
// index takes as many consecutive values over the ranges of its nest as there are elements, and
// whose bounds keep it inside. The index is a sum of ranges times strides: sorted, each stride is
// the number of values that the ranges before it take.
//
// That kernel may load from it only behind the nest that fills it, and in an iteration of their
// shared loops only what that same iteration has filled: the others may be yet to come. So the
// load's index moves with the shared ranges as the STORE's does, and apart from that stays among
// the first values that the inner ranges take.
#include "engine/execution/written_first.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/lowering/affine.h"

namespace telegrad {
namespace {

UOp BehindOrder(UOp u) {
  while (u.is(Op::kAfter)) u = u.src(0);
  return u;
}

bool Covers(UOp index, const std::vector<UOp>& ranges, int64_t elements) {
  if (index.vmin() < 0 || index.vmax() >= elements) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (const UOp range : ranges) {
    const std::optional<int64_t> stride = StrideOf(index, range);
    if (!stride || !range.src(0).is_const()) return false;
    if (*stride != 0) axes.emplace_back(*stride, range.src(0).const_word());
  }
  std::ranges::sort(axes);
  int64_t covered = 1;
  for (const auto& [stride, size] : axes) {
    if (stride != covered) return false;
    covered *= size;  // within the bounds of the index, which hold
  }
  return covered == elements;
}

// A nest that fills an argument: `inner` is its END within the loops that it shares with others.
struct Filling {
  UOp inner;
  UOp index;
  std::vector<UOp> shared;
  int64_t at_a_time = 1;  // elements, in one iteration of the shared loops
};

bool IsArgument(UOp address, int64_t slot) {
  const UOp buffer = BehindOrder(address.src(0));
  return buffer.is(Op::kParam) && buffer.arg(0) == slot;
}

std::optional<Filling> FillingOf(UOp root, int64_t slot) {
  std::vector<UOp> ranges;
  Filling out{.inner = root, .index = {}, .shared = {}};
  UOp body = root;
  for (; body.is(Op::kEnd); body = body.src(0)) {
    out.shared = ranges;  // all but those of the innermost END
    out.inner = body;
    out.at_a_time = 1;
    for (int r = 1; r < body.num_src(); ++r) {
      ranges.push_back(body.src(r));
      const UOp size = body.src(r).src(0);
      if (!size.is_const()) return std::nullopt;
      out.at_a_time *= size.const_word();
    }
  }
  if (!body.is(Op::kStore) || !IsArgument(body.src(0), slot)) return std::nullopt;
  const UOp address = body.src(0);
  const int64_t elements = NumElements(BehindOrder(address.src(0)).shape());
  if (address.num_src() != 2 || !Covers(address.src(1), ranges, elements)) return std::nullopt;
  out.index = address.src(1);
  // The inner ranges take the first values, the shared ones step over them.
  for (const UOp range : out.shared) {
    if (*StrideOf(out.index, range) < out.at_a_time) return std::nullopt;
  }
  return out;
}

// Whether `load` reads only what the same iteration of the shared loops has filled before.
bool ReadsWhatIsFilled(UOp load, const Filling& filling) {
  const UOp address = load.src(0);
  bool behind = false;
  for (UOp buffer = address.src(0); buffer.is(Op::kAfter); buffer = buffer.src(0)) {
    for (int i = 1; i < buffer.num_src(); ++i) behind |= buffer.src(i) == filling.inner;
  }
  const UOp index = address.src(1);
  if (!behind || index.vmin() < 0) return false;
  int64_t last = index.vmax();
  for (const UOp range : filling.shared) {
    const std::optional<int64_t> stride = StrideOf(index, range);
    if (!stride || *stride != *StrideOf(filling.index, range)) return false;
    // The bounds of a sum are exact in the ranges that it is a sum of.
    last -= *stride * (range.src(0).const_word() - 1);
  }
  return last < filling.at_a_time;
}

// Whether the kernel fills its argument `slot` before it loads from it.
bool Fills(UOp kernel, int64_t slot) {
  std::optional<Filling> filling;
  for (int i = 0; i < kernel.num_src() && !filling; ++i) filling = FillingOf(kernel.src(i), slot);
  if (!filling) return false;
  const Graph& g = *kernel.graph();
  return std::ranges::all_of(PostOrder(kernel), [&](uint32_t id) {
    const UOp u = g.at(id);
    return !u.is(Op::kLoad) || !IsArgument(u.src(0), slot) || ReadsWhatIsFilled(u, *filling);
  });
}

}  // namespace

bool WritesTemporariesFirst(const Schedule& schedule) {
  std::vector<bool> filled(schedule.temporaries.size(), false);
  for (const ScheduledKernel& kernel : schedule.kernels) {
    std::vector<int32_t> now;
    for (size_t a = 0; a < kernel.arguments.size(); ++a) {
      const BufferRef ref = kernel.arguments[a];
      if (ref.kind == BufferRef::Kind::kSlot || filled[static_cast<size_t>(ref.index)]) continue;
      if (!Fills(kernel.graph.root(), static_cast<int64_t>(a))) return false;
      now.push_back(ref.index);
    }
    for (int32_t t : now) filled[static_cast<size_t>(t)] = true;
  }
  return true;
}

}  // namespace telegrad
