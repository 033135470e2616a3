// The memory that a kernel can reach: ranges of device addresses, sorted, each with the host
// bytes behind it. The host cannot dereference device addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace fakecuda {

struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint8_t* host = nullptr;
  std::shared_ptr<void> keep;  // owns `host` while the view lives
};

using MemoryView = std::vector<Region>;

// The index of the region that holds the `bytes` at `address`; -1 if none does.
inline int FindRegion(const MemoryView& view, uint64_t address, uint64_t bytes) {
  size_t low = 0;
  size_t high = view.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    (view[middle].base <= address ? low : high) =
        view[middle].base <= address ? middle + 1 : middle;
  }
  if (low == 0) return -1;
  const Region& region = view[low - 1];
  const uint64_t offset = address - region.base;
  return offset <= region.bytes && bytes <= region.bytes - offset ? static_cast<int>(low) - 1 : -1;
}

}  // namespace fakecuda
