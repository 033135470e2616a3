// The lists of moves that searches have found, by kernel, target and build: in memory and, where
// there is a folder for them, in a file each, as text, so that a restarted daemon does not search
// again. A file is data, never code: its list is parsed, checked against the kernel move by move,
// and the program that comes of it is proved like any other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/execution/private_directory.h"

namespace telegrad {

// What a search ended with.
struct FoundList {
  std::string moves;    // the best list
  bool better = false;  // than the heuristic's; else it is not used, and not searched for again
  int64_t heuristic_ns = 0, best_ns = 0;  // of a run
  int64_t measured = 0;                   // programs
};

// Thread-safe.
class FoundMoves {
 public:
  struct Options {
    std::string path;  // of the folder; empty: in memory only
    PrivateDirectory::Limits limits{.bytes = int64_t{64} << 20, .files = 16'384};
    size_t entries = 16'384;  // in memory
    // A file, or a list, that was not used, and why.
    std::function<void(const std::string& what, const std::string& why)> on_ignored = {};
  };
  struct Stats {
    int64_t found = 0, ignored = 0, write_errors = 0;
  };

  static absl::StatusOr<std::unique_ptr<FoundMoves>> Open(Options options);

  // Everything that decides what a list does: the kernel, which of its arguments are weights, the
  // target, and the build, whose passes the list was found with.
  static std::string Key(std::string_view kernel_hash, std::span<const int32_t> weights,
                         std::string_view target);

  std::optional<FoundList> Get(const std::string& key);
  void Put(const std::string& key, const FoundList& list);
  // Forgets a list that the kernel cannot have.
  void Reject(const std::string& key, const std::string& why);

  // Grows whenever a list changes: who remembers it knows that nothing has.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  Stats stats() const;

  static std::string FileName(std::string_view key);
  static std::string ToFile(std::string_view key, const FoundList& list);
  // INVALID_ARGUMENT for a file that ToFile did not make of this key.
  static absl::StatusOr<FoundList> FromFile(std::string_view file, std::string_view key);

 private:
  explicit FoundMoves(Options options) : options_(std::move(options)) {}
  std::optional<FoundList> Read(const std::string& key);
  void Ignore(const std::string& key, const std::string& why);

  const Options options_;
  std::unique_ptr<PrivateDirectory> folder_;  // null: in memory only
  Mutex mutex_;
  // Also of keys that have none, so that a lookup reads no file a second time.
  std::map<std::string, std::optional<FoundList>> lists_ TG_GUARDED_BY(mutex_);
  std::atomic<uint64_t> version_{0};
  std::atomic<int64_t> found_{0}, ignored_{0}, write_errors_{0};
};

}  // namespace telegrad
