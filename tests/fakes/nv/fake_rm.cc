// The resource manager: objects, controls and mappings.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/fakes/nv/fake_driver.h"
#include "tests/fakes/nv/fields.h"
#include "tests/fakes/nv/rm_codes.h"

namespace telegrad::fakes {
namespace {

// Which classes there are, under what, and with parameters of which size (resource_list.h).
struct Class {
  uint32_t number, parent;
  uint32_t params;
  bool required;  // the parameters
};
constexpr Class kClasses[] = {
    {0x80, 0x41, 56, false},      // NV01_DEVICE_0
    {0x2080, 0x80, 4, false},     // NV20_SUBDEVICE_0
    {0x70, 0x80, 24, true},       // NV01_MEMORY_VIRTUAL
    {0x40, 0x80, 128, true},      // NV01_MEMORY_LOCAL_USER
    {0x3E, 0x80, 128, true},      // NV01_MEMORY_SYSTEM
    {0x90F1, 0x80, 56, true},     // FERMI_VASPACE_A
    {0xA06C, 0x80, 20, true},     // KEPLER_CHANNEL_GROUP_A
    {0xC661, 0x2080, 2, false},   // HOPPER_USERMODE_A
    {0x9067, 0xA06C, 12, true},   // FERMI_CONTEXT_SHARE_A
    {0xC86F, 0xA06C, 368, true},  // HOPPER_CHANNEL_GPFIFO_A
    {0xCBC0, 0xC86F, 0, false},   // HOPPER_COMPUTE_A
    {0xC8B5, 0xC86F, 0, false},   // HOPPER_DMA_COPY_A
};

// Which control commands there are, on what, and with parameters of which size (ctrl/ctrl*.h).
struct Command {
  uint32_t number, object_class;
  uint32_t bytes;
};
constexpr Command kCommands[] = {
    {0x13E, 0x41, 1032},       {0x205, 0x41, 32},          {0x800292, 0x80, 804},
    {0x20800110, 0x2080, 132}, {0x2080014A, 0x2080, 268},  {0xC36F0108, 0xC86F, 4},
    {0xA06C0101, 0xA06C, 3},   {0x20801201, 0x2080, 32},   {0x2080122A, 0x2080, 24},
    {0x2080122B, 0x2080, 24},  {0x20801303, 0x2080, 1028},
};

// Whether the process has all pages of [at, at + bytes).
bool AreThere(std::byte* at, uint64_t bytes) {
  std::vector<unsigned char> resident((bytes + FakeMemory::kPage - 1) / FakeMemory::kPage);
  return mincore(at, bytes, resident.data()) == 0;
}

}  // namespace

FakeDriver::Object* FakeDriver::Find(uint32_t handle, uint32_t object_class) {
  const auto it = objects_.find(handle);
  if (it == objects_.end()) return nullptr;
  return object_class == 0 || it->second.object_class == object_class ? &it->second : nullptr;
}

FakeDriver::Object* FakeDriver::FindMemory(uint32_t handle) {
  Object* object = Find(handle);
  return object && object->memory && object->object_class != 0xC661 ? object : nullptr;
}

uint32_t FakeDriver::Alloc(std::byte* at, uint32_t object_class, const std::byte* params,
                           uint32_t bytes) {
  const uint32_t parent = Get<uint32_t>(at, 4);
  uint32_t handle = Get<uint32_t>(at, 8);
  if (handle == 0) handle = ++next_handle_;
  if (objects_.count(handle)) return kDuplicateName;
  Object object{.object_class = object_class, .parent = parent};
  if (object_class == 0x41) {
    if (root_ != 0 || parent != 0) return kInvalidParent;
    root_ = handle;
  } else {
    const Class* row = nullptr;
    for (const Class& one : kClasses) {
      if (one.number == object_class) row = &one;
    }
    // The classes of the GPU itself are those of its list.
    if (!row || (object_class > 0x9000 && !classes.count(object_class))) return kInvalidClass;
    if (!Find(parent, row->parent)) return kInvalidParent;
    if (params == nullptr ? row->required || bytes != 0 : bytes != row->params) {
      return kInvalidParamStruct;
    }
    if (uint32_t status = params ? FillObject(object, params) : 0; status != 0) return status;
    if (row->parent == 0xC86F) Find(parent)->channel->engines.push_back(object_class);
  }
  objects_.emplace(handle, std::move(object));
  Put(at, 8, handle);
  return 0;
}

// What an object's parameters say. Offsets: nvos.h, class/cl*.h, alloc/alloc_channel.h.
uint32_t FakeDriver::FillObject(Object& object, const std::byte* params) {
  const auto u32 = [&](size_t offset) { return Get<uint32_t>(params, offset); };
  const auto u64 = [&](size_t offset) { return Get<uint64_t>(params, offset); };
  switch (object.object_class) {
    case 0x80:  // the device's instance, and the client to share with
      return u32(0) == 0 && (u32(4) == root_ || u32(4) == 0) ? 0 : kInvalidDevice;
    case 0x70:
      return u64(8) > u64(0) && u32(16) == 0 ? 0 : kInvalidLimit;
    case 0x90F1:  // page faulting, externally owned
      return (u32(4) & 0x48) == 0x48 && u64(40) != 0 ? 0 : kInvalidFlags;
    case 0xA06C:
      return u32(12) == 1 ? 0 : kInvalidParameter;  // the graphics engine
    case 0x9067:
      object.share_of = u32(0);
      return Find(u32(0), 0x90F1) && u32(4) == 1 ? 0 : kInvalidParameter;
    case 0xC661:
      if (Get<uint8_t>(params, 0) != 0 || Get<uint8_t>(params, 1) != 0) return kInvalidParameter;
      object.memory = std::make_shared<FakeMemory>(65536);
      return 0;
    case 0x40:
    case 0x3E: {
      const bool system = (u32(24) >> 25 & 3) == 1;  // NVOS32_ATTR_LOCATION
      const uint64_t size = u64(64);
      if (system != (object.object_class == 0x3E) || u32(0) != root_) return kInvalidParameter;
      if (size == 0 || size % 4096 != 0 || u64(72) % 4096 != 0) return kInvalidArgument;
      if (!system && size > video_bytes - video_used_) return kNoMemory;
      if (!system) video_used_ += size;
      object.memory = std::make_shared<FakeMemory>(size);
      // Memory of a GPU holds what somebody left in it.
      if (!system) std::memset(object.memory->data, 0xA5, size);
      return 0;
    }
    case 0xC86F: {
      auto channel = std::make_shared<FakeChannel>();
      Object* notifier = FindMemory(u32(0));
      Object* userd = FindMemory(u32(32));
      Object* share = Find(u32(24), 0x9067);
      channel->ring = u64(8);
      channel->entries = u32(16);
      channel->userd_offset = u64(64);
      if (!notifier || !userd) return kObjectNotFound;
      if (!share || share->parent != object.parent) return kInvalidParameter;
      if (channel->entries == 0 || (channel->entries & (channel->entries - 1)) != 0 ||
          channel->userd_offset % 512 != 0 || channel->userd_offset + 512 > userd->memory->bytes ||
          u32(28) != 0 || u32(128) != 0) {
        return kInvalidArgument;
      }
      channel->notifier = notifier->memory;
      channel->userd = userd->memory;
      channel->group = object.parent;
      channel->token = 0x10000 + next_handle_;
      object.channel = std::move(channel);
      return 0;
    }
    default:
      return 0;
  }
}

uint32_t FakeDriver::Free(uint32_t parent, uint32_t handle) {
  const Object* object = Find(handle);
  if (!object) return kInvalidObjectHandle;
  if (object->parent != parent) return kInvalidParent;
  if (object->users != 0) return kStateInUse;
  for (const auto& [other, child] : objects_) {
    if (child.parent == handle || child.share_of == handle) return kStateInUse;
  }
  if (object->object_class == 0x71 && !LetGo(*object)) return kInvalidState;
  if (object->object_class == 0x40) video_used_ -= object->memory->bytes;
  if (handle == root_) root_ = 0;
  objects_.erase(handle);
  return 0;
}

uint32_t FakeDriver::Control(uint32_t handle, uint32_t command, std::byte* params, uint32_t bytes) {
  const Command* row = nullptr;
  for (const Command& one : kCommands) {
    if (one.number == command) row = &one;
  }
  if (!row) return kInvalidCommand;
  Object* object = Find(handle, row->object_class);
  if (!object) return kInvalidObject;
  if (bytes != row->bytes || !params) return kInvalidParamStruct;
  switch (command) {
    case 0x13E:
      std::strncpy(reinterpret_cast<char*>(params), version.c_str(), 255);
      return 0;
    case 0x205:
      if (Get<uint32_t>(params, 0) != 0x1800) return kInvalidArgument;
      Put<uint32_t>(params, 8, 0);  // device instance
      return 0;
    case 0x800292: {
      uint32_t count = 0;
      for (const uint32_t one : classes) Put(params, 4 + 4 * count++, one);
      Put(params, 0, count);
      return 0;
    }
    case 0x20800110:
      if (Get<uint32_t>(params, 0) != 0) return kInvalidFlags;
      std::strcpy(reinterpret_cast<char*>(params + 4), "NVIDIA H200 (fake)");
      return 0;
    case 0x2080014A:
      if (Get<uint32_t>(params, 4) != 2) return kInvalidFlags;
      std::memcpy(params + 12, kFakeUuid, 16);
      Put<uint32_t>(params, 8, 16);
      return 0;
    case 0x20801201: {  // GR_GET_INFO: MAX_WARPS_PER_SM, NUM_GPCS, TPC_PER_GPC, SM_PER_TPC
      const std::map<uint32_t, uint32_t> known = {{0x0D, 64}, {0x14, 8}, {0x17, 9}, {0x20, 2}};
      auto* list = reinterpret_cast<std::byte*>(Get<uint64_t>(params, 8));
      for (uint32_t i = 0; i < Get<uint32_t>(params, 0); ++i) {
        const auto it = known.find(Get<uint32_t>(list, 8 * i));
        if (it == known.end()) return kInvalidIndex;
        Put(list, 8 * i + 4, it->second);
      }
      return Get<uint32_t>(params, 16) == 0 ? 0 : kInvalidArgument;  // a route
    }
    case 0x2080122A:  // GR_GET_GPC_MASK
      Put<uint32_t>(params, 16, 0xFF);
      return 0;
    case 0x2080122B:  // GR_GET_TPC_MASK: 66 of 72
      if (Get<uint32_t>(params, 16) >= 8) return kInvalidIndex;
      Put<uint32_t>(params, 20, Get<uint32_t>(params, 16) < 6 ? 0xFF : 0x1FF);
      return 0;
    case 0x20801303:  // FB_GET_INFO_V2: HEAP_SIZE, HEAP_FREE, in KiB
      for (uint32_t i = 0; i < Get<uint32_t>(params, 0); ++i) {
        const uint32_t index = Get<uint32_t>(params, 4 + 8 * i);
        if (index != 0x09 && index != 0x16) return kInvalidIndex;
        const uint64_t bytes = index == 0x09 ? video_bytes : video_bytes - video_used_;
        Put<uint32_t>(params, 8 + 8 * i, static_cast<uint32_t>(bytes >> 10));
      }
      return 0;
    case 0xC36F0108:
      Put(params, 0, object->channel->token);
      return 0;
    case 0xA06C0101:
      for (auto& [other, child] : objects_) {
        if (child.parent != handle || !child.channel) continue;
        if (child.channel->engines.empty()) return kInvalidState;
        child.channel->scheduled = Get<uint8_t>(params, 0) == 1;
      }
      return 0;
  }
  return kInvalidCommand;
}

// NVOS02: memory of the process, all of a mapping that was made here or pages of its own, as
// os_lock_user_pages takes them. The driver pins pages as often as it is asked to; that one range
// is pinned twice is refused here, for nobody means to.
uint32_t FakeDriver::Descriptor(const File& file, std::byte* at) {
  const uint32_t handle = Get<uint32_t>(at, 8);
  auto* memory = reinterpret_cast<std::byte*>(Get<uint64_t>(at, 24));
  const uint64_t bytes = Get<uint64_t>(at, 32) + 1;
  if (!file.registered || !Find(Get<uint32_t>(at, 4), 0x80)) return kInvalidParent;
  if (Get<uint32_t>(at, 12) != 0x71) return kInvalidClass;
  // Noncontiguous, cached, not to be mapped.
  if (Get<uint32_t>(at, 16) != (1u << 4 | 1u << 12 | 1u << 30)) return kInvalidFlags;
  if (handle == 0 || objects_.count(handle)) return kInvalidObjectHandle;
  const auto mapping = mappings_.find(memory);
  if (mapping == mappings_.end()) {
    if (reinterpret_cast<uintptr_t>(memory) % FakeMemory::kPage != 0) return kNotSupported;
    if (bytes % FakeMemory::kPage != 0) return kInvalidLimit;
    if (!AreThere(memory, bytes)) return kInvalidAddress;
  } else if (mapping->second.fd >= 0 || mapping->second.bytes < bytes) {
    return kInvalidAddress;
  }
  for (const auto& [other, object] : objects_) {
    if (object.object_class != 0x71) continue;
    const FakeMemory& pinned = *object.memory;
    if (pinned.data < memory + bytes && memory < pinned.data + pinned.bytes) return kStateInUse;
  }
  Object object{.object_class = 0x71, .parent = Get<uint32_t>(at, 4)};
  object.memory = std::make_shared<FakeMemory>(memory, bytes);
  objects_.emplace(handle, std::move(object));
  return 0;
}

bool FakeDriver::IsPinned(const std::byte* memory) const {
  return std::ranges::any_of(objects_, [&](const auto& entry) {
    return entry.second.object_class == 0x71 && entry.second.memory->data == memory;
  });
}

// The pages are still there, and no channel is writing to them.
bool FakeDriver::LetGo(const Object& pinned) {
  const FakeMemory& memory = *pinned.memory;
  if (!mappings_.contains(memory.data) && !AreThere(memory.data, memory.bytes)) {
    gpu.errors.emplace_back("pages went while they were pinned");
    return false;
  }
  for (auto& [handle, object] : objects_) {
    if (!object.channel) continue;
    const size_t writes = std::erase_if(object.channel->pending, [&](const auto& pending) {
      return pending.memory == pinned.memory;
    });
    if (writes == 0 || !object.channel->scheduled || object.channel->dead) continue;
    gpu.errors.emplace_back("memory was unpinned while a channel wrote to it");
    return false;
  }
  return true;
}

// NVOS33: what the next mmap of a file maps.
uint32_t FakeDriver::MapMemory(std::byte* at) {
  const uint32_t handle = Get<uint32_t>(at, 8);
  Object* object = Find(handle);
  const auto file = files_.find(Get<int32_t>(at, 48));
  const uint64_t length = Get<uint64_t>(at, 24);
  if (!Find(Get<uint32_t>(at, 4), 0x80) || !object || !object->memory) return kInvalidObject;
  if (Get<uint64_t>(at, 16) != 0 || length != object->memory->bytes) return kInvalidLimit;
  const bool system = object->object_class == 0x3E;
  if (file == files_.end() || file->second.mapped_bytes != 0 ||
      (system ? file->second.kind != FileKind::kControl : !file->second.registered)) {
    return kInvalidArgument;
  }
  file->second.mapped_object = handle;
  file->second.mapped_bytes = length;
  ++object->users;
  rm_mappings_[next_cookie_] = {handle, file->first};
  Put(at, 32, next_cookie_);
  next_cookie_ += 0x1000000;
  return 0;
}

uint32_t FakeDriver::UnmapMemory(const std::byte* at) {
  const auto it = rm_mappings_.find(Get<uint64_t>(at, 16));
  if (it == rm_mappings_.end() || it->second.object != Get<uint32_t>(at, 8)) return kInvalidAddress;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.fd == it->second.fd) return kStateInUse;
  }
  files_.at(it->second.fd).mapped_bytes = 0;
  --Find(it->second.object)->users;
  rm_mappings_.erase(it);
  return 0;
}

// NVOS46, at an address that the caller gives.
uint32_t FakeDriver::MapDma(std::byte* at) {
  const uint64_t address = Get<uint64_t>(at, 48), bytes = Get<uint64_t>(at, 24);
  Object* memory = FindMemory(Get<uint32_t>(at, 12));
  if (!Find(Get<uint32_t>(at, 8), 0x70) || !memory) return kInvalidObject;
  if (!(Get<uint32_t>(at, 32) >> 15 & 1)) return kInvalidFlags;
  if (address % 4096 != 0 || bytes > memory->memory->bytes) return kInvalidOffset;
  for (const auto& [base, other] : dma_) {
    if (base < address + bytes && address < base + other.first) return kAddressInUse;
  }
  dma_[address] = {bytes, Get<uint32_t>(at, 12)};
  ++memory->users;
  return 0;
}

uint32_t FakeDriver::UnmapDma(const std::byte* at) {
  const auto it = dma_.find(Get<uint64_t>(at, 24));
  if (it == dma_.end() || it->second.second != Get<uint32_t>(at, 12)) return kInvalidOffset;
  --Find(it->second.second)->users;
  dma_.erase(it);
  return 0;
}

}  // namespace telegrad::fakes
