// Encodes one copy, one fill or one launch for a channel: its methods, and behind each a step at
// which the channel stops until the operation has ended. So the operations of a channel are in
// order, whichever engine carries them out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "devices/cubin/cubin.h"
#include "devices/nv/heap.h"
#include "devices/nv/pushbuffer.h"

namespace telegrad::nv {

// A 64-bit word that becomes `value` when an operation has ended.
struct Step {
  uint64_t address = 0, value = 0;
};

// A kernel with its image where it lies.
struct Function {
  CubinKernel kernel;
  uint64_t image = 0;  // the GPU's address of it
};

struct GridLaunch {
  const Function* function = nullptr;
  std::array<uint32_t, 3> grid = {1, 1, 1}, group = {1, 1, 1};  // x, y, z
  uint32_t shared_bytes = 0;                                    // beside the kernel's own
  std::span<const uint64_t> words = {};  // its parameters, as they lie in the constant bank
};

// The windows through which kernels see their shared and local memory: 4 GiB each, and clear of all
// memory.
inline constexpr uint64_t kSharedWindow = 0x7294'0000'0000, kLocalWindow = 0x7293'0000'0000;

// What a launch needs of memory that the host writes and the GPU reads, at a multiple of 256 bytes:
// the queue meta data, and the constant bank with the parameters behind it.
size_t LaunchDataBytes(const CubinKernel& kernel);
void WriteLaunchData(const Block& at, const GridLaunch& launch);
// Of launch data that was written: other parameters.
void PatchLaunchData(const Block& at, const GridLaunch& launch);

void PushLaunch(PushBuffer& push, uint64_t data, const Step& step);
// As many words for all addresses.
void PushCopy(PushBuffer& push, uint64_t to, uint64_t from, uint64_t bytes, const Step& step);
void PushFill(PushBuffer& push, uint64_t to, uint8_t value, uint64_t bytes, const Step& step);

// The channel's engines, and where their windows are.
void PushSetup(PushBuffer& push);
void PushStacks(PushBuffer& push, uint64_t address, uint64_t bytes_per_tpc);

}  // namespace telegrad::nv
