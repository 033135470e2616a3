// telegrad.v1.Session: versions, devices, counters.
#pragma once

#include "absl/status/status.h"
#include "server/service/router.h"
#include "server/session/session.h"
#include "telegrad/v1/session.pb.h"

namespace telegrad {

class SessionService {
 public:
  explicit SessionService(const Environment& env) : env_(env) {}

  absl::Status Hello(const Caller& caller, const v1::HelloRequest& request,
                     v1::HelloResponse* response);
  absl::Status ListDevices(const Caller& caller, const v1::ListDevicesRequest& request,
                           v1::ListDevicesResponse* response);
  absl::Status Stats(const Caller& caller, const v1::StatsRequest& request,
                     v1::StatsResponse* response);

 private:
  const Environment& env_;
};

}  // namespace telegrad
