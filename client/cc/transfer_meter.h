// The bytes that the writes, reads and files of a session have to move, and those that have moved,
// for programs that show progress.
#pragma once

#include <atomic>
#include <cstdint>

namespace telegrad {

struct TransferAmount {
  int64_t moved = 0;  // given to, or received from, the transport
  int64_t total = 0;  // of everything asked for so far
};

// Thread-safe.
class TransferMeter {
 public:
  void Ask(uint64_t bytes) {
    total_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  void Move(uint64_t bytes) {
    moved_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  // Bytes that were lost on the way, and move again.
  void Repeat(uint64_t bytes) {
    moved_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  TransferAmount amount() const {
    return {moved_.load(std::memory_order_relaxed), total_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<int64_t> moved_{0}, total_{0};
};

}  // namespace telegrad
