// Devices that are memory only: they run no programs, and one queue copies to and from them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/host_queue.h"

namespace telegrad {

// One end of a copy: bytes of `memory` from `at`.
struct CopyEnd {
  const Memory* memory;
  int64_t at;

  // Null where the host cannot address the memory.
  char* host() const {
    auto* const data = static_cast<char*>(memory->host());
    return data == nullptr ? nullptr : data + at;
  }
};

// Copies between memories that the host can address. A driver adds what else it reaches.
class CopyRunner : public QueueRunner {
 public:
  // `device`: its name, for messages.
  explicit CopyRunner(std::string device) : device_(std::move(device)) {}

  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override;
  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   const RunControl& control) override;

 protected:
  virtual bool Reaches(const Memory& memory) const { return memory.host() != nullptr; }
  virtual absl::Status Copy(const CopyEnd& to, const CopyEnd& from, int64_t length);

 private:
  const std::string device_;
};

class MemoryDevice : public Device {
 public:
  const std::string& name() const override { return name_; }
  const Target& target() const override { return target_; }
  ProgramLevel accepts() const override { return ProgramLevel::kNothing; }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override;
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override;
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return absl::OkStatus(); }

 protected:
  // Capacity and wait limit are as in HostQueueOptions. The queue's thread stops after the members
  // of the driver's class have gone: the runner must not use them.
  MemoryDevice(std::string name, int queue_capacity, absl::Duration wait_limit,
               std::unique_ptr<CopyRunner> runner);

 private:
  const std::string name_;
  Target target_;
  HostQueue queue_;
  const std::array<Queue*, 1> queues_ = {&queue_};
};

}  // namespace telegrad
