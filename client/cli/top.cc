// telegrad top: devices, their queues and who waits in them, and what each tenant has, again and
// again. Where the output is no terminal it is printed once.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "client/cc/admin.h"
#include "client/cli/command.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

struct Seen {
  std::chrono::steady_clock::time_point when;
  std::map<std::string, double> counters;
};

// The rates of what counts up are of the time between two looks; at the first there are none.
std::string Rates(const Seen& before, const Seen& now) {
  constexpr struct {
    const char *counter, *says;
    double unit;
  } kRows[] = {{"telegrad_runs_total", "runs", 1},
               {"telegrad_run_seconds_total", "device time %", 100},
               {"telegrad_operations_total", "operations", 1},
               {"telegrad_kernels_compiled_total", "kernels compiled", 1},
               {"telegrad_written_bytes_total", "MB written", 1e-6},
               {"telegrad_read_bytes_total", "MB read", 1e-6}};
  const double seconds = std::chrono::duration<double>(now.when - before.when).count();
  std::string out;
  for (const auto& row : kRows) {
    const auto at = [&](const Seen& seen) {
      const auto it = seen.counters.find(row.counter);
      return it == seen.counters.end() ? 0.0 : it->second;
    };
    char text[64];
    std::snprintf(
        text, sizeof(text), "%s%.6g %s", out.empty() ? "" : ", ",
        before.counters.empty() ? at(now) * row.unit : (at(now) - at(before)) * row.unit / seconds,
        row.says);
    out += text;
  }
  return StrCat(before.counters.empty() ? "in all: " : "in each second: ", out, "\n");
}

std::string TenantTable(const std::vector<TenantUse>& tenants) {
  std::string out;
  char line[256];
  std::snprintf(line, sizeof(line), "%-24s %8s %8s %12s %14s %10s\n", "TENANT", "WEIGHT",
                "SESSIONS", "OPERATIONS", "DEVICE MIB", "REFUSED");
  out += line;
  for (const TenantUse& tenant : tenants) {
    std::map<std::string_view, const TenantUse::Row*> by_name;
    uint64_t refused = 0;
    for (const TenantUse::Row& row : tenant.quotas) {
      by_name[row.quota] = &row;
      refused += row.refused;
    }
    const auto used = [&](std::string_view name) {
      const auto it = by_name.find(name);
      return it == by_name.end() ? uint64_t{0} : it->second->used;
    };
    const auto weight = by_name.find("weight");
    std::snprintf(line, sizeof(line),
                  "%-24.64s %8" PRIu64 " %8" PRIu64 " %12" PRIu64 " %14.1f %10" PRIu64 "\n",
                  tenant.tenant.c_str(), weight == by_name.end() ? 1 : weight->second->limit,
                  used("sessions"), used("operations"),
                  static_cast<double>(used("device_memory")) / (1 << 20), refused);
    out += line;
  }
  return out;
}

absl::StatusOr<std::string> Look(Connection& connection, AdminClient& admin, Seen* before) {
  Seen now{.when = std::chrono::steady_clock::now(), .counters = {}};
  TG_ASSIGN_OR_RETURN(now.counters, connection.Stats());
  TG_ASSIGN_OR_RETURN(const auto queues, admin.Queues());
  TG_ASSIGN_OR_RETURN(const auto tenants, admin.Tenants());
  std::string page =
      StrCat(connection.address(), ", ", connection.server().server, "\n", Rates(*before, now),
             "\n", QueueTable(queues), "\n", TenantTable(tenants));
  *before = std::move(now);
  return page;
}

}  // namespace

absl::Status Top(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  AdminClient admin(connection);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  int64_t times = flags.GetInt("times");
  if (times == 0) times = terminal ? INT64_MAX : 1;
  Seen before;
  for (int64_t i = 0; i < times; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::seconds(flags.GetInt("interval")));
    TG_ASSIGN_OR_RETURN(const std::string page, Look(*connection, admin, &before));
    // From the upper left corner of the cleared screen.
    std::printf("%s%s", terminal ? "\x1b[H\x1b[2J" : i > 0 ? "\n" : "", page.c_str());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace telegrad::cli
