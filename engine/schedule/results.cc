#include "engine/schedule/results.h"

#include "absl/container/flat_hash_set.h"

namespace telegrad {
namespace {

// The argument that an INDEX is of.
int64_t IndexedArgument(UOp index) {
  UOp buffer = index.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  return buffer.is(Op::kParam) ? buffer.slot() : -1;
}

// The slots that the kernel accesses by an op.
absl::flat_hash_set<int32_t> SlotsOf(const ScheduledKernel& kernel, Op op) {
  absl::flat_hash_set<int32_t> slots;
  for (const uint32_t id : PostOrder(kernel.graph.root())) {
    const UOp u = kernel.graph.root().graph()->at(id);
    if (!u.is(op) || !u.src(0).is(Op::kIndex)) continue;
    const int64_t argument = IndexedArgument(u.src(0));
    if (argument < 0) continue;
    const BufferRef& ref = kernel.arguments[static_cast<size_t>(argument)];
    if (ref.kind == BufferRef::Kind::kSlot) slots.insert(ref.index);
  }
  return slots;
}

}  // namespace

void FindResults(Schedule* schedule) {
  absl::flat_hash_set<int32_t> read;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto slots = SlotsOf(kernel, Op::kLoad);
    read.insert(slots.begin(), slots.end());
  }
  for (ScheduledKernel& kernel : schedule->kernels) {
    const auto stored = SlotsOf(kernel, Op::kStore);
    for (size_t a = 0; a < kernel.arguments.size(); ++a) {
      const BufferRef& ref = kernel.arguments[a];
      const bool slot = ref.kind == BufferRef::Kind::kSlot;
      if (!slot || !stored.contains(ref.index) || read.contains(ref.index)) continue;
      kernel.results.push_back(static_cast<int32_t>(a));
    }
  }
}

}  // namespace telegrad
