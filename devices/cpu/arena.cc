// Where an allocation lies is the Suballocator's; here is the memory behind it. Only what was
// handed out before needs zeroing; that happens outside of the lock.
#include "devices/cpu/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kBlock = Suballocator::kBlock;
constexpr int64_t kStep = 64;
constexpr int64_t kMaxLimit = int64_t{1} << 62;  // with room for half as much again

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

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
      file_(std::move(file)),
      offsets_(capacity, kStep) {}

void Arena::GiveBack() {
  if (!file_.valid()) return;
  MutexLock lock(mutex_);
  for (const auto& [offset, bytes] : offsets_.free()) {
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }
  offsets_.LowerTop();  // zero again
}

Arena::~Arena() { munmap(mapping_, mapped_); }

int64_t Arena::used() const {
  MutexLock lock(mutex_);
  return used_;
}

int64_t Arena::footprint() const {
  MutexLock lock(mutex_);
  return offsets_.top();
}

absl::Status Arena::CheckRoom(int64_t size) const {
  if (size <= limit_ && offsets_.Charge(size) <= limit_ - used_) return absl::OkStatus();
  return ResourceExhausted("allocating ", size, " bytes with ", used_,
                           " in use would exceed the memory limit of ", limit_, " bytes");
}

absl::Status Arena::Count(int64_t size) {
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckRoom(size));
  used_ += offsets_.Charge(size);
  return absl::OkStatus();
}

void Arena::Uncount(int64_t size) {
  const MutexLock lock(mutex_);
  used_ -= offsets_.Charge(size);
}

absl::StatusOr<void*> Arena::Alloc(int64_t size) {
  Suballocator::Span span;
  {
    MutexLock lock(mutex_);
    TG_RETURN_IF_ERROR(CheckRoom(size));
    span = offsets_.Take(size);
    if (span.offset < 0) {
      return ResourceExhausted("allocating ", size, " bytes: ", used_, " of ", limit_,
                               " bytes are in use, but no contiguous free range is long enough");
    }
    used_ += offsets_.Charge(size);
  }
  std::memset(base_ + span.offset, 0, std::min(span.dirty, RoundUp(size, kStep)));
  return base_ + span.offset;
}

void Arena::Free(void* at, int64_t size) {
  const int64_t offset = static_cast<char*>(at) - base_;
  MutexLock lock(mutex_);
  used_ -= offsets_.Charge(size);
  offsets_.Return(offset, size);
}

}  // namespace telegrad
