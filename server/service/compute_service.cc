// Makes an ExecuteCall for each stream, and counts it among the open calls of its tenant.
#include "server/service/compute_service.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/service/operation_socket.h"

namespace telegrad {

RawStream* ComputeService::Execute(grpc::ServerContextBase* context, Caller caller) {
  const auto header = context->client_metadata().find("traceparent");
  const bool traced = header != context->client_metadata().end();
  return Start(
      std::move(caller),
      traced ? std::string_view(header->second.data(), header->second.size()) : std::string_view());
}

absl::Status ComputeService::ExecuteOn(const std::shared_ptr<StreamSocket>& socket, Caller caller) {
  OperationSocket transport(socket, messages_);
  TG_RETURN_IF_ERROR(transport.Start());
  TG_ASSIGN_OR_RETURN(auto place,
                      Reservation::Take(caller.tenant->accounts.shared(Quota::kStreams), 1));
  const std::shared_ptr<const CallWatch::Known> known = caller.known;
  RawStream* const stream = Start(std::move(caller), {});
  stream->Hold(std::move(place));
  stream->EnterWatch(watch_, known);
  return transport.Serve(stream);
}

RawStream* ComputeService::Start(Caller caller, std::string_view traceparent) {
  const Tenant* const tenant = caller.tenant.get();
  const int64_t quota = tenant->accounts[Quota::kSessions].limit();
  const std::shared_ptr<ExecuteCall> call =
      ExecuteCall::Create(registry_, std::move(caller), traceparent, env_.tracer, env_.workers);
  // One for each session, and as many that resume one before its old stream is known to be broken.
  const auto twice = [](int64_t n) { return std::min(n, INT64_MAX / 2) * 2; };
  const int64_t most = twice(env_.limits.sessions);
  OpenCalls<ExecuteCall>::CallSlot slot = calls_.Enter(call, most, tenant, twice(quota));
  absl::Status refused;
  if (!slot) {
    refused = ResourceExhausted("this server has ", most, " streams, or its tenant ", twice(quota),
                                ": twice --max-sessions, which is ", env_.limits.sessions,
                                ", and twice its quota of sessions");
  }
  // Asked after it has entered, so that Drain either finds the call or is noticed here.
  if (draining_) refused = absl::UnavailableError("the server is shutting down");
  call->Start(std::move(slot), refused);
  return call.get();  // it owns itself until OnDone, which its transport calls later
}

void ComputeService::EndAll() {
  for (const auto& call : calls_.All()) {
    call->End(absl::UnavailableError("the server is shutting down"));
  }
  calls_.StopWaiting();
}

void ComputeService::Drain() {
  draining_ = true;
  for (const auto& call : calls_.All()) call->Drain();
}

}  // namespace telegrad
