#include "server/service/compute_service.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

RawStream* ComputeService::Execute(grpc::CallbackServerContext* context, Caller caller) {
  const std::shared_ptr<ExecuteCall> call =
      ExecuteCall::Create(registry_, std::move(caller), *context);
  // One for each session, and as many that resume one before its old stream is known to be broken.
  const int64_t most = 2 * env_.limits.sessions;
  OpenCalls<ExecuteCall>::Place place = calls_.Enter(call, most);
  absl::Status refused;
  if (!place) {
    refused = ResourceExhausted("this server has ", most,
                                " streams, twice --max-sessions, which is ", env_.limits.sessions);
  }
  // Asked after it has entered, so that Drain either finds the call or is noticed here.
  if (draining_) refused = absl::UnavailableError("the server is shutting down");
  call->Start(std::move(place), refused);
  return call.get();  // it owns itself until OnDone, which gRPC calls after this has returned
}

void ComputeService::Drain() {
  draining_ = true;
  for (const auto& call : calls_.All()) call->Drain();
}

}  // namespace telegrad
