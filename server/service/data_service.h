// telegrad.v1.Data: the streams that carry the transfers of sessions.
#pragma once

#include "absl/status/status.h"
#include "server/data/bulk_listener.h"
#include "server/service/data_call.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class DataService {
 public:
  // `bulk` is null where there are no bulk sockets. `compute` serves operations on them.
  DataService(const Environment& env, SessionRegistry& registry, ComputeService& compute,
              BulkListener* bulk)
      : env_(env), registry_(registry), compute_(compute), bulk_(bulk) {}

  RawStream* Transfer(grpc::ServerContextBase* context, Caller caller);
  absl::Status StatUpload(const Caller& caller, const v1::StatUploadRequest& request,
                          v1::StatUploadResponse* response);
  absl::Status AdmitBulk(const Caller& caller, const v1::AdmitBulkRequest& request,
                         v1::AdmitBulkResponse* response);

 private:
  const Environment& env_;
  SessionRegistry& registry_;
  ComputeService& compute_;
  BulkListener* const bulk_;
  OpenCalls<DataCall> calls_;
};

}  // namespace telegrad
