// The HIP runtime API as a driver of streams. A thread works on the device that it has set; there
// are no contexts.
#pragma once

#include <memory>
#include <string>

#include "devices/hip/library.h"
#include "devices/stream/context.h"
#include "devices/stream/driver.h"

namespace telegrad::hip {

class HipDriver final : public stream::Driver {
 public:
  explicit HipDriver(std::shared_ptr<const Library> library);

  const Library& library() const { return *library_; }
  const Symbols& api() const { return library_->api(); }

  absl::Status Check(std::string_view call, stream::Result result) const override;
  bool IsSticky(stream::Result result) const override;
  int64_t MostGroups(int64_t group_threads) const override;
  stream::Called Retain(int device, stream::ContextHandle* context) const override;
  stream::Called Release(int device) const override;
  void Reset(int device) const override;
  unsigned int SharedHostFlags() const override {
    return hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
  }
  stream::Called Enter(int device, stream::ContextHandle context) const override;
  stream::Called CopyAcross(const stream::Place& to, const stream::Place& from, size_t bytes,
                            hipStream_t stream) const override;
  stream::Called AddKernel(hipGraphNode_t* node, hipGraph_t graph,
                           std::span<const hipGraphNode_t> after,
                           const stream::KernelLaunch& launch) const override;
  stream::Called AddCopy(hipGraphNode_t* node, hipGraph_t graph,
                         std::span<const hipGraphNode_t> after, stream::ContextHandle context,
                         hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) const override;
  stream::Called SetKernel(hipGraphExec_t exec, hipGraphNode_t node,
                           const stream::KernelLaunch& launch) const override;
  stream::Called SetCopy(hipGraphExec_t exec, hipGraphNode_t node, stream::ContextHandle context,
                         hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) const override;
  absl::Status TakesTensorMaps(stream::Context&) const override {
    return absl::UnimplementedError("AMD's processors have none");
  }
  int64_t CodeBytes(const ProgramImage& image) const override;
  stream::Called LoadModule(const ProgramImage& image, hipModule_t* module,
                            std::string* log) const override;
  absl::StatusOr<stream::Entry> Resolve(stream::Context& context, const ProgramImage& image,
                                        int64_t local_limit, hipModule_t module) const override;

 private:
  const std::shared_ptr<const Library> library_;
};

// As TG_HIP, with the name of the context's device in front. `driver` is a HipDriver.
#define TG_HIP_IN(context, driver, name, ...) \
  (context).Check(#name, (driver).api().name(__VA_ARGS__))

}  // namespace telegrad::hip
