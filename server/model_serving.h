// Starts the serving of models: connects the daemon's flags, the engine and the front ends.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/flags.h"
#include "server/serving/model_server.h"
#include "server/tenant/environment.h"
#include "server/tenant/tenant.h"

namespace telegrad {

// Outlives the tasks of the pools that it posts to.
class ModelServing {
 public:
  using MakeEngine = std::function<std::shared_ptr<Engine>(const Accounts&)>;

  // Null without --models. INVALID_ARGUMENT for flags that do not fit. Models are loaded in the
  // background from now on.
  static absl::StatusOr<std::unique_ptr<ModelServing>> Start(const Flags& flags,
                                                             const Environment& env,
                                                             const MakeEngine& make_engine);

  ModelServer* models() { return models_.get(); }
  void Drain() { models_->Drain(); }

 private:
  explicit ModelServing(const Environment& env) : env_(env) {}

  const Environment env_;
  std::unique_ptr<ModelServer> models_;
};

}  // namespace telegrad
