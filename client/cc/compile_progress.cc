// Asks the server how many kernels it has compiled for the session, with the call that keeps
// sessions alive.
#include <chrono>

#include "client/cc/bulk_transfers.h"
#include "client/cc/execute_stream.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {

absl::StatusOr<CompileProgress> RemoteSession::Compiling() const {
  constexpr std::chrono::seconds kPatience{1};
  if (!stream_->ticket().has_result()) return CompileProgress{};
  TG_ASSIGN_OR_RETURN(const SessionTicket ticket, stream_->ticket().Get());
  v1::KeepAliveRequest request;
  v1::KeepAliveResponse response;
  request.set_token(ticket.token);
  request.set_epoch(ticket.epoch);
  grpc::ClientContext context;
  TG_RETURN_IF_ERROR(connection_->Authorize(&context));
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const grpc::Status status =
      v1::Session::NewStub(connection_->channel())->KeepAlive(&context, request, &response);
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  return CompileProgress{static_cast<int64_t>(response.kernels_compiled()),
                         static_cast<int64_t>(response.kernels_to_compile())};
}

}  // namespace telegrad
