// Requests for an ensemble whose steps cannot be joined to one graph, because a step takes strings,
// depends on the values of its inputs, or makes outputs whose shapes a run decides. Each step is a
// model of its own then: it is asked as soon as the tensors that it takes are there, and batches as
// it says itself. What is between the steps is in memory of the host.
#pragma once

#include <memory>
#include <vector>

#include "server/serving/batcher.h"
#include "server/serving/ensemble.h"

namespace telegrad {

// Immutable.
struct StepModels {
  Ensemble ensemble;
  std::vector<std::shared_ptr<ServedModel>> models;  // by step; steps may have one in common
};

// Answers `request`, which `whole`, the ensemble, has checked. The first step that fails ends it
// with an error that names the step; steps that run beside that one are waited for.
void RunSteps(std::shared_ptr<const StepModels> steps, std::shared_ptr<ServedModel> whole,
              std::shared_ptr<Tenant> tenant, Waiting request);

}  // namespace telegrad
