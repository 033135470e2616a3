// Memory of the fake GPU. What the host writes through a write-combining mapping of video memory
// lies in a view of its own: the GPU finds it there only after a doorbell that came behind the
// write. What the GPU writes to the host's memory is on its way until it is flushed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace telegrad::fakes {

class FakeMemory {
 public:
  // Of the GPU, or of the system.
  explicit FakeMemory(size_t size) : owned(size), data(owned.data()), bytes(size) {}
  // The process's own, which the GPU was given.
  FakeMemory(std::byte* at, size_t size) : data(at), bytes(size), is_host(true) {}

  // The host's view, made when it is first mapped.
  std::byte* MapView() {
    view.assign(data, data + bytes);
    shadow = view;
    epochs.assign((bytes + kPage - 1) / kPage, 0);
    return view.data();
  }

  // Brings what the host wrote before doorbell number `doorbells` to the GPU's side of
  // [offset, offset + length).
  void Refresh(size_t offset, size_t length, uint64_t doorbells) {
    if (view.empty() || length == 0) return;
    for (size_t page = offset / kPage; page <= (offset + length - 1) / kPage; ++page) {
      if (epochs[page] >= doorbells) continue;
      epochs[page] = doorbells;
      for (size_t at = page * kPage; at < std::min((page + 1) * kPage, bytes); at += 4) {
        // The host's threads write other words meanwhile; the GPU's own words stay.
        const auto now = __atomic_load_n(reinterpret_cast<uint32_t*>(&view[at]), __ATOMIC_RELAXED);
        if (std::memcmp(&shadow[at], &now, 4) == 0) continue;
        std::memcpy(&shadow[at], &now, 4);
        std::memcpy(&data[at], &now, 4);
      }
    }
  }

  static constexpr size_t kPage = 4096;

  std::vector<std::byte> owned;
  std::byte* data;  // the GPU's side
  size_t bytes;
  bool is_host = false;
  std::vector<std::byte> view, shadow;
  std::vector<uint64_t> epochs;  // of each page: the doorbells that it has seen
};

}  // namespace telegrad::fakes
