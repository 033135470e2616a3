// telegrad.v1.Session: versions, devices, counters.
#pragma once

#include "grpcpp/grpcpp.h"
#include "server/session/session.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {

class SessionService final : public v1::Session::CallbackService {
 public:
  explicit SessionService(const Environment& env) : env_(env) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::HelloRequest* request,
                                  v1::HelloResponse* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;

 private:
  const Environment& env_;
};

}  // namespace telegrad
