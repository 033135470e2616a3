// What a load may bring along instead of what is on the disk: a configuration, and the files of
// the model's folder. They are kept in memory, charged to the tenant that asked for the load, until
// another load takes their place, the model is unloaded, and nothing reads them any more.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/account.h"

namespace telegrad {

// Files by their paths below a folder, NAME or FOLDER/NAME and so on. Immutable, and in memory of
// the process, so that their number costs no descriptors.
class GivenFiles {
 public:
  using Contents = std::map<std::string, std::string, std::less<>>;
  using Content = std::shared_ptr<const std::string>;
  // INVALID_ARGUMENT for a path that is none, or is both a file and a folder.
  static absl::StatusOr<std::shared_ptr<const GivenFiles>> Make(Contents contents);

  // Of paths from the top. NOT_FOUND where there is no such file.
  absl::StatusOr<Content> Open(std::string_view path) const;
  bool IsFile(std::string_view path) const { return files_.contains(path); }
  bool IsFolder(std::string_view path) const;
  // Names of the folders in a folder, "" for the top, sorted.
  std::vector<std::string> Folders(std::string_view path) const;

 private:
  std::map<std::string, Content, std::less<>> files_;
};

// The parameters of a load as a client gives them.
struct LoadOverrides {
  std::optional<std::string> config;  // in JSON
  GivenFiles::Contents files;         // by VERSION/NAME, or NAME

  // Of the parameter `name`, "config" or "file:PATH". INVALID_ARGUMENT for others and for one that
  // comes twice.
  absl::Status Add(std::string_view name, std::string value);
};

struct GivenModel {
  // Null where nothing is given. INVALID_ARGUMENT for files without a configuration and for paths
  // that are none, RESOURCE_EXHAUSTED beyond the limits below or those of `account`.
  static absl::StatusOr<std::shared_ptr<const GivenModel>> Keep(
      LoadOverrides given, const std::shared_ptr<Account>& account);

  std::string config;                       // in JSON
  std::shared_ptr<const GivenFiles> files;  // null: those on the disk
  int64_t bytes = 0;                        // that are charged
  uint64_t stamp = 0;                       // of all of it
  Reservation paid;
};

inline constexpr size_t kMostGivenFiles = 256;
inline constexpr size_t kMostGivenFolders = 8;  // on the way to a file
inline constexpr std::string_view kConfigParameter = "config";
inline constexpr std::string_view kFileParameter = "file:";

}  // namespace telegrad
