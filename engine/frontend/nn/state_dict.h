// Named state: the contents of a plan's state slots by their names, as model files hold them.
//
//   TG_ASSIGN_OR_RETURN(auto file, OpenTensorFile("model.safetensors"));
//   TG_ASSIGN_OR_RETURN(StateDict given, file->LoadAll());
//   TG_ASSIGN_OR_RETURN(StateDict state, MatchState(plan, std::move(given), {.keep = {"adam."}}));
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

using StateDict = std::map<std::string, HostTensor>;

// The state slots of a plan, in their order.
std::vector<const Slot*> StateSlots(const Plan& plan);
// What they begin with. FAILED_PRECONDITION names a slot that has no initial value.
absl::StatusOr<StateDict> InitialState(const Plan& plan);

struct StateMatch {
  // (a beginning of given names, what takes its place); the first that fits. {"", "encoder."} puts
  // all names below encoder, {"module.", ""} takes a level away.
  std::vector<std::pair<std::string, std::string>> rename = {};
  // Beginnings of names of slots that may be missing: they start with their initial values.
  std::vector<std::string> keep = {};
  // Beginnings of names, renamed already, that the plan may have no slot for.
  std::vector<std::string> ignore = {};
};

// A value for every state slot of the plan out of `given`. Floats are converted to the slot's float
// type, rounding to nearest. INVALID_ARGUMENT lists what is missing, what is unexpected and what
// has another shape or type, with what was expected, and two names that a renaming makes one.
absl::StatusOr<StateDict> MatchState(const Plan& plan, StateDict given,
                                     const StateMatch& match = {});

}  // namespace telegrad
