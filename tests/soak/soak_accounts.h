// What a daemon holds for its clients, as its metrics, its admin pages and the kernel tell.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/cc/admin.h"
#include "engine/base/status.h"

namespace telegrad::testing {

inline int64_t EntriesOf(const std::string& folder) {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}
inline int64_t DescriptorsOf(pid_t pid) { return EntriesOf(StrCat("/proc/", pid, "/fd")); }
// Without those of gRPC's pools, which it adds and ends by their load, up to limits of its own.
inline int64_t ThreadsOf(pid_t pid) {
  int64_t out = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(StrCat("/proc/", pid, "/task"), error), end;
       !error && it != end; it.increment(error)) {
    std::ifstream comm(it->path() / "comm");
    std::string name;
    std::getline(comm, name);
    bool of_grpc = false;
    for (const char* pool : {"default-executo", "resolver-execut", "event_engine"}) {
      of_grpc |= name == pool;
    }
    out += of_grpc ? 0 : 1;
  }
  return out;
}

// The child processes whose names begin with `name`, of which the kernel keeps 15 letters.
inline std::vector<pid_t> ChildrenOf(pid_t pid, std::string_view name) {
  std::vector<pid_t> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(StrCat("/proc/", pid, "/task"), error), end;
       !error && it != end; it.increment(error)) {
    std::ifstream children(it->path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream comm(StrCat("/proc/", child, "/comm"));
      std::string text;
      comm >> text;
      if (text.starts_with(name.substr(0, 15))) out.push_back(child);
    }
  }
  return out;
}

// The rest of what is held once nobody uses the daemon: "" where it is nothing, else what it is.
// `sessions`: those that stay, of a server in front.
inline std::string StillHeld(Connection& admin, const std::shared_ptr<Connection>& connection,
                             double sessions) {
  const auto stats = admin.Stats();
  if (!stats.ok()) return stats.status().ToString();
  std::string out;
  const auto expect = [&](const char* name, double most) {
    const auto found = stats->find(name);
    if (found == stats->end()) {
      StrAppend(&out, name, " is missing; ");
    } else if (found->second > most) {
      StrAppend(&out, name, " is ", found->second, "; ");
    }
  };
  expect("telegrad_sessions", sessions);
  for (const char* name : {"telegrad_buffers", "telegrad_buffer_bytes", "telegrad_staged_bytes",
                           "telegrad_compiling", "telegrad_compile_waiting"}) {
    expect(name, 0);
  }
  // One for the operations of each session that stays.
  const auto stay = stats->find("telegrad_sessions");
  expect("telegrad_bulk_sockets", sessions > 0 && stay != stats->end() ? stay->second : 0);
  // Temporaries are kept for the next run of a tenant while it has sessions.
  if (sessions == 0) expect("telegrad_device_memory_used_bytes", 0);
  AdminClient client(connection);
  const auto tenants = client.Tenants();
  if (!tenants.ok()) return tenants.status().ToString();
  // What is kept beyond requests: graphs and executables are caches, and rates are no amounts.
  constexpr std::string_view kHeld[] = {"device_memory", "host_staging", "host_memory",
                                        "disk_bytes",    "shared_files", "sessions",
                                        "operations",    "streams"};
  for (const TenantUse& tenant : *tenants) {
    for (const TenantUse::Row& row : tenant.quotas) {
      if (std::ranges::find(kHeld, row.quota) == std::end(kHeld) || row.used == 0) continue;
      // The sessions of a server in front, the streams and the records that belong to them.
      if (sessions > 0 && row.quota != "host_staging") continue;
      StrAppend(&out, tenant.tenant, " is charged ", row.used, " of ", row.quota, "; ");
    }
  }
  const auto queues = client.Queues();
  if (!queues.ok()) return queues.status().ToString();
  for (const DeviceQueueUse& queue : *queues) {
    for (const DeviceQueueUse::Row& row : queue.tenants) {
      StrAppend(&out, queue.device, " ", queue.queue, " has ", row.works, " works and ",
                row.debt_ms, " ms of debt of ", row.tenant, "; ");
    }
  }
  return out;
}

}  // namespace telegrad::testing
