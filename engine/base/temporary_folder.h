// Folders for files that go with a process, such as what drivers compile. Whoever has one holds a
// lock on a file in it, so that after the process was killed others can tell that it is nobody's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/unique_fd.h"

namespace telegrad {

class TemporaryFolder {
 public:
  // Below the system's temporary folder (TMPDIR), for this user only, named telegrad-KIND-XXXXXX;
  // the kinds are those of temporary_folder.cc. nullopt: the system gives none.
  static std::optional<TemporaryFolder> Make(std::string_view kind);
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  // Removes it, with all that is in it.
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  TemporaryFolder(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  // empty: it was moved from
  UniqueFd lock_;
};

// Removes those of this user, below the same temporary folder, whose processes were killed. One
// that is in use stays, as does one without a lock, whatever its name. Their number.
int64_t SweepTemporaryFolders();

}  // namespace telegrad
