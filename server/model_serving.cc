// Makes the tenant that owns the models' weights and executables, the model server, and its
// metrics, by the daemon's flags.
#include "server/model_serving.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/service/import_model.h"
#include "server/service/model_config_text.h"

namespace telegrad {
namespace {

// Whose weights and executables are those of models; the name of no tenant that calls.
constexpr std::string_view kOwner = "(models)";

std::shared_ptr<Tenant> NewOwner(int64_t memory, const ModelServing::MakeEngine& make_engine,
                                 Metrics* metrics) {
  Quotas quotas;
  if (memory > 0) quotas[Quota::kDeviceMemory] = memory;
  quotas[Quota::kCacheBytes] = INT64_MAX / 2;  // models are few, and each has few forms
  Accounts accounts(kOwner, quotas, "raise --models-memory");
  auto engine = make_engine(accounts);
  return std::make_shared<Tenant>(std::string(kOwner), std::move(accounts), std::move(engine),
                                  metrics);
}

ServingOptions::Control ControlOf(const std::string& text) {
  if (text == "poll") return ServingOptions::Control::kPoll;
  if (text == "explicit") return ServingOptions::Control::kExplicit;
  return ServingOptions::Control::kStart;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelServing>> ModelServing::Start(const Flags& flags,
                                                                  const Environment& env,
                                                                  const MakeEngine& make_engine) {
  if (flags.GetList("models").empty()) return nullptr;
  std::unique_ptr<ModelServing> serving(new ModelServing(env));
  std::vector<ModelRoot> roots;
  for (const std::string& text : flags.GetList("models")) {
    TG_ASSIGN_OR_RETURN(roots.emplace_back(), ParseModelRoot(text));
  }
  ServingOptions options{.roots = std::move(roots),
                         .control = ControlOf(flags.GetString("models-control")),
                         .poll = std::chrono::seconds(flags.GetInt("models-poll")),
                         .devices = flags.GetList("models-device"),
                         .evict = flags.GetBool("models-evict"),
                         .response_cache = flags.GetInt("models-response-cache"),
                         .shared_memory = flags.GetString("models-shared-memory"),
                         .cuda_shared_memory = flags.GetList("models-cuda-shared-memory"),
                         .read = &ReadServedModel,
                         .parse = &ParseConfigText,
                         .parse_json = &ParseConfigJson};
  TG_ASSIGN_OR_RETURN(serving->models_, ModelServer::Start(std::move(options), &serving->env_,
                                                           NewOwner(flags.GetInt("models-memory"),
                                                                    make_engine, env.metrics)));
  env.metrics->AddLabelled([models = serving->models()] { return models->Metrics(); });
  return serving;
}

}  // namespace telegrad
