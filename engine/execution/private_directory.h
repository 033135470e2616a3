// A folder of files that only this user may write, bounded in files and bytes, that any number of
// processes use at once. A file appears whole or not at all: it is written under another name and
// renamed. There are no locks: a reader keeps the file that it has opened when another process
// replaces or removes it, and operations on a removed file fail without harm.
//
// When the folder is over a limit, the least recently read or written files are removed, down to
// 7/8 of the limit, so that not every write has to scan the whole folder. Files that other
// processes write are counted by the next scan, so the folder may exceed its limit by what they
// write in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace telegrad {

class PrivateDirectory {
 public:
  struct Limits {
    int64_t bytes = int64_t{1} << 30;
    int64_t files = 65'536;
  };

  // Makes the folder, for this user alone, where there is none; its parent must be there.
  // FAILED_PRECONDITION, saying why, for one that is no folder, belongs to another user, or that
  // others may write into. Files that an earlier process left half written are removed.
  static absl::StatusOr<std::unique_ptr<PrivateDirectory>> Open(const std::string& path,
                                                                const Limits& limits);
  ~PrivateDirectory();

  // Names are of letters, digits, '_', '-' and '.', and do not begin with '.'.
  //
  // The content of a file of at most `max_bytes`, and notes that it was used. NOT_FOUND if there is
  // none; FAILED_PRECONDITION if it is not a plain file of this user that no other user can write;
  // other errors as reading goes.
  absl::StatusOr<std::string> Read(const std::string& name, int64_t max_bytes);
  // Writes or replaces. RESOURCE_EXHAUSTED if it alone is over the limit; UNAVAILABLE where the
  // file system refuses. Nothing is synced: a power cut may leave a file with wrong content.
  absl::Status Write(const std::string& name, std::string_view content);
  void Remove(const std::string& name);

  const std::string& path() const { return path_; }
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // as last seen

 private:
  PrivateDirectory(std::string path, int folder, const Limits& limits)
      : path_(std::move(path)), folder_(folder), limits_(limits) {}

  // Scans all files, removes the excess, and counts again.
  void Tidy();

  const std::string path_;
  const int folder_;
  const Limits limits_;
  Mutex tidying_;
  std::atomic<int64_t> bytes_{0}, files_{0};
  std::atomic<uint64_t> evicted_{0};
  std::atomic<uint64_t> next_{0};  // of temporary names
};

}  // namespace telegrad
