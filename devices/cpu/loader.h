// Loads relocatable objects into this process as code that can be called.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/cpu/worker_pool.h"

namespace telegrad {

class CpuProgram : public LoadedProgram {
 public:
  CpuProgram(ProgramSignature signature, WorkerPool::Body entry)
      : LoadedProgram(std::move(signature)), entry_(entry) {}
  WorkerPool::Body entry() const { return entry_; }

 private:
  WorkerPool::Body entry_;
};

// Thread-safe. Programs keep what they need of it alive.
class Loader {
 public:
  static absl::StatusOr<std::unique_ptr<Loader>> Create();
  virtual ~Loader() = default;

  // INVALID_ARGUMENT if the object is malformed, lacks the entry point, or needs a symbol that
  // programs may not have. Its memory is freed with the program.
  virtual absl::StatusOr<std::shared_ptr<CpuProgram>> Load(const ProgramImage& image) = 0;
};

}  // namespace telegrad
