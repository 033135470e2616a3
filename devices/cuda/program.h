// A kernel that the driver has translated for its GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/cuda/context.h"

namespace telegrad::cuda {

class CudaProgram final : public LoadedProgram {
 public:
  // INVALID_ARGUMENT for PTX that the driver does not take, with its log, that has no such entry
  // point, or whose kernel cannot have the workgroups that `image` says; `local_limit` is what the
  // GPU gives one at most. FAILED_PRECONDITION: the driver is older than the PTX.
  static absl::StatusOr<std::shared_ptr<CudaProgram>> Load(std::shared_ptr<Context> context,
                                                           const ProgramImage& image,
                                                           int64_t local_limit);
  ~CudaProgram() override;

  const Context& context() const { return *context_; }
  CUfunction function() const { return function_; }
  unsigned int group_threads() const { return group_threads_; }
  unsigned int local_bytes() const { return local_bytes_; }
  int64_t buffers() const { return buffers_; }  // that it takes

 private:
  CudaProgram(std::shared_ptr<Context> context, CUmodule module)
      : context_(std::move(context)), module_(module) {}

  absl::Status Prepare(const ProgramImage& image, int64_t local_limit);

  const std::shared_ptr<Context> context_;
  const CUmodule module_;
  CUfunction function_ = nullptr;
  unsigned int group_threads_ = 1;
  unsigned int local_bytes_ = 0;
  int64_t buffers_ = 0;
};

}  // namespace telegrad::cuda
