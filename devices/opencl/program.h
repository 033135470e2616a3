// A kernel that the driver has loaded from its own binary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/opencl/context.h"

namespace telegrad::opencl {

class OpenClProgram final : public LoadedProgram {
 public:
  // INVALID_ARGUMENT for a binary that the driver does not take, with its log, that has no such
  // kernel, or whose kernel has other workgroups than `image` says. UNIMPLEMENTED: it takes tensor
  // maps.
  static absl::StatusOr<std::shared_ptr<OpenClProgram>> Load(std::shared_ptr<Context> context,
                                                             const ProgramImage& image);
  ~OpenClProgram() override;

  const Context& context() const { return *context_; }

  // An argument of a launch: a byte of a memory, or a scalar.
  struct Word {
    cl_mem memory = nullptr;  // null: a scalar
    uint64_t bits = 0;        // the byte's number, or the scalar's bits
  };
  // Puts the launch on the queue, with a word for each of its arguments. By one thread at a time: a
  // kernel of OpenCL keeps its arguments.
  absl::Status Enqueue(const Launch& launch, std::span<const Word> words, cl_command_queue queue);

 private:
  OpenClProgram(ProgramSignature signature, std::shared_ptr<Context> context)
      : LoadedProgram(std::move(signature)), context_(std::move(context)) {}

  absl::Status Build(const ProgramImage& image);
  absl::Status Prepare(const ProgramImage& image);
  template <typename T>
  absl::Status SetArgument(cl_uint* index, const T& value);

  const std::shared_ptr<Context> context_;
  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

}  // namespace telegrad::opencl
