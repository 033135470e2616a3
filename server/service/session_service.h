// telegrad.v1.Session: versions, devices, counters, and sessions beside their streams.
#pragma once

#include <memory>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {

class SessionService final : public v1::Session::CallbackService {
 public:
  SessionService(const Environment& env, SessionRegistry& registry, std::shared_ptr<Tenant> tenant)
      : env_(env), registry_(registry), tenant_(std::move(tenant)) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::HelloRequest* request,
                                  v1::HelloResponse* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;
  grpc::ServerUnaryReactor* KeepAlive(grpc::CallbackServerContext* context,
                                      const v1::KeepAliveRequest* request,
                                      v1::KeepAliveResponse* response) override;
  grpc::ServerUnaryReactor* Close(grpc::CallbackServerContext* context,
                                  const v1::CloseRequest* request,
                                  v1::CloseResponse* response) override;

 private:
  const Environment& env_;
  SessionRegistry& registry_;
  const std::shared_ptr<Tenant> tenant_;  // everybody: the transport knows no identities yet
};

}  // namespace telegrad
