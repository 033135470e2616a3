// The configuration that results from the command line and the file of --config, and its
// reloading while the daemon runs.
//
// Everything that can be checked is checked before any of it takes effect: a configuration with
// a mistake changes nothing. Changes that a running daemon cannot make, such as of the addresses
// that it listens on, are logged by name and take effect at the next start.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/flags.h"
#include "engine/base/mutex.h"
#include "server/identity/authenticator.h"
#include "server/tenant/tenant_directory.h"

namespace telegrad {

struct Configuration {
  Flags flags;
  std::string sections = {};  // of tenants, in the file of --config; empty: it has none
  bool says_whole = false;    // that file, see config_file.h

  // Of a command line, and the file that it names. INVALID_ARGUMENT has a line for each mistake in
  // the file.
  static absl::StatusOr<Configuration> Load(const Flags& command_line);

  // All that can be found wrong without a start: flags that need another one, tenants,
  // certificates, addresses.
  absl::Status Check() const;
  // `one_tenant`: nobody is asked who they are, so one tenant has all sessions.
  absl::StatusOr<TenantTable> Tenants(bool one_tenant) const;
  // In the form of --config; Load of it gives the same.
  std::string Print() const;
};

// Thread-safe.
class Reloader {
 public:
  // All outlive it. `running` is what the daemon was started with, by `command_line`.
  Reloader(Flags command_line, Configuration running, Authenticator* authenticator,
           TenantDirectory* tenants);

  // Reads the configuration and the files that it names again. Gives the names of the flags whose
  // change waits for the next start. An error says what is wrong; then nothing has changed. Both
  // are logged. A file that said that it was whole, and does not any more, is an error: it may be
  // cut where a line ends.
  absl::StatusOr<std::vector<std::string>> Reload();

  int64_t drain_seconds() const;  // as it is now

 private:
  absl::StatusOr<std::vector<std::string>> ReloadLocked() TG_REQUIRES(mutex_);
  absl::Status CheckWhole(const Configuration& next, const TenantTable& tenants) const
      TG_REQUIRES(mutex_);

  const Flags command_line_;
  const Configuration started_;
  Authenticator& authenticator_;
  TenantDirectory& tenants_;
  mutable Mutex mutex_;
  Configuration now_ TG_GUARDED_BY(mutex_);
  bool tenants_say_whole_ TG_GUARDED_BY(mutex_) = false;  // the file of --tenants
};

// Answers --check-config and --print-config: the exit code; none where neither is asked for.
std::optional<int> AnswerConfiguration(const Flags& command_line,
                                       const absl::StatusOr<Configuration>& loaded);

}  // namespace telegrad
