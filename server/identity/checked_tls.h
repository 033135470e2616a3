// The files of a TLS listener as gRPC gets to read them: copies in memory, which change only when
// the files themselves form a certificate with its key again. gRPC fails every handshake while a
// file that it reads is half written.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "server/admin/ticker.h"
#include "server/identity/tls_files.h"

namespace telegrad {

class CheckedTls {
 public:
  // The errors of CheckTlsFiles. From then on the files are looked at once a second; what is wrong
  // with them is logged once, and the last right ones stay.
  static absl::StatusOr<std::unique_ptr<CheckedTls>> Open(const TlsFiles& files);

  // Paths that are valid in this process as long as this object lives.
  const TlsFiles& copies() const { return copies_; }
  // Looks at them now.
  void Refresh();

 private:
  struct Copy {
    UniqueFd identity, client_ca;
  };

  CheckedTls(const TlsFiles& files, Copy first, std::string stamp);
  static absl::StatusOr<Copy> CopyOf(const TlsFiles& files);
  static TlsFiles PathsOf(const Copy& copy);

  const TlsFiles files_;
  const Copy copy_;  // its descriptors stay; the files behind them are replaced
  const TlsFiles copies_;
  Mutex mutex_;
  std::string stamp_ TG_GUARDED_BY(mutex_);
  Ticker ticker_;  // last: it uses the rest
};

}  // namespace telegrad
