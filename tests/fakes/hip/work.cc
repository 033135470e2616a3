// Launches and copies between devices, where HIP's limits and forms are its own: the threads of a
// grid are counted in 32 bits, a workgroup has 64 KiB of local memory, and copies of graphs are
// given as plain addresses.
#include <cstdint>
#include <limits>

#include "tests/fakes/hip/functions.h"

using fakehip::HipOf;

namespace {

constexpr unsigned int kMostThreads = 1024;  // of a workgroup

int CheckShape(const unsigned int grid[3], const unsigned int block[3]) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0) return fakehip::hipErrorInvalidConfiguration;
    if (uint64_t{grid[i]} * block[i] > std::numeric_limits<uint32_t>::max()) {
      return fakehip::hipErrorInvalidConfiguration;
    }
    threads *= block[i];
  }
  return threads > kMostThreads ? fakehip::hipErrorInvalidConfiguration : fakehip::hipSuccess;
}

int ToCuda(const fakehip::KernelNode* node, KernelNodeParams* out) {
  if (node == nullptr) return fakehip::hipErrorInvalidValue;
  *out = {.func = node->function,
          .grid = {node->grid.x, node->grid.y, node->grid.z},
          .block = {node->block.x, node->block.y, node->block.z},
          .shared_bytes = node->shared_bytes,
          .kernel_params = node->parameters,
          .extra = node->extra,
          .kern = 0,
          .ctx = 0};
  return CheckShape(out->grid, out->block);
}

MemcpyParams CopyOf(DevicePointer to, DevicePointer from, size_t bytes) {
  MemcpyParams out{};
  out.from.type = out.to.type = fakecuda::kDevice;
  out.from.device = from;
  out.to.device = to;
  out.width_bytes = bytes;
  out.height = out.depth = 1;
  return out;
}

}  // namespace

FAKE_HIP_API int hipModuleLaunchKernel(Handle function, unsigned int grid_x, unsigned int grid_y,
                                       unsigned int grid_z, unsigned int block_x,
                                       unsigned int block_y, unsigned int block_z,
                                       unsigned int shared_bytes, Handle stream, void** parameters,
                                       void** extra) {
  FAKE_HIP_USE();
  const unsigned int grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  if (const int result = CheckShape(grid, block); result != 0) return result;
  return HipOf(cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                              shared_bytes, stream, parameters, extra));
}

FAKE_HIP_API int hipMemcpyPeerAsync(DevicePointer to, int to_device, DevicePointer from,
                                    int from_device, size_t bytes, Handle stream) {
  FAKE_HIP_USE();
  Handle there = 0, here = 0;
  if (const int result = fakehip::StateOf(to_device, &there); result != 0) return HipOf(result);
  if (const int result = fakehip::StateOf(from_device, &here); result != 0) return HipOf(result);
  return HipOf(cuMemcpyPeerAsync(to, there, from, here, bytes, stream));
}

FAKE_HIP_API int hipGraphAddKernelNode(Handle* node, Handle graph, const Handle* after,
                                       size_t count, const fakehip::KernelNode* parameters) {
  FAKE_HIP_USE();
  KernelNodeParams params;
  if (const int result = ToCuda(parameters, &params); result != 0) return result;
  return HipOf(cuGraphAddKernelNode_v2(node, graph, after, count, &params));
}

FAKE_HIP_API int hipGraphExecKernelNodeSetParams(Handle exec, Handle node,
                                                 const fakehip::KernelNode* parameters) {
  FAKE_HIP_USE();
  KernelNodeParams params;
  if (const int result = ToCuda(parameters, &params); result != 0) return result;
  return HipOf(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
}

FAKE_HIP_API int hipGraphAddMemcpyNode1D(Handle* node, Handle graph, const Handle* after,
                                         size_t count, DevicePointer to, DevicePointer from,
                                         size_t bytes, int kind) {
  FAKE_HIP_USE();
  if (kind != fakehip::kDeviceToDevice) return fakehip::hipErrorNotSupported;
  const MemcpyParams copy = CopyOf(to, from, bytes);
  return HipOf(cuGraphAddMemcpyNode(node, graph, after, count, &copy, fakecuda::CurrentContext()));
}

FAKE_HIP_API int hipGraphExecMemcpyNodeSetParams1D(Handle exec, Handle node, DevicePointer to,
                                                   DevicePointer from, size_t bytes, int kind) {
  FAKE_HIP_USE();
  if (kind != fakehip::kDeviceToDevice) return fakehip::hipErrorNotSupported;
  const MemcpyParams copy = CopyOf(to, from, bytes);
  return HipOf(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, fakecuda::CurrentContext()));
}
