// Memory of the host that the driver has locked once, for bytes on their way to and from a GPU. To
// lock pages takes a driver longer than to copy them, so what a transfer has used serves the next,
// up to a limit of bytes that are locked at once. What a driver refuses to lock now it may lock
// later, when others have unlocked theirs; so it is asked again, but not each time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "devices/api/device.h"
#include "devices/stream/context.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// Thread-safe. Of one generation of a GPU: what is kept is unlocked with it, and what is in use
// then when its user drops it.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  PinnedPool(std::shared_ptr<Context> context, int64_t limit)
      : context_(std::move(context)), limit_(limit), granted_(limit) {}

  // What is shorter is copied sooner than a block is found for it, and would take one.
  static constexpr int64_t kShort = int64_t{16} << 10;
  // After a refusal the driver is asked again when so many have got nothing, after each further one
  // when twice as many have, up to so many.
  static constexpr int64_t kFirstPatience = 64;
  static constexpr int64_t kMostPatience = 4096;

  // At least `size` bytes of kPinnedHost, with whatever contents. Null where they are less than
  // kShort, the limit leaves no room, the driver locks no more, or has lately refused to, or the
  // GPU has failed.
  std::shared_ptr<Memory> Take(int64_t size);
  // That are locked, in use or kept.
  int64_t bytes() const;

 private:
  std::shared_ptr<Memory> Lend(std::shared_ptr<Memory> block);
  void Return(std::shared_ptr<Memory> block);
  // Bytes that may be locked now, for somebody who needs more than `bytes`.
  int64_t LimitLocked(int64_t bytes) TG_REQUIRES(mutex_);

  const std::shared_ptr<Context> context_;
  mutable Mutex mutex_;  // never held during a call of the library
  const int64_t limit_;
  int64_t granted_
      TG_GUARDED_BY(mutex_);  // of the limit: what the driver locked at its last refusal
  int64_t patience_ TG_GUARDED_BY(mutex_) = kFirstPatience;
  int64_t missed_ TG_GUARDED_BY(mutex_) = 0;  // by those who got nothing since that
  int64_t bytes_ TG_GUARDED_BY(mutex_) = 0;   // also about to be
  std::multimap<int64_t, std::shared_ptr<Memory>> kept_ TG_GUARDED_BY(mutex_);  // by size
};

}  // namespace telegrad::stream
