// Memory for chunks of files that are being sent. A chunk returns to the pool when the transport
// releases it, so an upload needs only as many chunks as the transport holds at a time and touches
// no new pages for each.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"

namespace telegrad {

class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  explicit ChunkPool(size_t bytes) : bytes_(bytes) {}

  // A chunk of the size that the pool was made with.
  std::shared_ptr<std::byte[]> Take() {
    std::unique_ptr<std::byte[]> chunk;
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        chunk = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (chunk == nullptr) chunk.reset(new std::byte[bytes_]);
    return {chunk.release(),
            [pool = shared_from_this()](std::byte* memory) { pool->GiveBack(memory); }};
  }

 private:
  static constexpr size_t kMaxFree = 16;

  void GiveBack(std::byte* memory) {
    std::unique_ptr<std::byte[]> chunk(memory);
    MutexLock lock(mutex_);
    if (free_.size() < kMaxFree) free_.push_back(std::move(chunk));
  }

  const size_t bytes_;
  Mutex mutex_;
  std::vector<std::unique_ptr<std::byte[]>> free_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
