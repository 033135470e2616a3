// telegrad.v1.Compute: every Execute stream is a session. The method is registered raw, so that
// tensor data never passes through protobuf.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "server/service/execute_call.h"
#include "server/session/session.h"
#include "telegrad/v1/compute.grpc.pb.h"

namespace telegrad {

class ComputeService final
    : public v1::Compute::WithRawCallbackMethod_Execute<v1::Compute::Service> {
 public:
  ComputeService(const Environment& env, std::shared_ptr<Tenant> tenant)
      : env_(env), tenant_(std::move(tenant)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Execute(
      grpc::CallbackServerContext* context) override;

  // Lets every session end what it has been asked and take nothing more.
  void Drain();

 private:
  const Environment& env_;
  const std::shared_ptr<Tenant> tenant_;  // everybody's
  std::atomic<uint64_t> next_id_{1};
  std::mutex mutex_;
  std::vector<std::weak_ptr<ExecuteCall>> calls_;
  bool draining_ = false;
};

}  // namespace telegrad
