// Pages of this process that others have allocated, and that the GPU reads and writes for as long
// as they are pinned. Each range is a region of its own. They stay their owner's, with their
// contents, when the GPU goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/nv/heap.h"
#include "devices/nv/region.h"
#include "engine/base/mutex.h"

namespace telegrad::nv {

// Thread-safe, but for Clear beside Pin and Unpin.
class PinnedPages {
 public:
  // A region of `bytes` that are at `at`, with its address.
  using Make =
      std::function<absl::StatusOr<std::unique_ptr<OwnedRegion>>(std::byte* at, size_t bytes)>;

  PinnedPages(Make make, Heap::Dropped dropped)
      : make_(std::move(make)), dropped_(std::move(dropped)) {}
  ~PinnedPages() { Clear(); }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

  // Whole pages, none of them pinned here, and there until they are unpinned.
  absl::Status Pin(std::byte* at, size_t bytes);
  // The range that begins at `at`, which no work uses any more; OK also after Clear. An error where
  // the driver has not let go of the pages: then they may be used for nothing else.
  absl::Status Unpin(const void* at);
  // Unpins all, whatever is in use; what could not be, with the reason.
  std::vector<std::string> Clear();

  // The GPU's address of `bytes` that the host has at `host`; 0: they are not of one range.
  uint64_t AddressOf(const void* host, size_t bytes) const;

 private:
  std::vector<std::string> GiveBack(std::unique_ptr<OwnedRegion> owned) const;

  const Make make_;
  const Heap::Dropped dropped_;
  mutable Mutex mutex_;  // never held while pages are pinned or unpinned, which takes long
  // By where they begin; null: being unpinned, or the driver has not let go of them.
  std::map<const std::byte*, std::unique_ptr<OwnedRegion>> ranges_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::nv
