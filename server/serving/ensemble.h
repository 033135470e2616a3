// Ensembles: models made of other models, whose outputs are inputs of further ones. Steps that
// are ensembles themselves are replaced by their steps, so that an ensemble is a list. If all
// steps are graphs, they are joined to one graph, so that nothing between them leaves the
// device; otherwise each step is run by itself (step_run.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/serving/form_source.h"
#include "server/serving/model_config.h"

namespace telegrad {

// A model as a step has it.
struct EnsemblePart {
  ModelConfig config;  // complete, unless it is an ensemble's
  int64_t version = 0;
  std::shared_ptr<FormSource> source = nullptr;  // null of an ensemble
};
// `version`: -1 for the newest that is to be served.
using FindPart =
    std::function<absl::StatusOr<EnsemblePart>(const std::string& model, int64_t version)>;

struct Ensemble {
  static constexpr size_t kNobody = SIZE_MAX;
  struct Step {
    std::string where;  // for errors: "step 2 (resnet)"
    EnsemblePart part;
    std::vector<size_t> inputs;   // by the part's inputs: the number of the tensor
    std::vector<size_t> outputs;  // by its outputs; kNobody: not taken
  };
  std::vector<Step> steps;              // after those whose tensors they take
  std::vector<size_t> inputs, outputs;  // by the configuration's: the number of the tensor
  size_t tensors = 0;
};

// The most steps, those of inner ensembles included, and how deep these may be.
inline constexpr size_t kMostEnsembleSteps = 256;
inline constexpr size_t kMostEnsembleDepth = 8;

// Every error names the step. INVALID_ARGUMENT for names that do not fit the parts, tensors without
// a maker or with two, and ensembles that contain themselves; RESOURCE_EXHAUSTED over the limits;
// UNIMPLEMENTED for parts that keep states; what `find` says.
absl::StatusOr<Ensemble> ResolveEnsemble(const ModelConfig& config, const FindPart& find);

// What CompleteConfig is for files: gives `config` what it leaves out and checks what it says, and
// that each step takes what comes to it, as far as the parts tell.
absl::Status CompleteEnsemble(const Ensemble& ensemble, ModelConfig* config);

// Forms of an ensemble with that configuration, which is complete. Their making fails with
// UNIMPLEMENTED where the steps cannot be joined.
std::shared_ptr<FormSource> SourceOf(Ensemble ensemble, const ModelConfig& config);

}  // namespace telegrad
