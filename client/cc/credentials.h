// The credentials of a client (docs/security.md): a certificate, a token, or the user that it runs
// as.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace telegrad {

struct ClientCredentials {
  // PEM files. They are read again when they change, for the next connection.
  std::string
      tls_ca;  // authorities that the server's certificate is checked against; empty: no TLS
  std::string tls_cert = {};  // the client's own, if it has one, with
  std::string tls_key = {};   // its key
  std::string tls_server_name =
      {};  // that the server's certificate must have; empty: the address's

  // A bearer token: itself; or a file that holds it, read again when it changes; or a server's
  // local socket, which gives one to processes of the same machine. At most one of the three.
  std::string token = {}, token_file = {}, local_socket = {};

  // The tenant for whom this client acts, where the server grants it that (`acts_for` in its file
  // of tenants); empty: the one for whom the server takes it.
  std::string acts_for = {};

  // TELEGRAD_TLS_CA, TELEGRAD_TLS_CERT, TELEGRAD_TLS_KEY, TELEGRAD_TLS_SERVER_NAME, TELEGRAD_TOKEN,
  // TELEGRAD_TOKEN_FILE and TELEGRAD_LOCAL_SOCKET.
  static ClientCredentials FromEnvironment();
};

// INVALID_ARGUMENT for files that cannot be read, and for a token that would travel in the clear.
// `bulk`: it carries transfers alone.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                           const ClientCredentials& credentials,
                                                           bool bulk);

// Adds the token, if there is one, to calls. Thread-safe.
class TokenSource {
 public:
  explicit TokenSource(const ClientCredentials& credentials) : credentials_(credentials) {}
  absl::StatusOr<std::string> Token();  // empty: none
  absl::Status Authorize(grpc::ClientContext* context);

 private:
  absl::Status ReadFile() TG_REQUIRES(mutex_);
  absl::Status AskLocalSocket() TG_REQUIRES(mutex_);

  const ClientCredentials credentials_;
  Mutex mutex_;
  std::string token_ TG_GUARDED_BY(mutex_);
  std::string stamp_ TG_GUARDED_BY(mutex_);                              // of the file
  std::chrono::steady_clock::time_point renew_ TG_GUARDED_BY(mutex_){};  // of a local token
};

}  // namespace telegrad
