// A chunk is a whole number of the driver's granules and at least a block of the Suballocator's,
// and so large that a few thousand calls fill the GPU: a driver maps as many small chunks far more
// slowly than few large ones. Addresses are cheap and there are twice as many as memory, so that a
// stretch is found although what is in use is scattered; chunks are moved to where it is found.
#include "devices/stream/virtual_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kMostChunks = 4096;  // of memory
constexpr int64_t kSpareChunks = 32;   // of addresses, beyond twice the memory

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

MemoryProperties PropertiesOn(int device) { return {.location = {.device = device}}; }

}  // namespace

absl::StatusOr<std::shared_ptr<VirtualArena>> VirtualArena::Create(std::shared_ptr<Context> context,
                                                                   int64_t limit,
                                                                   StreamHandle zeroing) {
  TG_RETURN_IF_ERROR(context->Enter());
  const MemoryProperties properties = PropertiesOn(context->device());
  size_t granule = 0;
  TG_RETURN_IF_ERROR(
      TG_STREAM(*context, memory_granularity, &granule, &properties, kLeastGranularity));
  if (granule == 0) return Internal(context->name(), ": memory of no granularity");
  const int64_t chunk =
      RoundUp(std::max(Suballocator::kBlock, limit / kMostChunks), static_cast<int64_t>(granule));
  const int64_t capacity = (2 * (limit / chunk) + kSpareChunks) * chunk;
  Address base = 0;
  TG_RETURN_IF_ERROR(TG_STREAM(*context, addresses_reserve, &base, static_cast<size_t>(capacity),
                               /*alignment=*/0, /*wish=*/0, /*flags=*/0));
  std::shared_ptr<VirtualArena> out(new VirtualArena(context, zeroing, chunk, base, capacity));
  context->OnDiscard([arena = std::weak_ptr<VirtualArena>(out)] {
    if (const auto still = arena.lock()) still->Drop();
  });
  return out;
}

VirtualArena::VirtualArena(std::shared_ptr<Context> context, StreamHandle zeroing, int64_t chunk,
                           Address base, int64_t capacity)
    : context_(std::move(context)),
      zeroing_(zeroing),
      chunk_(chunk),
      base_(base),
      capacity_(capacity),
      offsets_(capacity / Suballocator::kBlock * Suballocator::kBlock, kAlignment),
      chunks_(static_cast<size_t>(capacity / chunk)) {}

int64_t VirtualArena::footprint() const {
  const MutexLock lock(mutex_);
  return held_ * chunk_;
}

absl::StatusOr<Address> VirtualArena::Take(int64_t size, int64_t most) {
  int64_t offset = 0;
  {
    const MutexLock lock(mutex_);
    offset = offsets_.Take(size).offset;
    if (offset >= 0) Use(offset, size);
  }
  if (offset < 0) {
    return ResourceExhausted(context_->name(), ": no stretch of addresses is free for ", size,
                             " bytes");
  }
  const auto first = static_cast<size_t>(offset / chunk_);
  const auto last = static_cast<size_t>((offset + size - 1) / chunk_);
  const Address address = base_ + static_cast<Address>(offset);
  while (true) {
    const Missing missing = Claim(first, last, most);
    if (missing.chunks.empty()) return address;
    if (const absl::Status mapped = Map(missing); !mapped.ok()) {
      Return(address, size);
      return mapped;
    }
  }
}

void VirtualArena::Return(Address address, int64_t size) {
  const auto offset = static_cast<int64_t>(address - base_);
  const MutexLock lock(mutex_);
  Use(offset, size);
  offsets_.Return(offset, size);
}

void VirtualArena::Use(int64_t offset, int64_t size) {
  for (int64_t i = offset / chunk_; i <= (offset + size - 1) / chunk_; ++i) {
    chunks_[static_cast<size_t>(i)].used = look_;
  }
}

VirtualArena::Missing VirtualArena::Claim(size_t first, size_t last, int64_t most) {
  Missing out;
  ReleasableLock lock(mutex_);
  while (true) {
    bool all_mapped = true;
    for (size_t i = first; i <= last; ++i) {
      all_mapped &= chunks_[i].state == ChunkState::kMapped;
      if (chunks_[i].state == ChunkState::kAbsent) out.chunks.push_back(i);
    }
    if (all_mapped) return out;
    if (!out.chunks.empty()) break;
    changed_.wait(lock);
  }
  for (const size_t i : out.chunks) chunks_[i].state = ChunkState::kChanging;
  const auto count = static_cast<int64_t>(out.chunks.size());
  held_ += count;
  const int64_t room = std::max<int64_t>(most, 0) / chunk_;
  out.from_empty = static_cast<size_t>(std::clamp<int64_t>(held_ - room, 0, count));
  return out;
}

absl::Status VirtualArena::Map(const Missing& missing) {
  std::vector<PhysicalHandle> memory;
  absl::Status status = Obtain(missing, &memory);
  if (status.ok()) status = MapAt(missing.chunks, memory);
  if (!status.ok()) Release(memory).IgnoreError();
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < missing.chunks.size(); ++i) {
    Chunk& chunk = chunks_[missing.chunks[i]];
    chunk.state = status.ok() ? ChunkState::kMapped : ChunkState::kAbsent;
    chunk.memory = status.ok() ? memory[i] : 0;
  }
  if (!status.ok()) held_ -= static_cast<int64_t>(missing.chunks.size());
  changed_.notify_all();
  return status;
}

absl::Status VirtualArena::Obtain(const Missing& missing, std::vector<PhysicalHandle>* memory) {
  TG_RETURN_IF_ERROR(TakeEmpty(missing.from_empty, memory));
  const MemoryProperties properties = PropertiesOn(context_->device());
  while (memory->size() < missing.chunks.size()) {
    PhysicalHandle made = 0;
    const absl::Status status = TG_STREAM(*context_, memory_create, &made,
                                          static_cast<size_t>(chunk_), &properties, /*flags=*/0);
    if (status.ok()) {
      memory->push_back(made);
      continue;
    }
    if (!absl::IsResourceExhausted(status)) return status;
    const size_t before = memory->size();
    TG_RETURN_IF_ERROR(TakeEmpty(missing.chunks.size() - before, memory));
    if (memory->size() == before && !AwaitOthers()) return status;
  }
  return absl::OkStatus();
}

// Those peers get access that copy straight to and from memory of this GPU.
absl::Status VirtualArena::MapAt(const std::vector<size_t>& chunks,
                                 const std::vector<PhysicalHandle>& memory) {
  const auto bytes = static_cast<size_t>(chunk_);
  std::vector<MemoryAccess> access = {{.location = {.device = context_->device()}}};
  for (const int peer : context_->driver().peers()->Reaching(context_->device())) {
    access.push_back({.location = {.device = peer}});
  }
  size_t mapped = 0;
  absl::Status status;
  while (status.ok() && mapped < chunks.size()) {
    status = TG_STREAM(*context_, memory_map, At(chunks[mapped]), bytes, /*offset=*/0,
                       memory[mapped], /*flags=*/0);
    if (status.ok()) ++mapped;
  }
  for (size_t begin = 0, end = 0; status.ok() && begin < chunks.size(); begin = end) {
    while (end < chunks.size() && chunks[end] - chunks[begin] == end - begin) ++end;
    status = TG_STREAM(*context_, memory_access, At(chunks[begin]), (end - begin) * bytes,
                       access.data(), access.size());
  }
  if (status.ok()) return status;
  for (size_t i = 0; i < mapped; ++i) context_->calls().memory_unmap(At(chunks[i]), bytes);
  return status;
}

// From the end, so that what is in use draws together at the beginning.
std::vector<size_t> VirtualArena::ClaimEmpty(size_t count, uint64_t look) {
  std::vector<size_t> out;
  const auto& free = offsets_.free();
  for (auto it = free.rbegin(); it != free.rend(); ++it) {
    const int64_t first = (it->first + chunk_ - 1) / chunk_;
    for (int64_t i = (it->first + it->second) / chunk_ - 1; i >= first; --i) {
      if (out.size() == count) return out;
      Chunk& chunk = chunks_[static_cast<size_t>(i)];
      if (chunk.state != ChunkState::kMapped || chunk.used >= look) continue;
      chunk.state = ChunkState::kChanging;
      out.push_back(static_cast<size_t>(i));
    }
  }
  return out;
}

absl::Status VirtualArena::TakeEmpty(size_t count, std::vector<PhysicalHandle>* memory) {
  std::vector<size_t> chunks;
  {
    const MutexLock lock(mutex_);
    chunks = ClaimEmpty(count, /*look=*/UINT64_MAX);
    if (chunks.empty()) return absl::OkStatus();
    ++unmapping_;
  }
  // All work with them has ended but for the zeroing.
  return Unmap(chunks, TG_STREAM(*context_, stream_synchronize, zeroing_), memory);
}

absl::Status VirtualArena::Unmap(const std::vector<size_t>& chunks, absl::Status ready,
                                 std::vector<PhysicalHandle>* memory) {
  absl::Status status = std::move(ready);
  size_t unmapped = 0;
  while (status.ok() && unmapped < chunks.size()) {
    status = TG_STREAM(*context_, memory_unmap, At(chunks[unmapped]), static_cast<size_t>(chunk_));
    if (status.ok()) ++unmapped;
  }
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < chunks.size(); ++i) {
    Chunk& chunk = chunks_[chunks[i]];
    if (i < unmapped) {
      memory->push_back(std::exchange(chunk.memory, 0));
      chunk.state = ChunkState::kAbsent;
    } else {
      chunk.state = ChunkState::kMapped;
    }
  }
  held_ -= static_cast<int64_t>(unmapped);
  --unmapping_;
  changed_.notify_all();
  return status;
}

// Whoever gets addresses of a chunk that is on its way back waits for it, so these are few at a
// time. A chunk that was used at an earlier look than this has been zeroed where the GPU is idle
// now.
absl::StatusOr<int64_t> VirtualArena::GiveBackIdle() {
  if (!context_->IsIdle()) return FailedPrecondition(context_->name(), " is at work");
  uint64_t look = 0;
  {
    const MutexLock lock(mutex_);
    look = look_++;
  }
  int64_t bytes = 0;
  do {
    TG_ASSIGN_OR_RETURN(const int64_t more, GiveBackSome(look));
    if (more == 0) break;
    bytes += more;
  } while (context_->IsIdle());
  return bytes;
}

absl::StatusOr<int64_t> VirtualArena::GiveBackSome(uint64_t look) {
  constexpr size_t kChunks = 16;
  std::vector<size_t> chunks;
  {
    const MutexLock lock(mutex_);
    chunks = ClaimEmpty(kChunks, look);
    if (chunks.empty()) return 0;
    unmapping_ += 2;  // until they are unmapped, and until the driver has their memory
  }
  std::vector<PhysicalHandle> memory;
  absl::Status status = Unmap(chunks, absl::OkStatus(), &memory);
  status.Update(Release(memory));
  const MutexLock lock(mutex_);
  --unmapping_;
  changed_.notify_all();
  TG_RETURN_IF_ERROR(status);
  return static_cast<int64_t>(memory.size()) * chunk_;
}

bool VirtualArena::AwaitOthers() {
  ReleasableLock lock(mutex_);
  if (unmapping_ == 0) return false;
  while (unmapping_ > 0) changed_.wait(lock);
  return true;
}

absl::Status VirtualArena::Shrink(int64_t most) {
  size_t over = 0;
  {
    const MutexLock lock(mutex_);
    const int64_t room = std::max<int64_t>(most, 0) / chunk_;
    if (held_ <= room) return absl::OkStatus();
    over = static_cast<size_t>(held_ - room);
    ++unmapping_;
  }
  std::vector<PhysicalHandle> memory;
  absl::Status status = TakeEmpty(over, &memory);
  status.Update(Release(memory));
  const MutexLock lock(mutex_);
  --unmapping_;
  changed_.notify_all();
  return status;
}

absl::Status VirtualArena::Release(const std::vector<PhysicalHandle>& memory) {
  absl::Status status;
  for (const PhysicalHandle each : memory) {
    status.Update(TG_STREAM(*context_, memory_release, each));
  }
  return status;
}

void VirtualArena::Drop() {
  std::vector<Chunk> chunks;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(dropped_, true)) return;
    chunks = chunks_;
  }
  const Calls& calls = context_->calls();
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].state != ChunkState::kMapped) continue;
    calls.memory_unmap(At(i), static_cast<size_t>(chunk_));
    calls.memory_release(chunks[i].memory);
  }
  calls.addresses_free(base_, static_cast<size_t>(capacity_));
}

}  // namespace telegrad::stream
