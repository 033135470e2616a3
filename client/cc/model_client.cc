// Each method is one unary call of the Open Inference Protocol; tensors travel as raw contents.
#include "client/cc/model_client.h"

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "grpcpp/grpcpp.h"
#include "inference/grpc_service.grpc.pb.h"

namespace telegrad {
namespace {

using inference::GRPCInferenceService;

constexpr std::pair<std::string_view, DType> kDatatypeNames[] = {
    {"BOOL", DType::kBool},     {"UINT8", DType::kUInt8},   {"UINT16", DType::kUInt16},
    {"UINT32", DType::kUInt32}, {"UINT64", DType::kUInt64}, {"INT8", DType::kInt8},
    {"INT16", DType::kInt16},   {"INT32", DType::kInt32},   {"INT64", DType::kInt64},
    {"FP16", DType::kFloat16},  {"BF16", DType::kBFloat16}, {"FP32", DType::kFloat32},
    {"FP64", DType::kFloat64},
};

template <typename Call>
absl::Status Ask(Connection& connection, Call call) {
  const auto stub = GRPCInferenceService::NewStub(connection.channel());
  grpc::ClientContext context;
  TG_RETURN_IF_ERROR(connection.Authorize(&context));
  context.set_deadline(absl::ToChronoTime(absl::Now() + connection.options().timeout));
  const grpc::Status status = call(*stub, &context);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

template <typename Tensors>
std::vector<ModelTensor> TensorsOf(const Tensors& tensors) {
  std::vector<ModelTensor> out;
  for (const auto& t : tensors) {
    out.push_back({t.name(), t.datatype(), {t.shape().begin(), t.shape().end()}});
  }
  return out;
}

}  // namespace

DType DTypeOfDatatype(std::string_view datatype) {
  for (const auto& [name, dtype] : kDatatypeNames) {
    if (name == datatype) return dtype;
  }
  return DType::kVoid;
}

absl::StatusOr<std::vector<ModelRow>> ModelClient::List() {
  inference::RepositoryIndexResponse response;
  TG_RETURN_IF_ERROR(Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.RepositoryIndex(context, {}, &response);
  }));
  std::vector<ModelRow> out;
  for (const auto& row : response.models()) {
    out.push_back({row.name(), row.version(), row.state(), row.reason()});
  }
  return out;
}

absl::Status ModelClient::Load(const std::string& model) {
  inference::RepositoryModelLoadRequest request;
  inference::RepositoryModelLoadResponse response;
  request.set_model_name(model);
  return Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.RepositoryModelLoad(context, request, &response);
  });
}

absl::Status ModelClient::Unload(const std::string& model) {
  inference::RepositoryModelUnloadRequest request;
  inference::RepositoryModelUnloadResponse response;
  request.set_model_name(model);
  return Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.RepositoryModelUnload(context, request, &response);
  });
}

absl::StatusOr<ModelInfo> ModelClient::Describe(const std::string& model,
                                                const std::string& version) {
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse response;
  request.set_name(model);
  request.set_version(version);
  TG_RETURN_IF_ERROR(Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.ModelMetadata(context, request, &response);
  }));
  return ModelInfo{.name = response.name(),
                   .versions = {response.versions().begin(), response.versions().end()},
                   .inputs = TensorsOf(response.inputs()),
                   .outputs = TensorsOf(response.outputs())};
}

absl::StatusOr<std::vector<ModelCounts>> ModelClient::Statistics(const std::string& model) {
  inference::ModelStatisticsRequest request;
  inference::ModelStatisticsResponse response;
  request.set_name(model);
  TG_RETURN_IF_ERROR(Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.ModelStatistics(context, request, &response);
  }));
  std::vector<ModelCounts> out;
  for (const auto& row : response.model_stats()) {
    const auto& s = row.inference_stats();
    ModelCounts& counts = out.emplace_back(ModelCounts{.name = row.name(),
                                                       .version = row.version(),
                                                       .inferences = row.inference_count(),
                                                       .executions = row.execution_count(),
                                                       .failed = s.fail().count(),
                                                       .succeeded = s.success().count(),
                                                       .total_ns = s.success().ns(),
                                                       .queue_ns = s.queue().ns(),
                                                       .compute_ns = s.compute_infer().ns()});
    for (const auto& memory : row.memory_usage()) counts.memory += memory.byte_size();
  }
  return out;
}

absl::StatusOr<std::vector<NamedTensor>> ModelClient::Infer(
    const std::string& model, const std::string& version, const std::vector<NamedTensor>& inputs) {
  inference::ModelInferRequest request;
  inference::ModelInferResponse response;
  request.set_model_name(model);
  request.set_model_version(version);
  for (const NamedTensor& input : inputs) {
    auto* to = request.add_inputs();
    to->set_name(input.name);
    for (const auto& [name, dtype] : kDatatypeNames) {
      if (dtype == input.tensor.dtype) to->set_datatype(std::string(name));
    }
    to->mutable_shape()->Add(input.tensor.shape.begin(), input.tensor.shape.end());
    request.add_raw_input_contents(input.tensor.bytes);
  }
  TG_RETURN_IF_ERROR(Ask(*connection_, [&](auto& stub, grpc::ClientContext* context) {
    return stub.ModelInfer(context, request, &response);
  }));
  std::vector<NamedTensor> out;
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& from = response.outputs(i);
    const DType dtype = DTypeOfDatatype(from.datatype());
    const Shape shape(from.shape().begin(), from.shape().end());
    const auto bytes = CheckedByteSize(dtype, shape);
    if (dtype == DType::kVoid || !bytes.ok() || i >= response.raw_output_contents_size() ||
        static_cast<int64_t>(response.raw_output_contents(i).size()) != *bytes) {
      return Internal("the server's output '", from.name(), "' is not a tensor of its datatype '",
                      from.datatype(), "' and shape");
    }
    out.push_back({from.name(), {dtype, shape, response.raw_output_contents(i)}});
  }
  return out;
}

}  // namespace telegrad
