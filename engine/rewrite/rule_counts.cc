#include "engine/rewrite/rule_counts.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "absl/strings/str_format.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

// What two readings of the clock in a row differ by, at best.
double ClockCost() {
  using Clock = std::chrono::steady_clock;
  static const double cost = [] {
    auto least = std::chrono::nanoseconds::max();
    for (int i = 0; i < 200; ++i) {
      const auto begin = Clock::now();
      least = std::min<std::chrono::nanoseconds>(least, Clock::now() - begin);
    }
    return static_cast<double>(least.count());
  }();
  return cost;
}

}  // namespace

void RuleCounts::OnTry(const RuleTry& what) {
  Count& count = counts_[what.rule];
  count.table = what.table;
  count.rule = what.rule;
  ++(what.after.valid() ? count.hits : count.misses);
  if (what.nanoseconds < 0) return;
  ++count.timed;
  count.nanoseconds += std::max(0.0, static_cast<double>(what.nanoseconds) - ClockCost());
}

RuleCounts::Count RuleCounts::Of(const Rule& rule) const {
  const auto it = counts_.find(&rule);
  if (it == counts_.end()) return {};
  Count count = it->second;
  if (count.timed > 0) {
    count.nanoseconds *= static_cast<double>(count.tries()) / static_cast<double>(count.timed);
  }
  return count;
}

std::vector<RuleCounts::Count> RuleCounts::All() const {
  std::vector<Count> all;
  for (const auto& [rule, count] : counts_) all.push_back(Of(*rule));
  std::ranges::sort(all, {}, [](const Count& c) {
    return std::tuple(-c.hits, -c.misses, c.table->file(), c.rule->line);
  });
  return all;
}

std::string RuleCounts::Report(bool times) const {
  std::string text =
      times ? "      hits     misses         us  rule\n" : "      hits     misses  rule\n";
  for (const Count& c : All()) {
    absl::StrAppendFormat(&text, "%10d %10d", c.hits, c.misses);
    // A rule with few tries may never have been timed.
    if (times)
      text += c.timed > 0 ? absl::StrFormat(" %10.1f", c.nanoseconds / 1000) : "          -";
    text += "  ";
    StrAppend(&text, c.table->file(), ":", c.rule->line, "  ", Text(*c.rule), "\n");
  }
  return text;
}

}  // namespace telegrad
