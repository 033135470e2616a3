// A value that is made of files and made anew when they change, without a restart: whoever asks for
// it looks, at most once in an interval, whether they have. What cannot be looked at for want of
// descriptors, or for an error of the disk, is no change: it is looked at again after the interval.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace telegrad {

// Changes whenever the file is written to, replaced or removed; "" if it cannot be looked at.
std::string FileStamp(const std::string& path);
// Of a folder: of all files in it.
std::string FolderStamp(const std::string& path);

// Whether an error of a system call says that there is no such file, rather than that it cannot be
// had now.
bool IsGone(int error);

// At most 1 MiB. The error does not name the file: NOT_FOUND where it is gone, INVALID_ARGUMENT
// where it is too long, UNAVAILABLE where it cannot be read now.
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
    std::lock_guard lock(mutex_);
    if (std::chrono::steady_clock::now() - looked_ >= interval_) LookLocked();
    return value_;
  }
  // Looks now.
  void Refresh() {
    std::lock_guard lock(mutex_);
    LookLocked();
  }

 private:
  void LookLocked() {
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
  std::mutex mutex_;
  std::chrono::steady_clock::time_point looked_{};
  std::shared_ptr<const T> value_;
  std::string last_stamp_;
};

}  // namespace telegrad
