// Send: sends a part of a buffer to another server, which a client of both has told to receive
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/session/operation.h"

namespace telegrad {

struct SendOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string address;  // of the other server's bulk sockets
  uint64_t transfer = 0;
  std::string identity, secret;  // of the ticket
  bool tls = false;
};

std::unique_ptr<Action> MakeAction(SendOp op);

}  // namespace telegrad
