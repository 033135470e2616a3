// What the parallel ranges of a kernel for workgroups are.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

// A range whose iterations run at once: workgroups, or the threads of one.
inline bool IsParallel(AxisType type) {
  return type == AxisType::kGroup || type == AxisType::kLocal || type == AxisType::kWarp;
}
inline bool IsParallel(UOp range) { return IsParallel(range.axis_type()); }

// A range of threads of one workgroup.
inline bool IsThreads(UOp range) {
  return IsParallel(range) && range.axis_type() != AxisType::kGroup;
}

}  // namespace telegrad
