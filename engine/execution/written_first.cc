// The first kernel that has a temporary as its argument must fill it: a STORE without a gate, whose
// index takes as many consecutive values over the ranges of its nest as there are elements, and
// whose bounds keep it inside; and no load from it, for that might come before. The index is a sum
// of ranges times strides: sorted, each stride is the number of values that the ranges before it
// take.
#include "engine/execution/written_first.h"

#include <algorithm>
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

// Whether the kernel fills its argument `slot` and loads nothing from it.
bool Fills(UOp kernel, int64_t slot) {
  const Graph& g = *kernel.graph();
  const auto is_argument = [&](UOp address) {
    const UOp buffer = BehindOrder(address.src(0));
    return buffer.is(Op::kParam) && buffer.arg(0) == slot;
  };
  for (uint32_t id : PostOrder(kernel)) {
    if (g.op(id) == Op::kLoad && is_argument(g.at(id).src(0))) return false;
  }
  for (int i = 0; i < kernel.num_src(); ++i) {
    UOp body = kernel.src(i);
    std::vector<UOp> ranges;
    while (body.is(Op::kEnd)) {
      for (int r = 1; r < body.num_src(); ++r) ranges.push_back(body.src(r));
      body = body.src(0);
    }
    if (!body.is(Op::kStore) || !is_argument(body.src(0))) continue;
    const UOp address = body.src(0);
    const int64_t elements = NumElements(BehindOrder(address.src(0)).shape());
    if (address.num_src() == 2 && Covers(address.src(1), ranges, elements)) return true;
  }
  return false;
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
