#include "server/service/compute_service.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

RawStream* ComputeService::Execute(grpc::CallbackServerContext* context, Caller caller) {
  const std::shared_ptr<ExecuteCall> call =
      ExecuteCall::Create(registry_, std::move(caller), *context);
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(calls_, [](const auto& weak) { return weak.expired(); });
    // One for each session, and as many that resume one before its old stream is known to be
    // broken.
    if (static_cast<int64_t>(calls_.size()) >= 2 * env_.limits.sessions) {
      refused =
          ResourceExhausted("this server has ", calls_.size(), " streams; twice max-sessions is ",
                            "the limit, and max-sessions is ", env_.limits.sessions);
    }
    if (draining_) refused = absl::UnavailableError("the server is shutting down");
    calls_.push_back(call);
  }
  call->Start(refused);
  return call.get();  // it owns itself until OnDone, which gRPC calls after this has returned
}

void ComputeService::Drain() {
  std::vector<std::weak_ptr<ExecuteCall>> calls;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    calls = calls_;
  }
  for (const auto& weak : calls) {
    if (const auto call = weak.lock()) call->Drain();
  }
}

}  // namespace telegrad
