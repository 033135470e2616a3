// The forms of an ensemble: its parts' graphs for the shapes that come to each, joined to one.
#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/serving/ensemble.h"
#include "server/serving/graph_join.h"

namespace telegrad {
namespace {

absl::Status At(const Ensemble::Step& step, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(step.where, ": ", ToStd(status.message())));
}

class EnsembleSource final : public FormSource {
 public:
  EnsembleSource(Ensemble ensemble, const ModelConfig& config)
      : ensemble_(std::move(ensemble)), inputs_(config.inputs) {
    for (const TensorSpec& spec : config.outputs) outputs_.push_back(spec.name);
  }

  absl::StatusOr<ReadForm> Read(const ImportOptions& options, Budget* budget) override {
    if (!options.values.empty()) {
      return Unimplemented("an ensemble whose parts depend on the values of their inputs");
    }
    GraphJoin join(budget);
    std::vector<UOp> tensors(ensemble_.tensors);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto shape = options.input_shapes.find(inputs_[i].name);
      if (shape == options.input_shapes.end()) {
        return Internal("input '", inputs_[i].name, "' has no shape");
      }
      tensors[ensemble_.inputs[i]] = join.Input(inputs_[i].name, inputs_[i].dtype, shape->second);
    }
    for (const Ensemble::Step& step : ensemble_.steps) {
      const absl::Status status = AddStep(step, &join, &tensors, budget);
      if (!status.ok()) return At(step, status);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      join.Output(outputs_[i], tensors[ensemble_.outputs[i]]);
    }
    ReadForm out;
    TG_ASSIGN_OR_RETURN(out.model, join.Finish());
    return out;
  }

 private:
  static absl::Status AddStep(const Ensemble::Step& step, GraphJoin* join,
                              std::vector<UOp>* tensors, Budget* budget) {
    const ModelConfig& config = step.part.config;
    ImportOptions options;
    GraphJoin::Values inputs;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const UOp value = (*tensors)[step.inputs[i]];
      const Shape shape(value.shape().begin(), value.shape().end());
      const Shape& expected = config.inputs[i].shape;
      bool fits = shape.size() == expected.size();
      for (size_t axis = 0; fits && axis < shape.size(); ++axis) {
        fits = expected[axis] < 0 || shape[axis] == expected[axis];
      }
      if (!fits) {
        return InvalidArgument("input '", config.inputs[i].name, "' gets shape ", ToString(shape),
                               ", expected ", ToString(expected), ", where -1 is any size");
      }
      if (config.max_batch > 0 && (shape.empty() || shape.front() > config.max_batch)) {
        return InvalidArgument("input '", config.inputs[i].name, "' gets shape ", ToString(shape),
                               ", expected batches of at most ", config.max_batch);
      }
      const Shape inner = config.inputs[i].InModel(shape);
      options.input_shapes[config.inputs[i].name] = inner;
      inputs[config.inputs[i].name] = join->Reshape(value, inner);
    }
    const auto read = step.part.source->Read(options, budget);
    if (NeedsValues(read.status())) {
      return Unimplemented(ToStd(read.status().message()),
                           "; a model that depends on values is not a step of an ensemble");
    }
    TG_RETURN_IF_ERROR(read.status());
    for (const OnnxValue& output : read->model.interface.outputs) {
      if (output.shape_slot < 0) continue;
      return Unimplemented("output '", output.name,
                           "' has a shape that depends on values; such a model is not a step of an "
                           "ensemble");
    }
    TG_ASSIGN_OR_RETURN(const GraphJoin::Values outputs, join->Add(read->model, inputs));
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] == Ensemble::kNobody) continue;
      const auto value = outputs.find(config.outputs[i].name);
      if (value == outputs.end()) {
        return Unimplemented("output '", config.outputs[i].name, "' is not a tensor of its graph");
      }
      const ShapeView shape = value->second.shape();
      (*tensors)[step.outputs[i]] = join->Reshape(
          value->second, config.outputs[i].InRequests(Shape(shape.begin(), shape.end())));
    }
    return absl::OkStatus();
  }

  const Ensemble ensemble_;
  const std::vector<TensorSpec> inputs_;
  std::vector<std::string> outputs_;
};

}  // namespace

std::shared_ptr<FormSource> SourceOf(Ensemble ensemble, const ModelConfig& config) {
  return std::make_shared<EnsembleSource>(std::move(ensemble), config);
}

}  // namespace telegrad
