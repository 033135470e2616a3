// One bulk socket: a TCP connection that carries a stream of transfers without HTTP/2 (see
// AdmitBulk in data.proto). One thread receives chunks of uploads directly into their buffers,
// another one sends downloads directly from theirs. Or, as its ticket says, it carries the
// operations of a session, which whoever gave the ticket serves.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/net/frames.h"
#include "engine/net/stream_socket.h"
#include "server/admin/metrics.h"
#include "server/data/bulk_tickets.h"
#include "server/data/transfer_stream.h"
#include "server/data/transfers.h"

namespace telegrad {

class BulkConnection final : public TransferSink,
                             public std::enable_shared_from_this<BulkConnection> {
 public:
  // From the first byte to the ticket, the handshake included.
  static constexpr std::chrono::seconds kAdmission{10};

  BulkConnection(std::unique_ptr<StreamSocket> socket, BulkTickets* tickets, Metrics* metrics);
  // Serves the connection until it ends and returns the reason. The calling thread receives.
  absl::Status Serve();
  bool admitted() const { return admitted_; }
  // Closes the connection; called from any thread.
  void Shutdown();

  void OnGranted(uint64_t bytes) override;
  void OnSessionEnded() override { Shutdown(); }

 private:
  absl::Status Admit();
  absl::Status ServeTransfers();
  absl::Status Receive();  // messages, until something fails
  absl::Status Take(Frame frame);
  void SendAll();  // until it is over
  absl::Status Send(const TransferMessage& message);
  void OnTransferEnded(const absl::Status& status);  // the one of another server's socket
  void Farewell(const absl::Status& status);
  void Wake();
  // Waits until `ready` returns true or the connection ends; false for the latter.
  template <typename Ready>
  bool Await(Ready ready);

  const std::shared_ptr<StreamSocket> socket_;
  BulkTickets* const tickets_;
  Metrics* const metrics_;
  std::atomic<bool> admitted_ = false;
  std::shared_ptr<const void> place_;
  BulkTickets::ServeOperations operations_;  // null: it carries transfers
  v1::TransferRequest request_;
  TransferStream stream_;

  Mutex mutex_;
  ConditionVariable changed_;
  uint64_t changes_ TG_GUARDED_BY(mutex_) = 0;
  bool over_ TG_GUARDED_BY(mutex_) = false;
};

}  // namespace telegrad
