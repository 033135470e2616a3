// The queue meta data by which Hopper's compute engine runs one grid: version 4.0, 384 bytes, a
// table of bit fields. Names and bits are those of NVCBC0_QMDV04_00_* in clcbc0qmd.h of
// NVIDIA/open-gpu-doc.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace telegrad::nv {

// clang-format off
#define TG_NV_QMD_FIELDS(X)                    \
  X(kQmdGroupId,              21,   16)        \
  X(kQmdType,                 25,   23)        \
  X(kRelease0Enable,          320,  320)       \
  X(kRelease0StructureSize,   322,  321)       \
  X(kRelease0MembarType,      323,  323)       \
  X(kRelease0Payload64,       332,  332)       \
  X(kConstantBuffer0Valid,    416,  416)       \
  X(kConstantBuffer0Invalidate, 419, 419)      \
  X(kLocalMemoryHigh,         567,  544)       \
  X(kConstantBuffer4Valid,    432,  432)       \
  X(kConstantBuffer4Invalidate, 435, 435)      \
  X(kSassVersion,             543,  536)       \
  X(kApiVisibleCallLimit,     568,  568)       \
  X(kSamplerIndex,            569,  569)       \
  X(kMinorVersion,            579,  576)       \
  X(kMajorVersion,            583,  580)       \
  X(kSharedMemorySize,        601,  584)       \
  X(kInvalidateTextureHeader, 602,  602)       \
  X(kInvalidateTextureSampler, 603, 603)       \
  X(kInvalidateTextureData,   604,  604)       \
  X(kInvalidateShaderData,    605,  605)       \
  X(kInvalidateInstruction,   606,  606)       \
  X(kInvalidateConstant,      607,  607)       \
  X(kMinSharedConfig,         613,  608)       \
  X(kMaxSharedConfig,         619,  614)       \
  X(kTargetSharedConfig,      625,  620)       \
  X(kRelease0AddressLow,      671,  640)       \
  X(kRelease0AddressHigh,     696,  672)       \
  X(kRelease0PayloadLow,      735,  704)       \
  X(kRelease0PayloadHigh,     767,  736)       \
  X(kGridWidth,               1055, 1024)      \
  X(kGridHeight,              1071, 1056)      \
  X(kGridDepth,               1103, 1088)      \
  X(kMembarType,              1137, 1136)      \
  X(kThreadsX,                1167, 1152)      \
  X(kThreadsY,                1183, 1168)      \
  X(kThreadsZ,                1199, 1184)      \
  X(kRegisterCount,           1208, 1200)      \
  X(kBarrierCount,            1215, 1211)      \
  X(kProgramAddressLow,       1247, 1216)      \
  X(kProgramAddressHigh,      1272, 1248)      \
  X(kConstantBuffer0Low6,     1567, 1536)      \
  X(kConstantBuffer0High6,    1586, 1568)      \
  X(kConstantBuffer0Size4,    1599, 1587)      \
  X(kConstantBuffer4Low6,     1823, 1792)      \
  X(kConstantBuffer4High6,    1842, 1824)      \
  X(kConstantBuffer4Size4,    1855, 1843)
// clang-format on

enum class QmdField : uint8_t {
#define X(name, high, low) name,
  TG_NV_QMD_FIELDS(X)
#undef X
};

struct QmdBits {
  std::string_view name;
  uint16_t high, low;
};
inline constexpr QmdBits kQmdBits[] = {
#define X(name, high, low) {#name, high, low},
    TG_NV_QMD_FIELDS(X)
#undef X
};

inline constexpr uint32_t kSassVersion = 0x90;       // sm_90
inline constexpr uint32_t kQmdTypeGridCta = 2;       // QMD_TYPE_GRID_CTA
inline constexpr uint32_t kMembarL1System = 1;       // CWD_MEMBAR_TYPE_L1_SYSMEMBAR
inline constexpr uint32_t kReleaseMembarSystem = 1;  // RELEASE_MEMBAR_TYPE_FE_SYSMEMBAR

class Qmd {
 public:
  static constexpr size_t kBytes = 384;

  Qmd() {
    Set(QmdField::kMajorVersion, 4);
    Set(QmdField::kMinorVersion, 0);
  }

  // What does not fit a field is cut off; no field crosses a 32-bit word.
  void Set(QmdField field, uint32_t value) {
    const QmdBits& bits = kQmdBits[static_cast<size_t>(field)];
    const uint64_t mask = (uint64_t{1} << (bits.high - bits.low + 1)) - 1;
    uint32_t& word = words_[bits.low / 32];
    const int shift = bits.low % 32;
    word = static_cast<uint32_t>((word & ~(mask << shift)) | ((value & mask) << shift));
  }

  const std::array<uint32_t, kBytes / 4>& words() const { return words_; }

 private:
  std::array<uint32_t, kBytes / 4> words_{};
};

constexpr bool QmdFieldsLieInWords() {
  for (const QmdBits& bits : kQmdBits) {
    if (bits.high < bits.low || bits.high / 32 != bits.low / 32 || bits.high >= Qmd::kBytes * 8) {
      return false;
    }
  }
  return true;
}
static_assert(QmdFieldsLieInWords());

// One grid of a kernel, as the compute engine sees it. Addresses are the GPU's.
struct GridWork {
  uint64_t program = 0;
  uint64_t constants = 0;  // bank 0, a multiple of 64
  uint32_t constant_bytes = 0;
  uint32_t registers = 0;     // of a thread
  uint32_t barriers = 0;      // of a workgroup; it has one at least
  uint32_t shared_bytes = 0;  // of a workgroup, with the system's part of 1,024
  uint32_t stack_bytes = 0;   // of a thread
  std::array<uint32_t, 3> grid{1, 1, 1}, group{1, 1, 1};
};

// The meta data of the grid: caches are emptied before it, and memory is made visible behind it.
Qmd QmdOf(const GridWork& work);

}  // namespace telegrad::nv
