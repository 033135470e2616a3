// ONNX models as plans. The model is read from memory, where large weights stay; no file that it
// names is opened, and no other library is involved. What is supported is the table in
// operators.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/host_tensor.h"
#include "engine/frontend/plan.h"

namespace telegrad {

struct ImportOptions {
  // Shapes that replace those that the model declares for its inputs, by input name.
  std::map<std::string, Shape, std::less<>> input_shapes;
  // Sizes of the model's named dynamic dimensions ("batch_size").
  std::map<std::string, int64_t, std::less<>> dims;
};

// A slot of the plan and the name that the model gives it (slot names are unique, names of a model
// may not be: an input may also be an output).
struct OnnxValue {
  std::string name;
  int slot = -1;
};

struct OnnxWeight {
  int slot = -1;
  std::string_view bytes;                             // its content: in the model's file, or in
  std::shared_ptr<const HostTensor> value = nullptr;  // where the file has it in another form
};

struct OnnxPlan {
  Plan plan;
  std::vector<OnnxValue> inputs;    // kInput slots, in the model's order
  std::vector<OnnxValue> outputs;   // kOutput slots, in the model's order
  std::vector<OnnxWeight> weights;  // every kState slot and its content

  // A copy that outlives the file.
  HostTensor Value(const OnnxWeight& weight) const {
    const Slot& slot = plan.slots[weight.slot];
    return {slot.dtype, slot.shape, std::string(weight.bytes)};
  }
};

// INVALID_ARGUMENT: the bytes are no valid model, or the options do not fit it (an unknown name, a
// dynamic dimension without a size). UNIMPLEMENTED: an operator, attribute, element type or opset
// that is not supported; names it and the node. RESOURCE_EXHAUSTED: the model is over a limit, or
// over the budget, of which the graph's nodes, their memory, and that of weights that the file has
// in another form are spent. `bytes` must outlive the weights.
absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options,
                                    Budget* budget);
absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

}  // namespace telegrad
