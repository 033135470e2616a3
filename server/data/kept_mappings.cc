// Mappings are removed without the mutex, because that takes its time, too.
#include "server/data/kept_mappings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int kPopulate = 22;  // MADV_POPULATE_READ of linux/mman.h, since Linux 5.14

size_t MappedPageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mapping>> Mapping::Of(int fd, uint64_t offset, size_t bytes,
                                                     bool writable) {
  const size_t before = offset % MappedPageBytes();
  const size_t whole_bytes = before + bytes;
  void* const whole = mmap(nullptr, whole_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                           MAP_SHARED, fd, static_cast<off_t>(offset - before));
  if (whole == MAP_FAILED) {
    return absl::DataLossError(StrCat("shared memory cannot be mapped: ", std::strerror(errno)));
  }
  auto* const first = static_cast<std::byte*>(whole) + before;
  return std::unique_ptr<Mapping>(new Mapping(whole, whole_bytes, {first, bytes}));
}

Mapping::~Mapping() { munmap(whole_, whole_bytes_); }

void Mapping::Advise(size_t at, size_t bytes, int advice) const {
  auto* const whole = static_cast<std::byte*>(whole_);
  const auto from = static_cast<size_t>(bytes_.data() + at - whole);
  const size_t begin = from / MappedPageBytes() * MappedPageBytes();
  // A page at the border may be in use by who copies its other half; that is no harm.
  madvise(whole + begin, from + bytes - begin, advice);
}

void Mapping::Populate(size_t at, size_t bytes) const { Advise(at, bytes, kPopulate); }

void Mapping::Forget(size_t at, size_t bytes) const { Advise(at, bytes, MADV_DONTNEED); }

KeptMappings::KeptMappings(std::chrono::milliseconds time)
    : ticker_(std::max(time / 2, std::chrono::milliseconds(1)), [this] { Sweep(); }) {}

std::unique_ptr<Mapping> KeptMappings::Take(const Key& key) {
  const MutexLock lock(mutex_);
  const auto it = std::ranges::find(kept_, key, &Kept::key);
  if (it == kept_.end()) return nullptr;
  std::unique_ptr<Mapping> mapping = std::move(it->mapping);
  bytes_ -= key.bytes;
  kept_.erase(it);
  return mapping;
}

void KeptMappings::Put(const Key& key, std::unique_ptr<Mapping> mapping, Reservation paid) {
  if (key.bytes > kMostBytes) return;
  std::vector<Kept> removed;
  const MutexLock lock(mutex_);
  while (!kept_.empty() && (kept_.size() >= kMost || bytes_ > kMostBytes - key.bytes)) {
    bytes_ -= kept_.front().key.bytes;
    removed.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  bytes_ += key.bytes;
  kept_.push_back({key, std::move(mapping), std::move(paid)});
}

absl::StatusOr<Reservation> KeptMappings::Pay(const std::shared_ptr<Account>& owner) {
  if (auto paid = Reservation::Try(owner, 1)) return *std::move(paid);
  Drop(owner.get());
  return Reservation::Take(owner, 1);
}

void KeptMappings::Drop(const Account* owner) {
  std::vector<Kept> removed;
  const MutexLock lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (it->key.owner != owner) {
      ++it;
      continue;
    }
    bytes_ -= it->key.bytes;
    removed.push_back(std::move(*it));
    it = kept_.erase(it);
  }
}

void KeptMappings::Sweep() {
  std::vector<Kept> removed;
  const MutexLock lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (++it->looks < 2) {
      ++it;
      continue;
    }
    bytes_ -= it->key.bytes;
    removed.push_back(std::move(*it));
    it = kept_.erase(it);
  }
}

size_t KeptMappings::size() const {
  const MutexLock lock(mutex_);
  return kept_.size();
}

}  // namespace telegrad
