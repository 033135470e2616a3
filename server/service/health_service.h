// grpc.health.v1.Health: whether the daemon takes work, and whether its devices do.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "engine/base/mutex.h"
#include "grpc/health/v1/health.pb.h"
#include "server/service/router.h"

namespace telegrad {

class HealthService {
 public:
  absl::Status Check(const Caller& caller, const grpc::health::v1::HealthCheckRequest& request,
                     grpc::health::v1::HealthCheckResponse* response);
  RawStream* Watch(grpc::ServerContextBase* context, Caller caller);

  // Sets whether all devices take work, and notifies the watchers.
  void SetDevicesHealthy(bool healthy);
  // Reports NOT_SERVING from now on: notifies the watchers and ends their streams.
  void StopServing();

 private:
  class Watcher;
  struct State {
    bool draining = false, devices_healthy = true;
    bool Serves(bool needs_devices) const {
      return !draining && (devices_healthy || !needs_devices);
    }
  };
  void Enter(const std::shared_ptr<Watcher>& watcher);
  void Leave(const std::shared_ptr<Watcher>& watcher);
  void Change(const std::function<void(State*)>& change);

  Mutex mutex_;
  State state_ TG_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Watcher>> watchers_ TG_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace telegrad
