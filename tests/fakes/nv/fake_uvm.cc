// Unified memory: which address of the GPU's is which memory. The requests are bare numbers and say
// no size, so each is read by the offsets of uvm_ioctl.h.
#include <cstring>

#include "tests/fakes/nv/fake_driver.h"
#include "tests/fakes/nv/fields.h"
#include "tests/fakes/nv/rm_codes.h"

namespace telegrad::fakes {

size_t FakeDriver::UvmStatusAt(uint32_t request) {
  switch (request) {
    case 0x30000001:
      return 8;  // UVM_INITIALIZE
    case 25:
      return 28;  // UVM_REGISTER_GPU_VASPACE
    case 26:
      return 16;  // UVM_UNREGISTER_GPU_VASPACE
    case 27:
      return 48;  // UVM_REGISTER_CHANNEL
    case 28:
      return 24;  // UVM_UNREGISTER_CHANNEL
    case 33:
      return 9260;  // UVM_MAP_EXTERNAL_ALLOCATION
    case 34:
      return 16;  // UVM_FREE
    case 37:
      return 36;  // UVM_REGISTER_GPU
    case 38:
      return 16;  // UVM_UNREGISTER_GPU
    case 73:
      return 16;  // UVM_CREATE_EXTERNAL_RANGE
    case 75:
      return 4;  // UVM_MM_INITIALIZE
    default:
      return 0;
  }
}

bool FakeDriver::IsControl(int fd) const {
  const auto it = files_.find(fd);
  return it != files_.end() && it->second.kind == FileKind::kControl;
}

uint32_t FakeDriver::Uvm(File& file, uint32_t request, std::byte* at) {
  if (request == 0x30000001) {
    if (file.initialized || Get<uint64_t>(at, 0) != 0) return kInvalidArgument;
    file.initialized = true;
    return 0;
  }
  if (request == 75) {
    const auto other = files_.find(Get<int32_t>(at, 0));
    if (other == files_.end() || !other->second.initialized) return kInvalidArgument;
    return file.initialized ? kInvalidState : 0;
  }
  if (!file.initialized) return kIllegalAction;
  const bool ranges = request == 34 || request == 73 || request == 33;
  if (!ranges && std::memcmp(at, kFakeUuid, 16) != 0) return kUuidNotFound;
  switch (request) {
    case 37:
      if (uvm_gpu_ || Get<int32_t>(at, 24) != -1) return kInvalidDevice;
      uvm_gpu_ = true;
      return 0;
    case 38:
      if (!uvm_gpu_ || uvm_va_space_ != 0) return kInvalidState;
      uvm_gpu_ = false;
      return 0;
    case 25: {
      const uint32_t space = Get<uint32_t>(at, 24);
      if (!uvm_gpu_ || uvm_va_space_ != 0) return kInvalidDevice;
      if (!IsControl(Get<int32_t>(at, 16)) || Get<uint32_t>(at, 20) != root_) {
        return kInvalidArgument;
      }
      Object* object = Find(space, 0x90F1);
      if (!object) return kInvalidObject;
      ++object->users;
      uvm_va_space_ = space;
      return 0;
    }
    case 26:
      if (uvm_va_space_ == 0 || !uvm_channels_.empty()) return kInvalidState;
      --Find(uvm_va_space_)->users;
      uvm_va_space_ = 0;
      return 0;
    case 27:
      return RegisterChannel(at);
    case 28: {
      const auto it = uvm_channels_.find(Get<uint32_t>(at, 20));
      if (Get<uint32_t>(at, 16) != root_ || it == uvm_channels_.end()) return kInvalidArgument;
      Object* object = Find(it->first);
      object->channel->bound = false;
      --object->users;
      gpu.ranges.erase(it->second);
      uvm_channels_.erase(it);
      return 0;
    }
    case 73:
      return MakeRange(Get<uint64_t>(at, 0), Get<uint64_t>(at, 8));
    case 34:
      return FreeRange(Get<uint64_t>(at, 0), Get<uint64_t>(at, 8));
    case 33:
      return MapRange(at);
    default:
      return kInvalidCommand;
  }
}

uint32_t FakeDriver::MakeRange(uint64_t base, uint64_t bytes) {
  if (base == 0 || bytes == 0 || base % 4096 != 0 || bytes % 4096 != 0) return kInvalidAddress;
  for (const auto& [other, range] : gpu.ranges) {
    if (other < base + bytes && base < other + range.bytes) return kAddressInUse;
  }
  gpu.ranges[base] = {bytes, nullptr};
  return 0;
}

uint32_t FakeDriver::FreeRange(uint64_t base, uint64_t bytes) {
  const auto it = gpu.ranges.find(base);
  if (it == gpu.ranges.end() || it->second.bytes != bytes) return kInvalidAddress;
  if (const auto memory = range_memory_.find(base); memory != range_memory_.end()) {
    --Find(memory->second)->users;
    range_memory_.erase(memory);
  }
  gpu.ranges.erase(it);
  return 0;
}

uint32_t FakeDriver::MapRange(const std::byte* at) {
  const uint64_t base = Get<uint64_t>(at, 0), bytes = Get<uint64_t>(at, 8);
  const auto it = gpu.ranges.find(base);
  Object* memory = FindMemory(Get<uint32_t>(at, 9256));
  if (uvm_va_space_ == 0) return kInvalidDevice;
  if (it == gpu.ranges.end() || it->second.bytes != bytes || it->second.memory) {
    return kInvalidAddress;
  }
  if (!IsControl(Get<int32_t>(at, 9248)) || Get<uint32_t>(at, 9252) != root_) {
    return kInvalidArgument;
  }
  if (!memory) return kInvalidObject;
  if (Get<uint64_t>(at, 16) != 0 || bytes > memory->memory->bytes) return kInvalidOffset;
  // One GPU, read, write and atomics.
  if (Get<uint64_t>(at, 9240) != 1 || Get<uint32_t>(at, 24 + 16) != 1) return kInvalidArgument;
  if (std::memcmp(at + 24, kFakeUuid, 16) != 0) return kUuidNotFound;
  it->second.memory = memory->memory;
  range_memory_[base] = Get<uint32_t>(at, 9256);
  ++memory->users;
  return 0;
}

uint32_t FakeDriver::RegisterChannel(const std::byte* at) {
  const uint32_t handle = Get<uint32_t>(at, 24);
  const uint64_t base = Get<uint64_t>(at, 32), bytes = Get<uint64_t>(at, 40);
  Object* object = Find(handle, 0xC86F);
  if (uvm_va_space_ == 0) return kInvalidDevice;
  if (!IsControl(Get<int32_t>(at, 16)) || Get<uint32_t>(at, 20) != root_) return kInvalidArgument;
  if (!object || uvm_channels_.count(handle)) return kInvalidObject;
  if (object->channel->engines.empty()) return kInvalidState;
  if (uint32_t status = MakeRange(base, bytes); status != 0) return status;
  uvm_channels_[handle] = base;
  object->channel->bound = true;
  ++object->users;
  return 0;
}

}  // namespace telegrad::fakes
