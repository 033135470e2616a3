#include "server/service/compute_service.h"

#include <utility>

namespace telegrad {

RawStream* ComputeService::Execute(grpc::CallbackServerContext*, Caller caller) {
  const std::shared_ptr<ExecuteCall> call = ExecuteCall::Create(
      env_, std::move(caller.tenant), next_id_.fetch_add(1), std::move(caller.peer));
  bool draining;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(calls_, [](const auto& weak) { return weak.expired(); });
    calls_.push_back(call);
    draining = draining_;
  }
  call->Start(draining);
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
