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

void Burst::Parts::Add(std::shared_ptr<Part> part) {
  const auto from = parts_.begin() + static_cast<ptrdiff_t>(next_);
  if (std::find(from, parts_.end(), part) == parts_.end()) parts_.push_back(std::move(part));
}

std::shared_ptr<Burst::Part> Burst::Parts::Take() {
  std::shared_ptr<Part> part = std::move(parts_[next_++]);
  if (empty()) {
    parts_.clear();
    next_ = 0;
  }
  return part;
}

bool Burst::MayGoOn() const {
  const bool none = first_.empty() && parts_.empty();
  return !none && Clock::Steady()->Ns() - since_ns_ < kLongestNs;
}

void Burst::Begin() {
  if (first_.empty() && parts_.empty()) since_ns_ = Clock::Steady()->Ns();
}

bool Burst::PutOff(std::shared_ptr<Part> part) {
  if (at_hand == nullptr || at_hand->ending_) return false;
  at_hand->Begin();
  at_hand->parts_.Add(std::move(part));
  return true;
}

bool Burst::PutOffFirst(std::shared_ptr<Part> part) {
  if (at_hand == nullptr || at_hand->first_ending_ || at_hand->ending_) return false;
  at_hand->Begin();
  at_hand->first_.Add(std::move(part));
  return true;
}

// What ends puts off nothing more of its kind, so that the end comes; if it waits, the rest is done
// before.
void Burst::Do(Parts& parts, bool& ending) {
  const bool within = std::exchange(ending, true);
  while (!parts.empty()) parts.Take()->EndOfBurst();
  ending = within;
}

void Burst::Flush() {
  if (at_hand == nullptr) return;
  Do(at_hand->first_, at_hand->first_ending_);
  Do(at_hand->parts_, at_hand->ending_);
}

}  // namespace telegrad
