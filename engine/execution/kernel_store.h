// Compiled kernels on disk, one file for each in a PrivateDirectory, so that a restarted daemon
// does not lower or compile kernels again that this build has compiled before.
//
// Its content is native code that will run in this process. The folder is protected by its
// permissions, which let only this user write; the checksum detects damage, not malice.
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
    // Called for the first write that fails, and for the first failure after a successful write.
    std::function<void(const absl::Status&)> on_write_error;
  };
  struct Stats {  // totals since construction, but for the last
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t rejected = 0;  // files removed because they were damaged or foreign
    uint64_t write_errors = 0;
    uint64_t evicted = 0;
    int64_t bytes = 0;  // as last seen
  };

  // Errors as PrivateDirectory's.
  static absl::StatusOr<std::unique_ptr<KernelStore>> Open(const Options& options);

  // The kernel that was put under this key; nullopt where there is none or its file is damaged.
  // Thread-safe, as all of this.
  std::optional<CompiledKernel> Get(std::string_view key);
  void Put(std::string_view key, const CompiledKernel& kernel);
  // Removes a kernel that Get returned and that cannot be used.
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
