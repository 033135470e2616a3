// A value that is made of files and made anew when they change, without a restart: whoever asks for
// it looks, at most once in an interval, whether they have.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace telegrad {

// Changes whenever the file is written to or replaced; "" if it cannot be looked at.
std::string FileStamp(const std::string& path);
// Of a folder: of all files in it.
std::string FolderStamp(const std::string& path);

// At most 1 MiB. The error does not name the file.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

template <typename T>
class Reloaded {
 public:
  using Stamp = std::function<std::string()>;
  // The value, or null to keep the last one.
  using Load = std::function<std::shared_ptr<const T>()>;

  Reloaded(std::shared_ptr<const T> first, std::string first_stamp, Stamp stamp, Load load,
           std::chrono::milliseconds interval = std::chrono::seconds(1))
      : stamp_(std::move(stamp)),
        load_(std::move(load)),
        interval_(interval),
        value_(std::move(first)),
        last_stamp_(std::move(first_stamp)) {}

  std::shared_ptr<const T> Get() {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < interval_) return value_;
    looked_ = now;
    std::string stamp = stamp_();
    if (stamp == last_stamp_) return value_;
    last_stamp_ = std::move(stamp);
    if (std::shared_ptr<const T> value = load_()) value_ = std::move(value);
    return value_;
  }

 private:
  const Stamp stamp_;
  const Load load_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point looked_{};
  std::shared_ptr<const T> value_;
  std::string last_stamp_;
};

}  // namespace telegrad
