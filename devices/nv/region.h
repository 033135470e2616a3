// Memory of the GPU's address space: video memory, pinned memory of this process, and memory of the
// system for notifiers. The host's address of it, where it has one, is another than the GPU's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "devices/nv/gpu_objects.h"

namespace telegrad::nv {

// What is given back belongs to the RmClient that made it.
struct Region {
  Handle handle = 0;
  std::byte* host = nullptr;  // null: the host cannot address it
  uint64_t address = 0;       // the GPU's
  size_t bytes = 0;

  // Words of the host's that the GPU reads and writes meanwhile.
  template <typename T>
  void Store(size_t offset, T value) const {
    std::atomic_ref<T>(*reinterpret_cast<T*>(host + offset))
        .store(value, std::memory_order_relaxed);
  }
  // What the GPU wrote before it wrote this value is seen behind it.
  template <typename T>
  T Load(size_t offset) const {
    return std::atomic_ref<T>(*reinterpret_cast<T*>(host + offset)).load(std::memory_order_acquire);
  }
  void StoreWords(size_t offset, const uint32_t* words, size_t count) const {
    for (size_t i = 0; i < count; ++i) Store(offset + i * 4, words[i]);
  }
};

inline constexpr size_t kNotifierBytes = 4096;
// For what the driver keeps of a channel.
inline constexpr uint64_t kResourceBytes = 64 << 20;

// Video memory, not zeroed, without an address on the GPU yet; `mapped`: for the host, too.
absl::StatusOr<Region> MakeVideo(RmClient& rm, const GpuObjects& gpu, size_t bytes, bool mapped);
// Zeroed memory of this process that stays where it is, without an address on the GPU yet.
absl::StatusOr<Region> MakePinned(RmClient& rm, const GpuObjects& gpu, size_t bytes);
// The same of memory that the caller has: whole pages, which stay the caller's and are there for as
// long as the region is.
absl::StatusOr<Region> PinPages(RmClient& rm, const GpuObjects& gpu, std::byte* at, size_t bytes);
// Memory of the system that the driver writes a channel's errors to, mapped for the host.
absl::StatusOr<Region> MakeNotifier(RmClient& rm, const GpuObjects& gpu, size_t bytes);

// Gives the region its address on the GPU, `region.address`.
absl::Status MapExternal(RmClient& rm, const GpuObjects& gpu, const Region& region);

// A channel of the group with its ring of `entries` at `ring` on the GPU, and its control block at
// offset `userd` of `memory`.
absl::StatusOr<Handle> MakeChannel(RmClient& rm, const GpuObjects& gpu, const Region& memory,
                                   const Region& notifier, size_t ring, size_t userd,
                                   uint32_t entries);
// Registers the channel with unified memory; the driver may map memory of its own for it at
// [base, base + bytes).
absl::Status RegisterChannel(RmClient& rm, const GpuObjects& gpu, Handle channel, uint64_t base,
                             uint64_t bytes);

}  // namespace telegrad::nv
