// Memory that gRPC sends without a copy, and the number of slices that the transport still holds.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"

namespace telegrad {

// Thread-safe. Outlives its owner for as long as there is a slice.
class PayloadSlices : public std::enable_shared_from_this<PayloadSlices> {
 public:
  // `keep`, unless null, owns `bytes`; it is released with the slice.
  grpc::Slice Make(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  // Waits until the transport has released all of them.
  void AwaitNone();

 private:
  struct Holder;

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t slices_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
