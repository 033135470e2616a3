// Two counters, of places taken and of places passed, and a queue of fences that connects them.
#include "devices/hcq/fenced_ring.h"

namespace telegrad::hcq {

std::optional<uint64_t> FencedRing::Place(uint64_t count, uint64_t alignment) const {
  if (count > size_) return std::nullopt;
  uint64_t at = (head_ + alignment - 1) & ~(alignment - 1);
  // The rest of the ring is too short: what lies there is skipped, and freed with what follows.
  if (at % size_ + count > size_) at += size_ - at % size_;
  // Where nothing is in use, what is skipped is free at once.
  if (head_ != tail_ && at + count - tail_ > size_) return std::nullopt;
  return at;
}

std::optional<uint64_t> FencedRing::Take(uint64_t count, uint64_t alignment) {
  const auto at = Place(count, alignment);
  if (!at) return std::nullopt;
  if (head_ == tail_) tail_ = *at;
  head_ = *at + count;
  return *at % size_;
}

void FencedRing::Fence(uint64_t value) {
  if (has_unfenced()) marks_.push_back({value, head_});
}

void FencedRing::Pass(uint64_t value) {
  while (!marks_.empty() && marks_.front().value <= value) {
    tail_ = marks_.front().head;
    marks_.pop_front();
  }
}

std::optional<uint64_t> FencedRing::oldest() const {
  if (marks_.empty()) return std::nullopt;
  return marks_.front().value;
}

bool FencedRing::has_unfenced() const {
  return head_ != (marks_.empty() ? tail_ : marks_.back().head);
}

}  // namespace telegrad::hcq
