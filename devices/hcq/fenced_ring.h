// A ring of places that a device reads. Places that were taken stay taken until the device has
// passed a fence behind them, so that the ring never overwrites what has not been read.
//
// Places are taken in order and belong to the next fence that is set.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace telegrad::hcq {

class FencedRing {
 public:
  explicit FencedRing(uint64_t size) : size_(size) {}

  // The first of `count` places, together and at a multiple of `alignment`, a power of two that
  // divides the size; nullopt: they are not free. At most `size` places can be asked for.
  std::optional<uint64_t> Take(uint64_t count, uint64_t alignment = 1);
  bool CanTake(uint64_t count, uint64_t alignment = 1) const {
    return Place(count, alignment).has_value();
  }
  // What was taken since the last fence is free once `value` is passed. Values grow.
  void Fence(uint64_t value);
  // The device has passed `value`.
  void Pass(uint64_t value);
  // The fence that frees something; nullopt: nothing is fenced.
  std::optional<uint64_t> oldest() const;
  // Whether something was taken behind the last fence.
  bool has_unfenced() const;

  uint64_t size() const { return size_; }
  uint64_t used() const { return head_ - tail_; }

 private:
  struct Mark {
    uint64_t value, head;
  };

  // Where `count` places would begin, counted on.
  std::optional<uint64_t> Place(uint64_t count, uint64_t alignment) const;

  const uint64_t size_;
  uint64_t head_ = 0, tail_ = 0;  // count on, without wrapping; places are these modulo size
  std::deque<Mark> marks_;
};

}  // namespace telegrad::hcq
