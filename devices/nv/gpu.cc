// Brings the GPU up, asks for its properties, makes its heaps and channels, and watches the
// error notifiers of the channels. A loss is final and names the Xid.
#include "devices/nv/gpu.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_format.h"
#include "devices/nv/channel.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

// Addresses of the GPU's: below the 40 bits of entries and QMDs, and clear of the windows through
// which kernels see their shared and local memory.
constexpr uint64_t kAddresses = 0x10'0000'0000, kAddressesEnd = uint64_t{1} << 40;
constexpr size_t kPage = 2 << 20;  // the GPU's large one
constexpr size_t kSmallChunk = 2 << 20;

size_t Rounded(size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

// The Xids of nverror.h that a channel's error is likely to be.
std::string XidText(uint32_t xid) {
  const char* meaning = "see NVIDIA's list of Xids";
  switch (xid) {
    case 13:
      meaning = "a kernel faulted";
      break;
    case 31:
      meaning = "an access to memory that is not mapped";
      break;
    case 32:
      meaning = "commands that the channel does not take";
      break;
    case 43:
    case 45:
      meaning = "the driver stopped the channel";
      break;
    case 48:
    case 94:
    case 95:
      meaning = "an uncorrected error of its memory";
      break;
    case 79:
      meaning = "it fell off the bus";
      break;
    default:
      break;
  }
  return StrCat("Xid ", xid, " (", meaning, ")");
}

}  // namespace

Gpu::Gpu(hcq::SysOps& system, int number, std::string name, const GpuLimits& limits)
    : name_(std::move(name)),
      limits_(limits),
      objects_(system, number, GpuObjects::OtherBranch::kRefuse),
      addresses_(kAddresses, kAddressesEnd - kAddresses),
      video_(
          limits.video_chunk,
          [this](size_t bytes) {
            return Grow([this, bytes](RmClient& rm) {
              return MakeVideo(rm, objects_, Rounded(bytes), /*mapped=*/false);
            });
          },
          [this](const Region& region) { GiveAddresses(region); }),
      commands_(
          kSmallChunk,
          [this](size_t bytes) {
            return Grow([this, bytes](RmClient& rm) {
              return MakeVideo(rm, objects_, Rounded(bytes), /*mapped=*/true);
            });
          },
          [this](const Region& region) { GiveAddresses(region); }),
      pinned_(
          kSmallChunk,
          [this](size_t bytes) {
            return Grow(
                [this, bytes](RmClient& rm) { return MakePinned(rm, objects_, Rounded(bytes)); });
          },
          [this](const Region& region) { GiveAddresses(region); }),
      semaphores_(
          kSmallChunk,
          [this](size_t bytes) {
            return Grow(
                [this, bytes](RmClient& rm) { return MakePinned(rm, objects_, Rounded(bytes)); });
          },
          [this](const Region& region) { GiveAddresses(region); }),
      pages_(
          [this](std::byte* at, size_t bytes) {
            return Grow([=, this](RmClient& rm) { return nv::PinPages(rm, objects_, at, bytes); });
          },
          [this](const Region& region) { GiveAddresses(region); }) {}

Gpu::~Gpu() { Close(); }

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(hcq::SysOps& system, int number, std::string name,
                                               const GpuLimits& limits) {
  std::unique_ptr<Gpu> gpu(new Gpu(system, number, std::move(name), limits));
  TG_RETURN_IF_ERROR(gpu->BringUp());
  return gpu;
}

absl::Status Gpu::BringUp() {
  using Call = GpuObjects::Found (GpuObjects::*)();
  constexpr Call kCalls[] = {
      &GpuObjects::OpenControl,      &GpuObjects::OpenUvm,          &GpuObjects::MakeRoot,
      &GpuObjects::CheckVersion,     &GpuObjects::ChooseCard,       &GpuObjects::OpenDevice,
      &GpuObjects::GetIdInfo,        &GpuObjects::MakeDevice,       &GpuObjects::MakeSubdevice,
      &GpuObjects::CheckClasses,     &GpuObjects::MapDoorbell,      &GpuObjects::MakeVaSpace,
      &GpuObjects::InitializeUvm,    &GpuObjects::RegisterGpu,      &GpuObjects::RegisterVaSpace,
      &GpuObjects::MakeChannelGroup, &GpuObjects::MakeContextShare,
  };
  for (const Call call : kCalls) {
    TG_ASSIGN_OR_RETURN(const std::string found, (objects_.*call)());
    if (call == &GpuObjects::MakeSubdevice) facts_.name = found;
  }
  TG_RETURN_IF_ERROR(AskFacts());
  return MakeChannels();
}

absl::Status Gpu::AskFacts() {
  RmClient& rm = objects_.rm();
  IndexedInfo info[] = {
      {kInfoMaxWarpsPerSm, 0}, {kInfoGpcs, 0}, {kInfoTpcsPerGpc, 0}, {kInfoSmsPerTpc, 0}};
  GrInfoParams graphics{};
  graphics.count = std::size(info);
  graphics.list = reinterpret_cast<uintptr_t>(info);
  TG_RETURN_IF_ERROR(rm.Control(objects_.subdevice(), kGetGrInfo, graphics));
  facts_.warps_per_processor = static_cast<int>(info[0].data);
  facts_.most_tpcs = static_cast<int>(info[1].data * info[2].data);
  facts_.processors_per_tpc = static_cast<int>(info[3].data);
  GpcMaskParams gpcs{};
  TG_RETURN_IF_ERROR(rm.Control(objects_.subdevice(), kGetGpcMask, gpcs));
  for (uint32_t gpc = 0; gpc < 32; ++gpc) {
    if ((gpcs.mask >> gpc & 1) == 0) continue;
    TpcMaskParams tpcs{};
    tpcs.gpc = gpc;
    TG_RETURN_IF_ERROR(rm.Control(objects_.subdevice(), kGetTpcMask, tpcs));
    facts_.processors += std::popcount(tpcs.mask) * facts_.processors_per_tpc;
  }
  FbInfoParams memory{};
  memory.count = 2;
  memory.list[0].index = kInfoHeapKib;
  memory.list[1].index = kInfoHeapFreeKib;
  TG_RETURN_IF_ERROR(rm.Control(objects_.subdevice(), kGetFbInfo, memory));
  facts_.memory_bytes = int64_t{memory.list[0].data} << 10;
  facts_.free_bytes = int64_t{memory.list[1].data} << 10;
  if (facts_.processors < 1 || facts_.warps_per_processor < 1 || facts_.free_bytes < 1) {
    return Internal("the driver says that the GPU has ", facts_.processors, " processors and ",
                    facts_.free_bytes, " free bytes");
  }
  return absl::OkStatus();
}

absl::Status Gpu::MakeChannels() {
  RmClient& rm = objects_.rm();
  for (int i = 0; i < kChannels; ++i) {
    TG_ASSIGN_OR_RETURN(notifiers_.emplace_back(), MakeNotifier(rm, objects_, kNotifierBytes));
    Channel::Parts parts;
    parts.memory_bytes = Rounded(Channel::MemoryBytes(limits_));
    TG_ASSIGN_OR_RETURN(parts.memory, MakeVideo(rm, objects_, parts.memory_bytes, true));
    uint64_t resources = 0;
    {
      const MutexLock lock(addresses_mutex_);
      parts.memory.address = *addresses_.Take(parts.memory_bytes, kPage);
      resources = *addresses_.Take(kResourceBytes, kPage);
    }
    TG_RETURN_IF_ERROR(MapExternal(rm, objects_, parts.memory));
    // Rings and control blocks start at zero; a page of the GPU's is not zeroed for us.
    for (size_t at = 0; at < Channel::ZeroedBytes(limits_); at += 8) {
      parts.memory.Store<uint64_t>(at, 0);
    }
    TG_ASSIGN_OR_RETURN(
        parts.handle,
        MakeChannel(rm, objects_, parts.memory, notifiers_.back(), Channel::RingOffset(),
                    Channel::UserdOffset(limits_), limits_.ring_entries));
    // Both engines, so that any work can be in one order on any channel.
    TG_RETURN_IF_ERROR(rm.Alloc(parts.handle, kHopperCompute).status());
    TG_RETURN_IF_ERROR(rm.Alloc(parts.handle, kHopperCopy).status());
    TokenParams token{.token = ~0u};
    TG_RETURN_IF_ERROR(rm.Control(parts.handle, kGetToken, token));
    parts.token = token.token;
    TG_RETURN_IF_ERROR(RegisterChannel(rm, objects_, parts.handle, resources, kResourceBytes));
    TG_ASSIGN_OR_RETURN(parts.semaphores, semaphores_.Take(Channel::kSemaphoreBytes, 16));
    channels_.push_back(std::make_unique<Channel>(*this, parts));
  }
  ScheduleParams schedule{};
  schedule.enable = 1;
  TG_RETURN_IF_ERROR(rm.Control(objects_.group(), kScheduleGroup, schedule));
  {
    const MutexLock lock(mutex_);
    scheduled_ = true;
    for (auto it = channels_.rbegin(); it != channels_.rend(); ++it) {
      free_channels_.push_back(it->get());
    }
  }
  for (auto it = channels_.rbegin(); it != channels_.rend(); ++it) {
    TG_RETURN_IF_ERROR((*it)->Begin());
  }
  return absl::OkStatus();
}

std::vector<std::string> Gpu::Close() {
  Lose(absl::UnavailableError(StrCat(name_, " was closed")));
  bool scheduled;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return {};
    scheduled = std::exchange(scheduled_, false);
  }
  // Whatever a channel is still at must not reach memory that goes.
  std::vector<std::string> left;
  if (scheduled) {
    ScheduleParams schedule{};
    if (const absl::Status stopped =
            objects_.rm().Control(objects_.group(), kScheduleGroup, schedule);
        !stopped.ok()) {
      left.push_back(StrCat("channels: ", ToStd(stopped.message())));
    }
  }
  const ExclusiveLock closing(closing_);
  for (Heap* heap : {&video_, &commands_, &pinned_, &semaphores_}) {
    for (std::string& what : heap->Clear()) left.push_back(std::move(what));
  }
  for (std::string& what : pages_.Clear()) left.push_back(std::move(what));
  for (std::string& what : objects_.rm().Release()) left.push_back(std::move(what));
  return left;
}

absl::StatusOr<std::unique_ptr<OwnedRegion>> Gpu::Grow(
    const std::function<absl::StatusOr<Region>(RmClient&)>& make) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return lost_;
  }
  auto out = std::make_unique<OwnedRegion>(objects_.rm());
  TG_ASSIGN_OR_RETURN(out->region, make(out->rm));
  {
    const MutexLock lock(addresses_mutex_);
    const auto address = addresses_.Take(out->region.bytes, kPage);
    if (!address) return ResourceExhausted(name_, ": no addresses are left");
    out->region.address = *address;
  }
  const absl::Status mapped = MapExternal(out->rm, objects_, out->region);
  if (mapped.ok()) return out;
  const Region region = out->region;
  out = nullptr;
  GiveAddresses(region);
  return mapped;
}

void Gpu::GiveAddresses(const Region& region) {
  const MutexLock lock(addresses_mutex_);
  addresses_.Give(region.address, region.bytes);
}

void Gpu::Lose(const absl::Status& why) {
  const MutexLock lock(mutex_);
  if (lost_.ok()) lost_ = why;
}

absl::Status Gpu::Check() {
  const MutexLock lock(mutex_);
  if (!lost_.ok() || closed_) return lost_;
  for (const Region& notifier : notifiers_) {
    if (notifier.Load<uint16_t>(offsetof(Notification, status)) == 0) continue;
    const auto xid = notifier.Load<uint32_t>(offsetof(Notification, info32));
    lost_ = absl::UnavailableError(StrCat("a channel of ", name_, " reports ", XidText(xid)));
    break;
  }
  return lost_;
}

absl::Status Gpu::PinPages(std::byte* at, size_t bytes) {
  const SharedLock closing(closing_);
  return pages_.Pin(at, bytes);
}

absl::Status Gpu::UnpinPages(const void* at) {
  const SharedLock closing(closing_);
  return pages_.Unpin(at);
}

uint64_t Gpu::AddressOf(const void* host, size_t bytes) const {
  const uint64_t address = pinned_.AddressOf(host, bytes);
  return address != 0 ? address : pages_.AddressOf(host, bytes);
}

void Gpu::Remember(const Block& block) {
  const MutexLock lock(mutex_);
  blocks_.emplace(block.address, block);
}

std::optional<Block> Gpu::Forget(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return std::nullopt;
  const Block block = it->second;
  blocks_.erase(it);
  return block;
}

void Gpu::Keep(std::shared_ptr<void> object) {
  const MutexLock lock(kept_mutex_);
  const void* const key = object.get();
  kept_.emplace(key, std::move(object));
}

void Gpu::Drop(const void* object) {
  std::shared_ptr<void> last;  // goes without the lock
  const MutexLock lock(kept_mutex_);
  const auto it = kept_.find(object);
  if (it == kept_.end()) return;
  last = std::move(it->second);
  kept_.erase(it);
}

absl::StatusOr<Channel*> Gpu::TakeChannel() {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return lost_;
  if (free_channels_.empty()) {
    return ResourceExhausted(name_, ": all ", kChannels, " channels are taken");
  }
  Channel* const channel = free_channels_.back();
  free_channels_.pop_back();
  return channel;
}

void Gpu::ReturnChannel(Channel* channel) {
  const MutexLock lock(mutex_);
  free_channels_.push_back(channel);
}

// The GPU finds a thread's stack by the number of its processor, so there is room for all that the
// architecture may have; each pair of processors has its part at a multiple of 32 KiB.
absl::Status Gpu::HoldStacks(uint32_t bytes) {
  constexpr uint64_t kPartAlignment = 32 << 10, kWarp = 32;
  const uint64_t wanted = bytes * kWarp * static_cast<uint64_t>(facts_.warps_per_processor) *
                          static_cast<uint64_t>(facts_.processors_per_tpc);
  const uint64_t part = (wanted + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  if (part <= stacks().bytes_per_tpc) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const Block block,
                      video_.Take(part * static_cast<uint64_t>(facts_.most_tpcs), kPage));
  const MutexLock lock(mutex_);
  if (part > stacks_.bytes_per_tpc) stacks_ = {block.address, part};
  return absl::OkStatus();
}

Gpu::Stacks Gpu::stacks() const {
  const MutexLock lock(mutex_);
  return stacks_;
}

}  // namespace telegrad::nv
