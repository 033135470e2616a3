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

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/data/transfers.h"
#include "server/identity/local_socket.h"
#include "server/pool/task_pool.h"

namespace telegrad {

// A session and its tenant's account of such memory.
struct FoundSession {
  std::shared_ptr<TransferOwner> session;
  std::shared_ptr<Account> shared_files;
};

// Of the tenant of that name.
using FindLocalSession = std::function<absl::StatusOr<FoundSession>(
    const std::string& tenant, const std::string& token, uint64_t epoch)>;

LocalSocket::Handlers LocalDataHandlers(TaskPool* workers, FindLocalSession find);

}  // namespace telegrad
