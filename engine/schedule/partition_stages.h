// Which part of a partition computes what: see partition.h. Works on a legalized graph whose values
// are each on one device or anywhere.
//
// The nodes fall into three kinds. Memory is what lies somewhere before or after parts: a PARAM, an
// AFTER, a COPY from another device. Views (movement ops), and what is anywhere, cost nothing to
// have and are repeated in every part that uses them. All else is work, which has one home: the
// part that computes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

inline constexpr int64_t kNoStage = -1;

class PartStages {
 public:
  // What a COPY sends: elements of `node`, from `offset` on, as they lie in its memory.
  struct Sent {
    uint32_t node = 0;
    int64_t offset = 0;
  };

  explicit PartStages(UOp sink);
  absl::Status Assign(Budget* budget);

  const std::vector<uint32_t>& order() const { return order_; }
  int64_t DeviceOf(uint32_t id) const {
    const std::span<const int64_t> devices = g_.devices(id);
    return devices.empty() ? -1 : devices[0];
  }
  bool IsWork(uint32_t id) const {
    const Op op = g_.op(id);
    return op != Op::kParam && op != Op::kAfter && op != Op::kCopy && op != Op::kSink &&
           !Is(op, kMovement) && DeviceOf(id) >= 0;
  }
  // What `id` is a view of; itself where it is none.
  uint32_t BaseOf(uint32_t id) const { return base_.at(id); }
  const Sent& SentBy(uint32_t copy) const { return sent_.at(copy); }
  // The stage whose part computes a node, kNoStage if none has to.
  int64_t HomeOf(uint32_t id) const { return home_.at(id); }
  // The stage from which on what a COPY brings can be there.
  int64_t ReadyAt(uint32_t copy) const { return ready_.at(copy); }

  // STOREs, in order, to the slot of the PARAM or AFTER `memory`, and how many of them `memory` is
  // behind.
  const std::vector<uint32_t>& StoresTo(uint32_t memory) const;
  size_t VersionOf(uint32_t memory) const { return version_.at(memory); }
  // The stage of the part that overwrites what `memory` holds; kNoStage if none does.
  int64_t OverwrittenAt(uint32_t memory) const {
    const std::vector<uint32_t>& stores = StoresTo(memory);
    const size_t next = VersionOf(memory);
    return next < stores.size() ? HomeOf(stores[next]) : kNoStage;
  }
  // The stage of the part that leaves what `memory` holds; kNoStage: it is there before the run.
  int64_t WrittenAt(uint32_t memory) const {
    const size_t version = VersionOf(memory);
    return version > 0 ? HomeOf(StoresTo(memory)[version - 1]) : kNoStage;
  }
  // Of what a COPY sends straight from a slot: whether it lies there between two parts.
  bool StaysBetweenParts(uint32_t memory) const {
    const int64_t overwritten = OverwrittenAt(memory);
    return overwritten == kNoStage || overwritten > WrittenAt(memory);
  }

 private:
  uint32_t ParamOf(uint32_t memory) const {
    return g_.op(memory) == Op::kAfter ? g_.src(memory)[0] : memory;
  }
  void FindViews();
  void FindStores();
  void FindSent();
  void FindEarliest();
  void FindLatest();
  void ChoosePoints();
  void ChooseHomes();
  void ReadAt(uint32_t memory, int64_t stage) {
    read_until_[memory] = std::max<int64_t>(read_until_[memory], stage);
  }
  int64_t FirstPoint(uint32_t id, int64_t from) const;
  int64_t PreferredStage(uint32_t store) const;
  void FindReady();

  const Graph& g_;
  const std::vector<uint32_t> order_;
  NodeMap<uint32_t> base_;
  NodeMap<int64_t> offset_;     // in the base's elements; below 0: not one piece of it
  NodeMap<Sent> sent_;          // by COPY
  NodeMap<bool> sent_by_part_;  // computed by a part, for a COPY
  NodeMap<size_t> version_;
  NodeMap<int64_t> earliest_, latest_, home_, ready_;
  NodeMap<int64_t>
      read_until_;  // by PARAM or AFTER: the earliest stage that all its readers can have
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> stores_;  // by PARAM
  std::vector<std::vector<int64_t>> points_;                     // by device: stages with a part
  const std::vector<uint32_t> no_stores_;
};

}  // namespace telegrad
