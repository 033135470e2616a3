// A kernel that the driver has loaded from its own binary.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/opencl/context.h"

namespace telegrad::opencl {

class OpenClProgram final : public LoadedProgram {
 public:
  // INVALID_ARGUMENT for a binary that the driver does not take, with its log, that has no such
  // kernel, or whose kernel has other workgroups than `image` says.
  static absl::StatusOr<std::shared_ptr<OpenClProgram>> Load(std::shared_ptr<Context> context,
                                                             const ProgramImage& image);
  ~OpenClProgram() override;

  const Context& context() const { return *context_; }
  int64_t buffers() const { return buffers_; }  // that it takes

  // Puts the launch on the queue, with argument i at the byte offsets[i] of memories[i]. By one
  // thread at a time: a kernel of OpenCL keeps its arguments.
  absl::Status Enqueue(const Launch& launch, const cl_mem* memories, const int64_t* offsets,
                       cl_command_queue queue);

 private:
  explicit OpenClProgram(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  absl::Status Build(const ProgramImage& image);
  absl::Status Prepare(const ProgramImage& image);

  const std::shared_ptr<Context> context_;
  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
  int64_t buffers_ = 0;
  std::array<size_t, 3> group_ = {1, 1, 1};
};

}  // namespace telegrad::opencl
