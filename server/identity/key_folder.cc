// A key is withdrawn at once when its file is removed or no longer holds a key.
#include "server/identity/key_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "server/admin/limited_log.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

// For so long after its last change, the beginning of a key is taken for one that is being written.
constexpr absl::Duration kWriting = absl::Seconds(2);

// Whether more could make a key of it.
bool IsBeginning(const std::string& path, std::string_view content) {
  if (path.ends_with(".hs256")) {
    return std::ranges::all_of(
        content, [](char c) { return absl::ascii_isalnum(c) || c == '+' || c == '/' || c == '='; });
  }
  constexpr std::string_view kBegin = "-----BEGIN";
  return path.ends_with(".pem") &&
         content.substr(0, kBegin.size()) == kBegin.substr(0, content.size()) &&
         content.find("-----END") == content.npos;
}

bool IsBeingWritten(const std::string& path, std::string_view content) {
  struct stat s;
  if (!IsBeginning(path, content) || stat(path.c_str(), &s) != 0) return false;
  const absl::Duration age = absl::Now() - absl::TimeFromTimespec(s.st_mtim);
  return age >= absl::ZeroDuration() && age < kWriting;
}

absl::StatusOr<SignatureKey> ParseKey(const std::string& path, const std::string& content) {
  if (path.ends_with(".pem")) return SignatureKey::FromPem(content);
  if (!path.ends_with(".hs256")) return InvalidArgument("expected a name ending in .pem or .hs256");
  std::string secret;
  if (!absl::Base64Unescape(content, &secret)) return InvalidArgument("expected base64");
  return SignatureKey::FromSecret(std::move(secret));
}

absl::StatusOr<SignatureKey> ReadKey(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path));
  auto key = ParseKey(path, content);
  if (key.ok() || !IsBeingWritten(path, content)) return key;
  return absl::UnavailableError(
      StrCat(ToStd(key.status().message()), "; its end is missing, as if it were being written"));
}

struct Contents {
  KeySet keys;
  std::vector<absl::Status> errors;
  int64_t unread = 0;  // that cannot be read now
};

// The names in it, or NOT_FOUND, or UNAVAILABLE.
absl::StatusOr<std::set<std::string>> NamesIn(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) {
    const std::string message =
        StrCat(path, ": cannot be read as a folder: ", std::string_view(std::strerror(errno)));
    return IsGone(errno) ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  std::set<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) names.insert(entry->d_name);
  const int error = errno;
  closedir(folder);
  if (error == 0) return names;
  return absl::UnavailableError(StrCat(path, ": ", std::string_view(std::strerror(error))));
}

// Files that cannot be read keep their content from `before`.
Contents ReadFolder(const std::string& path, const KeySet& before) {
  Contents contents;
  const absl::StatusOr<std::set<std::string>> names = NamesIn(path);
  if (!names.ok()) {
    contents.errors.push_back(names.status());
    if (absl::IsNotFound(names.status())) return contents;
    contents.keys = before;
    contents.unread = 1;
    return contents;
  }
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    absl::StatusOr<SignatureKey> key = ReadKey(path + "/" + name);
    if (absl::IsNotFound(key.status())) continue;  // removed since
    std::string id = name.substr(0, name.rfind('.'));
    if (!key.ok()) {
      contents.errors.push_back(InvalidArgument(path, "/", name, ": ", key.status().message()));
    }
    if (absl::IsUnavailable(key.status())) {
      ++contents.unread;
      const auto known = before.find(id);
      if (known != before.end()) contents.keys.insert(*known);
    } else if (key.ok() && !contents.keys.emplace(std::move(id), *std::move(key)).second) {
      contents.errors.push_back(
          InvalidArgument(path, "/", name, ": there are two keys of this name"));
    }
  }
  return contents;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeyFolder>> KeyFolder::Open(const std::string& path,
                                                           std::chrono::milliseconds interval) {
  std::string stamp = FolderStamp(path);  // before its files are read, so that no change is missed
  Contents contents = ReadFolder(path, {});
  if (!contents.errors.empty()) return InvalidArgument(contents.errors.front().message());
  if (contents.keys.empty())
    return InvalidArgument(path, ": the folder has no keys; expected NAME.pem or NAME.hs256");
  return std::unique_ptr<KeyFolder>(
      new KeyFolder(path, std::move(contents.keys), std::move(stamp), interval));
}

KeyFolder::KeyFolder(const std::string& path, KeySet first, std::string stamp,
                     std::chrono::milliseconds interval)
    : keys_(
          std::make_shared<const KeySet>(std::move(first)), std::move(stamp),
          [path] { return FolderStamp(path); },
          [path, errors = read_errors_](const KeySet& last) -> Reloaded<KeySet>::Loaded {
            static LimitedLog refused(LogLevel::kError, "key_refused");
            Contents contents = ReadFolder(path, last);
            for (const absl::Status& error : contents.errors) {
              refused.Write({{"reason", error.message()}});
            }
            errors->fetch_add(contents.unread);
            Log(LogLevel::kInfo, "keys_read", {{"keys", contents.keys.size()}});
            return {.value = std::make_shared<const KeySet>(std::move(contents.keys)),
                    .again = contents.unread > 0};
          },
          interval) {}

}  // namespace telegrad
