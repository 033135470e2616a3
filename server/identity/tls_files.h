// The files of a TLS listener. gRPC reads them again when they change, so that certificates are
// renewed without a restart, but reports an invalid file only by failing handshakes; so they are
// checked here first.
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
