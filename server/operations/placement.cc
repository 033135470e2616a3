// A session that names no device gets the one that would end its work first, by the predicted
// time of what is queued, of compiling, and of moving data.
#include "server/operations/placement.h"

#include "engine/base/status.h"
#include "engine/execution/prediction.h"

namespace telegrad {
namespace {

// Of the pool; null: not chosen yet.
struct Home {
  Device* device = nullptr;
};

// What compiling takes before a first run, at least.
constexpr double kCompileNs = 1e8;

bool TakesWork(const Turn& turn, const Device& device) {
  return device.Health().ok() && turn.env().devices->CheckTakesWork(device).ok();
}

bool Takes(const Turn& turn, const Device& device, int64_t bytes) {
  return TakesWork(turn, device) && turn.tenant().MayUse(device, /*write=*/true).ok() &&
         device.memory_limit() - device.memory_used() >= bytes;
}

// One that computes as the first of the list does: neither a disk nor, unless that is what the
// server has, another machine's, whose rates may be unknown.
bool Comparable(const Device& device, const Device& first) {
  const bool linked = first.link().has_value();
  return device.link().has_value() == linked && device.accepts() == first.accepts() &&
         (linked || (device.rates().launch_flops() > 0) == (first.rates().launch_flops() > 0));
}

double Behind(const Turn& turn, Device& device, const StoredGraph* graph) {
  const FairQueue* const queue = turn.env().devices->queue(device, QueueKind::kCompute);
  double ns = queue == nullptr ? 0 : queue->backlog_ns();
  if (graph != nullptr) {
    Device* const devices[] = {turn.tenant().View(device)};
    if (turn.tenant().engine->Find(graph->hash, devices, {}) == nullptr) ns += kCompileNs;
  }
  return ns;
}

}  // namespace

absl::StatusOr<Device*> SessionDevice(const Turn& turn, int64_t bytes, const StoredGraph* graph) {
  Device*& home = turn.state<Home>().device;
  // Buffers keep a session where it is, unless nothing new may begin there.
  if (home != nullptr &&
      (turn.handles().empty() ? Takes(turn, *home, bytes) : TakesWork(turn, *home))) {
    return turn.tenant().View(*home);
  }
  TG_ASSIGN_OR_RETURN(Device * first, turn.env().devices->Find(""));
  Device* best = nullptr;
  double least = 0;
  for (const auto& device : turn.env().devices->devices()) {
    if (!Comparable(*device, *first) || !Takes(turn, *device, bytes)) continue;
    const double behind = Behind(turn, *device, graph);
    if (best != nullptr && behind + kSegmentSeconds * 1e9 >= least) continue;
    best = device.get();
    least = behind;
  }
  home = best != nullptr ? best : first;  // whose error says what is wrong
  return turn.tenant().View(*home);
}

absl::Status Placement::Name(const Turn& turn, const StoredGraph& graph,
                             std::span<const std::string> names) {
  Tenant& tenant = turn.tenant();
  const size_t numbers = graph.devices.empty() ? 0 : static_cast<size_t>(graph.devices.back()) + 1;
  devices_.assign(numbers, nullptr);
  for (const int64_t number : graph.devices) {
    const auto n = static_cast<size_t>(number);
    if (n >= names.size() || names[n].empty()) continue;
    TG_ASSIGN_OR_RETURN(Device * device, turn.env().devices->Find(names[n]));
    devices_[n] = tenant.View(*device);
    TG_RETURN_IF_ERROR(tenant.MayUse(*devices_[n], /*write=*/false));
  }
  return absl::OkStatus();
}

absl::Status Placement::PlaceSlot(size_t slot, const StoredGraph& graph, Device* device) {
  const int64_t number = slot < graph.slots.size() ? graph.slots[slot].device : -1;
  if (number < 0) return absl::OkStatus();
  Device*& known = devices_[static_cast<size_t>(number)];
  if (known == nullptr) known = device;
  if (known == device) return absl::OkStatus();
  return InvalidArgument("run: slot ", slot, " is on ", device->name(),
                         ", but the graph has it on ", "device ", number, ", which is ",
                         known->name(), " by the request or the slots before it");
}

absl::Status Placement::Default(const Turn& turn, const StoredGraph& graph) {
  const auto& all = turn.env().devices->devices();
  if (graph.devices.empty()) devices_.assign(1, nullptr);  // it runs on any
  const bool one = graph.devices.empty() || (graph.devices.size() == 1 && graph.devices[0] == 0);
  if (one && devices_[0] == nullptr) {
    TG_ASSIGN_OR_RETURN(devices_[0], SessionDevice(turn, 0, &graph));
  }
  for (const int64_t number : graph.devices) {
    const auto n = static_cast<size_t>(number);
    if (devices_[n] != nullptr) continue;
    if (n >= all.size()) {
      return NotFound("run: the graph names device ", number,
                      ", which neither the request nor a slot binds, and this server has ",
                      all.size(), " devices");
    }
    devices_[n] = turn.tenant().View(*all[n]);
  }
  return absl::OkStatus();
}

bool Placement::several() const {
  const Device* first = nullptr;
  for (const Device* device : devices_) {
    if (first != nullptr && device != nullptr && device != first) return true;
    if (first == nullptr) first = device;
  }
  return false;
}

}  // namespace telegrad
