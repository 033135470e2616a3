// Every pass that telegrad-opt knows: lowering's own, the schedule, and a sweep for each rule
// table.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

std::span<const PassRow> AllPasses();

// Names for several passes.
struct PassGroup {
  std::string_view name;
  std::string_view what;
  std::span<const PassRow> passes;
};
std::span<const PassGroup> AllPassGroups();

// The passes of a list like "simplify,schedule,lower". INVALID_ARGUMENT names the one that there is
// not.
absl::StatusOr<std::vector<PassRow>> FindPasses(std::string_view list);

// Every rule table, once.
std::span<const RuleTable* const> AllRuleTables();

// What --list prints.
std::string ListPasses();

}  // namespace telegrad
