// Plans: everything is in the file, so nothing is to be imported. Where sizes depend on the inputs,
// there is a plan for each set of shapes.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/model_session.h"
#include "client/cli/onnx_session.h"
#include "engine/base/status.h"
#include "engine/frontend/io/plan_file.h"
#include "engine/frontend/io/plan_sizes.h"

namespace telegrad::cli {
namespace {

using onnx::OnnxData;

class PlanSession final : public ModelSession {
 public:
  PlanSession(std::shared_ptr<const TensorFile> file, Plan plan)
      : file_(std::move(file)), made_(std::move(plan)), imports_(made_.variables.empty() ? 1 : 0) {
    for (const Slot& slot : made_.slots) {
      if (slot.role == SlotRole::kState) continue;
      std::vector<onnx::ValueInfo>& values = slot.role == SlotRole::kInput ? inputs_ : outputs_;
      values.emplace_back().name = slot.name;
    }
  }

  const std::vector<onnx::ValueInfo>& inputs() const override { return inputs_; }
  const std::vector<onnx::ValueInfo>& outputs() const override { return outputs_; }
  int imports() const override { return imports_; }
  RemotePlan* plan() override { return plan_.get(); }

  absl::Status Import(std::vector<OnnxData> inputs) override {
    if (inputs.size() != inputs_.size()) return WrongInputs(inputs_, inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind != OnnxData::Kind::kTensor) {
        return InvalidArgument("input ", inputs_[i].name, " is a sequence, expected a tensor");
      }
    }
    bound_ = std::move(inputs);
    return made_.variables.empty() ? absl::OkStatus() : FixShapes();
  }

  absl::Status Send(RemoteSession* session) override {
    if (plan_ == nullptr) {
      RemoteState state(session);
      state.Preset(file_);
      TG_ASSIGN_OR_RETURN(plan_, RemotePlan::Create(session, &state, fixed_ ? *fixed_ : made_));
    }
    for (size_t i = 0; i < bound_.size(); ++i) {
      TG_RETURN_IF_ERROR(plan_->Set(inputs_[i].name, bound_[i].tensor));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<OnnxData>> Results() override {
    std::vector<OnnxData> out;
    for (const onnx::ValueInfo& output : outputs_) {
      out.push_back({.kind = OnnxData::Kind::kTensor});
      TG_ASSIGN_OR_RETURN(out.back().tensor, plan_->Read(output.name));
    }
    return out;
  }

 private:
  // The plan for the shapes of the inputs, unless it is there.
  absl::Status FixShapes() {
    std::vector<Shape> shapes;
    size_t input = 0;
    for (const Slot& slot : made_.slots) {
      const bool given = slot.role == SlotRole::kInput;
      shapes.push_back(given ? bound_[input++].tensor.shape : Shape());
    }
    if (fixed_ && shapes == shapes_) return absl::OkStatus();
    Budget budget;
    TG_ASSIGN_OR_RETURN(fixed_, PlanForShapes(made_, shapes, &budget));
    shapes_ = std::move(shapes);
    plan_ = nullptr;
    ++imports_;
    return absl::OkStatus();
  }

  const std::shared_ptr<const TensorFile> file_;
  const Plan made_;
  std::optional<Plan> fixed_;
  std::vector<Shape> shapes_;  // for which it is
  int imports_;
  std::vector<onnx::ValueInfo> inputs_, outputs_;
  std::vector<OnnxData> bound_;
  std::unique_ptr<RemotePlan> plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSession>> OpenModel(const std::string& path,
                                                        ModelOptions options) {
  const auto file = OpenTensorFile(path);
  if (file.ok() && HoldsPlan(**file)) {
    if (options.server_import || !options.ranges.empty()) {
      return InvalidArgument(options.server_import ? "--server-import" : "--dim", ": ", path,
                             " is a plan, no ONNX file");
    }
    Budget budget;
    TG_ASSIGN_OR_RETURN(Plan plan, ReadPlan(**file, &budget));
    return std::make_unique<PlanSession>(*file, std::move(plan));
  }
  if (options.server_import && !options.ranges.empty()) {
    return InvalidArgument("--server-import imports for each size; omit --dim");
  }
  return OnnxSession::Open(path, std::move(options));
}

absl::Status WrongInputs(const std::vector<onnx::ValueInfo>& inputs, size_t given) {
  std::string names;
  for (const onnx::ValueInfo& input : inputs) {
    StrAppend(&names, names.empty() ? "" : ", ", input.name);
  }
  return InvalidArgument("the model has ", inputs.size(), " inputs (", names, "), ", given,
                         " were given; name a file for each with -i");
}

}  // namespace telegrad::cli
