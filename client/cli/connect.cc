// How every command reaches a server: the flags that all commands have, then the environment.
#include <cstdlib>
#include <string>

#include "client/cc/local_daemon.h"
#include "client/cli/command.h"
#include "client/terminal/progress.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

// Flags count before the environment.
ClientCredentials CredentialsOf(const Flags& flags) {
  ClientCredentials credentials = ClientCredentials::FromEnvironment();
  const std::pair<std::string_view, std::string*> rows[] = {
      {"tls-ca", &credentials.tls_ca},         {"tls-cert", &credentials.tls_cert},
      {"tls-key", &credentials.tls_key},       {"tls-server-name", &credentials.tls_server_name},
      {"token-file", &credentials.token_file}, {"local-socket", &credentials.local_socket}};
  if (!flags.GetString("token-file").empty() || !flags.GetString("local-socket").empty()) {
    credentials.token = credentials.token_file = credentials.local_socket = "";
  }
  for (const auto& [flag, value] : rows) {
    if (!flags.GetString(flag).empty()) *value = flags.GetString(flag);
  }
  return credentials;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Connection>> Connect(const Flags& flags) {
  std::string address = flags.GetString("address");
  if (address.empty()) address = DefaultAddress();
  const int64_t seconds = flags.GetInt("timeout");
  ConnectOptions options;
  options.timeout = absl::Seconds(seconds);
  options.client = "telegrad-cli";
  options.credentials = CredentialsOf(flags);
  options.device = flags.GetString("device");
  if (const char* from_env = std::getenv("TELEGRAD_DEVICE"); options.device.empty() && from_env) {
    options.device = from_env;
  }
  const Progress progress(StrCat("connecting to ", address));
  return Connection::Connect(address, options);
}

}  // namespace telegrad::cli
