// grpc.health.v1.Health: whether the daemon takes work.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "grpc/health/v1/health.pb.h"
#include "server/service/router.h"

namespace telegrad {

class HealthService {
 public:
  absl::Status Check(const Caller& caller, const grpc::health::v1::HealthCheckRequest& request,
                     grpc::health::v1::HealthCheckResponse* response);
  RawStream* Watch(grpc::CallbackServerContext* context, Caller caller);

  // For good: tells the watchers and ends their streams.
  void StopServing();

 private:
  class Watcher;
  bool Enter(std::shared_ptr<Watcher> watcher);
  void Leave(const std::shared_ptr<Watcher>& watcher);

  std::mutex mutex_;
  bool serving_ = true;
  std::set<std::shared_ptr<Watcher>> watchers_;
};

}  // namespace telegrad
