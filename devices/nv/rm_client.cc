// Fills the structs of the ioctls, checks the status of each call, and keeps a list of what has
// to be released.
#include "devices/nv/rm_client.h"

#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

struct StatusRow {
  std::string_view name;
  uint32_t number;
  std::string_view meaning;
};
constexpr StatusRow kStatuses[] = {
#define X(name, number, meaning) {#name, number, meaning},
#include "devices/nv/rm_status.def"
#undef X
};

std::string Hex(uint32_t value) { return absl::StrFormat("%#x", value); }

}  // namespace

std::string DescribeRmStatus(uint32_t status) {
  for (const StatusRow& row : kStatuses) {
    if (row.number == status) return StrCat(row.name, " (", Hex(status), "): ", row.meaning);
  }
  return StrCat("RM status ", Hex(status), ", which is not in this program's table");
}

absl::Status FromRmStatus(std::string_view call, uint32_t status) {
  constexpr uint32_t kGpuIsLost = 0x0F, kNoMemory = 0x51;
  if (status == 0) return absl::OkStatus();
  const absl::StatusCode code = status == kNoMemory    ? absl::StatusCode::kResourceExhausted
                                : status == kGpuIsLost ? absl::StatusCode::kUnavailable
                                                       : absl::StatusCode::kInternal;
  return absl::Status(code, StrCat(call, ": ", DescribeRmStatus(status)));
}

absl::Status RmClient::Ioctl(int fd, std::string_view call, uint32_t request, void* params) {
  const absl::Status status = system_.Ioctl(fd, request, params);
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(call, ": ", ToStd(status.message())));
}

absl::StatusOr<int> RmClient::Open(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const int fd, system_.Open(path));
  OnRelease(path, [this, fd] { return system_.Close(fd); });
  return fd;
}

absl::Status RmClient::OpenControl() {
  TG_ASSIGN_OR_RETURN(control_, Open("/dev/nvidiactl"));
  return absl::OkStatus();
}

void RmClient::FreeOnRelease(Handle parent, Handle object, std::string what) {
  OnRelease(std::move(what), [this, parent, object] {
    FreeParams free{.root = root_, .parent = parent, .object = object, .status = 0};
    TG_RETURN_IF_ERROR(Rm(control_, "RM_FREE", kEscFree, free));
    return FromRmStatus("RM_FREE", free.status);
  });
}

absl::StatusOr<Handle> RmClient::AllocBytes(Handle parent, uint32_t object_class, void* params,
                                            size_t bytes) {
  const std::string call = StrCat("RM_ALLOC of class ", Hex(object_class));
  AllocParams alloc{.root = root_,
                    .parent = parent,
                    .object = 0,
                    .object_class = object_class,
                    .params = reinterpret_cast<uintptr_t>(params),
                    .params_bytes = static_cast<uint32_t>(bytes),
                    .status = 0};
  TG_RETURN_IF_ERROR(Rm(control_, call, kEscAlloc, alloc));
  TG_RETURN_IF_ERROR(FromRmStatus(call, alloc.status));
  FreeOnRelease(parent, alloc.object, StrCat("object of class ", Hex(object_class)));
  return alloc.object;
}

absl::Status RmClient::MakeRoot() {
  AllocParams alloc{};
  alloc.object_class = kRootClient;
  TG_RETURN_IF_ERROR(Rm(control_, "RM_ALLOC of the root client", kEscAlloc, alloc));
  TG_RETURN_IF_ERROR(FromRmStatus("RM_ALLOC of the root client", alloc.status));
  root_ = alloc.object;
  FreeOnRelease(0, root_, "root client");
  return absl::OkStatus();
}

absl::StatusOr<int> RmClient::OpenDevice(uint32_t minor) {
  TG_ASSIGN_OR_RETURN(const int fd, Open(StrCat("/dev/nvidia", minor)));
  int32_t control = control_;
  TG_RETURN_IF_ERROR(Rm(fd, "REGISTER_FD", kEscRegisterFd, control));
  return fd;
}

absl::StatusOr<std::vector<CardInfo>> RmClient::Cards() {
  CardInfo cards[kMaxCards] = {};
  TG_RETURN_IF_ERROR(Rm(control_, "CARD_INFO", kEscCardInfo, cards));
  std::vector<CardInfo> valid;
  for (const CardInfo& card : cards) {
    if (card.valid) valid.push_back(card);
  }
  return valid;
}

absl::Status RmClient::ControlBytes(Handle object, uint32_t command, void* params, size_t bytes) {
  const std::string call = StrCat("RM_CONTROL ", Hex(command));
  ControlParams control{.client = root_,
                        .object = object,
                        .command = command,
                        .flags = 0,
                        .params = reinterpret_cast<uintptr_t>(params),
                        .params_bytes = static_cast<uint32_t>(bytes),
                        .status = 0};
  TG_RETURN_IF_ERROR(Rm(control_, call, kEscControl, control));
  return FromRmStatus(call, control.status);
}

absl::StatusOr<Handle> RmClient::DescribeMemory(Handle device, int device_fd, std::byte* memory,
                                                size_t bytes) {
  constexpr std::string_view kCall = "RM_ALLOC_MEMORY of an OS descriptor";
  AllocMemoryParams alloc{};
  alloc.root = root_;
  alloc.parent = device;
  alloc.object = ++*described_;
  alloc.object_class = kOsDescriptor;
  alloc.flags = kDescriptorFlags;
  alloc.memory = reinterpret_cast<uintptr_t>(memory);
  alloc.limit = bytes - 1;
  alloc.fd = -1;
  TG_RETURN_IF_ERROR(Rm(device_fd, kCall, kEscAllocMemory, alloc));
  TG_RETURN_IF_ERROR(FromRmStatus(kCall, alloc.status));
  FreeOnRelease(device, alloc.object, "OS descriptor");
  return alloc.object;
}

absl::StatusOr<std::byte*> RmClient::Map(int fd, size_t bytes) {
  TG_ASSIGN_OR_RETURN(std::byte* const address, system_.Map(fd, bytes));
  OnRelease("mapping", [this, address, bytes] { return system_.Unmap(address, bytes); });
  return address;
}

absl::StatusOr<std::byte*> RmClient::MapObject(Handle device, Handle object, int fd, size_t bytes) {
  MapMemoryParams map{};
  map.client = root_;
  map.device = device;
  map.memory = object;
  map.length = bytes;
  map.fd = fd;
  TG_RETURN_IF_ERROR(Rm(control_, "RM_MAP_MEMORY", kEscMapMemory, map));
  TG_RETURN_IF_ERROR(FromRmStatus("RM_MAP_MEMORY", map.status));
  OnRelease("RM mapping", [this, device, object, address = map.address] {
    UnmapMemoryParams unmap{};
    unmap.client = root_;
    unmap.device = device;
    unmap.memory = object;
    unmap.address = address;
    TG_RETURN_IF_ERROR(Rm(control_, "RM_UNMAP_MEMORY", kEscUnmapMemory, unmap));
    return FromRmStatus("RM_UNMAP_MEMORY", unmap.status);
  });
  return Map(fd, bytes);
}

absl::Status RmClient::MapDma(Handle device, Handle dma, Handle memory, uint64_t address,
                              uint64_t bytes) {
  MapDmaParams map{};
  map.client = root_;
  map.device = device;
  map.dma = dma;
  map.memory = memory;
  map.length = bytes;
  map.flags = kDmaFlags;
  map.dma_offset = address;
  TG_RETURN_IF_ERROR(Rm(control_, "RM_MAP_MEMORY_DMA", kEscMapMemoryDma, map));
  TG_RETURN_IF_ERROR(FromRmStatus("RM_MAP_MEMORY_DMA", map.status));
  OnRelease("DMA mapping", [this, device, dma, memory, at = map.dma_offset] {
    UnmapDmaParams unmap{};
    unmap.client = root_;
    unmap.device = device;
    unmap.dma = dma;
    unmap.memory = memory;
    unmap.dma_offset = at;
    TG_RETURN_IF_ERROR(Rm(control_, "RM_UNMAP_MEMORY_DMA", kEscUnmapMemoryDma, unmap));
    return FromRmStatus("RM_UNMAP_MEMORY_DMA", unmap.status);
  });
  if (map.dma_offset != address) {
    return Internal("RM_MAP_MEMORY_DMA: mapped at ", absl::StrFormat("%#x", map.dma_offset),
                    " where ", absl::StrFormat("%#x", address), " was asked for");
  }
  return absl::OkStatus();
}

std::vector<std::string> RmClient::Release() {
  std::vector<std::string> left;
  while (!releases_.empty()) {
    const Undo undo = std::move(releases_.back());
    releases_.pop_back();
    if (absl::Status status = undo.run(); !status.ok()) {
      left.push_back(StrCat(undo.what, ": ", ToStd(status.message())));
    }
  }
  control_ = -1;
  root_ = 0;
  return left;
}

}  // namespace telegrad::nv
