// Each region has a heap of its address range; a request that fits into none makes a new region.
// An empty region is dropped, except the last shared one.
#include "devices/nv/heap.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::nv {

Block Heap::At(const Part& part, uint64_t address, size_t bytes) const {
  const Region& region = part.owned->region;
  return {address, region.host == nullptr ? nullptr : region.host + (address - region.address),
          bytes};
}

absl::StatusOr<Block> Heap::Take(size_t bytes, size_t alignment) {
  bytes = std::max<size_t>(bytes, 1);
  const bool shared = bytes <= chunk_ / 2;
  const MutexLock lock(mutex_);
  if (shared) {
    for (auto& [base, part] : parts_) {
      if (!part.shared) continue;
      if (const auto at = part.free.Take(bytes, alignment)) return At(part, *at, bytes);
    }
  }
  Part part;
  part.shared = shared;
  TG_ASSIGN_OR_RETURN(part.owned, grow_(shared ? chunk_ : bytes));
  const Region& region = part.owned->region;
  part.free.Give(region.address, region.bytes);
  const auto at = part.free.Take(bytes, alignment);
  const Block block = At(part, *at, bytes);
  parts_.emplace(region.address, std::move(part));
  return block;
}

std::vector<std::string> Heap::Drop(std::map<uint64_t, Part>::iterator part) {
  const Region region = part->second.owned->region;
  std::vector<std::string> left = part->second.owned->rm.Release();
  parts_.erase(part);
  // What the driver still has mapped there, nothing else may be.
  if (left.empty()) dropped_(region);
  return left;
}

void Heap::Give(const Block& block) {
  const MutexLock lock(mutex_);
  auto it = parts_.upper_bound(block.address);
  if (it == parts_.begin()) return;  // cleared
  --it;
  Part& part = it->second;
  const Region& region = part.owned->region;
  if (block.address - region.address >= region.bytes) return;
  part.free.Give(block.address, block.bytes);
  if (part.free.free() != region.bytes) return;
  // One shared region is kept where it is the last, so that the next block finds it.
  const bool last =
      std::ranges::count_if(parts_, [](const auto& p) { return p.second.shared; }) == 1;
  if (!part.shared || !last) Drop(it);
}

std::vector<std::string> Heap::Clear() {
  const MutexLock lock(mutex_);
  std::vector<std::string> left;
  while (!parts_.empty()) {
    for (std::string& what : Drop(std::prev(parts_.end()))) left.push_back(std::move(what));
  }
  return left;
}

uint64_t Heap::AddressOf(const void* host, size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(host);
  const MutexLock lock(mutex_);
  for (const auto& [base, part] : parts_) {
    const Region& region = part.owned->region;
    if (region.host == nullptr || at < region.host || at >= region.host + region.bytes) continue;
    const auto offset = static_cast<size_t>(at - region.host);
    return bytes <= region.bytes - offset ? base + offset : 0;
  }
  return 0;
}

}  // namespace telegrad::nv
