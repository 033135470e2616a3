// The files of a TLS listener. gRPC reads them again when they change, so that certificates are
// renewed without a restart, but says of a file that does not fit only that no handshake succeeds;
// so they are looked at here first.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace telegrad {

struct TlsFiles {
  std::string certificate;  // a PEM chain, the server's own first; empty: no TLS
  std::string key;          // its private key
  std::string client_ca;    // whose certificates clients may present; empty: none are asked for
};

// INVALID_ARGUMENT names the file and what is wrong: not PEM, a key of another certificate, a
// certificate that is not valid now.
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace telegrad
