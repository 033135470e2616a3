// Revoked certificates (RFC 5280, section 5): the lists of a PEM file, each signed by an authority
// of --tls-client-ca. The file may change while the daemon runs; one that cannot be read is logged,
// and the last valid one stays in force. A list stays in force after its nextUpdate, because its
// revocations still hold.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/identity/reloaded.h"

namespace telegrad {

// Thread-safe.
class RevocationList {
 public:
  // INVALID_ARGUMENT names the file and its error.
  static absl::StatusOr<std::unique_ptr<RevocationList>> Open(
      const std::string& path, const std::string& authorities,
      std::chrono::milliseconds interval = std::chrono::seconds(1));

  // Which certificate this is, in PEM, for CheckId: its issuer and number. UNAUTHENTICATED if it is
  // on a list, or none.
  absl::StatusOr<std::string> Check(const std::string& certificate);
  absl::Status CheckId(const std::string& id);
  void Refresh() { ids_.Refresh(); }

  using Ids = absl::flat_hash_set<std::string>;

 private:
  RevocationList(const std::string& path, const std::string& authorities, Ids first,
                 std::string stamp, std::chrono::milliseconds interval);

  Reloaded<Ids> ids_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::string> known_
      TG_GUARDED_BY(mutex_);  // ids by PEM, of the last ones
};

}  // namespace telegrad
