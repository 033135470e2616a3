// Transfers by processes of this machine that share memory with the server: requests of the local
// socket, each with the memory's descriptor.
//
//   upload TOKEN EPOCH TRANSFER OFFSET BYTES     the bytes of a Write; "ok" as soon as it is
//   accepted,
//                                                a failure is the operation's
//   download TOKEN EPOCH TRANSFER OFFSET BYTES   the bytes of a Read that was answered; "ok
//   TRANSFER"
//                                                when they are there, which releases the transfer
//
// TOKEN is the session's, in hexadecimal; OFFSET is the position of the bytes in the memory. The
// session must belong to the tenant of the caller's user.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/identity/local_socket.h"
#include "server/pool/task_pool.h"
#include "server/session/session_registry.h"

namespace telegrad {

LocalSocket::Handlers LocalDataHandlers(
    SessionRegistry* registry, TaskPool* workers,
    std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const std::string&)> find_tenant);

}  // namespace telegrad
