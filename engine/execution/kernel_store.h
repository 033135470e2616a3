// Compiled kernels on disk, so that a daemon that starts again neither lowers nor compiles what one
// of this build has compiled before. One file for each kernel, in a PrivateDirectory.
//
// Its content is native code that will run in this process. What protects it is that only this user
// can write the folder; the checksum finds damage, not malice.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/execution/compiled_kernel.h"
#include "engine/execution/private_directory.h"

namespace telegrad {

class KernelStore {
 public:
  struct Options {
    std::string path;
    PrivateDirectory::Limits limits;
    // Told of the first write that fails, and of the first that fails after one that did not.
    std::function<void(const absl::Status&)> on_write_error;
  };
  struct Stats {  // totals since construction, but for the last
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t rejected = 0;  // files removed because they were not what they should be
    uint64_t write_errors = 0;
    uint64_t evicted = 0;
    int64_t bytes = 0;  // as last seen
  };

  // Errors as PrivateDirectory's.
  static absl::StatusOr<std::unique_ptr<KernelStore>> Open(const Options& options);

  // The kernel that was put under this key; nullopt where there is none, or none that is whole.
  // Thread-safe, as all of this.
  std::optional<CompiledKernel> Get(std::string_view key);
  void Put(std::string_view key, const CompiledKernel& kernel);
  // Removes what Get returned and nobody can use.
  void Reject(std::string_view key);

  Stats stats() const;

  // The file's name in the folder.
  static std::string FileName(std::string_view key);

 private:
  explicit KernelStore(Options options) : options_(std::move(options)) {}

  const Options options_;
  std::unique_ptr<PrivateDirectory> folder_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, rejected_{0}, write_errors_{0};
  std::atomic<bool> last_write_failed_{false};
};

}  // namespace telegrad
