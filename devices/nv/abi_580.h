// The kernel interface of NVIDIA's driver, branch 580, as far as this driver uses it: the ioctls
// of the resource manager (RM) on /dev/nvidiactl and /dev/nvidiaN. Layouts and numbers are those
// of NVIDIA/open-gpu-kernel-modules at tag 580.142; the comment behind a struct or a group of
// numbers names its own header there (nvos.h, class/ and ctrl/ in src/common/sdk/nvidia/inc).
// They differ between branches without any sign, so drivers of other branches are refused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad::nv {

inline constexpr int kDriverBranch = 580;

using Handle = uint32_t;

// An ioctl on /dev/nvidia*: _IOWR with type 'F' (kernel-open/common/inc/nv-ioctl-numbers.h).
constexpr uint32_t RmRequest(uint32_t number, size_t bytes) {
  return 3u << 30 | static_cast<uint32_t>(bytes) << 16 | uint32_t{'F'} << 8 | number;
}

// nv_escape.h, nv-ioctl-numbers.h
inline constexpr uint32_t kEscAllocMemory = 0x27;
inline constexpr uint32_t kEscFree = 0x29;
inline constexpr uint32_t kEscControl = 0x2A;
inline constexpr uint32_t kEscAlloc = 0x2B;
inline constexpr uint32_t kEscMapMemory = 0x4E;
inline constexpr uint32_t kEscUnmapMemory = 0x4F;
inline constexpr uint32_t kEscMapMemoryDma = 0x57;
inline constexpr uint32_t kEscUnmapMemoryDma = 0x58;
inline constexpr uint32_t kEscCardInfo = 200;
inline constexpr uint32_t kEscRegisterFd = 201;

// class/cl*.h
inline constexpr uint32_t kRootClient = 0x41;        // NV01_ROOT_CLIENT
inline constexpr uint32_t kDevice = 0x80;            // NV01_DEVICE_0
inline constexpr uint32_t kSubdevice = 0x2080;       // NV20_SUBDEVICE_0
inline constexpr uint32_t kMemoryVirtual = 0x70;     // NV01_MEMORY_VIRTUAL
inline constexpr uint32_t kMemorySystem = 0x3E;      // NV01_MEMORY_SYSTEM
inline constexpr uint32_t kMemoryUser = 0x40;        // NV01_MEMORY_LOCAL_USER
inline constexpr uint32_t kOsDescriptor = 0x71;      // NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
inline constexpr uint32_t kVaSpace = 0x90F1;         // FERMI_VASPACE_A
inline constexpr uint32_t kChannelGroup = 0xA06C;    // KEPLER_CHANNEL_GROUP_A
inline constexpr uint32_t kContextShare = 0x9067;    // FERMI_CONTEXT_SHARE_A
inline constexpr uint32_t kHopperUsermode = 0xC661;  // HOPPER_USERMODE_A
inline constexpr uint32_t kHopperGpfifo = 0xC86F;    // HOPPER_CHANNEL_GPFIFO_A
inline constexpr uint32_t kHopperCompute = 0xCBC0;   // HOPPER_COMPUTE_A
inline constexpr uint32_t kHopperCopy = 0xC8B5;      // HOPPER_DMA_COPY_A
inline constexpr uint32_t kEngineGraphics = 1;       // NV2080_ENGINE_TYPE_GRAPHICS
inline constexpr size_t kUsermodeBytes = 65536;      // NVC361_NV_USERMODE__SIZE
inline constexpr size_t kUsermodeDoorbell = 0x90;    // NVC361_NOTIFY_CHANNEL_PENDING
inline constexpr size_t kUserdBytes = 512;           // Nvc86fControl
inline constexpr size_t kUserdGpPut = 0x8C;          // Nvc86fControl.GPPut

// ctrl/ctrl*.h
inline constexpr uint32_t kGetBuildVersion = 0x13E;  // NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2
inline constexpr uint32_t kGetIdInfo = 0x205;        // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
inline constexpr uint32_t kGetClassList = 0x800292;  // NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2
inline constexpr uint32_t kGetName = 0x20800110;     // NV2080_CTRL_CMD_GPU_GET_NAME_STRING
inline constexpr uint32_t kGetGid = 0x2080014A;      // NV2080_CTRL_CMD_GPU_GET_GID_INFO
inline constexpr uint32_t kGetGrInfo = 0x20801201;   // NV2080_CTRL_CMD_GR_GET_INFO
inline constexpr uint32_t kGetGpcMask = 0x2080122A;  // NV2080_CTRL_CMD_GR_GET_GPC_MASK
inline constexpr uint32_t kGetTpcMask = 0x2080122B;  // NV2080_CTRL_CMD_GR_GET_TPC_MASK
inline constexpr uint32_t kGetFbInfo = 0x20801303;   // NV2080_CTRL_CMD_FB_GET_INFO_V2
inline constexpr uint32_t kGetToken = 0xC36F0108;    // NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
inline constexpr uint32_t kScheduleGroup = 0xA06C0101;  // NVA06C_CTRL_CMD_GPFIFO_SCHEDULE

struct FreeParams {  // NVOS00_PARAMETERS
  Handle root, parent, object;
  uint32_t status;
};
static_assert(sizeof(FreeParams) == 16);

struct AllocMemoryParams {  // nv_ioctl_nvos02_parameters_with_fd
  Handle root, parent, object;
  uint32_t object_class, flags;
  alignas(8) uint64_t memory;
  uint64_t limit;
  uint32_t status;
  alignas(8) int32_t fd;
};
static_assert(sizeof(AllocMemoryParams) == 56 && offsetof(AllocMemoryParams, memory) == 24 &&
              offsetof(AllocMemoryParams, status) == 40 && offsetof(AllocMemoryParams, fd) == 48);

struct AllocParams {  // NVOS21_PARAMETERS
  Handle root, parent, object;
  uint32_t object_class;
  uint64_t params;
  uint32_t params_bytes, status;
};
static_assert(sizeof(AllocParams) == 32);

struct ControlParams {  // NVOS54_PARAMETERS
  Handle client, object;
  uint32_t command, flags;
  uint64_t params;
  uint32_t params_bytes, status;
};
static_assert(sizeof(ControlParams) == 32);

struct MapMemoryParams {  // nv_ioctl_nvos33_parameters_with_fd
  Handle client, device, memory;
  alignas(8) uint64_t offset;
  uint64_t length, address;
  uint32_t status, flags;
  int32_t fd;
  uint32_t padding;
};
static_assert(sizeof(MapMemoryParams) == 56 && offsetof(MapMemoryParams, fd) == 48);

struct UnmapMemoryParams {  // NVOS34_PARAMETERS
  Handle client, device, memory;
  alignas(8) uint64_t address;
  uint32_t status, flags;
};
static_assert(sizeof(UnmapMemoryParams) == 32);

struct MapDmaParams {  // NVOS46_PARAMETERS
  Handle client, device, dma, memory;
  uint64_t offset, length;
  uint32_t flags, flags2, kind_override;
  alignas(8) uint64_t dma_offset;
  uint32_t status;
};
static_assert(sizeof(MapDmaParams) == 64 && offsetof(MapDmaParams, dma_offset) == 48 &&
              offsetof(MapDmaParams, status) == 56);

struct UnmapDmaParams {  // NVOS47_PARAMETERS
  Handle client, device, dma, memory;
  uint32_t flags;
  alignas(8) uint64_t dma_offset;
  uint64_t size;
  uint32_t status;
};
static_assert(sizeof(UnmapDmaParams) == 48 && offsetof(UnmapDmaParams, status) == 40);

struct CardInfo {  // nv_ioctl_card_info_t, nv-ioctl.h
  uint8_t valid;
  alignas(4) uint32_t domain;
  uint8_t bus, slot, function;
  alignas(2) uint16_t vendor_id, device_id;
  alignas(4) uint32_t gpu_id;
  uint16_t interrupt_line;
  alignas(8) uint64_t registers, registers_bytes, framebuffer, framebuffer_bytes;
  uint32_t minor;
  uint8_t device_name[10];
};
static_assert(sizeof(CardInfo) == 72 && offsetof(CardInfo, vendor_id) == 12 &&
              offsetof(CardInfo, gpu_id) == 16 && offsetof(CardInfo, registers) == 24 &&
              offsetof(CardInfo, minor) == 56);
inline constexpr int kMaxCards = 32;  // NV_MAX_DEVICES, nvlimits.h

struct BuildVersion {  // NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS
  char driver[256], version[256], branch[256], title[256];
  uint32_t changelist, official_changelist;
};
static_assert(sizeof(BuildVersion) == 1032);

struct IdInfo {  // NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS
  uint32_t gpu_id, flags, device_instance, subdevice_instance, sli, board, gpu_instance;
  int32_t numa;
};
static_assert(sizeof(IdInfo) == 32);

struct DeviceParams {  // NV0080_ALLOC_PARAMETERS
  uint32_t device;
  Handle client_share, target_client, target_device;
  uint32_t flags;
  alignas(8) uint64_t va_bytes;
  uint64_t va_start, va_limit;
  uint32_t va_mode;  // 0: OPTIONAL_MULTIPLE_VASPACES
};
static_assert(sizeof(DeviceParams) == 56 && offsetof(DeviceParams, va_mode) == 48);

struct SubdeviceParams {  // NV2080_ALLOC_PARAMETERS
  uint32_t subdevice;
};

struct NameParams {  // NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS
  uint32_t flags;    // 0: ASCII
  char name[128];
};
static_assert(sizeof(NameParams) == 132);

struct GidParams {  // NV2080_CTRL_GPU_GET_GID_INFO_PARAMS
  uint32_t index, flags, length;
  uint8_t data[256];
};
static_assert(sizeof(GidParams) == 268);
inline constexpr uint32_t kGidBinary = 2;  // NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY

struct GrRoute {  // NV0080_CTRL_GR_ROUTE_INFO; 0: the only engine
  uint32_t flags;
  alignas(8) uint64_t route;
};
struct IndexedInfo {  // NV0080_CTRL_GR_INFO, NV2080_CTRL_FB_INFO
  uint32_t index, data;
};
struct GrInfoParams {  // NV2080_CTRL_GR_GET_INFO_PARAMS
  uint32_t count;
  alignas(8) uint64_t list;
  GrRoute route;
};
static_assert(sizeof(GrInfoParams) == 32 && offsetof(GrInfoParams, route) == 16);
struct GpcMaskParams {  // NV2080_CTRL_GR_GET_GPC_MASK_PARAMS
  GrRoute route;
  uint32_t mask;
};
static_assert(sizeof(GpcMaskParams) == 24);
struct TpcMaskParams {  // NV2080_CTRL_GR_GET_TPC_MASK_PARAMS
  GrRoute route;
  uint32_t gpc, mask;
};
static_assert(sizeof(TpcMaskParams) == 24);
struct FbInfoParams {  // NV2080_CTRL_FB_GET_INFO_V2_PARAMS
  uint32_t count;
  IndexedInfo list[128];
};
static_assert(sizeof(FbInfoParams) == 1028);
inline constexpr uint32_t kInfoMaxWarpsPerSm = 0x0D;  // NV0080_CTRL_GR_INFO_INDEX_*
inline constexpr uint32_t kInfoGpcs = 0x14;           // LITTER_NUM_GPCS: that there may be
inline constexpr uint32_t kInfoTpcsPerGpc = 0x17;     // LITTER_NUM_TPC_PER_GPC, likewise
inline constexpr uint32_t kInfoSmsPerTpc = 0x20;      // LITTER_NUM_SM_PER_TPC
inline constexpr uint32_t kInfoHeapKib = 0x09;        // NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE
inline constexpr uint32_t kInfoHeapFreeKib = 0x16;    // NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE

struct ClassList {  // NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
  uint32_t count;
  uint32_t classes[200];
};
static_assert(sizeof(ClassList) == 804);

struct MemoryVirtualParams {  // NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, class/cl0070.h
  uint64_t offset, limit;
  Handle va_space;
};
static_assert(sizeof(MemoryVirtualParams) == 24);

struct UsermodeParams {  // NV_HOPPER_USERMODE_A_PARAMS
  uint8_t bar1_mapping, privileged;
};
static_assert(sizeof(UsermodeParams) == 2);

struct VaSpaceParams {  // NV_VASPACE_ALLOCATION_PARAMETERS
  uint32_t index, flags;
  uint64_t va_bytes, va_start, va_limit;
  uint32_t big_page_bytes;
  alignas(8) uint64_t va_base;
  uint32_t pasid;
};
static_assert(sizeof(VaSpaceParams) == 56 && offsetof(VaSpaceParams, va_base) == 40);
inline constexpr uint32_t kVaSpaceExternallyOwned = 1 << 3;  // NV_VASPACE_ALLOCATION_FLAGS_*
inline constexpr uint32_t kVaSpacePageFaulting = 1 << 6;

struct ChannelGroupParams {  // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS
  Handle error, ecc_error, va_space;
  uint32_t engine;
  uint8_t vgpu_plugin;
};
static_assert(sizeof(ChannelGroupParams) == 20);

struct ContextShareParams {  // NV_CTXSHARE_ALLOCATION_PARAMETERS
  Handle va_space;
  uint32_t flags, subcontext;
};
static_assert(sizeof(ContextShareParams) == 12);
inline constexpr uint32_t kSubcontextAsync = 1;  // NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC

struct MemoryParams {  // NV_MEMORY_ALLOCATION_PARAMS
  uint32_t owner, type, flags, width, height;
  int32_t pitch;
  uint32_t attr, attr2, format, compression, zcull;
  alignas(8) uint64_t range_low;
  uint64_t range_high, size, alignment, offset, limit, address;
  uint32_t comptag;
  Handle va_space;
  uint32_t internal_flags, tag;
  int32_t numa_node;
};
static_assert(sizeof(MemoryParams) == 128 && offsetof(MemoryParams, size) == 64 &&
              offsetof(MemoryParams, limit) == 88 && offsetof(MemoryParams, numa_node) == 120);
// NVOS32_TYPE_*, NVOS32_ATTR_*, NVOS32_ATTR2_*, NVOS32_ALLOC_FLAGS_*
inline constexpr uint32_t kTypeImage = 0;
inline constexpr uint32_t kTypeNotifier = 13;
inline constexpr uint32_t kAttrContiguous = 2u << 27;          // PHYSICALITY_CONTIGUOUS
inline constexpr uint32_t kAttrAllowNoncontiguous = 3u << 27;  // PHYSICALITY_ALLOW_NONCONTIGUOUS
inline constexpr uint32_t kAttrSystemMemory = 1u << 25;        // LOCATION_PCI
inline constexpr uint32_t kAttr2NoZbc = 1;                     // ZBC_PREFER_NO_ZBC
inline constexpr uint32_t kAttr2Cacheable = 1u << 2;           // GPU_CACHEABLE_YES
inline constexpr uint32_t kAttr2Uncached = 2u << 2;            // GPU_CACHEABLE_NO
inline constexpr uint32_t kFlagsIgnoreBank = 0x1;              // IGNORE_BANK_PLACEMENT
inline constexpr uint32_t kFlagsAlignment = 0x100;             // ALIGNMENT_FORCE
inline constexpr uint32_t kFlagsHandleProvided = 0x4000;       // MEMORY_HANDLE_PROVIDED
inline constexpr uint32_t kFlagsMapNotRequired = 0x8000;       // MAP_NOT_REQUIRED
inline constexpr uint32_t kFlagsPersistent = 0x10000;          // PERSISTENT_VIDMEM
inline constexpr uint32_t kKindGeneric = 6;                    // NV_MMU_PTE_KIND_GENERIC_MEMORY
// NVOS02_FLAGS_*: PHYSICALITY_NONCONTIGUOUS, COHERENCY_CACHED, MAPPING_NO_MAP
inline constexpr uint32_t kDescriptorFlags = 1u << 4 | 1u << 12 | 1u << 30;
// NVOS46_FLAGS_*: CACHE_SNOOP_ENABLE, PAGE_SIZE_4KB, DMA_OFFSET_FIXED_TRUE
inline constexpr uint32_t kDmaFlags = 1u << 4 | 1u << 8 | 1u << 15;

struct MemoryDescriptor {  // NV_MEMORY_DESC_PARAMS
  uint64_t base, size;
  uint32_t address_space, cache;
};
static_assert(sizeof(MemoryDescriptor) == 24);

struct ChannelParams {  // NV_CHANNEL_ALLOC_PARAMS, alloc/alloc_channel.h
  Handle error, buffer;
  uint64_t gpfifo;  // its address on the GPU
  uint32_t gpfifo_entries, flags;
  Handle context_share, va_space;
  Handle userd_memory[8];
  uint64_t userd_offset[8];
  uint32_t engine, cid, subdevice;
  Handle ecc_error;
  MemoryDescriptor instance, userd, ramfc, method_buffer;
  Handle physical_group;
  uint32_t internal_flags;
  MemoryDescriptor error_notifier, ecc_error_notifier;
  uint32_t process, subprocess;
  uint32_t encrypt_iv[3], decrypt_iv[3], hmac_nonce[8];
  uint32_t tpc_configuration;
};
static_assert(sizeof(ChannelParams) == 368 && offsetof(ChannelParams, userd_memory) == 32 &&
              offsetof(ChannelParams, userd_offset) == 64 &&
              offsetof(ChannelParams, engine) == 128 && offsetof(ChannelParams, instance) == 144 &&
              offsetof(ChannelParams, error_notifier) == 248 &&
              offsetof(ChannelParams, process) == 296 &&
              offsetof(ChannelParams, tpc_configuration) == 360);

struct TokenParams {  // NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS
  uint32_t token;
};

struct ScheduleParams {  // NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS
  uint8_t enable, skip_submit, skip_enable;
};
static_assert(sizeof(ScheduleParams) == 3);

struct Notification {  // NvNotification: what the error notifier of a channel holds
  uint64_t nanoseconds;
  uint32_t info32;  // the Xid
  uint16_t info16, status;
};
static_assert(sizeof(Notification) == 16);

}  // namespace telegrad::nv
