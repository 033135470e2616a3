// The keys that sign tokens: the files of a folder, each a key under its name without the ending.
//
//   NAME.pem    a public key
//   NAME.hs256  a shared secret of at least 256 bits, in base64 on one line
//
// Files may be added and removed while the daemon runs. Files with other endings are refused, so
// that no file is taken for a key, or overlooked, by mistake; files whose names begin with a dot
// are ignored.
//
// A key is withdrawn only when its file is removed or invalid. A key whose file cannot be read at
// the moment, because of missing descriptors or a disk error, stays in force, and so does one whose
// file has no end and was changed in the last two seconds: it is being written.
#pragma once

#include <atomic>
#include <cstdint>
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
  // INVALID_ARGUMENT names the first file that is not a key, or says that the folder has no keys.
  static absl::StatusOr<std::unique_ptr<KeyFolder>> Open(
      const std::string& path, std::chrono::milliseconds interval = std::chrono::seconds(1));

  // As the folder is now: a file that is no key is logged and left out, and the rest hold.
  std::shared_ptr<const KeySet> Keys() { return keys_.Get(); }
  void Refresh() { keys_.Refresh(); }
  // Times that the folder, or a file of it, could not be read.
  int64_t read_errors() const { return read_errors_->load(); }

 private:
  KeyFolder(const std::string& path, KeySet first, std::string stamp,
            std::chrono::milliseconds interval);
  const std::shared_ptr<std::atomic<int64_t>> read_errors_ =
      std::make_shared<std::atomic<int64_t>>(0);
  Reloaded<KeySet> keys_;
};

}  // namespace telegrad
