// Makes an ExecuteCall for each stream, and counts it among the open calls of its tenant.
#include "server/service/compute_service.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

RawStream* ComputeService::Execute(grpc::ServerContextBase* context, Caller caller) {
  const Tenant* const tenant = caller.tenant.get();
  const int64_t quota = tenant->accounts[Quota::kSessions].limit();
  const std::shared_ptr<ExecuteCall> call =
      ExecuteCall::Create(registry_, std::move(caller), *context, env_.tracer, env_.workers);
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
  return call.get();  // it owns itself until OnDone, which gRPC calls after this has returned
}

void ComputeService::Drain() {
  draining_ = true;
  for (const auto& call : calls_.All()) call->Drain();
}

}  // namespace telegrad
