// Transfers through memory that a process of this machine shares with the server, in place of
// chunks on a stream: the server copies between a buffer and the memory itself, a piece at a time
// on each of its workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "server/data/sealed_file.h"
#include "server/data/transfers.h"
#include "server/pool/task_pool.h"

namespace telegrad {

// Called once, on a worker or on the thread that ends the transfer, unless an upload ends before
// its operation's turn.
using Copied = std::function<void(const absl::Status&)>;

// The bytes of an upload are those of the file. They are copied once it is the operation's turn; a
// failure is the operation's.
absl::Status UploadFrom(std::shared_ptr<const SealedFile> file, uint64_t transfer,
                        Transfers& transfers, TaskPool* workers);

// Copies a download to the file, then releases it.
absl::Status DownloadTo(std::shared_ptr<const SealedFile> file, uint64_t transfer,
                        std::shared_ptr<Transfers> transfers, TaskPool* workers, Copied copied);

}  // namespace telegrad
