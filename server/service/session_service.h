// telegrad.v1.Session: versions, devices, counters, and sessions beside their streams.
#pragma once

#include "absl/status/status.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/session.pb.h"

namespace telegrad {

class SessionService {
 public:
  // `local_socket`: the path that processes of this machine are told; empty: none.
  SessionService(const Environment& env, SessionRegistry& registry, std::string local_socket)
      : env_(env), registry_(registry), local_socket_(std::move(local_socket)) {}
  // Where Data is served besides here. Before the first call.
  void SetDataAddress(std::string_view address);
  void SetBulkAddress(std::string_view address);  // likewise, of bulk sockets

  absl::Status Hello(const Caller& caller, const v1::HelloRequest& request,
                     v1::HelloResponse* response);
  absl::Status ListDevices(const Caller& caller, const v1::ListDevicesRequest& request,
                           v1::ListDevicesResponse* response);
  absl::Status Stats(const Caller& caller, const v1::StatsRequest& request,
                     v1::StatsResponse* response);
  absl::Status KeepAlive(const Caller& caller, const v1::KeepAliveRequest& request,
                         v1::KeepAliveResponse* response);
  absl::Status Close(const Caller& caller, const v1::CloseRequest& request,
                     v1::CloseResponse* response);

 private:
  const Environment& env_;
  SessionRegistry& registry_;
  const std::string local_socket_;
  std::string data_address_, bulk_address_;
};

}  // namespace telegrad
