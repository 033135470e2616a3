// Opens a bulk socket of a session: gets a ticket over gRPC, connects, shows the ticket, and has
// the server prove that it gave that.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cc/bulk_transfers.h"
#include "client/cc/connection.h"
#include "engine/base/mutex.h"
#include "engine/net/stream_socket.h"
#include "grpcpp/grpcpp.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class BulkSocketOpener {
 public:
  // Until gRPC is used instead: where something swallows what is sent to the address, that is what
  // the first transfer of a session waits.
  static constexpr std::chrono::milliseconds kMostForAttaching{2'000};

  struct Opened {
    std::shared_ptr<StreamSocket> socket;
    v1::TransferResponse answer;  // Attached, whose proof was checked, or another one
  };
  // `attach` makes the first message of a token. `operations`: the socket is for operations, not
  // for transfers. Blocks for as long as a call takes and two seconds.
  absl::StatusOr<Opened> Open(Connection& connection, const SessionTicket& session, bool operations,
                              const std::function<v1::TransferRequest(std::string token)>& attach);
  // From any thread: ends an Open that is under way, and the socket.
  void Cancel();

 private:
  absl::StatusOr<v1::AdmitBulkResponse> GetTicket(Connection& connection,
                                                  const SessionTicket& session, bool operations);

  Mutex mutex_;
  bool cancelled_ TG_GUARDED_BY(mutex_) = false;
  std::shared_ptr<grpc::ClientContext> call_ TG_GUARDED_BY(mutex_);  // for the ticket
  std::shared_ptr<StreamSocket> socket_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
