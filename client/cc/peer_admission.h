// Tickets by which one server sends a buffer to another: see Send in data.proto.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/cc/bulk_transfers.h"
#include "client/cc/connection.h"
#include "client/cc/future.h"

namespace telegrad {

// Single-use, for one transfer to a session of the server that gave it.
struct PeerTicket {
  uint64_t transfer = 0;
  std::string identity, secret;
  bool tls = false;
};

// Asks the session's server for a ticket for the server with that public key, again where the
// connection breaks, until `limit` is over. Does not block; holds the connection until `told` is
// set.
void AdmitPeer(std::shared_ptr<Connection> connection, const SessionTicket& session,
               const std::string& peer_key, uint64_t bytes, absl::Duration limit,
               const Future<PeerTicket>& told);

}  // namespace telegrad
