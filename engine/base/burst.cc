#include "engine/base/burst.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"

namespace telegrad {
namespace {

// For which the first part may wait for the end. It is many times what sending takes.
constexpr int64_t kLongestNs = 200'000;

thread_local Burst* at_hand = nullptr;

}  // namespace

Burst::Burst() { at_hand = this; }

Burst::~Burst() {
  Flush();
  at_hand = nullptr;
}

bool Burst::MayGoOn() const {
  return !parts_.empty() && Clock::Steady()->Ns() - since_ns_ < kLongestNs;
}

bool Burst::PutOff(std::shared_ptr<Part> part) {
  if (at_hand == nullptr || at_hand->ending_) return false;
  std::deque<std::shared_ptr<Part>>& parts = at_hand->parts_;
  if (parts.empty()) at_hand->since_ns_ = Clock::Steady()->Ns();
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(std::move(part));
  return true;
}

// What ends puts off nothing more, so that the end comes; if it waits, the rest is done before.
void Burst::Flush() {
  if (at_hand == nullptr) return;
  const bool within = std::exchange(at_hand->ending_, true);
  while (!at_hand->parts_.empty()) {
    const std::shared_ptr<Part> part = std::move(at_hand->parts_.front());
    at_hand->parts_.pop_front();
    part->EndOfBurst();
  }
  at_hand->ending_ = within;
}

}  // namespace telegrad
