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

  // `local`: the server is reached from this machine alone. What is pointed to outlives it. `json`
  // reads and writes long JSON, for which the server's own threads and those that end runs would
  // have others wait; it is shared with runs that end later than this.
  InferenceHttp(ModelServer* models, Authenticator* authenticator, std::shared_ptr<TaskPool> json,
                FindTenant find_tenant, bool local)
      : models_(*models),
        authenticator_(*authenticator),
        json_(std::move(json)),
        find_tenant_(std::move(find_tenant)),
        local_(local) {}

  absl::StatusOr<std::unique_ptr<HttpExchange>> Begin(const HttpHead& head) override;

 private:
  absl::Status CheckOrigin(const HttpHead& head) const;

  ModelServer& models_;
  Authenticator& authenticator_;
  const std::shared_ptr<TaskPool> json_;
  const FindTenant find_tenant_;
  const bool local_;
  LimitedLog unauthenticated_{LogLevel::kWarning, "unauthenticated"};
};

}  // namespace telegrad
