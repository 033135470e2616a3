// telegrad.v1.Data: the streams that carry the transfers of sessions.
#pragma once

#include "absl/status/status.h"
#include "server/service/data_call.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class DataService {
 public:
  DataService(const Environment& env, SessionRegistry& registry) : env_(env), registry_(registry) {}

  RawStream* Transfer(grpc::CallbackServerContext* context, Caller caller);
  absl::Status StatUpload(const Caller& caller, const v1::StatUploadRequest& request,
                          v1::StatUploadResponse* response);

 private:
  const Environment& env_;
  SessionRegistry& registry_;
  OpenCalls<DataCall> calls_;
};

}  // namespace telegrad
