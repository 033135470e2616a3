// A range that could not be unpinned stays in the table, so that its owner is told, also when the
// GPU has been closed meanwhile.
#include "devices/nv/pinned_pages.h"

#include <iterator>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::nv {

absl::Status PinnedPages::Pin(std::byte* at, size_t bytes) {
  TG_ASSIGN_OR_RETURN(std::unique_ptr<OwnedRegion> owned, make_(at, bytes));
  const MutexLock lock(mutex_);
  ranges_[at] = std::move(owned);
  return absl::OkStatus();
}

absl::Status PinnedPages::Unpin(const void* at) {
  const auto* const begin = static_cast<const std::byte*>(at);
  std::unique_ptr<OwnedRegion> owned;
  {
    const MutexLock lock(mutex_);
    const auto it = ranges_.find(begin);
    if (it == ranges_.end()) return absl::OkStatus();
    owned = std::move(it->second);
  }
  if (owned == nullptr) return Internal("pages are still pinned that could not be unpinned");
  const std::vector<std::string> left = GiveBack(std::move(owned));
  if (!left.empty()) return Internal("pages are still pinned: ", left.front());
  const MutexLock lock(mutex_);
  ranges_.erase(begin);
  return absl::OkStatus();
}

std::vector<std::string> PinnedPages::Clear() {
  std::vector<std::string> left;
  const MutexLock lock(mutex_);
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const bool held = it->second != nullptr;
    const auto of_it = held ? GiveBack(std::move(it->second)) : std::vector<std::string>();
    left.insert(left.end(), of_it.begin(), of_it.end());
    it = held && of_it.empty() ? ranges_.erase(it) : std::next(it);
  }
  return left;
}

// What the driver still has mapped somewhere, nothing else may be.
std::vector<std::string> PinnedPages::GiveBack(std::unique_ptr<OwnedRegion> owned) const {
  const Region region = owned->region;
  std::vector<std::string> left = owned->rm.Release();
  if (left.empty()) dropped_(region);
  return left;
}

uint64_t PinnedPages::AddressOf(const void* host, size_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(host);
  const MutexLock lock(mutex_);
  const auto behind = ranges_.upper_bound(at);
  if (behind == ranges_.begin() || std::prev(behind)->second == nullptr) return 0;
  const Region& region = std::prev(behind)->second->region;
  const auto offset = static_cast<size_t>(at - region.host);
  const bool inside = offset <= region.bytes && bytes <= region.bytes - offset;
  return inside ? region.address + offset : 0;
}

}  // namespace telegrad::nv
