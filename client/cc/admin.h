// What an administrator asks of a daemon, over a connection to its --admin-listen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/connection.h"

namespace telegrad {

struct SessionUse {
  uint64_t session = 0;  // as the log has it
  std::string tenant;
  bool resumable = false;
  uint64_t last_operation = 0;
  std::optional<uint64_t> ends_in_ms;  // none: not by itself
};
struct TenantUse {
  struct Row {
    std::string quota;
    uint64_t used = 0, limit = 0, refused = 0;
  };
  std::string tenant;
  std::vector<Row> quotas;
};
struct DeviceQueueUse {
  struct Row {
    std::string tenant;
    uint64_t works = 0;
    double debt_ms = 0;
  };
  std::string device, queue;
  bool healthy = false, drained = false;
  std::vector<Row> tenants;
};
struct DaemonThread {
  uint64_t id = 0;
  std::string name, state;
  double cpu_seconds = 0;
};

// Calls fail with UNIMPLEMENTED where the address is no --admin-listen, and with PERMISSION_DENIED
// where the caller is no administrator.
class AdminClient {
 public:
  explicit AdminClient(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}

  absl::StatusOr<std::vector<SessionUse>> Sessions(const std::string& tenant = "");  // "": of all
  // How many it was, of the one session or, where that is 0, of the tenant.
  absl::StatusOr<uint64_t> CloseSessions(uint64_t session, const std::string& tenant);
  absl::StatusOr<std::vector<TenantUse>> Tenants();
  absl::StatusOr<std::vector<DeviceQueueUse>> Queues();
  absl::StatusOr<std::vector<DaemonThread>> Threads();
  // A timeline in the Trace Event Format.
  absl::StatusOr<std::string> Spans();
  absl::Status SetLogLevel(const std::string& level);
  // The flags whose change waits for the next start.
  absl::StatusOr<std::vector<std::string>> Reload();
  // How many works are in its queues still.
  absl::StatusOr<uint64_t> DrainDevice(const std::string& device, bool takes_work);
  absl::Status Drain();
  // As Connection::Stats.
  absl::StatusOr<std::map<std::string, double>> Counters() { return connection_->Stats(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

}  // namespace telegrad
