// One generation of a GPU: its context with a stream device in it. Programs and commands are kept
// in the form in which they came, and loaded and encoded again for each generation that uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/stream/stream_device.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

class Generation {
 public:
  Generation(uint64_t number, std::unique_ptr<StreamDevice> device)
      : number_(number), context_(device->shared_context()), device_(std::move(device)) {}

  uint64_t number() const { return number_; }
  StreamDevice& device() { return *device_; }
  Context& context() const { return *context_; }

  // Ends all work and gives the GPU back with everything in it; what is left of its memory and
  // programs is empty from then on. UNAVAILABLE where the GPU is still at work on something that
  // does not end, which ends with the process only. Once; nobody uses it any more.
  absl::Status Close();

 private:
  const uint64_t number_;
  const std::shared_ptr<Context> context_;
  std::unique_ptr<StreamDevice> device_;
};

// Thread-safe.
class GenerationsProgram final : public LoadedProgram {
 public:
  GenerationsProgram(const void* device, ProgramImage image)
      : LoadedProgram(image.signature), device_(device), image_(std::move(image)) {}
  const void* device() const { return device_; }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> In(Generation& generation);

 private:
  const void* const device_;
  const ProgramImage image_;
  Mutex mutex_;
  uint64_t number_ TG_GUARDED_BY(mutex_) = 0;  // the generation that it is loaded in
  std::shared_ptr<LoadedProgram> loaded_ TG_GUARDED_BY(mutex_);
};

// Thread-safe.
class GenerationsCommands final : public CommandBuffer {
 public:
  GenerationsCommands(const void* device, std::vector<Command> commands)
      : device_(device), commands_(std::move(commands)) {}
  const void* device() const { return device_; }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> In(Generation& generation) const;
  // First of all: In, and how many scalars they have.
  absl::Status Prepare(Generation& generation);

 private:
  const void* const device_;
  const std::vector<Command> commands_;
  mutable Mutex mutex_;
  mutable uint64_t number_ TG_GUARDED_BY(mutex_) = 0;
  mutable std::shared_ptr<const CommandBuffer> encoded_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::stream
