#include "devices/nv/qmd.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "devices/nv/pushbuffer.h"

namespace telegrad::nv {
namespace {

// Shared memory of a processor, of which the L1 cache has the rest: the sizes there are, in KiB
// (CUDA C++ Programming Guide, "Compute Capability 9.x").
constexpr uint32_t kSharedSizes[] = {8, 16, 32, 64, 100, 132, 164, 196, 228};
constexpr uint32_t SharedConfig(uint32_t kib) { return kib / 4 + 1; }

}  // namespace

Qmd QmdOf(const GridWork& work) {
  const auto* size = std::ranges::lower_bound(kSharedSizes, (work.shared_bytes + 1023) / 1024);
  const uint32_t config = SharedConfig(size == std::end(kSharedSizes) ? 228 : *size);
  const std::pair<QmdField, uint32_t> fields[] = {
      {QmdField::kQmdType, kQmdTypeGridCta},
      {QmdField::kQmdGroupId, 0x3f},
      {QmdField::kApiVisibleCallLimit, 1},  // not checked
      {QmdField::kSamplerIndex, 1},         // by the header's index
      {QmdField::kSassVersion, kSassVersion},
      {QmdField::kInvalidateTextureHeader, 1},
      {QmdField::kInvalidateTextureSampler, 1},
      {QmdField::kInvalidateTextureData, 1},
      {QmdField::kInvalidateShaderData, 1},
      {QmdField::kInvalidateInstruction, 1},
      {QmdField::kInvalidateConstant, 1},
      {QmdField::kSharedMemorySize, work.shared_bytes},
      {QmdField::kMinSharedConfig, config},
      {QmdField::kTargetSharedConfig, config},
      {QmdField::kMaxSharedConfig, SharedConfig(228)},
      {QmdField::kLocalMemoryHigh, work.stack_bytes},
      {QmdField::kGridWidth, work.grid[0]},
      {QmdField::kGridHeight, work.grid[1]},
      {QmdField::kGridDepth, work.grid[2]},
      {QmdField::kThreadsX, work.group[0]},
      {QmdField::kThreadsY, work.group[1]},
      {QmdField::kThreadsZ, work.group[2]},
      {QmdField::kRegisterCount, work.registers},
      {QmdField::kBarrierCount, std::max<uint32_t>(work.barriers, 1)},
      {QmdField::kMembarType, kMembarL1System},
      {QmdField::kProgramAddressLow, Low(work.program)},
      {QmdField::kProgramAddressHigh, High(work.program)},
      {QmdField::kConstantBuffer0Valid, 1},
      {QmdField::kConstantBuffer0Invalidate, 1},
      {QmdField::kConstantBuffer0Low6, Low(work.constants >> 6)},
      {QmdField::kConstantBuffer0High6, High(work.constants >> 6)},
      {QmdField::kConstantBuffer0Size4, work.constant_bytes >> 4},
  };
  Qmd qmd;
  for (const auto& [field, value] : fields) qmd.Set(field, value);
  return qmd;
}

}  // namespace telegrad::nv
