// The addresses that a daemon is told to listen on.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

struct ListenAddress {
  std::string text;  // as gRPC takes it: HOST:PORT or unix:PATH
  std::string host;  // without brackets; empty for unix sockets
  bool is_unix = false;
  bool is_local = false;  // reachable from this machine only
};

// INVALID_ARGUMENT says which form was expected.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

}  // namespace telegrad
