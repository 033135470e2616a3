#include "engine/lowering/bounds_proof.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int64_t kBetweenLooks = 64;  // at the time, in accesses

// Of so many elements from the one that the address names on.
bool ProveInside(UOp address, int64_t elements, int64_t* work) {
  const UOp index = address.src(1);
  if (index.dtype() != DType::kInt64 && index.dtype() != DType::kInt32) return false;
  GatedBounds prover(*address.graph(), address.num_src() == 3 ? address.src(2) : UOp());
  const WideBounds inside{0, NumElements(Memory(address).shape()) - elements};
  bool proved = prover.never() || prover.Value(index).within(inside);
  if (!proved) {
    prover.SetThorough();
    proved = prover.Value(index).within(inside);
  }
  if (work != nullptr) *work += prover.work();
  return proved;
}

// Elements from that of the node's address on: what a copy writes, which outside of its source
// reads 0; and a row of a matrix.
int64_t ElementsFrom(UOp u) {
  if (u.is(Op::kLoadMatrix)) return kMatrixRows;
  return u.is(Op::kCopyAsync) ? (u.box_rows() - 1) * u.to_stride() + u.box_columns() : 1;
}

}  // namespace

bool ProveInside(UOp address, int64_t* work) { return ProveInside(address, 1, work); }

BoundsStats& BoundsStats::operator+=(const BoundsStats& other) {
  proved += other.proved;
  gated += other.gated;
  data_dependent += other.data_dependent;
  return *this;
}

absl::StatusOr<BoundsReport> ProveBounds(const Graph& graph, const std::vector<uint32_t>& order,
                                         Budget* budget) {
  const Budget::Doing doing(budget, "proving that accesses stay inside their buffers");
  BoundsReport report;
  int64_t accesses = 0;
  NodeMap<bool> loaded(graph, false);  // whether the value is computed from a loaded one
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    TG_RETURN_IF_ERROR(budget->SpendSteps());
    loaded[id] = u.is(Op::kLoad) || u.is(Op::kLoadMatrix) ||
                 std::ranges::any_of(u.src_ids(), [&](uint32_t s) { return loaded.at(s); });
    if (const int64_t elements = ElementsFrom(u); elements > 1) {
      int64_t work = 0;
      if (!ProveInside(u.src(0), elements, &work)) report.unproved.push_back(u.src(0));
      TG_RETURN_IF_ERROR(budget->SpendSteps(work));
    }
    if (!u.is(Op::kIndex)) continue;
    int64_t work = 0;
    const bool inside = ProveInside(u, &work);
    TG_RETURN_IF_ERROR(budget->SpendSteps(work));
    if (++accesses % kBetweenLooks == 0) TG_RETURN_IF_ERROR(budget->CheckTime());
    if (!inside) report.unproved.push_back(u);
    if (!Memory(u).is(Op::kParam)) continue;
    BoundsStats& stats = report.stats;
    ++(loaded.at(u.src(1).id()) ? stats.data_dependent : inside ? stats.proved : stats.gated);
  }
  return report;
}

}  // namespace telegrad
