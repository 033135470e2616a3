// The table of telegradd's flags: the rows of flags.def, and a flag --job-NAME for each budget of a
// graph's admission.
#pragma once

#include "engine/base/flags.h"

namespace telegrad {
namespace daemon_flags {

constexpr FlagKind kBool = FlagKind::kBool;
constexpr FlagKind kInt = FlagKind::kInt;
constexpr FlagKind kString = FlagKind::kString;
constexpr FlagKind kList = FlagKind::kList;
constexpr FlagKind kChoice = FlagKind::kChoice;
constexpr FlagRange kAny = {};
constexpr FlagReload kStart = FlagReload::kAtStart;
constexpr FlagReload kLive = FlagReload::kWhileRunning;
constexpr FlagReload kHup = FlagReload::kReloaded;
constexpr FlagReload kShell = FlagReload::kCommandLine;

inline constexpr FlagRow kTable[] = {
#define FLAG(name, kind, default_value, range, reload, value, help) \
  {name, 0, kind, default_value, value, help, range, reload},
#include "server/flags.def"
#undef FLAG
#define BUDGET(name, default_value, what)                                     \
  {"job-" #name,   0,     kInt,                                               \
   #default_value, "N",   "Limit of " what " for the admission of one graph", \
   AtLeast(1),     kStart},
#include "engine/base/budget.def"
#undef BUDGET
};

}  // namespace daemon_flags

inline constexpr std::span<const FlagRow> kDaemonFlags = daemon_flags::kTable;

}  // namespace telegrad
