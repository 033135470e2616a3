// Blocks have one of eight sizes between a power of two and the next, so that transfers of about
// one size use the same ones. Where the limit leaves no room for another, kept ones of other sizes
// are unlocked for it.
#include "devices/stream/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "devices/stream/memory.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kLeast = int64_t{64} << 10;
constexpr uint64_t kSizes = 8;  // between two powers of two
constexpr int64_t kParts = 4;   // one transfer takes at most such a part of the limit
constexpr int64_t kLoose = 2;   // a block serves what needs at least such a part of it

int64_t BlockBytes(int64_t size) {
  const auto bytes = static_cast<uint64_t>(std::max(size, kLeast));
  const uint64_t step = std::bit_floor(bytes) / kSizes;
  return static_cast<int64_t>((bytes + step - 1) / step * step);
}

}  // namespace

std::shared_ptr<Memory> PinnedPool::Take(int64_t size) {
  std::vector<std::shared_ptr<Memory>> dropped;
  std::shared_ptr<Memory> block;
  int64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    if (size < kShort || size > limit_ / kParts || !context_->health().ok()) return nullptr;
    bytes = BlockBytes(size);
    const auto fit = kept_.lower_bound(bytes);
    if (fit != kept_.end() && fit->first <= bytes * kLoose) {
      block = std::move(fit->second);
      kept_.erase(fit);
    } else {
      int64_t kept = 0;
      for (const auto& [each, memory] : kept_) kept += each;
      const int64_t limit = LimitLocked(bytes_ - kept + bytes);
      if (bytes_ - kept + bytes > limit) return nullptr;
      while (bytes_ + bytes > limit) {
        const auto largest = std::prev(kept_.end());
        bytes_ -= largest->first;
        dropped.push_back(std::move(largest->second));
        kept_.erase(largest);
      }
      bytes_ += bytes;
    }
  }
  if (block != nullptr) return Lend(std::move(block));
  dropped.clear();
  auto made = PinnedMemory::Lock(context_, bytes, /*zeroed=*/false);
  const MutexLock lock(mutex_);
  if (made.ok()) {
    // Within what it had granted it says nothing of more.
    if (bytes_ > granted_) {
      granted_ = limit_;
      patience_ = kFirstPatience;
    }
    return Lend(*std::move(made));
  }
  // It would refuse the next, too: what it has locked goes on serving.
  bytes_ -= bytes;
  if (granted_ < limit_) patience_ = std::min(2 * patience_, kMostPatience);
  granted_ = std::min(limit_, bytes_);
  missed_ = 0;
  return nullptr;
}

int64_t PinnedPool::LimitLocked(int64_t bytes) {
  if (bytes <= granted_ || bytes > limit_) return granted_;
  if (++missed_ < patience_) return granted_;
  missed_ = 0;  // others go on without meanwhile
  return limit_;
}

std::shared_ptr<Memory> PinnedPool::Lend(std::shared_ptr<Memory> block) {
  Memory* const raw = block.get();
  return {raw, [pool = weak_from_this(), block = std::move(block)](Memory*) mutable {
            if (const auto still = pool.lock()) still->Return(std::move(block));
            block = nullptr;
          }};
}

void PinnedPool::Return(std::shared_ptr<Memory> block) {
  const MutexLock lock(mutex_);
  const int64_t bytes = block->size();
  kept_.emplace(bytes, std::move(block));
}

int64_t PinnedPool::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace telegrad::stream
