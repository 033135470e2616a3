// A GPU that is driven through its hardware queues, as a driver of streams: what devices/stream
// asks of a driver's library is done here by channels, semaphores and encoded commands. One driver
// is one GPU, brought up when its context is opened; a new driver is its next generation.
#pragma once

#include <memory>
#include <string>

#include "devices/hcq/sys_ops.h"
#include "devices/nv/gpu.h"
#include "devices/nv/watcher.h"
#include "devices/stream/context.h"
#include "devices/stream/driver.h"

namespace telegrad::nv {

struct NvDriverOptions {
  hcq::SysOps* system = nullptr;
  int gpu = 0;  // by the kernel driver's order
  GpuLimits limits;
};

class NvDriver final : public stream::Driver {
 public:
  NvDriver(const NvDriverOptions& options, std::string name);
  ~NvDriver() override;

  // While the context is open.
  Gpu& gpu() const { return *gpu_; }
  // Gives everything of the GPU back, whatever is in use; what could not be, with the reason. No
  // queue is left, and all further calls fail.
  std::vector<std::string> Close() const;

  absl::Status Check(std::string_view call, stream::Result result) const override;
  bool IsSticky(stream::Result result) const override;
  stream::Called Retain(int device, stream::ContextHandle* context) const override;
  stream::Called Release(int device) const override;
  void Reset(int) const override { Close(); }
  void Lose(const absl::Status& why) const override;
  bool EndsStuckWork() const override { return true; }
  bool ReleasesAfterReset() const override { return true; }
  stream::Called Enter(int device, stream::ContextHandle context) const override;
  stream::Called CopyAcross(const stream::Place& to, const stream::Place& from, size_t bytes,
                            stream::StreamHandle stream) const override;
  stream::Called AddKernel(stream::NodeHandle* node, stream::GraphHandle graph,
                           std::span<const stream::NodeHandle> after,
                           const stream::KernelLaunch& launch) const override;
  stream::Called AddCopy(stream::NodeHandle* node, stream::GraphHandle graph,
                         std::span<const stream::NodeHandle> after, stream::ContextHandle context,
                         stream::Address to, stream::Address from, size_t bytes) const override;
  stream::Called SetKernel(stream::ExecHandle exec, stream::NodeHandle node,
                           const stream::KernelLaunch& launch) const override;
  stream::Called SetCopy(stream::ExecHandle exec, stream::NodeHandle node,
                         stream::ContextHandle context, stream::Address to, stream::Address from,
                         size_t bytes) const override;
  absl::Status TakesTensorMaps(stream::Context&) const override {
    return absl::UnimplementedError("only NVIDIA's own driver encodes them");
  }
  int64_t CodeBytes(const ProgramImage& image) const override;
  stream::Called LoadModule(const ProgramImage& image, stream::ModuleHandle* module,
                            std::string* log) const override;
  absl::StatusOr<stream::Entry> Resolve(stream::Context& context, const ProgramImage& image,
                                        int64_t local_limit,
                                        stream::ModuleHandle module) const override;

 private:
  const NvDriverOptions options_;
  const std::string name_;
  // Made by Retain, which the contract has const, as all of a library's functions are.
  mutable std::unique_ptr<Gpu> gpu_;
  mutable std::unique_ptr<Watcher> watcher_;
};

}  // namespace telegrad::nv
