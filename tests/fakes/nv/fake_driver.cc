// Files, mappings and the doorbell; fake_rm.cc has the objects, fake_uvm.cc unified memory.
#include "tests/fakes/nv/fake_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tests/fakes/nv/fields.h"
#include "tests/fakes/nv/rm_codes.h"

namespace telegrad::fakes {

// Which ioctl numbers there are, the size of each one's struct, and where in it the status is; 0:
// it has none (nv_escape.h, nvos.h).
struct Escape {
  uint32_t number;
  size_t bytes, status;
  const char* name;
};
constexpr Escape kEscapes[] = {
    {0x27, 56, 40, "RM_ALLOC_MEMORY"},   {0x29, 16, 12, "RM_FREE"},
    {0x2A, 32, 28, "RM_CONTROL"},        {0x2B, 32, 28, "RM_ALLOC"},
    {0x4E, 56, 40, "RM_MAP_MEMORY"},     {0x4F, 32, 24, "RM_UNMAP_MEMORY"},
    {0x57, 64, 56, "RM_MAP_MEMORY_DMA"}, {0x58, 48, 40, "RM_UNMAP_MEMORY_DMA"},
    {200, 72 * 32, 0, "CARD_INFO"},      {201, 4, 0, "REGISTER_FD"},
};

static const Escape* FindEscape(uint32_t number) {
  for (const Escape& escape : kEscapes) {
    if (escape.number == number) return &escape;
  }
  return nullptr;
}

namespace {

absl::Status Errno(int error, const std::string& what) { return absl::ErrnoToStatus(error, what); }

}  // namespace

FakeDriver::FakeDriver() {
  // The driver ends the whole group of a channel that faulted.
  gpu.on_fault = [this](FakeChannel& channel) {
    for (auto& [handle, object] : objects_) {
      if (object.channel && object.channel->group == channel.group) object.channel->dead = true;
    }
  };
}

FakeDriver::~FakeDriver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  rung_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FakeDriver::Start() {
  threaded_ = true;
  thread_ = std::thread([this] { Serve(); });
}

int64_t FakeDriver::Ns() const { return threaded_ ? Clock::Steady()->Ns() : now_; }

absl::StatusOr<int> FakeDriver::Open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (RefusesSystemCall()) return Errno(EMFILE, path);
  if (faults.missing.count(path)) return Errno(ENOENT, path);
  if (faults.denied.count(path)) return Errno(EACCES, path);
  File file{.kind = FileKind::kControl, .path = path};
  if (path == "/dev/nvidia0") {
    file.kind = FileKind::kDevice;
  } else if (path == "/dev/nvidia-uvm") {
    file.kind = FileKind::kUvm;
  } else if (path != "/dev/nvidiactl") {
    return Errno(ENOENT, path);
  }
  files_.emplace(next_fd_, file);
  return next_fd_++;
}

absl::Status FakeDriver::Close(int fd) {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.fd == fd) return Errno(EBUSY, "closed under its mapping");
  }
  return files_.erase(fd) ? absl::OkStatus() : Errno(EBADF, "close");
}

std::string FakeDriver::CallName(const File& file, uint32_t request,
                                 const std::byte* argument) const {
  if (file.kind == FileKind::kUvm) return absl::StrFormat("UVM %#x", request);
  const uint32_t number = request & 0xFF;
  if (number == 0x2B) return absl::StrFormat("RM_ALLOC %#x", Get<uint32_t>(argument, 12));
  if (number == 0x2A) return absl::StrFormat("RM_CONTROL %#x", Get<uint32_t>(argument, 8));
  const Escape* escape = FindEscape(number);
  return escape ? escape->name : absl::StrFormat("ioctl %#x", number);
}

absl::Status FakeDriver::Ioctl(int fd, uint32_t request, void* argument) {
  const std::lock_guard lock(mutex_);
  return IoctlLocked(fd, request, argument);
}

absl::Status FakeDriver::IoctlLocked(int fd, uint32_t request, void* argument) {
  const auto it = files_.find(fd);
  if (it == files_.end()) return Errno(EBADF, "ioctl");
  File& file = it->second;
  auto* at = static_cast<std::byte*>(argument);
  const bool uvm = file.kind == FileKind::kUvm;
  const Escape* escape = uvm ? nullptr : FindEscape(request & 0xFF);
  const size_t status_at = uvm ? UvmStatusAt(request) : escape ? escape->status : 0;
  calls_.push_back(CallName(file, request, at));
  if (calls() - 1 == faults.fail_call) {
    if (faults.fail_status == 0 || status_at == 0) return Errno(EINVAL, "ioctl");
    Put(at, status_at, faults.fail_status);
    return absl::OkStatus();
  }
  if (uvm) {
    if (status_at == 0) return Errno(EINVAL, "unknown UVM ioctl");
    Put(at, status_at, Uvm(file, request, at));
    return absl::OkStatus();
  }
  // _IOWR, type 'F': the kernel looks at the number and the size, and refuses any other size.
  if (!escape || request >> 30 != 3 || (request >> 8 & 0xFF) != 'F' ||
      (request >> 16 & 0x3FFF) != escape->bytes) {
    return Errno(EINVAL, "ioctl");
  }
  return Rm(file, *escape, at);
}

absl::Status FakeDriver::Rm(File& file, const Escape& escape, std::byte* at) {
  // Memory of the process is described on a GPU's file, everything else asked of the control file.
  const bool device_only = escape.number == 0x27 || escape.number == 201;
  if ((file.kind == FileKind::kDevice) != device_only) return Errno(EINVAL, escape.name);
  if (escape.number == 201) {
    const auto control = files_.find(Get<int32_t>(at, 0));
    if (control == files_.end() || control->second.kind != FileKind::kControl || file.registered) {
      return Errno(EINVAL, escape.name);
    }
    file.registered = true;
    return absl::OkStatus();
  }
  if (escape.number == 200) {
    std::memset(at, 0, escape.bytes);
    for (int i = 0; i < cards; ++i) {
      std::byte* card = at + 72 * i;
      Put<uint8_t>(card, 0, 1);
      Put<uint8_t>(card, 8, 0x18);          // bus
      Put<uint16_t>(card, 12, 0x10DE);      // vendor
      Put<uint16_t>(card, 14, 0x2335);      // H200
      Put<uint32_t>(card, 16, 0x1800 + i);  // GPU id
      Put<uint32_t>(card, 56, i);           // minor
    }
    return absl::OkStatus();
  }
  const auto pointer = [&](size_t offset) {
    return reinterpret_cast<std::byte*>(Get<uint64_t>(at, offset));
  };
  // Every call but the root's names the client first.
  const bool makes_root = escape.number == 0x2B && Get<uint32_t>(at, 12) == 0x41;
  uint32_t status = kInvalidClient;
  if (makes_root || (root_ != 0 && Get<uint32_t>(at, 0) == root_)) {
    switch (escape.number) {
      case 0x2B:
        status = Alloc(at, Get<uint32_t>(at, 12), pointer(16), Get<uint32_t>(at, 24));
        break;
      case 0x29:
        status = Free(Get<uint32_t>(at, 4), Get<uint32_t>(at, 8));
        break;
      case 0x2A:
        status =
            Control(Get<uint32_t>(at, 4), Get<uint32_t>(at, 8), pointer(16), Get<uint32_t>(at, 24));
        break;
      case 0x27:
        status = Descriptor(file, at);
        break;
      case 0x4E:
        status = MapMemory(at);
        break;
      case 0x4F:
        status = UnmapMemory(at);
        break;
      case 0x57:
        status = MapDma(at);
        break;
      case 0x58:
        status = UnmapDma(at);
        break;
    }
  }
  Put(at, escape.status, status);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> FakeDriver::Map(int fd, size_t length) {
  const std::lock_guard lock(mutex_);
  if (RefusesSystemCall()) return Errno(ENOMEM, "mmap");
  Mapping mapping{.bytes = length, .fd = fd, .memory = nullptr};
  std::byte* address = nullptr;
  if (fd < 0) {
    mapping.memory = std::make_shared<FakeMemory>(length);
    address = mapping.memory->data;
  } else {
    const auto file = files_.find(fd);
    if (file == files_.end() || file->second.mapped_bytes != length) return Errno(EINVAL, "mmap");
    const Object& object = *Find(file->second.mapped_object);
    mapping.memory = object.memory;
    // Video memory is written through a view that the GPU sees late.
    address = object.object_class == 0x40 ? object.memory->MapView() : object.memory->data;
  }
  if (!mappings_.emplace(address, std::move(mapping)).second) return Errno(EBUSY, "mmap");
  return address;
}

absl::Status FakeDriver::Unmap(std::byte* address, size_t length) {
  const std::lock_guard lock(mutex_);
  const auto it = mappings_.find(address);
  if (it == mappings_.end() || it->second.bytes != length) return Errno(EINVAL, "munmap");
  for (const auto& [handle, object] : objects_) {
    if (object.object_class == 0x71 && object.memory->data == address) {
      return Errno(EBUSY, "unmapped while the driver has it pinned");
    }
  }
  mappings_.erase(it);
  return absl::OkStatus();
}

void FakeDriver::OrderStores() {
  const std::lock_guard lock(mutex_);
  gpu.Ring();
}

void FakeDriver::StoreDoorbell(volatile uint32_t* doorbell, uint32_t value) {
  const std::lock_guard lock(mutex_);
  const auto* at = reinterpret_cast<const volatile std::byte*>(doorbell);
  for (const auto& [address, mapping] : mappings_) {
    if (at != address + 0x90 || mapping.fd < 0) continue;  // NOTIFY_CHANNEL_PENDING
    const File& file = files_.at(mapping.fd);
    if (!Find(file.mapped_object, 0xC661) || faults.lose_doorbell) continue;
    gpu.Ring();
    for (auto& [handle, object] : objects_) {
      if (object.channel && object.channel->token == value) object.channel->rung = true;
    }
  }
  rung_.notify_all();
}

// The channels take turns by chance, each with a few methods.
bool FakeDriver::Work() {
  if (faults.no_progress) return false;
  std::vector<FakeChannel*> channels;
  for (auto& [handle, object] : objects_) {
    if (object.channel) channels.push_back(object.channel.get());
  }
  std::shuffle(channels.begin(), channels.end(), random_);
  bool any = false;
  for (FakeChannel* channel : channels) any |= gpu.Step(*channel, 1 + random_() % 40);
  return any;
}

void FakeDriver::Serve() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!Work()) rung_.wait_for(lock, std::chrono::microseconds(200));
    // Whoever asks something of the driver gets in between.
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void FakeDriver::Pause() {
  if (threaded_) return std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  now_ += 1'000'000;
  while (Work()) {
  }
}

std::vector<std::string> FakeDriver::Live() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> live;
  for (const auto& [fd, file] : files_) live.push_back(absl::StrFormat("file %s", file.path));
  for (const auto& [handle, object] : objects_) {
    live.push_back(absl::StrFormat("object %#x of class %#x", handle, object.object_class));
  }
  for (const auto& [at, mapping] : mappings_) {
    live.push_back(absl::StrFormat("mapping of %d bytes", mapping.bytes));
  }
  for (const auto& [at, mapping] : rm_mappings_) live.push_back(absl::StrFormat("RM map %#x", at));
  for (const auto& [at, mapping] : dma_) live.push_back(absl::StrFormat("DMA map %#x", at));
  for (const auto& [base, range] : gpu.ranges) live.push_back(absl::StrFormat("range %#x", base));
  for (const auto& [handle, base] : uvm_channels_) {
    live.push_back(absl::StrFormat("channel %#x with UVM", handle));
  }
  if (uvm_gpu_) live.push_back("GPU with UVM");
  if (uvm_va_space_) live.push_back("address space with UVM");
  return live;
}

}  // namespace telegrad::fakes
