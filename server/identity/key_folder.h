// The keys that sign tokens: the files of a folder, each a key under its name without the ending.
//
//   NAME.pem    a public key
//   NAME.hs256  a shared secret of at least 256 bits, in base64 on one line
//
// Files may come and go while the daemon runs. Other endings are refused, so that nothing is taken
// for a key, or overlooked, by mistake; names that begin with a dot are not looked at.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/identity/reloaded.h"
#include "server/identity/signature.h"

namespace telegrad {

using KeySet = std::map<std::string, SignatureKey, std::less<>>;

class KeyFolder {
 public:
  // INVALID_ARGUMENT names the first file that is no key, or says that there is none.
  static absl::StatusOr<std::unique_ptr<KeyFolder>> Open(
      const std::string& path, std::chrono::milliseconds interval = std::chrono::seconds(1));

  // As the folder is now: a file that is no key is logged and left out, and the rest hold.
  std::shared_ptr<const KeySet> Keys() { return keys_.Get(); }

 private:
  KeyFolder(const std::string& path, KeySet first, std::string stamp,
            std::chrono::milliseconds interval);
  Reloaded<KeySet> keys_;
};

}  // namespace telegrad
