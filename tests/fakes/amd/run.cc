// Runs a launch: its workgroups one after another, each to its end.
#include <algorithm>

#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

Fault Refused(const std::string& what) {
  return {.code = FaultCode::kLaunchFailed, .message = what};
}

// The kernel's place in its object.
size_t IndexOf(const Launch& launch) {
  for (size_t k = 0; k < launch.object->kernels.size(); ++k) {
    if (launch.object->kernels[k].name == launch.kernel->name) return k;
  }
  return launch.object->kernels.size();
}

}  // namespace

Fault Run(const Launch& launch, Counts* counts) {
  if (launch.object == nullptr || launch.object->code == nullptr || launch.kernel == nullptr ||
      launch.memory == nullptr) {
    return Refused("the launch has no kernel or no memory");
  }
  const size_t index = IndexOf(launch);
  if (index == launch.object->kernels.size()) return Refused("the kernel is not of the object");
  const Kernel& kernel = *launch.kernel;
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > std::max(kernel.max_threads, 1u)) {
    return Refused(kernel.name + " runs with 1 to " + std::to_string(kernel.max_threads) +
                   " threads in a workgroup, not with " + std::to_string(threads));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    if (kernel.required[axis] != 0 && kernel.required[axis] != launch.block[axis]) {
      return Refused(kernel.name + " requires another size of workgroups");
    }
  }
  if (launch.kernarg.size() != kernel.kernarg_bytes) {
    return Refused(kernel.name + " takes " + std::to_string(kernel.kernarg_bytes) +
                   " bytes of arguments, not " + std::to_string(launch.kernarg.size()));
  }
  constexpr uint64_t kLocalLimit = 64 << 10;
  if (uint64_t{kernel.group_bytes} + launch.dynamic_group_bytes > kLocalLimit) {
    return Refused(kernel.name + " has more local memory than the 64 KiB of a workgroup");
  }

  LaunchState state;
  state.launch = &launch;
  state.code = launch.object->code.get();
  state.kernel = &state.code->kernels[index];
  state.budget = launch.budget;
  for (const Region& region : *launch.memory) {
    state.places.push_back({.base = region.base, .bytes = region.bytes, .host = region.host});
  }
  // Compilers load arguments by whole pieces of 16 bytes, which queues of the HSA runtime allow.
  std::vector<uint8_t> arguments(launch.kernarg.begin(), launch.kernarg.end());
  arguments.resize((arguments.size() + 15) / 16 * 16);
  state.places.push_back({.base = kKernargBase,
                          .bytes = arguments.size(),
                          .host = arguments.data(),
                          .read_only = true});
  // Nothing writes through these pointers: the places are read-only.
  for (const Segment& segment : state.code->segments) {
    state.places.push_back({.base = kObjectBase + segment.address,
                            .bytes = segment.bytes.size(),
                            .host = const_cast<uint8_t*>(segment.bytes.data()),
                            .read_only = true});
  }
  std::sort(state.places.begin(), state.places.end(),
            [](const auto& a, const auto& b) { return a.base < b.base; });

  Workgroup group(&state);
  std::array<uint32_t, 3> id = {};
  for (id[2] = 0; id[2] < launch.grid[2]; ++id[2]) {
    for (id[1] = 0; id[1] < launch.grid[1]; ++id[1]) {
      for (id[0] = 0; id[0] < launch.grid[0]; ++id[0]) {
        group.Run(id);
        if (state.fault.code != FaultCode::kNone) break;
      }
      if (state.fault.code != FaultCode::kNone) break;
    }
    if (state.fault.code != FaultCode::kNone) break;
  }
  state.counts.instructions = launch.budget - state.budget;
  if (counts != nullptr) *counts = state.counts;
  return state.fault;
}

}  // namespace fakeamd
