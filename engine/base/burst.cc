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
  if (at_hand == nullptr) return false;
  std::vector<std::shared_ptr<Part>>& parts = at_hand->parts_;
  if (parts.empty()) at_hand->since_ns_ = Clock::Steady()->Ns();
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(std::move(part));
  return true;
}

// What ends puts off nothing more, so that the end comes.
void Burst::Flush() {
  if (at_hand == nullptr) return;
  Burst* const burst = std::exchange(at_hand, nullptr);
  for (const auto& part : std::exchange(burst->parts_, {})) part->EndOfBurst();
  at_hand = burst;
}

}  // namespace telegrad
