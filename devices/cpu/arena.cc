// Above 1 MiB: blocks of a multiple of 2 MiB, best fit first, coalesced when they come back, else
// cut from the untouched end. Up to 1 MiB: pieces of slabs of 2 MiB, in four sizes to an octave.
// Only what was handed out before needs zeroing; that happens outside of the lock.
#include "devices/cpu/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kBlock = int64_t{2} << 20;
constexpr int64_t kLargestPiece = int64_t{1} << 20;
constexpr int64_t kStep = 64;
constexpr int64_t kMaxLimit = int64_t{1} << 62;  // with room for half as much again

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
int64_t Charge(int64_t size) { return RoundUp(std::max<int64_t>(size, 1), kStep); }

// 64, 128, 192, 256, then 320, 384, 448, 512, 640, ...
int64_t PieceSize(int64_t size) {
  const auto bytes = static_cast<uint64_t>(Charge(size));
  return RoundUp(static_cast<int64_t>(bytes),
                 std::max<int64_t>(kStep, static_cast<int64_t>(std::bit_floor(bytes - 1) / 4)));
}

}  // namespace

int64_t Arena::CapacityFor(int64_t limit) {
  if (limit < 0 || limit > kMaxLimit) return -1;
  // Rounding and fragmentation take room, too.
  return RoundUp(limit + limit / 2 + 32 * kBlock, kBlock);
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(int64_t limit) {
  return CreateIn(UniqueFd(), limit);
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::CreateIn(UniqueFd file, int64_t limit) {
  const int64_t capacity = CapacityFor(limit);
  if (capacity < 0) {
    return InvalidArgument("a memory limit of ", limit, " bytes; expected 0 to ", kMaxLimit);
  }
  const int64_t mapped = capacity + kBlock;
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  void* mapping =
      mmap(nullptr, mapped, kProtection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* first = static_cast<char*>(mapping);
  char* base = first + (-reinterpret_cast<intptr_t>(first) & (kBlock - 1));
  const bool ok =
      mapping != MAP_FAILED &&
      (!file.valid() || mmap(base, capacity, kProtection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                             file.get(), 0) != MAP_FAILED);
  if (!ok) {
    if (mapping != MAP_FAILED) munmap(mapping, mapped);
    return ResourceExhausted("the system refused ", mapped,
                             " bytes of address space for a memory limit of ", limit);
  }
  madvise(base, capacity, MADV_HUGEPAGE);  // a wish; without huge pages it is only slower
  return std::shared_ptr<Arena>(new Arena(first, mapped, base, capacity, limit, std::move(file)));
}

Arena::Arena(char* mapping, int64_t mapped, char* base, int64_t capacity, int64_t limit,
             UniqueFd file)
    : mapping_(mapping),
      mapped_(mapped),
      base_(base),
      capacity_(capacity),
      limit_(limit),
      file_(std::move(file)) {}

void Arena::GiveBack() {
  if (!file_.valid()) return;
  MutexLock lock(mutex_);
  for (const auto& [offset, bytes] : free_) {
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }
  if (free_.empty()) return;
  const auto [last, length] = *free_.rbegin();
  if (last + length != top_) return;
  RemoveFree(last, length);
  top_ = last;  // zero again
}

Arena::~Arena() { munmap(mapping_, mapped_); }

int64_t Arena::used() const {
  MutexLock lock(mutex_);
  return used_;
}

int64_t Arena::footprint() const {
  MutexLock lock(mutex_);
  return top_;
}

absl::Status Arena::CheckRoom(int64_t size) const {
  if (size <= limit_ && Charge(size) <= limit_ - used_) return absl::OkStatus();
  return ResourceExhausted("allocating ", size, " bytes with ", used_,
                           " in use would exceed the memory limit of ", limit_, " bytes");
}

absl::Status Arena::Count(int64_t size) {
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckRoom(size));
  used_ += Charge(size);
  return absl::OkStatus();
}

void Arena::Uncount(int64_t size) {
  const MutexLock lock(mutex_);
  used_ -= Charge(size);
}

absl::StatusOr<void*> Arena::Alloc(int64_t size) {
  Span span;
  {
    MutexLock lock(mutex_);
    TG_RETURN_IF_ERROR(CheckRoom(size));
    span = size <= kLargestPiece ? TakePiece(PieceSize(size)) : TakeBlocks(RoundUp(size, kBlock));
    if (span.offset < 0) {
      return ResourceExhausted("allocating ", size, " bytes: ", used_, " of ", limit_,
                               " bytes are in use, but no contiguous free range is long enough");
    }
    used_ += Charge(size);
  }
  std::memset(base_ + span.offset, 0, std::min(span.dirty, RoundUp(size, kStep)));
  return base_ + span.offset;
}

void Arena::Free(void* at, int64_t size) {
  const int64_t offset = static_cast<char*>(at) - base_;
  MutexLock lock(mutex_);
  used_ -= Charge(size);
  if (size <= kLargestPiece) {
    ReturnPiece(offset);
  } else {
    ReturnBlocks(offset, RoundUp(size, kBlock));
  }
}

void Arena::AddFree(int64_t offset, int64_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void Arena::RemoveFree(int64_t offset, int64_t bytes) {
  free_.erase(offset);
  by_size_.erase({bytes, offset});
}

Arena::Span Arena::TakeBlocks(int64_t bytes) {
  if (const auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end()) {
    const auto [found, offset] = *fit;
    RemoveFree(offset, found);
    if (found > bytes) AddFree(offset + bytes, found - bytes);
    return {offset, bytes};
  }
  // From the untouched end, together with what is free just before it.
  int64_t offset = top_;
  if (!free_.empty()) {
    const auto [last, length] = *free_.rbegin();
    if (last + length == top_) offset = last;
  }
  if (bytes > capacity_ - offset) return {};
  const int64_t dirty = top_ - offset;
  if (dirty > 0) RemoveFree(offset, dirty);
  top_ = offset + bytes;
  return {offset, dirty};
}

void Arena::ReturnBlocks(int64_t offset, int64_t bytes) {
  const auto after = free_.find(offset + bytes);
  if (after != free_.end()) {
    const auto [next, length] = *after;
    RemoveFree(next, length);
    bytes += length;
  }
  auto before = free_.lower_bound(offset);
  if (before != free_.begin() && std::prev(before)->first + std::prev(before)->second == offset) {
    const auto [previous, length] = *std::prev(before);
    RemoveFree(previous, length);
    offset = previous;
    bytes += length;
  }
  AddFree(offset, bytes);
}

Arena::Span Arena::TakePiece(int64_t piece) {
  std::set<int64_t>& candidates = with_space_[piece];
  if (candidates.empty()) {
    const Span block = TakeBlocks(kBlock);
    if (block.offset < 0) return {};
    const int64_t index = block.offset / kBlock;
    if (index >= static_cast<int64_t>(slabs_.size())) slabs_.resize(index + 1);
    slabs_[index] = Slab{.piece = piece, .dirty = block.dirty, .free = {}};
    candidates.insert(index);
  }
  const int64_t index = *candidates.begin();
  Slab& slab = slabs_[index];
  Span span{index * kBlock, piece};
  if (!slab.free.empty()) {
    span.offset += slab.free.back();
    slab.free.pop_back();
  } else {
    span.offset += slab.untouched;
    span.dirty = std::clamp<int64_t>(slab.dirty - slab.untouched, 0, piece);
    slab.untouched += piece;
  }
  ++slab.live;
  if (slab.free.empty() && slab.untouched + piece > kBlock) candidates.erase(index);
  return span;
}

void Arena::ReturnPiece(int64_t offset) {
  const int64_t index = offset / kBlock;
  Slab& slab = slabs_[index];
  std::set<int64_t>& candidates = with_space_[slab.piece];
  if (--slab.live == 0) {
    candidates.erase(index);
    slab = Slab{};
    ReturnBlocks(index * kBlock, kBlock);
    return;
  }
  slab.free.push_back(offset - index * kBlock);
  candidates.insert(index);
}

}  // namespace telegrad
