// telegrad admin: what an administrator sees and does. A word after "admin" is a row of kWords,
// from which its --help comes, too.
#include "client/cc/admin.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/terminal/progress.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

using Words = std::vector<std::string>;  // after the first

[[gnu::format(printf, 2, 3)]] void Append(std::string* out, const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(static_cast<size_t>(std::max(size, 0)) + 1, '\0');
  (void)std::vsnprintf(text.data(), text.size(), format, again);
  va_end(again);
  text.pop_back();
  *out += text;
}

absl::Status ShowSessions(AdminClient& admin, const Words& words, std::string* out) {
  TG_ASSIGN_OR_RETURN(const auto sessions, admin.Sessions(words.empty() ? "" : words[0]));
  Append(out, "%10s %-24s %12s %10s %s\n", "SESSION", "TENANT", "OPERATIONS", "RESUMABLE", "ENDS");
  for (const SessionUse& s : sessions) {
    const std::string ends = s.ends_in_ms ? StrCat("in ", *s.ends_in_ms, " ms") : "-";
    Append(out, "%10" PRIu64 " %-24s %12" PRIu64 " %10s %s\n", s.session, s.tenant.c_str(),
           s.last_operation, s.resumable ? "yes" : "no", ends.c_str());
  }
  return absl::OkStatus();
}

absl::Status CloseSessions(AdminClient& admin, const Words& words, std::string* out) {
  uint64_t session = 0;
  const std::string& text = words[0];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), session);
  const bool number = error == std::errc() && end == text.data() + text.size() && session != 0;
  TG_ASSIGN_OR_RETURN(const uint64_t closed,
                      admin.CloseSessions(number ? session : 0, number ? "" : text));
  Append(out, "closed %" PRIu64 " sessions\n", closed);
  return absl::OkStatus();
}

absl::Status ShowTenants(AdminClient& admin, const Words& words, std::string* out) {
  TG_ASSIGN_OR_RETURN(const auto tenants, admin.Tenants());
  Append(out, "%-24s %-16s %22s %22s %10s\n", "TENANT", "QUOTA", "USED", "LIMIT", "REFUSED");
  for (const TenantUse& tenant : tenants) {
    if (!words.empty() && tenant.tenant != words[0]) continue;
    for (const TenantUse::Row& row : tenant.quotas) {
      Append(out, "%-24s %-16s %22" PRIu64 " %22" PRIu64 " %10" PRIu64 "\n", tenant.tenant.c_str(),
             row.quota.c_str(), row.used, row.limit, row.refused);
    }
  }
  return absl::OkStatus();
}

absl::Status ShowQueues(AdminClient& admin, const Words&, std::string* out) {
  TG_ASSIGN_OR_RETURN(const auto queues, admin.Queues());
  *out += QueueTable(queues);
  return absl::OkStatus();
}

// What is kept, what was found there and what had to be made.
absl::Status ShowCaches(AdminClient& admin, const Words&, std::string* out) {
  constexpr std::pair<const char*, const char*> kRows[] = {
      {"telegrad_graphs", "graphs stored"},
      {"telegrad_graph_bytes", "bytes of them"},
      {"telegrad_graph_evictions_total", "graphs evicted"},
      {"telegrad_runs_total", "runs"},
      {"telegrad_runs_cached_total", "runs of executables that were there"},
      {"telegrad_executables_compiled_total", "executables made"},
      {"telegrad_kernel_cache_hits_total", "kernels found in memory"},
      {"telegrad_kernels_loaded_total", "kernels loaded from the disk"},
      {"telegrad_kernels_compiled_total", "kernels compiled"},
      {"telegrad_kernel_store_bytes", "bytes of kernels on the disk"},
      {"telegrad_kernel_store_evictions_total", "kernels removed from the disk to make room"},
  };
  TG_ASSIGN_OR_RETURN(const auto counters, admin.Counters());
  for (const auto& [name, says] : kRows) {
    const auto found = counters.find(name);
    if (found != counters.end()) Append(out, "%15.0f %s\n", found->second, says);
  }
  return absl::OkStatus();
}

absl::Status ShowThreads(AdminClient& admin, const Words&, std::string* out) {
  TG_ASSIGN_OR_RETURN(const auto threads, admin.Threads());
  Append(out, "%10s %-16s %5s %12s\n", "THREAD", "NAME", "STATE", "CPU SECONDS");
  for (const DaemonThread& t : threads) {
    Append(out, "%10" PRIu64 " %-16s %5s %12.2f\n", t.id, t.name.c_str(), t.state.c_str(),
           t.cpu_seconds);
  }
  return absl::OkStatus();
}

absl::Status ShowTrace(AdminClient& admin, const Words&, std::string* out) {
  TG_ASSIGN_OR_RETURN(const std::string json, admin.Spans());
  *out += json;
  return absl::OkStatus();
}

absl::Status LogLevel(AdminClient& admin, const Words& words, std::string*) {
  return admin.SetLogLevel(words[0]);
}

absl::Status Reload(AdminClient& admin, const Words&, std::string* out) {
  const auto waiting = admin.Reload();
  if (!waiting.ok()) return FailedPrecondition(ToStd(waiting.status().message()));
  Append(out, "reloaded\n");
  for (const std::string& flag : *waiting) {
    Append(out, "the change of %s waits for the next start\n", flag.c_str());
  }
  return absl::OkStatus();
}

absl::Status DrainDevice(AdminClient& admin, const Words& words, std::string* out) {
  TG_ASSIGN_OR_RETURN(const uint64_t works, admin.DrainDevice(words[0], /*takes_work=*/false));
  Append(out, "%s takes no new work; %" PRIu64 " runs and copies are in its queues\n",
         words[0].c_str(), works);
  return absl::OkStatus();
}

absl::Status UndrainDevice(AdminClient& admin, const Words& words, std::string* out) {
  TG_RETURN_IF_ERROR(admin.DrainDevice(words[0], /*takes_work=*/true).status());
  Append(out, "%s takes work\n", words[0].c_str());
  return absl::OkStatus();
}

absl::Status DrainAll(AdminClient& admin, const Words&, std::string* out) {
  TG_RETURN_IF_ERROR(admin.Drain());
  Append(out, "the daemon drains and ends\n");
  return absl::OkStatus();
}

constexpr struct {
  std::string_view name, arguments, help;
  size_t least, most;  // words
  absl::Status (*run)(AdminClient&, const Words&, std::string* out);
} kWords[] = {
    {"sessions", "[TENANT]", "lists open sessions", 0, 1, ShowSessions},
    {"close", "SESSION|TENANT", "ends a session, or all sessions of a tenant", 1, 1, CloseSessions},
    {"tenants", "[TENANT]", "lists the use and the limits of quotas", 0, 1, ShowTenants},
    {"queues", "", "lists the tenants that have work in the queues of devices", 0, 0, ShowQueues},
    {"caches", "", "prints the number of cached graphs and kernels, and of hits", 0, 0, ShowCaches},
    {"trace", "", "prints a timeline of the latest traced operations (JSON)", 0, 0, ShowTrace},
    {"threads", "", "lists the daemon's threads and their processor time", 0, 0, ShowThreads},
    {"log-level", "LEVEL", "changes the level of the log until the daemon ends", 1, 1, LogLevel},
    {"reload", "", "makes the daemon read its configuration again", 0, 0, Reload},
    {"drain-device", "DEVICE", "makes a device refuse new work", 1, 1, DrainDevice},
    {"undrain-device", "DEVICE", "makes a device accept work again", 1, 1, UndrainDevice},
    {"drain", "", "ends the daemon as SIGTERM does", 0, 0, DrainAll},
};

std::string Known() {
  std::string known;
  for (const auto& row : kWords) {
    StrAppend(&known, known.empty() ? "" : ", ", row.name, row.arguments.empty() ? "" : " ",
              row.arguments);
  }
  return known;
}

}  // namespace

std::string AdminDetails() {
  std::string out;
  for (const auto& row : kWords) {
    const std::string call = StrCat(row.name, row.arguments.empty() ? "" : " ", row.arguments);
    StrAppend(&out, "  ", call, std::string(26 - call.size(), ' '), row.help, "\n");
  }
  return out;
}

std::string QueueTable(const std::vector<DeviceQueueUse>& queues) {
  std::string out;
  char line[256];
  std::snprintf(line, sizeof(line), "%-12s %-8s %-8s %-24s %8s %12s\n", "DEVICE", "QUEUE", "STATE",
                "TENANT", "WORKS", "DEBT MS");
  out += line;
  for (const DeviceQueueUse& queue : queues) {
    const char* const state = !queue.healthy ? "lost" : queue.drained ? "drained" : "ok";
    std::vector<DeviceQueueUse::Row> rows = queue.tenants;
    if (rows.empty()) rows.push_back({.tenant = "-"});
    for (const DeviceQueueUse::Row& row : rows) {
      std::snprintf(line, sizeof(line), "%-12.32s %-8.16s %-8s %-24.64s %8" PRIu64 " %12.3f\n",
                    queue.device.c_str(), queue.queue.c_str(), state, row.tenant.c_str(), row.works,
                    row.debt_ms);
      out += line;
    }
  }
  return out;
}

absl::Status Admin(const Flags& flags) {
  const std::vector<std::string>& words = flags.positional();
  if (words.empty()) return InvalidArgument("expected one of ", Known());
  for (const auto& row : kWords) {
    if (row.name != words[0]) continue;
    const Words rest(words.begin() + 1, words.end());
    if (rest.size() < row.least || rest.size() > row.most) {
      return InvalidArgument("expected ", row.name, row.arguments.empty() ? "" : " ",
                             row.arguments);
    }
    TG_ASSIGN_OR_RETURN(auto connection, Connect(flags));
    AdminClient admin(std::move(connection));
    std::string out;  // in one go, behind the progress
    auto progress = std::make_unique<Progress>(StrCat("waiting for \"", words[0], "\""));
    const absl::Status status = row.run(admin, rest, &out);
    progress = nullptr;
    std::fputs(out.c_str(), stdout);
    return status;
  }
  return InvalidArgument("\"", words[0], "\" is not one of ", Known());
}

}  // namespace telegrad::cli
