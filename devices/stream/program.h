// A kernel that the driver has translated for its GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/stream/context.h"
#include "devices/stream/unloads.h"

namespace telegrad::stream {

class StreamProgram final : public LoadedProgram {
 public:
  // INVALID_ARGUMENT for code that the driver does not take, with its log, that has no such entry
  // point, or whose kernel cannot be launched as the image's signature says; `local_limit` is what
  // the GPU gives one at most. FAILED_PRECONDITION: the driver is older than the code.
  // UNIMPLEMENTED: it takes tensor maps, which the GPU or its driver lacks.
  // `code`: what counts its memory, see LoadedModule.
  static absl::StatusOr<std::shared_ptr<StreamProgram>> Load(std::shared_ptr<Context> context,
                                                             const ProgramImage& image,
                                                             int64_t local_limit,
                                                             std::shared_ptr<const void> code,
                                                             std::shared_ptr<Unloads> unloads);
  ~StreamProgram() override;

  const Context& context() const { return *context_; }
  FunctionHandle function() const { return entry_.function; }
  int64_t stack_bytes() const { return entry_.stack_bytes; }  // of a thread

 private:
  StreamProgram(ProgramSignature signature, std::shared_ptr<Context> context, LoadedModule module,
                std::shared_ptr<Unloads> unloads)
      : LoadedProgram(std::move(signature)),
        context_(std::move(context)),
        module_(std::move(module)),
        unloads_(std::move(unloads)) {}

  const std::shared_ptr<Context> context_;
  const LoadedModule module_;
  const std::shared_ptr<Unloads> unloads_;
  Entry entry_;
};

}  // namespace telegrad::stream
