// One generation of a device: a GPU brought up once, with a stream device over it. Programs and
// commands are kept in the form in which they came, and encoded again for each generation that
// uses them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/nv/nv_device.h"
#include "devices/nv/nv_driver.h"
#include "devices/stream/stream_device.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad::nv {

class Generation {
 public:
  static absl::StatusOr<std::shared_ptr<Generation>> Open(uint64_t number, int gpu,
                                                          const std::string& name,
                                                          const NvOptions& options);
  // Ends all work and gives everything back; what could not be, with the reason.
  std::vector<std::string> Close();

  uint64_t number() const { return number_; }
  stream::StreamDevice& device() { return *device_; }
  const stream::Context& context() const { return *context_; }
  const NvDriver& driver() const { return *driver_; }

 private:
  const uint64_t number_;
  std::shared_ptr<NvDriver> driver_;
  std::shared_ptr<stream::Context> context_;
  std::unique_ptr<stream::StreamDevice> device_;

  explicit Generation(uint64_t number) : number_(number) {}
};

// Thread-safe.
class Program final : public LoadedProgram {
 public:
  Program(const void* device, ProgramImage image)
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
class Commands final : public CommandBuffer {
 public:
  Commands(const void* device, std::vector<Command> commands)
      : device_(device), commands_(std::move(commands)) {}
  const void* device() const { return device_; }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> In(Generation& generation) const;
  // First of all: In, and how many scalars they have.
  absl::Status Prepare(Generation& generation) {
    TG_ASSIGN_OR_RETURN(const auto encoded, In(generation));
    scalars_ = encoded->scalars();
    return absl::OkStatus();
  }

 private:
  const void* const device_;
  const std::vector<Command> commands_;
  mutable Mutex mutex_;
  mutable uint64_t number_ TG_GUARDED_BY(mutex_) = 0;
  mutable std::shared_ptr<const CommandBuffer> encoded_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::nv
