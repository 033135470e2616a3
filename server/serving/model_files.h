// The files of one folder of a model repository, or of one that came with a load. A name is opened
// below its folder only: no part of the way there is a link, a parent or an absolute path, whatever
// changes meanwhile.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "server/serving/given_model.h"

namespace telegrad {

// What a model or one of its files may be called: 1 to 255 letters, digits, '.', '_' and '-', of
// which the first is no '.'.
bool IsModelName(std::string_view name);

// A file that stays the one that it was, whatever takes its name: open on the disk, or kept since a
// load brought it along.
class ModelFile {
 public:
  explicit ModelFile(UniqueFd fd) : fd_(std::move(fd)) {}
  explicit ModelFile(GivenFiles::Content given) : given_(std::move(given)) {}
  // All of it. RESOURCE_EXHAUSTED where it has more bytes than `most`; errors call it `name`.
  absl::StatusOr<std::string> Read(std::string_view name, int64_t most) const;

 private:
  UniqueFd fd_;                // else
  GivenFiles::Content given_;  // null: on the disk
};

class ModelFolder {
 public:
  // NOT_FOUND, or FAILED_PRECONDITION where it is no folder.
  static absl::StatusOr<ModelFolder> Open(const std::string& path);
  // The top of the files of a load.
  explicit ModelFolder(std::shared_ptr<const GivenFiles> given) : given_(std::move(given)) {}
  absl::StatusOr<ModelFolder> Folder(std::string_view name) const;

  // Names of folders in it; those that are no model's name are left out.
  absl::StatusOr<std::vector<std::string>> Folders() const;
  bool Has(std::string_view name) const;
  // All of a file. RESOURCE_EXHAUSTED where it has more bytes than `most`.
  absl::StatusOr<std::string> Read(std::string_view name, int64_t most) const;
  absl::StatusOr<ModelFile> OpenFile(std::string_view name) const;
  // Changes when the file's content is replaced: its length, time and number; 0 without a file.
  // Files of a load never change (see GivenModel::stamp).
  uint64_t Stamp(std::string_view name) const;

 private:
  explicit ModelFolder(UniqueFd fd) : fd_(std::move(fd)) {}
  ModelFolder(std::shared_ptr<const GivenFiles> given, std::string below)
      : given_(std::move(given)), below_(std::move(below)) {}
  absl::StatusOr<UniqueFd> OpenBelow(std::string_view name, int flags) const;
  std::string Given(std::string_view name) const;

  UniqueFd fd_;                              // on the disk
  std::shared_ptr<const GivenFiles> given_;  // else
  std::string below_;                        // where in them, "" for the top
};

// A model's file and those that it names for its weights, read as often as a form of the model is
// made. They are kept open, so that files that take their names change nothing;
// FAILED_PRECONDITION once one of them was written to.
class ModelSource {
 public:
  ModelSource(std::shared_ptr<const ModelFolder> folder, std::string file)
      : folder_(std::move(folder)), file_(std::move(file)) {}

  // What was read, kept as long as the weights of an import are in use.
  struct Content {
    std::string file;
    std::map<std::string, std::string, std::less<>> others;
  };
  absl::StatusOr<std::shared_ptr<Content>> Read();
  // The content of a file that the model names.
  absl::StatusOr<std::string_view> ReadOther(Content& content, std::string_view name);

 private:
  struct Source {
    std::shared_ptr<const ModelFile> file;
    Digest digest;
  };
  absl::StatusOr<std::string> ReadSame(std::string_view name);

  const std::shared_ptr<const ModelFolder> folder_;
  const std::string file_;
  Mutex mutex_;
  std::map<std::string, Source, std::less<>> sources_ TG_GUARDED_BY(mutex_);
};

inline constexpr int64_t kMaxModelBytes = int64_t{64} << 30;
inline constexpr int64_t kMaxConfigBytes = 1 << 20;
inline constexpr std::string_view kModelConfigFile = "config.pbtxt";

}  // namespace telegrad
