// Inference requests and responses between the protocol's messages and server/serving.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "inference/grpc_service.pb.h"
#include "server/serving/infer.h"
#include "server/tenant/tenant.h"

namespace telegrad {

struct ReceivedInfer {
  InferRequest request;
  std::string id;
  bool final_response = false;  // triton_enable_empty_final_response was asked for
};

// Raw contents stay where the transport left them. `tenant` pays for what the request holds.
absl::StatusOr<ReceivedInfer> ToInferRequest(const grpc::ByteBuffer& bytes, Tenant& tenant);

// Contents go to the transport from where they lie. `stream`: as the response of a stream.
grpc::ByteBuffer ToMessage(const InferResult& result, const std::string& id);
grpc::ByteBuffer ToStreamMessage(const InferResult& result, const std::string& id);
grpc::ByteBuffer ToStreamMessage(const absl::Status& error, const std::string& model,
                                 const std::string& id);

}  // namespace telegrad
