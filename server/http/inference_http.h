// The Open Inference Protocol over HTTP, and a page for people.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/admin/limited_log.h"
#include "server/http/http_server.h"
#include "server/identity/authenticator.h"
#include "server/pool/task_pool.h"
#include "server/serving/model_server.h"
#include "server/tenant/tenant.h"

namespace telegrad {

class InferenceHttp final : public HttpHandler {
 public:
  using FindTenant = std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const std::string&)>;

  // `local`: the server is reached from this machine alone. What is pointed to outlives it;
  // `workers` read and write long JSON, on which the server's own threads would not serve others.
  InferenceHttp(ModelServer* models, Authenticator* authenticator, TaskPool* workers,
                FindTenant find_tenant, bool local)
      : models_(*models),
        authenticator_(*authenticator),
        workers_(*workers),
        find_tenant_(std::move(find_tenant)),
        local_(local) {}

  absl::StatusOr<std::unique_ptr<HttpExchange>> Begin(const HttpHead& head) override;

 private:
  absl::Status CheckOrigin(const HttpHead& head) const;

  ModelServer& models_;
  Authenticator& authenticator_;
  TaskPool& workers_;
  const FindTenant find_tenant_;
  const bool local_;
  LimitedLog unauthenticated_{LogLevel::kWarning, "unauthenticated"};
};

}  // namespace telegrad
