#include "engine/execution/value_uses.h"

namespace telegrad {
namespace {

constexpr int64_t kLeastRuns = 2;   // before the one that gets a form of its own
constexpr int64_t kShare = 8;       // at least one of so many runs
constexpr size_t kMostValues = 64;  // remembered

}  // namespace

void ValueUses::Add(const std::vector<VarValue>& values) {
  ++all_;
  ++runs_[values];
  if (runs_.size() <= kMostValues) return;
  // What came once goes; the others count half, and so do all runs.
  all_ /= 2;
  for (auto it = runs_.begin(); it != runs_.end();) {
    it->second /= 2;
    it = it->second == 0 ? runs_.erase(it) : std::next(it);
  }
}

bool ValueUses::AreFrequent(const std::vector<VarValue>& values) const {
  const auto it = runs_.find(values);
  return it != runs_.end() && it->second >= kLeastRuns && it->second * kShare >= all_;
}

}  // namespace telegrad
