// The CUDA driver API as a driver of streams.
#pragma once

#include <memory>
#include <string>

#include "devices/cuda/library.h"
#include "devices/stream/context.h"
#include "devices/stream/driver.h"

namespace telegrad::cuda {

class CudaDriver final : public stream::Driver {
 public:
  explicit CudaDriver(std::shared_ptr<const Library> library);

  const Library& library() const { return *library_; }
  const Symbols& api() const { return library_->api(); }

  absl::Status Check(std::string_view call, stream::Result result) const override;
  bool IsSticky(stream::Result result) const override;
  stream::Called Retain(int device, CUcontext* context) const override;
  stream::Called Release(int device) const override;
  void Reset(int device) const override;
  stream::Called Enter(int device, CUcontext context) const override;
  stream::Called CopyAcross(const stream::Place& to, const stream::Place& from, size_t bytes,
                            CUstream stream) const override;
  stream::Called AddKernel(CUgraphNode* node, CUgraph graph, std::span<const CUgraphNode> after,
                           const stream::KernelLaunch& launch) const override;
  stream::Called AddCopy(CUgraphNode* node, CUgraph graph, std::span<const CUgraphNode> after,
                         CUcontext context, CUdeviceptr to, CUdeviceptr from,
                         size_t bytes) const override;
  stream::Called SetKernel(CUgraphExec exec, CUgraphNode node,
                           const stream::KernelLaunch& launch) const override;
  stream::Called SetCopy(CUgraphExec exec, CUgraphNode node, CUcontext context, CUdeviceptr to,
                         CUdeviceptr from, size_t bytes) const override;
  absl::Status TakesTensorMaps(stream::Context& context) const override;
  absl::Status EncodeTensorMap(stream::Context& context, const TensorMap& map, CUdeviceptr address,
                               CUtensorMap* encoded) const override;
  int64_t CodeBytes(const ProgramImage& image) const override;
  stream::Called LoadModule(const ProgramImage& image, CUmodule* module,
                            std::string* log) const override;
  absl::StatusOr<stream::Entry> Resolve(stream::Context& context, const ProgramImage& image,
                                        int64_t local_limit, CUmodule module) const override;

 private:
  const std::shared_ptr<const Library> library_;
};

// As TG_CUDA, with the name of the context's device in front. `driver` is a CudaDriver.
#define TG_CUDA_IN(context, driver, name, ...) \
  (context).Check(#name, (driver).api().name(__VA_ARGS__))

}  // namespace telegrad::cuda
