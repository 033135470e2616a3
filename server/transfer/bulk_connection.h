// One bulk socket: a TCP connection that carries a stream of transfers without HTTP/2 (see
// AdmitBulk in data.proto). Its thread receives chunks of uploads right into their buffers, and
// sends downloads right from theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "engine/net/frames.h"
#include "engine/net/stream_socket.h"
#include "server/admin/metrics.h"
#include "server/session/transfers.h"
#include "server/transfer/bulk_tickets.h"
#include "server/transfer/transfer_stream.h"

namespace telegrad {

class BulkConnection final : public TransferSink,
                             public std::enable_shared_from_this<BulkConnection> {
 public:
  // From the first byte to the ticket, the handshake included.
  static constexpr std::chrono::seconds kAdmission{10};
  // Without a byte in the middle of a message.
  static constexpr std::chrono::milliseconds kStall{60'000};

  BulkConnection(std::unique_ptr<StreamSocket> socket, BulkTickets* tickets, Metrics* metrics);
  // Until the connection is over, and why.
  absl::Status Serve();
  // From any thread: then it is over.
  void Shutdown();

  void OnGranted(uint64_t bytes) override;
  void OnSessionEnded() override { Shutdown(); }

 private:
  absl::Status Admit();
  absl::Status Exchange();  // messages, until something fails
  absl::Status Take(Frame frame);
  absl::Status Send(const TransferMessage& message);
  void Wake();

  const std::unique_ptr<StreamSocket> socket_;
  BulkTickets* const tickets_;
  Metrics* const metrics_;
  const UniqueFd wake_;  // an eventfd: there may be something to be sent
  std::atomic<bool> over_ = false;
  v1::TransferRequest request_;
  TransferStream stream_;
};

}  // namespace telegrad
