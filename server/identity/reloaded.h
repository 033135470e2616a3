// A value that is read from files and read again when they change, without a restart. Readers check
// for changes at most once in an interval. If a file cannot be checked because of missing
// descriptors or a disk error, the value stays and the check is repeated after the interval.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace telegrad {

// A text that changes whenever the file is written, replaced or removed; "" if its state cannot be
// read.
std::string FileStamp(const std::string& path);
// The same for all files in a folder.
std::string FolderStamp(const std::string& path);

// Whether the error of a system call means that the file does not exist, and not that it cannot be
// read now.
bool IsGone(int error);

// At most 1 MiB. The error does not name the file: NOT_FOUND where it does not exist,
// INVALID_ARGUMENT where it is too long, UNAVAILABLE where it cannot be read now.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

template <typename T>
class Reloaded {
 public:
  using Stamp = std::function<std::string()>;
  struct Loaded {
    std::shared_ptr<const T> value;  // null: the last one stays
    bool again = false;              // a part could not be read now
  };
  using Load = std::function<Loaded(const T& last)>;

  Reloaded(std::shared_ptr<const T> first, std::string first_stamp, Stamp stamp, Load load,
           std::chrono::milliseconds interval = std::chrono::seconds(1))
      : stamp_(std::move(stamp)),
        load_(std::move(load)),
        interval_(interval),
        value_(std::move(first)),
        last_stamp_(std::move(first_stamp)) {}

  std::shared_ptr<const T> Get() {
    const MutexLock lock(mutex_);
    if (std::chrono::steady_clock::now() - looked_ >= interval_) LookLocked();
    return value_;
  }
  // Checks for changes now.
  void Refresh() {
    const MutexLock lock(mutex_);
    LookLocked();
  }

 private:
  void LookLocked() TG_REQUIRES(mutex_) {
    looked_ = std::chrono::steady_clock::now();
    std::string stamp = stamp_();
    if (stamp == last_stamp_ && !stamp.empty()) return;
    Loaded loaded = load_(*value_);
    last_stamp_ = loaded.again ? "" : std::move(stamp);
    if (loaded.value != nullptr) value_ = std::move(loaded.value);
  }

  const Stamp stamp_;
  const Load load_;
  const std::chrono::milliseconds interval_;
  Mutex mutex_;
  std::chrono::steady_clock::time_point looked_ TG_GUARDED_BY(mutex_){};
  std::shared_ptr<const T> value_ TG_GUARDED_BY(mutex_);
  std::string last_stamp_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
