// Each counter has a queue of accesses, the oldest first, and each register the number of loads
// that will write it. A wait completes accesses from the front of the queue, but only where they
// are sure to return in order.
#include "tests/fakes/amd/counters.h"

#include <algorithm>

namespace fakeamd {

void Counters::Reset() {
  for (auto& queue : queues_) queue.clear();
  vector_ = {};
  scalar_ = {};
  pending_ = 0;
  local_stores_ = 0;
}

void Counters::Add(Counter counter, EventKind kind, uint16_t first, uint8_t words, bool scalar,
                   uint32_t instruction) {
  auto& queue = queues_[static_cast<size_t>(counter)];
  // The counters of the hardware have at most 6 bits; what waits for nothing may leave a long
  // queue.
  if (queue.size() > 256 && queue.front().words == 0 && !queue.front().local_store) {
    queue.erase(queue.begin());
  }
  queue.push_back({.kind = kind,
                   .scalar = scalar,
                   .local_store = false,
                   .words = words,
                   .first = first,
                   .instruction = instruction});
  if (words == 0) return;
  ++pending_;
  for (uint32_t w = 0; w < words; ++w) ++(scalar ? scalar_[first + w] : vector_[first + w]);
}

void Counters::AddLocalStore(Counter counter, uint32_t instruction) {
  queues_[static_cast<size_t>(counter)].push_back(
      {.kind = EventKind::kLocal, .local_store = true, .instruction = instruction});
  ++local_stores_;
}

void Counters::Complete(const Event& event) {
  if (event.local_store) --local_stores_;
  if (event.words == 0) return;
  --pending_;
  for (uint32_t w = 0; w < event.words; ++w) {
    --(event.scalar ? scalar_[event.first + w] : vector_[event.first + w]);
  }
}

void Counters::Wait(Counter counter, uint32_t left) {
  auto& queue = queues_[static_cast<size_t>(counter)];
  if (queue.size() <= left) return;
  if (left != 0) {
    const EventKind kind = queue.front().kind;
    const bool ordered =
        kind != EventKind::kScalar && kind != EventKind::kFlat &&
        std::all_of(queue.begin(), queue.end(), [&](const Event& e) { return e.kind == kind; });
    if (!ordered) return;
  }
  const auto complete = static_cast<ptrdiff_t>(queue.size() - left);
  for (ptrdiff_t e = 0; e < complete; ++e) Complete(queue[static_cast<size_t>(e)]);
  queue.erase(queue.begin(), queue.begin() + complete);
}

bool Counters::OnlyInOrder(uint32_t reg, Counter counter, EventKind kind) const {
  if (kind == EventKind::kScalar || kind == EventKind::kFlat) return false;
  for (size_t q = 0; q < queues_.size(); ++q) {
    for (const Event& event : queues_[q]) {
      if (event.scalar || reg < event.first || reg >= uint32_t{event.first} + event.words) continue;
      if (q != static_cast<size_t>(counter) || event.kind != kind) return false;
    }
  }
  return true;
}

uint32_t Counters::LoadOf(uint32_t reg, bool scalar) const {
  uint32_t found = 0;
  for (const auto& queue : queues_) {
    for (const Event& event : queue) {
      if (event.scalar == scalar && reg >= event.first &&
          reg < uint32_t{event.first} + event.words) {
        found = event.instruction;
      }
    }
  }
  return found;
}

}  // namespace fakeamd
