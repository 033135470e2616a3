// telegrad.v1.Compute: every Execute stream is a session.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "server/service/execute_call.h"
#include "server/service/router.h"
#include "server/session/session.h"

namespace telegrad {

class ComputeService {
 public:
  explicit ComputeService(const Environment& env) : env_(env) {}

  RawStream* Execute(grpc::CallbackServerContext* context, Caller caller);

  // Lets every session end what it has been asked and take nothing more.
  void Drain();

 private:
  const Environment& env_;
  std::atomic<uint64_t> next_id_{1};
  std::mutex mutex_;
  std::vector<std::weak_ptr<ExecuteCall>> calls_;
  bool draining_ = false;
};

}  // namespace telegrad
