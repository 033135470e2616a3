// How the requests of a soak ended: answered with the right value, answered with a wrong one, or
// failed with an error. An error must name its cause: it has to fit a row of kCauses, and what fits
// none is kept with its text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad::testing {

// The errors that the faults of the soak explain. `what` is the beginning of what was asked, "" for
// anything; `says` is a part of the message.
struct Cause {
  std::string_view what;
  absl::StatusCode code;
  std::string_view says;
};

inline constexpr Cause kCauses[] = {
    // A worker process was killed: the error names the device, the process and the signal.
    {"", absl::StatusCode::kUnavailable, ") was ended by signal 9 (Killed)"},
    {"", absl::StatusCode::kUnavailable, "the server cannot start CPU:"},  // killed as it started
    // The server behind was killed: the error names it by the name that --remote gives it.
    {"", absl::StatusCode::kUnavailable, "back"},
    // A model that is unloaded and loaded in turn.
    {"turn", absl::StatusCode::kUnavailable, "which is not ready: unloaded"},
    // The quotas that carol has, of 1 MiB and 4 sessions. A session that was refused is a stream
    // until it is closed.
    {"carol", absl::StatusCode::kResourceExhausted, "device_memory of tenant carol"},
    {"carol", absl::StatusCode::kResourceExhausted, "sessions of tenant carol"},
    {"carol", absl::StatusCode::kResourceExhausted, "its quota of sessions"},
};

// Thread-safe.
class Outcomes {
 public:
  // True if the error is allowed.
  bool Failed(const std::string& what, const absl::Status& status) {
    const bool allowed = Allowed(what, status);
    const MutexLock lock(mutex_);
    ++failed_;
    auto& counts = allowed ? allowed_ : others_;
    // Numbers differ from one error of a kind to the next.
    std::string kind = StrCat(what, ": ", status.ToString());
    for (char& c : kind) c = c >= '0' && c <= '9' ? '#' : c;
    if (counts.size() < kMostKinds || counts.contains(kind)) ++counts[kind];
    return allowed;
  }
  void Answered() {
    const MutexLock lock(mutex_);
    ++answered_;
  }
  void Wrong(const std::string& what) {
    const MutexLock lock(mutex_);
    ++wrong_;
    if (others_.size() < kMostKinds) ++others_[StrCat("wrong: ", what)];
  }
  void Operations(uint64_t count) {
    const MutexLock lock(mutex_);
    operations_ += count;
  }

  struct Sums {
    uint64_t answered = 0, failed = 0, wrong = 0, operations = 0;
    std::map<std::string, uint64_t> allowed, others;
  };
  Sums Now() const {
    const MutexLock lock(mutex_);
    return {answered_, failed_, wrong_, operations_, allowed_, others_};
  }

 private:
  static constexpr size_t kMostKinds = 256;
  static bool Allowed(std::string_view what, const absl::Status& status) {
    for (const Cause& cause : kCauses) {
      if (what.starts_with(cause.what) && status.code() == cause.code &&
          ToStd(status.message()).find(cause.says) != std::string_view::npos) {
        return true;
      }
    }
    return false;
  }

  mutable Mutex mutex_;
  uint64_t answered_ TG_GUARDED_BY(mutex_) = 0, failed_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t wrong_ TG_GUARDED_BY(mutex_) = 0, operations_ TG_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> allowed_ TG_GUARDED_BY(mutex_), others_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::testing
