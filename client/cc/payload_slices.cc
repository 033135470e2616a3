// A slice refers to the caller's bytes and a counter; when the transport drops the slice, the
// counter is decremented.
#include "client/cc/payload_slices.h"

#include <utility>

namespace telegrad {

struct PayloadSlices::Holder {
  std::shared_ptr<PayloadSlices> slices;
  std::shared_ptr<const void> keep;
  ~Holder() {
    keep.reset();
    MutexLock lock(slices->mutex_);
    if (--slices->slices_ == 0) slices->changed_.notify_all();
  }
};

grpc::Slice PayloadSlices::Make(std::span<const std::byte> bytes,
                                std::shared_ptr<const void> keep) {
  {
    MutexLock lock(mutex_);
    ++slices_;
  }
  return grpc::Slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* holder) { delete static_cast<Holder*>(holder); },
      new Holder{shared_from_this(), std::move(keep)});
}

void PayloadSlices::AwaitNone() {
  ReleasableLock lock(mutex_);
  while (slices_ > 0) changed_.wait(lock);
}

}  // namespace telegrad
