// Objects on the other server: buffers, by their handle in a session there, and graphs, by their
// hash. They are lost when the session ends; a generation number says of which session they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/command_list.h"
#include "devices/api/device.h"
#include "devices/api/predicts_values.h"
#include "engine/base/hash.h"

namespace telegrad {

class RemoteLink;

class RemoteMemory final : public Memory {
 public:
  // `used`: of its device, from which its size is taken when it goes, or its session.
  RemoteMemory(std::shared_ptr<RemoteLink> link, std::shared_ptr<std::atomic<int64_t>> used,
               int64_t size, uint64_t handle, uint64_t generation)
      : Memory(nullptr, size),
        link_(std::move(link)),
        used_(std::move(used)),
        handle_(handle),
        generation_(generation) {}
  ~RemoteMemory() override;

  const RemoteLink& link() const { return *link_; }
  const std::shared_ptr<RemoteLink>& shared_link() const { return link_; }
  uint64_t handle() const { return handle_; }
  uint64_t generation() const { return generation_; }
  absl::Status Health() const override;

 private:
  const std::shared_ptr<RemoteLink> link_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
  const uint64_t handle_;
  const uint64_t generation_;
};

class RemoteProgram final : public LoadedProgram, public PredictsValues {
 public:
  // `devices`: where its numbers are there, where the buffers of its runs may not say. `device`:
  // the one that it was loaded on.
  RemoteProgram(std::shared_ptr<RemoteLink> link, std::string device, std::string graph,
                Digest hash, std::vector<std::string> devices, const GraphCost& cost,
                uint64_t generation)
      : link_(std::move(link)),
        device_(std::move(device)),
        graph_(std::move(graph)),
        hash_(hash),
        devices_(std::move(devices)),
        cost_(cost),
        generation_(generation) {}

  GraphCost cost() const override { return cost_; }
  absl::StatusOr<std::optional<FormCost<GraphCost>>> Predict(
      std::span<const VarValue> values) const override;
  const RemoteLink& link() const { return *link_; }
  const std::string& device() const { return device_; }
  const std::string& graph() const { return graph_; }
  const Digest& hash() const { return hash_; }
  const std::vector<std::string>& devices() const { return devices_; }
  // The session that knows the graph; 0: it has to be sent once more. Under the link's lock.
  uint64_t generation() const { return generation_; }
  void SetGeneration(uint64_t generation) const { generation_ = generation; }

 private:
  const std::shared_ptr<RemoteLink> link_;
  const std::string device_;
  const std::string graph_;
  const Digest hash_;
  const std::vector<std::string> devices_;
  const GraphCost cost_;
  mutable uint64_t generation_;
};

class RemoteCommands final : public CommandList {
 public:
  static absl::StatusOr<std::shared_ptr<const RemoteCommands>> Encode(
      const RemoteLink& link, std::vector<Command> commands);
};

}  // namespace telegrad
