#include "engine/lowering/prove.h"

#include <algorithm>
#include <string>

#include "engine/base/status.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/independence_proof.h"
#include "engine/lowering/passes.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

absl::Status ProveAllInside(PassContext& c, const Program& program) {
  TG_ASSIGN_OR_RETURN(const BoundsReport bounds,
                      ProveBounds(*program.graph, program.order, c.budget()));
  const std::vector<UOp>& unproved = bounds.unproved;
  if (unproved.empty()) return absl::OkStatus();
  const auto at = std::ranges::find(program.order, unproved.front().id());
  return Internal("node ", at - program.order.begin(), " (index): of ", program.name,
                  " is not proved to stay inside its buffer, and not gated");
}

int64_t PlaceOf(const Program& program, UOp u) {
  return std::ranges::find(program.order, u.id()) - program.order.begin();
}

// "node 7 (store) of argument 0"
std::string NameAccess(const Program& program, UOp address, bool stores) {
  UOp access = address;
  for (const uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    const bool does = stores ? u.is(Op::kStore) || u.is(Op::kCopyAsync)
                             : u.is(Op::kLoad) || u.is(Op::kLoadMatrix) || u.is(Op::kCopyAsync) ||
                                   u.is(Op::kMmaAsync);
    if (!does || std::ranges::count(u.src_ids(), address.id()) == 0) continue;
    access = u;
    break;
  }
  const UOp memory = Memory(address);
  return StrCat("node ", PlaceOf(program, access), " (", Name(access.op()), ") of ",
                memory.is(Op::kParam) ? StrCat("argument ", memory.slot())
                                      : StrCat("local memory ", memory.buffer_slot()));
}

absl::Status Refusal(const Program& program, const IndependenceReport::Pair& pair, size_t pairs) {
  std::string range;
  if (pair.range.valid()) {
    range = StrCat(" in another iteration of node ", PlaceOf(program, pair.range), " (range, ",
                   Name(pair.range.axis_type()), ")");
  }
  return Internal(NameAccess(program, pair.store, true), ": of ", program.name,
                  " is not proved to store to other elements than ",
                  NameAccess(program, pair.other, pair.other_stores), " touches", range,
                  ": threads may race; pairs that are not proved: ", pairs);
}

absl::Status ProveIndependent(PassContext& c, const Program& program) {
  TG_ASSIGN_OR_RETURN(const IndependenceReport report,
                      ProveIndependence(program, c.budget(), /*local=*/true));
  c.Count(kPairsProved, report.proved + report.proved_local + report.ordered);
  c.Count(kPairsRepeated, report.repeated);
  if (report.declared > 0) c.Count(kPairsDeclared, report.declared);
  const size_t unproved = report.unproved.size() + report.unproved_local.size();
  c.Count(kPairsUnproved, static_cast<int64_t>(unproved));
  if (unproved == 0) return absl::OkStatus();
  const bool local = report.unproved.empty();
  return Refusal(program, (local ? report.unproved_local : report.unproved).front(), unproved);
}

}  // namespace

absl::Status Prove(PassContext& c, const Program& program) {
  TG_RETURN_IF_ERROR(ProveAllInside(c, program));
  return ProveIndependent(c, program);
}

}  // namespace telegrad
