// telegrad.v1.Compute: every Execute stream opens or resumes a session.
#pragma once

#include <atomic>

#include "server/service/execute_call.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"

namespace telegrad {

class ComputeService {
 public:
  ComputeService(const Environment& env, SessionRegistry& registry)
      : env_(env), registry_(registry) {}

  RawStream* Execute(grpc::ServerContextBase* context, Caller caller);

  // Lets every session complete its operations and accept no more.
  void Drain();

 private:
  const Environment& env_;
  SessionRegistry& registry_;
  OpenCalls<ExecuteCall> calls_;
  std::atomic<bool> draining_ = false;
};

}  // namespace telegrad
