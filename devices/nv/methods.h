// The methods of Hopper's engines that the probe pushes, and their bits: of the host (clc86f.h and
// clc36f.h), the compute engine (clcbc0.h) and the copy engine (clc8b5.h), in NVIDIA/open-gpu-doc
// and NVIDIA/open-gpu-kernel-modules at tag 580.142.
#pragma once

#include <cstdint>

namespace telegrad::nv {

// Which subchannel speaks to which engine; the host listens on all of them. The copy engine's is
// fixed (cla06fsubch.h).
enum Subchannel : uint32_t { kSubHost = 0, kSubCompute = 1, kSubCopy = 4 };

inline constexpr uint32_t kSetObject = 0x0000;

// Host. A semaphore of 16 bytes: value, time.
inline constexpr uint32_t kSemAddressLow = 0x005C;  // then high, payload low, payload high
inline constexpr uint32_t kSemExecute = 0x006C;
inline constexpr uint32_t kSemRelease = 1;                    // OPERATION_RELEASE
inline constexpr uint32_t kSemAcquire = 2;                    // OPERATION_ACQ_STRICT_GEQ
inline constexpr uint32_t kSemAcquireSwitchGroup = 1u << 12;  // ACQUIRE_SWITCH_TSG_EN
inline constexpr uint32_t kSemReleaseWaitForIdle = 1u << 20;  // RELEASE_WFI_EN
inline constexpr uint32_t kSemPayload64 = 1u << 24;           // PAYLOAD_SIZE_64BIT
inline constexpr uint32_t kSemTimestamp = 1u << 25;           // RELEASE_TIMESTAMP_EN

// Compute.
inline constexpr uint32_t kSetSharedWindow = 0x02A0;  // SET_SHADER_SHARED_MEMORY_WINDOW_A, _B
inline constexpr uint32_t kSetLocalWindow = 0x07B0;   // SET_SHADER_LOCAL_MEMORY_WINDOW_A, _B
inline constexpr uint32_t kSetLocalMemory = 0x0790;   // SET_SHADER_LOCAL_MEMORY_A, _B: its address
inline constexpr uint32_t kSetLocalMemorySize =
    0x02E4;                                       // SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, _B, _C
inline constexpr uint32_t kAllProcessors = 0xFF;  // _C: MAX_SM_COUNT
inline constexpr uint32_t kSendPcasA = 0x02B4;    // the QMD's address >> 8
inline constexpr uint32_t kSendSignalingPcas2B = 0x02C0;
inline constexpr uint32_t kPcasPrefetchSchedule = 9;   // PCAS_ACTION_PREFETCH_SCHEDULE
inline constexpr uint32_t kInvalidateCaches = 0x1698;  // INVALIDATE_SHADER_CACHES_NO_WFI
inline constexpr uint32_t kInvalidateAll = 1u << 0 | 1u << 4 | 1u << 12;  // code, data, constants

// Copies.
inline constexpr uint32_t kSetSemaphoreA = 0x0240;  // address high, low, payload
inline constexpr uint32_t kLaunchDma = 0x0300;
inline constexpr uint32_t kOffsetInUpper = 0x0400;  // in high, low, out high, low
inline constexpr uint32_t kLineLengthIn = 0x0418;
inline constexpr uint32_t kDmaNonPipelined = 2;            // DATA_TRANSFER_TYPE_NON_PIPELINED
inline constexpr uint32_t kDmaFlush = 1u << 2;             // FLUSH_ENABLE
inline constexpr uint32_t kDmaReleaseTimestamp = 2u << 3;  // RELEASE_SEMAPHORE_WITH_TIMESTAMP
inline constexpr uint32_t kDmaPitch = 1u << 7 | 1u << 8;   // both ends linear
inline constexpr uint32_t kDmaRemap = 1u << 10;            // REMAP_ENABLE
inline constexpr uint32_t kDmaPayload64 = 1u << 27;        // SEMAPHORE_PAYLOAD_SIZE_TWO_WORD
inline constexpr uint32_t kSetRemapConstA = 0x0700;
inline constexpr uint32_t kSetRemapComponents = 0x0708;
inline constexpr uint32_t kRemapXConstA = 4;           // DST_X_CONST_A
inline constexpr uint32_t kRemapFourBytes = 3u << 16;  // COMPONENT_SIZE_FOUR; 0: one byte

}  // namespace telegrad::nv
