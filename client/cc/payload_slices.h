// Memory that gRPC sends from where it lies: how much of it the transport still holds.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "grpcpp/grpcpp.h"

namespace telegrad {

// Thread-safe. Outlives its owner for as long as there is a slice.
class PayloadSlices : public std::enable_shared_from_this<PayloadSlices> {
 public:
  // `keep`, if any, is what `bytes` lie in; it is let go of with the slice.
  grpc::Slice Make(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  // Waits until the transport has let go of all of them.
  void AwaitNone();

 private:
  struct Holder;

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t slices_ = 0;
};

}  // namespace telegrad
