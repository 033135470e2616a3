// Launches of kernels on streams, and how many workgroups a multiprocessor holds.
#include <algorithm>

#include "tests/fakes/cuda/device_facts.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/work.h"

using fakecuda::Call;
using fakecuda::Handle;

FAKE_CUDA_API int cuLaunchKernel(Handle function, unsigned int grid_x, unsigned int grid_y,
                                 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                 unsigned int block_z, unsigned int shared_bytes,
                                 Handle stream_handle, void** parameters, void** extra) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  fakecuda::Driver& driver = call.driver();
  LoadForLaunch(call, function);
  fakecuda::Stream* stream = call.FindStream(stream_handle);
  if (stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (stream->context != call.context().handle) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  const uint32_t grid[3] = {grid_x, grid_y, grid_z};
  const uint32_t block[3] = {block_x, block_y, block_z};
  fakecuda::PreparedLaunch launch;
  const fakecuda::Result result = Prepare(driver, call.context(), function, grid, block,
                                          shared_bytes, parameters, extra, &launch);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  const fakecuda::LaunchFate fate = fakecuda::DrawFate(driver);
  fakecuda::Operation operation;
  operation.hangs = fate.hangs;
  operation.run = [launch = std::move(launch), fate](const fakecuda::MemoryView& memory) {
    fakecuda::Outcome outcome;
    RunLaunch(launch, fate, memory, &outcome);
    return outcome;
  };
  Submit(driver, *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle function,
                                                              int threads, size_t shared_bytes) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const auto it = call.driver().functions.find(function);
  if (it == call.driver().functions.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || threads <= 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const uint64_t shared = shared_bytes + it->second.kernel->shared_bytes + 1024;
  const uint64_t by_shared = (fakecuda::SharedLimit(call.driver().knobs) + 1024) / shared;
  const int by_threads = threads > 1024 ? 0 : 2048 / ((threads + 31) / 32 * 32);
  *blocks = static_cast<int>(
      std::min<uint64_t>({by_shared, static_cast<uint64_t>(by_threads), uint64_t{32}}));
  return fakecuda::CUDA_SUCCESS;
}
