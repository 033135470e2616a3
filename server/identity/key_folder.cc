// A key whose file is gone or no longer reads is withdrawn at once; that is what removing it is
// for.
#include "server/identity/key_folder.h"

#include <dirent.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

absl::StatusOr<SignatureKey> ReadKey(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path));
  if (path.ends_with(".pem")) return SignatureKey::FromPem(content);
  if (!path.ends_with(".hs256")) return InvalidArgument("expected a name ending in .pem or .hs256");
  std::string secret;
  if (!absl::Base64Unescape(content, &secret)) return InvalidArgument("expected base64");
  return SignatureKey::FromSecret(std::move(secret));
}

struct Contents {
  KeySet keys;
  std::vector<absl::Status> errors;
};

Contents ReadFolder(const std::string& path) {
  Contents contents;
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) {
    contents.errors.push_back(InvalidArgument(path, ": cannot be read as a folder"));
    return contents;
  }
  std::set<std::string> names;
  while (const dirent* entry = readdir(folder)) names.insert(entry->d_name);
  closedir(folder);
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    absl::StatusOr<SignatureKey> key = ReadKey(path + "/" + name);
    std::string id = name.substr(0, name.rfind('.'));
    if (!key.ok()) {
      contents.errors.push_back(InvalidArgument(path, "/", name, ": ", key.status().message()));
    } else if (!contents.keys.emplace(std::move(id), *std::move(key)).second) {
      contents.errors.push_back(InvalidArgument(path, "/", name, ": a second key of this name"));
    }
  }
  return contents;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeyFolder>> KeyFolder::Open(const std::string& path,
                                                           std::chrono::milliseconds interval) {
  std::string stamp = FolderStamp(path);  // before its files are read, so that no change is missed
  Contents contents = ReadFolder(path);
  if (!contents.errors.empty()) return contents.errors.front();
  if (contents.keys.empty()) return InvalidArgument(path, ": there is no key in this folder");
  return std::unique_ptr<KeyFolder>(
      new KeyFolder(path, std::move(contents.keys), std::move(stamp), interval));
}

KeyFolder::KeyFolder(const std::string& path, KeySet first, std::string stamp,
                     std::chrono::milliseconds interval)
    : keys_(
          std::make_shared<const KeySet>(std::move(first)), std::move(stamp),
          [path] { return FolderStamp(path); },
          [path] {
            Contents contents = ReadFolder(path);
            for (const absl::Status& error : contents.errors) {
              Log(LogLevel::kError, "key_refused", {{"reason", error.message()}});
            }
            Log(LogLevel::kInfo, "keys_read", {{"keys", contents.keys.size()}});
            return std::make_shared<const KeySet>(std::move(contents.keys));
          },
          interval) {}

}  // namespace telegrad
