// Allocates memory with the resource manager and maps it at an address of the GPU by the driver
// for unified memory.
#include "devices/nv/region.h"

#include <cstring>

#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

MemoryParams ParamsOf(RmClient& rm, size_t bytes) {
  MemoryParams params{};
  params.owner = rm.root();
  params.flags = kFlagsMapNotRequired | kFlagsHandleProvided | kFlagsAlignment | kFlagsIgnoreBank;
  params.format = kKindGeneric;
  params.size = bytes;
  params.alignment = 4096;
  params.limit = bytes - 1;
  return params;
}

}  // namespace

absl::StatusOr<Region> MakeVideo(RmClient& rm, const GpuObjects& gpu, size_t bytes, bool mapped) {
  MemoryParams params = ParamsOf(rm, bytes);
  params.type = kTypeImage;
  params.flags |= kFlagsPersistent;
  params.attr = mapped ? kAttrContiguous : kAttrAllowNoncontiguous;
  params.attr2 = kAttr2Cacheable | kAttr2NoZbc;
  Region region{.bytes = bytes};
  TG_ASSIGN_OR_RETURN(region.handle, rm.Alloc(gpu.device(), kMemoryUser, params));
  if (!mapped) return region;
  TG_ASSIGN_OR_RETURN(const int fd, rm.OpenDevice(gpu.minor()));
  TG_ASSIGN_OR_RETURN(region.host, rm.MapObject(gpu.device(), region.handle, fd, bytes));
  return region;
}

absl::StatusOr<Region> MakePinned(RmClient& rm, const GpuObjects& gpu, size_t bytes) {
  TG_ASSIGN_OR_RETURN(std::byte* const at, rm.MapAnonymous(bytes));
  std::memset(at, 0, bytes);  // each page is there when the driver pins it
  return PinPages(rm, gpu, at, bytes);
}

absl::StatusOr<Region> PinPages(RmClient& rm, const GpuObjects& gpu, std::byte* at, size_t bytes) {
  Region region{.host = at, .bytes = bytes};
  TG_ASSIGN_OR_RETURN(region.handle, rm.DescribeMemory(gpu.device(), gpu.device_fd(), at, bytes));
  return region;
}

absl::StatusOr<Region> MakeNotifier(RmClient& rm, const GpuObjects& gpu, size_t bytes) {
  MemoryParams params = ParamsOf(rm, bytes);
  params.type = kTypeNotifier;
  params.attr = kAttrAllowNoncontiguous | kAttrSystemMemory;
  params.attr2 = kAttr2Uncached | kAttr2NoZbc;
  Region region{.bytes = bytes};
  TG_ASSIGN_OR_RETURN(region.handle, rm.Alloc(gpu.device(), kMemorySystem, params));
  TG_ASSIGN_OR_RETURN(const int fd, rm.Open("/dev/nvidiactl"));
  TG_ASSIGN_OR_RETURN(region.host, rm.MapObject(gpu.device(), region.handle, fd, bytes));
  return region;
}

absl::Status MapExternal(RmClient& rm, const GpuObjects& gpu, const Region& region) {
  const int uvm = gpu.uvm();
  UvmRangeParams range{.base = region.address, .length = region.bytes, .status = 0};
  constexpr std::string_view kCreate = "UVM_CREATE_EXTERNAL_RANGE";
  TG_RETURN_IF_ERROR(rm.Uvm(uvm, kCreate, kUvmCreateExternalRange, range));
  rm.OnRelease("UVM range",
               [&rm, uvm, range]() mutable { return rm.Uvm(uvm, "UVM_FREE", kUvmFree, range); });
  UvmMapExternalParams map{};
  map.base = region.address;
  map.length = region.bytes;
  map.attributes[0].gpu = gpu.uuid();
  map.attributes[0].mapping = kMapReadWriteAtomic;
  map.attributes_count = 1;
  map.rm_fd = rm.control();
  map.client = rm.root();
  map.memory = region.handle;
  return rm.Uvm(uvm, "UVM_MAP_EXTERNAL_ALLOCATION", kUvmMapExternalAllocation, map);
}

absl::StatusOr<Handle> MakeChannel(RmClient& rm, const GpuObjects& gpu, const Region& memory,
                                   const Region& notifier, size_t ring, size_t userd,
                                   uint32_t entries) {
  ChannelParams params{};
  params.error = notifier.handle;
  params.buffer = memory.handle;
  params.gpfifo = memory.address + ring;
  params.gpfifo_entries = entries;
  params.context_share = gpu.context_share();
  params.userd_memory[0] = memory.handle;
  params.userd_offset[0] = userd;
  return rm.Alloc(gpu.group(), kHopperGpfifo, params);
}

absl::Status RegisterChannel(RmClient& rm, const GpuObjects& gpu, Handle channel, uint64_t base,
                             uint64_t bytes) {
  UvmRegisterChannelParams params{};
  params.gpu = gpu.uuid();
  params.rm_fd = rm.control();
  params.client = rm.root();
  params.channel = channel;
  params.base = base;
  params.length = bytes;
  TG_RETURN_IF_ERROR(rm.Uvm(gpu.uvm(), "UVM_REGISTER_CHANNEL", kUvmRegisterChannel, params));
  UvmUnregisterChannelParams undo{};
  undo.gpu = gpu.uuid();
  undo.client = rm.root();
  undo.channel = channel;
  rm.OnRelease("channel registered with UVM", [&rm, uvm = gpu.uvm(), undo]() mutable {
    return rm.Uvm(uvm, "UVM_UNREGISTER_CHANNEL", kUvmUnregisterChannel, undo);
  });
  return absl::OkStatus();
}

}  // namespace telegrad::nv
