// The calls of the Open Inference Protocol that load and unload models.
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "proto/transport.h"
#include "server/service/async_call.h"
#include "server/service/inference_service.h"
#include "server/service/unary_call.h"

namespace telegrad {
namespace {

using Parameter = inference::ModelRepositoryParameter;

absl::Status CheckAdmin(const Caller& caller) {
  if (caller.principal.admin) return absl::OkStatus();
  return absl::PermissionDeniedError("only an administrator may load and unload models");
}

template <typename Request>
absl::StatusOr<Request> ParseRepository(const grpc::ByteBuffer& bytes) {
  Request request;
  TG_RETURN_IF_ERROR(ParseMessage(bytes, &request));
  if (!request.repository_name().empty()) {
    return Unimplemented("repositories are not chosen by name; leave repository_name empty");
  }
  return request;
}

absl::StatusOr<LoadOverrides> OverridesOf(inference::RepositoryModelLoadRequest& request) {
  LoadOverrides out;
  for (auto& [name, parameter] : *request.mutable_parameters()) {
    const bool text = name == kConfigParameter;
    const auto expected = text ? Parameter::kStringParam : Parameter::kBytesParam;
    if (parameter.parameter_choice_case() != expected &&
        (text || name.starts_with(kFileParameter))) {
      return InvalidArgument("parameter '", Clip(name, 64), "' is not a ",
                             text ? "string_param" : "bytes_param");
    }
    TG_RETURN_IF_ERROR(out.Add(name, text ? std::move(*parameter.mutable_string_param())
                                          : std::move(*parameter.mutable_bytes_param())));
  }
  return out;
}

struct ModelLoad {
  std::string name;
  std::shared_ptr<const GivenModel> given;  // null: the model's folder as it is
};

absl::StatusOr<ModelLoad> ParseLoad(const Caller& caller, const grpc::ByteBuffer& bytes) {
  TG_RETURN_IF_ERROR(CheckAdmin(caller));  // before anything is kept
  const Accounts& accounts = caller.tenant->accounts;
  // The message as it came, and what it is parsed to.
  TG_ASSIGN_OR_RETURN(const Reservation paid,
                      Reservation::Take(accounts.shared(Quota::kHostStaging),
                                        2 * static_cast<int64_t>(bytes.Length())));
  TG_ASSIGN_OR_RETURN(auto request, ParseRepository<inference::RepositoryModelLoadRequest>(bytes));
  ModelLoad out{.name = request.model_name(), .given = nullptr};
  TG_ASSIGN_OR_RETURN(LoadOverrides overrides, OverridesOf(request));
  TG_ASSIGN_OR_RETURN(out.given,
                      GivenModel::Keep(std::move(overrides), accounts.shared(Quota::kHostMemory)));
  return out;
}

}  // namespace

RawStream* InferenceService::RepositoryModelLoad(grpc::ServerContextBase*, Caller caller) {
  return new AsyncCall(
      kMaxMessageBytes,
      [this, caller = std::move(caller)](const grpc::ByteBuffer& bytes, AsyncCall::Reply reply) {
        const auto models = Models();
        if (!models.ok()) return reply(models.status());
        auto load = ParseLoad(caller, bytes);
        if (!load.ok()) return reply(load.status());
        (*models)->repository().Load(
            load->name, std::move(load->given), [reply](const absl::Status& loaded) {
              reply(loaded, SerializeMessage(inference::RepositoryModelLoadResponse()));
            });
      });
}

RawStream* InferenceService::RepositoryModelUnload(grpc::ServerContextBase*, Caller caller) {
  return new AsyncCall(kMaxUnaryBytes, [this, caller = std::move(caller)](
                                           const grpc::ByteBuffer& bytes, AsyncCall::Reply reply) {
    const auto models = Models();
    const auto request = ParseRepository<inference::RepositoryModelUnloadRequest>(bytes);
    absl::Status status = models.status();
    status.Update(CheckAdmin(caller));
    status.Update(request.status());
    if (!status.ok()) return reply(status);
    const auto parts = request->parameters().find("unload_dependents");
    const bool with_parts = parts != request->parameters().end() && parts->second.bool_param();
    (*models)->repository().Unload(
        request->model_name(), with_parts, [reply](const absl::Status& unloaded) {
          reply(unloaded, SerializeMessage(inference::RepositoryModelUnloadResponse()));
        });
  });
}

}  // namespace telegrad
