// Which inference requests are traced, by the settings of the protocol's trace extension: how many
// of all, how many more, and both for single models. Spans go to the daemon's tracer, and from
// there where --otlp and --access-log say.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace telegrad {

// By name, as the protocol has them; no values: as it is for all models, or as at the start.
using TraceValues = std::map<std::string, std::vector<std::string>>;

// Thread-safe.
class TraceSettings {
 public:
  // All or nothing. `model`: empty for all that have no setting of their own. INVALID_ARGUMENT for
  // a setting or value that there is not, UNIMPLEMENTED for one that is known and cannot be chosen.
  absl::Status Set(const std::string& model, const TraceValues& values);
  TraceValues Get(const std::string& model) const;
  // Whether a request of that model, of which nobody else says so, is to be traced.
  bool Takes(std::string_view model);

 private:
  struct Chosen {
    std::optional<bool> on;
    std::optional<int64_t> rate, count;  // one in `rate`; `count` in all, -1: any number
    int64_t seen = 0, taken = 0;         // requests, since `count` was chosen
  };
  struct Settings {
    bool on = false;
    int64_t rate = 1000, count = -1;
  };
  Settings SettingsLocked(const Chosen& of) const TG_REQUIRES(mutex_);
  const Chosen& ChosenLocked(std::string_view model) const TG_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::atomic<bool> any_ = false;  // of the settings is on
  Chosen all_ TG_GUARDED_BY(mutex_);
  // That have settings of their own.
  std::map<std::string, Chosen, std::less<>> models_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
