// Checks the paths that a load gives its files, and charges what is kept of it.
#include "server/serving/given_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_split.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "server/serving/model_files.h"
#include "server/serving/repository.h"

namespace telegrad {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kRecordBytes = 1024;  // of a file beside its content

// A path has names of models in it and nothing else, so that it has no "..", and no two spellings.
absl::Status CheckPath(std::string_view path) {
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(path), '/');
  const bool named = std::ranges::all_of(parts, IsModelName);
  if (named && parts.size() <= kMostGivenFolders + 1) return absl::OkStatus();
  return InvalidArgument("'", Clip(path, 256),
                         "' is not the path of a file: names of letters, digits, '.', '_' and "
                         "'-', the first no '.', with '/' between them, in at most ",
                         kMostGivenFolders, " folders");
}

absl::Status CheckVersion(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == path.npos || ModelVersionOf(path.substr(0, slash)) > 0) return absl::OkStatus();
  return InvalidArgument("'", Clip(path, 256),
                         "' is in no version's folder; expected file:VERSION/NAME, with a version "
                         "1, 2, ..., or file:NAME");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GivenFiles>> GivenFiles::Make(Contents contents) {
  auto out = std::make_shared<GivenFiles>();
  for (auto& [path, content] : contents) {
    TG_RETURN_IF_ERROR(CheckPath(path));
    out->files_[path] = std::make_shared<const std::string>(std::move(content));
  }
  for (const auto& [path, content] : out->files_) {
    if (out->IsFolder(path)) {
      return InvalidArgument("'", Clip(path, 256), "' is a file and a folder");
    }
  }
  return out;
}

absl::StatusOr<GivenFiles::Content> GivenFiles::Open(std::string_view path) const {
  const auto it = files_.find(path);
  if (it != files_.end()) return it->second;
  return NotFound("'", Clip(path, 256), "' is not among the files that the load brought along");
}

bool GivenFiles::IsFolder(std::string_view path) const {
  const std::string prefix = StrCat(path, "/");
  const auto it = files_.lower_bound(prefix);
  return it != files_.end() && it->first.starts_with(prefix);
}

std::vector<std::string> GivenFiles::Folders(std::string_view path) const {
  const std::string prefix = path.empty() ? "" : StrCat(path, "/");
  std::vector<std::string> out;
  for (auto it = files_.lower_bound(prefix); it != files_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    const std::string_view rest = std::string_view(it->first).substr(prefix.size());
    const size_t slash = rest.find('/');
    if (slash == rest.npos) continue;
    // Sorted, so that all files of a folder are beside each other.
    if (out.empty() || out.back() != rest.substr(0, slash)) out.emplace_back(rest.substr(0, slash));
  }
  std::ranges::sort(out);  // "1-x/" is before "1/"
  return out;
}

absl::Status LoadOverrides::Add(std::string_view name, std::string value) {
  if (name == kConfigParameter) {
    if (config) return InvalidArgument("parameter 'config' comes twice");
    config = std::move(value);
    return absl::OkStatus();
  }
  if (!name.starts_with(kFileParameter)) {
    return InvalidArgument("parameter '", Clip(name, 64),
                           "' is not known; a load takes 'config' and 'file:VERSION/NAME'");
  }
  if (files.size() == kMostGivenFiles) {
    return ResourceExhausted("the load has more than ", kMostGivenFiles, " files");
  }
  if (files.emplace(name.substr(kFileParameter.size()), std::move(value)).second) {
    return absl::OkStatus();
  }
  return InvalidArgument("parameter '", Clip(name, 64), "' comes twice");
}

absl::StatusOr<std::shared_ptr<const GivenModel>> GivenModel::Keep(
    LoadOverrides given, const std::shared_ptr<Account>& account) {
  if (!given.config && given.files.empty()) return nullptr;
  if (!given.config) {
    return InvalidArgument("the load has '", kFileParameter, Clip(given.files.begin()->first, 64),
                           "' and no 'config'; files need the configuration that goes with them, "
                           "at least {}");
  }
  if (given.config->size() > static_cast<size_t>(kMaxConfigBytes)) {
    return ResourceExhausted("'config' has ", given.config->size(), " bytes; ", kMaxConfigBytes,
                             " are allowed");
  }
  auto out = std::make_shared<GivenModel>();
  out->bytes = kRecordBytes + static_cast<int64_t>(given.config->size());
  const auto mix = [&](std::string_view text) {
    const Digest digest = Sha256(text);
    uint64_t part = 0;
    std::memcpy(&part, digest.bytes.data(), sizeof(part));
    out->stamp = Mix64(out->stamp, part);
  };
  mix(*given.config);
  for (const auto& [path, content] : given.files) {
    TG_RETURN_IF_ERROR(CheckVersion(path));
    const auto bytes = static_cast<int64_t>(content.size());
    out->bytes += kRecordBytes + (bytes + kPage - 1) / kPage * kPage;
    mix(path);
    mix(content);
  }
  TG_ASSIGN_OR_RETURN(out->paid, Reservation::Take(account, out->bytes));
  if (!given.files.empty()) {
    TG_ASSIGN_OR_RETURN(out->files, GivenFiles::Make(std::move(given.files)));
  }
  out->config = *std::move(given.config);
  return out;
}

}  // namespace telegrad
