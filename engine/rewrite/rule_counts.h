// Counts and times of rules, gathered by watching rewriters. Time is sampled: a rule's total is the
// mean of its timed tries, less what reading the clock costs, times the number of its tries.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/rewrite/observer.h"

namespace telegrad {

class RuleCounts : public RewriteObserver {
 public:
  struct Count {
    const RuleTable* table = nullptr;
    const Rule* rule = nullptr;
    int64_t hits = 0;
    int64_t misses = 0;      // tries, past the dispatch, that did not match
    int64_t timed = 0;       // tries that were timed
    double nanoseconds = 0;  // of all tries, estimated

    int64_t tries() const { return hits + misses; }
  };

  void OnTry(const RuleTry& what) override;

  Count Of(const Rule& rule) const;
  // Every rule that was tried: most hits first, then most misses, then as the tables have them.
  std::vector<Count> All() const;
  // A line for each of All(): hits, misses, microseconds, file:line, text. Without times the report
  // of the same work is the same text.
  std::string Report(bool times = true) const;

 private:
  absl::flat_hash_map<const Rule*, Count> counts_;
};

}  // namespace telegrad
