// Whether one form of a graph is for all values of its variables.
#pragma once

#include <span>

#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/execution/executable.h"
#include "engine/ir/graph.h"
#include "engine/rewrite/generalize.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_cache.h"

namespace telegrad {

// Which argument of the kernel a slot is; -1: none.
int64_t ArgumentOfSlot(const ScheduledKernel& kernel, int64_t slot);

// A form for whole ranges has temporaries for the bounds of its sizes, and loops that end at the
// sizes of the run where lowering finds out that they may. It serves all values if the temporaries
// are few bytes, and if with the least values it does about as little as a form for these alone.
// Else forms for parts of the ranges are better.
//
// `hash` is the content hash of `graph`, `ranges` are those of RangesOf. An error says why there is
// no general form at all.
struct WholeForm {
  bool serves = false;
  double least_share = 1;  // of its work, that is done with the least values
};
absl::StatusOr<WholeForm> DescribeWholeForm(const Digest& hash, const FrozenGraph& graph,
                                            std::span<const VarRange> ranges, const Device& device,
                                            ScheduleCache& schedules, Budget* budget);

// How far up its range a value is, from 0 to 1: the greatest of all of the variables, whose values
// are in the order of the ranges.
double PartOf(std::span<const VarRange> ranges, std::span<const VarValue> values);
// Of work of which `least` is done with the least values. Loops end in proportion to a value, or
// several in one another do: then it is less.
inline double ShareOfWork(double least, double part) { return least + (1 - least) * part; }
// With that part of the work.
RunCost Scaled(RunCost cost, double share);

}  // namespace telegrad
