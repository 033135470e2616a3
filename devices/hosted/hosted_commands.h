// Memory, programs and encoded commands of a device in another process: there they have a number,
// here they have what a submission is checked by.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/command_list.h"
#include "devices/hosted/driver_process.h"
#include "engine/base/mutex.h"

namespace telegrad {

// What has a number there, and is dropped there when it goes here.
class HostedId {
 public:
  explicit HostedId(std::shared_ptr<DriverProcess> process)
      : process_(std::move(process)), id_(process_->NewId()) {}
  ~HostedId() { process_->Drop(id_); }
  HostedId(const HostedId&) = delete;
  HostedId& operator=(const HostedId&) = delete;

  const std::shared_ptr<DriverProcess>& process() const { return process_; }
  uint64_t id() const { return id_; }

 private:
  const std::shared_ptr<DriverProcess> process_;
  const uint64_t id_;
};

class HostedMemory final : public Memory {
 public:
  // RESOURCE_EXHAUSTED and others as the device there says.
  static absl::StatusOr<std::shared_ptr<Memory>> Alloc(std::shared_ptr<DriverProcess> process,
                                                       int64_t size);
  HostedMemory(std::shared_ptr<DriverProcess> process, int64_t size)
      : Memory(nullptr, size), id_(std::move(process)) {}
  ~HostedMemory() override { id_.process()->used()->fetch_sub(size()); }

  const DriverProcess* process() const { return id_.process().get(); }
  uint64_t id() const { return id_.id(); }
  // Its contents are gone with the process.
  absl::Status Health() const override { return id_.process()->Over(); }

 private:
  const HostedId id_;
};

class HostedProgram final : public LoadedProgram {
 public:
  static absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(std::shared_ptr<DriverProcess> process,
                                                             const ProgramImage& image);
  HostedProgram(std::shared_ptr<DriverProcess> process, const ProgramSignature& signature)
      : LoadedProgram(signature), id_(std::move(process)) {}

  const DriverProcess* process() const { return id_.process().get(); }
  uint64_t id() const { return id_.id(); }

 private:
  const HostedId id_;
};

class HostedCommands final : public CommandList {
 public:
  // INVALID_ARGUMENT names the command that is malformed or holds a program of another device.
  static absl::StatusOr<std::shared_ptr<const HostedCommands>> Encode(
      std::shared_ptr<DriverProcess> process, std::vector<Command> commands);
  explicit HostedCommands(std::shared_ptr<DriverProcess> process) : id_(std::move(process)) {}

  const DriverProcess* process() const { return id_.process().get(); }
  uint64_t id() const { return id_.id(); }

  // As CommandList, and whether the device there reaches the memory, or a copy by way of this
  // process does.
  absl::Status CheckReach(std::span<const BufferView> bindings, std::string_view device) const;
  // Whether a copy has an end in memory of this process.
  bool TouchesHost(std::span<const BufferView> bindings) const;
  bool TouchesHost(size_t command, std::span<const BufferView> bindings) const;
  // The commands from `first` to before `end`, which need no memory of this process, by themselves,
  // and which of the bindings each of theirs is.
  struct Piece {
    std::shared_ptr<const HostedCommands> commands;
    std::vector<int32_t> bindings;
  };
  absl::StatusOr<Piece> PieceOf(size_t first, size_t end) const;
  // Null for memory that is not the device's.
  const HostedMemory* Own(const BufferView& view) const;

 private:
  const HostedId id_;
  mutable Mutex mutex_;
  mutable std::map<std::pair<size_t, size_t>, Piece> pieces_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
