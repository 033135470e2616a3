// The choice of devices for a run. The numbers of a graph mean the devices that the request
// names, else those on which its bound slots lie; else a graph of one device runs on the
// session's, and one of several on those of the server's list, in its order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "server/session/turn.h"
#include "server/tenant/graph_store.h"

namespace telegrad {

// The device of a session that names none, for `bytes` more: the one that it has data on, as long
// as that is healthy and takes work; else, of those that are healthy, take work and have room, the
// one with the least predicted queue, where one that has to compile the graph first counts as
// further behind. Differences of a segment count as none; then the first of the server's list.
absl::StatusOr<Device*> SessionDevice(const Turn& turn, int64_t bytes,
                                      const StoredGraph* graph = nullptr);

class Placement {
 public:
  // In this order. Names: by number; empty ones say nothing.
  absl::Status Name(const Turn& turn, const StoredGraph& graph, std::span<const std::string> names);
  absl::Status PlaceSlot(size_t slot, const StoredGraph& graph, Device* device);
  absl::Status Default(const Turn& turn, const StoredGraph& graph);

  // By number; null where the graph does not name it.
  std::span<Device* const> devices() const { return devices_; }
  bool several() const;  // more than one device

 private:
  std::vector<Device*> devices_;
};

}  // namespace telegrad
