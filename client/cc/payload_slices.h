// Memory that gRPC sends without a copy, and the number of slices that the transport still holds.
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
  // `keep`, unless null, owns `bytes`; it is released with the slice.
  grpc::Slice Make(std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  // Waits until the transport has released all of them.
  void AwaitNone();

 private:
  struct Holder;

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t slices_ = 0;
};

}  // namespace telegrad
