// A graph for several devices becomes parts, one for each device and dependency stage, and the
// transfers between them. A part is a tensor graph of its own for one device, which knows nothing
// of the others: what it needs of another part lies in a buffer, which is a slot of both.
//
// Stages. A value's stage is the number of parts on the longest way to it that end in a transfer:
// a transfer starts when a whole part has ended, or at once where it sends an input. A device has
// as few parts as that allows: work waits for the latest part that still needs it, what is sent
// goes with the first part that can make it.
//
// Hazards. Within a part they are the scheduler's business. Between parts, a part that reads a slot
// as it was before a STORE of an earlier part reads a copy that that part has made; a transfer of
// a slot starts after the last STORE before it has ended, and ends before the part with the next
// one starts. Steps name what they wait for, so a run needs no order but that.
//
// Variables. A partition is for one set of their values, or for all: then parts are graphs with
// variables, and what is handed over between them lies in memory for the bounds of its sizes. Where
// the run has the first part of that, as many bytes as it has are sent.
//
// Deterministic: the same graph, placement and variables give the same partition, and devices that
// do the same have equal part graphs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/legalize.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Memory that a step uses.
struct PartMemory {
  enum class Kind : uint8_t { kSlot, kBuffer } kind = Kind::kSlot;
  int32_t index = 0;  // the graph's slot, or the index into Partition::buffers
  friend bool operator==(const PartMemory&, const PartMemory&) = default;
};

// Memory of a run that parts and transfers hand values over in.
struct PartBuffer {
  int64_t device = 0;
  int64_t bytes = 0;
};

struct PartitionStep {
  enum class Kind : uint8_t { kPart, kTransfer } kind = Kind::kPart;
  int64_t stage = 0;           // a transfer: of the first part that may use it
  std::vector<int32_t> waits;  // steps before this one, ascending

  // A part.
  int64_t device = 0;  // a transfer: the one that sends
  FrozenGraph graph;
  std::vector<PartMemory> slots;  // by slot of `graph`

  // A transfer.
  int64_t to_device = 0;
  PartMemory from;
  int64_t from_offset = 0;  // bytes
  int32_t to = 0;           // a buffer, whole
  int64_t bytes = 0;        // at most
  // If a variable decides how many bytes a run needs, the first of these: so many rows (an i64
  // scalar over VARs), each of so many bytes.
  std::optional<FrozenGraph> rows = {};
  int64_t row_bytes = 0;
};

// How many bytes of a transfer a run with these values needs, at most `transfer.bytes`. `values`
// are sorted, and all variables are among them.
int64_t BytesNeeded(const PartitionStep& transfer, std::span<const VarValue> values);

struct Partition {
  std::vector<PartitionStep> steps;
  std::vector<PartBuffer> buffers;
  int num_parts() const;
  // By device: what it sends in a run, at most; INT64_MAX for what is more.
  std::vector<int64_t> BytesSent(int64_t devices) const;
};

// `sink` is the root of a verified tensor graph, `variables` as in Legalize, `placement` says on
// which device each of its device numbers is.
absl::StatusOr<Partition> PartitionGraph(UOp sink, std::span<const VarValue> variables,
                                         const Placement& placement, Budget* budget);

// A partition for all values of the variables. UNIMPLEMENTED and RESOURCE_EXHAUSTED: there is none,
// but one for each set of values may be; others as PartitionGraph.
absl::StatusOr<Partition> PartitionForAll(UOp sink, const Placement& placement, Budget* budget);

// The steps as text: a line for each, and the graphs of the parts.
std::string Print(const Partition& partition);

}  // namespace telegrad
