// A kernel that the driver has translated for its GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/stream/context.h"

namespace telegrad::stream {

class StreamProgram final : public LoadedProgram {
 public:
  // INVALID_ARGUMENT for code that the driver does not take, with its log, that has no such entry
  // point, or whose kernel cannot have the workgroups that `image` says; `local_limit` is what the
  // GPU gives one at most. FAILED_PRECONDITION: the driver is older than the code.
  static absl::StatusOr<std::shared_ptr<StreamProgram>> Load(std::shared_ptr<Context> context,
                                                             const ProgramImage& image,
                                                             int64_t local_limit);
  ~StreamProgram() override;

  const Context& context() const { return *context_; }
  FunctionHandle function() const { return entry_.function; }
  unsigned int group_threads() const { return group_threads_; }
  unsigned int local_bytes() const { return local_bytes_; }
  int64_t buffers() const { return entry_.buffers; }          // that it takes
  int64_t stack_bytes() const { return entry_.stack_bytes; }  // of a thread

 private:
  StreamProgram(std::shared_ptr<Context> context, ModuleHandle module)
      : context_(std::move(context)), module_(module) {}

  const std::shared_ptr<Context> context_;
  const ModuleHandle module_;
  Entry entry_;
  unsigned int group_threads_ = 1;
  unsigned int local_bytes_ = 0;
};

}  // namespace telegrad::stream
