// ONNX models as plans. The model is read from memory, where large weights stay; no file that it
// names is opened but through ImportOptions::external, and no other library is involved. What is
// supported is the table in operators.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

namespace onnx {
struct OnnxData;  // model.h
}

// The sizes that a run may choose for a dimension.
struct DimRange {
  int64_t min = 0, max = 0;
};

struct ImportOptions {
  // Shapes that replace those that the model declares for its inputs, by input name.
  std::map<std::string, Shape, std::less<>> input_shapes;
  // Sizes of the model's named dynamic dimensions ("batch_size").
  std::map<std::string, int64_t, std::less<>> dims;
  // Those of them that each run chooses: variables of the plan by the same names. A slot of an
  // input with such a dimension has the shape of the bounds; what the run means is the part of it
  // that begins where it does (Widen).
  std::map<std::string, DimRange, std::less<>> ranges;
  // What will be bound to inputs, as far as the caller has it already. It is read where a shape or
  // a choice depends on it, and OnnxPlan::guards then says so. Inputs that are sequences, optionals
  // without a value, or strings need it. It tells the input's shape too.
  std::map<std::string, std::shared_ptr<const onnx::OnnxData>, std::less<>> values;
  // The content of a file that the model names for its weights, which must outlive them. None:
  // models that name one are refused.
  std::function<absl::StatusOr<std::string_view>(std::string_view location)> external;
};

// An input or output: its name in the model, where names of inputs and outputs may be the same, and
// its slot of the plan, whose names are unique.
struct OnnxValue {
  enum class Kind : uint8_t {
    kTensor,
    kSequence,  // `elements` has its tensors
    kFixed,     // strings, or an optional without a value: always the same
  };
  std::string name;
  int slot = -1;  // of a tensor
  Kind kind = Kind::kTensor;
  std::vector<OnnxValue> elements = {};
  std::shared_ptr<const onnx::OnnxData> fixed = nullptr;
  // Of an output whose shape each run decides: the slot of that shape, i64, one for each axis. The
  // output's own slot has the shape of the bounds; Cut takes what is there.
  int shape_slot = -1;
};

// The part of a tensor that begins where it does and has that shape. INTERNAL if it is not within
// the tensor's.
absl::StatusOr<HostTensor> Cut(const HostTensor& whole, ShapeView shape);
// The other way: the tensor with zeros behind it up to that shape. INVALID_ARGUMENT if it is
// larger.
absl::StatusOr<HostTensor> Widen(const HostTensor& part, ShapeView shape);

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
  // Inputs, by name and sorted, whose given values the plan depends on: for others import it again.
  std::vector<std::string> guards;

  // A copy that outlives the file.
  HostTensor Value(const OnnxWeight& weight) const {
    const Slot& slot = plan.slots[weight.slot];
    return {slot.dtype, slot.shape, std::string(weight.bytes)};
  }
};

// Whether the error says that options do not fit the model, rather than what is wrong with that.
bool IsOptionsError(const absl::Status& status);

// Whether the error is, or has among others, that the plan depends on what is bound to an input,
// which ImportOptions::values may say.
bool NeedsValues(const absl::Status& status);

// INVALID_ARGUMENT: the bytes are no valid model, or the options do not fit it (an unknown name, a
// dynamic dimension without a size). UNIMPLEMENTED: operators, attributes or element types that are
// not supported, all of them with the nodes, or an opset. RESOURCE_EXHAUSTED: the model is over a
// limit, or over the budget, of which the graph's nodes, their memory, and that of weights that the
// file has in another form are spent. `bytes` must outlive the weights.
absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options,
                                    Budget* budget);
absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

}  // namespace telegrad
