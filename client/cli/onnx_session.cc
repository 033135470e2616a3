#include "client/cli/onnx_session.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "engine/base/files.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

using onnx::OnnxData;

bool SameType(const OnnxData& a, const OnnxData& b) {
  return a.kind == b.kind && a.tensor.dtype == b.tensor.dtype && a.tensor.shape == b.tensor.shape &&
         a.elements.size() == b.elements.size() &&
         std::ranges::equal(a.elements, b.elements, &SameType);
}

// The slots of that role, in the model's order.
std::vector<Slot> SlotsOf(const RemotePlan& plan, SlotRole role) {
  std::vector<Slot> out;
  std::ranges::copy_if(plan.slots(), std::back_inserter(out),
                       [&](const Slot& slot) { return slot.role == role; });
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OnnxSession>> OnnxSession::Open(const std::string& path,
                                                               bool server_import) {
  auto out = std::unique_ptr<OnnxSession>(new OnnxSession(path, server_import));
  TG_ASSIGN_OR_RETURN(std::string file, ReadFile(path));
  out->file_ = std::make_shared<const std::string>(std::move(file));
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(*out->file_);
  if (!model.ok()) return OfModelFile(path, model.status());
  out->model_ = *std::move(model);
  out->inputs_ = CallerInputs(out->model_);
  return out;
}

bool OnnxSession::Fits(const std::vector<OnnxData>& inputs) const {
  if (imports_ == 0 || !std::ranges::equal(inputs, bound_, &SameType)) return false;
  for (size_t i = 0; onnx_ && i < inputs.size(); ++i) {
    const bool guard = std::ranges::find(onnx_->guards, inputs_[i].name) != onnx_->guards.end();
    if (guard && inputs[i] != bound_[i]) return false;
  }
  return true;
}

absl::Status OnnxSession::Import(std::vector<OnnxData> inputs) {
  if (inputs.size() != inputs_.size()) {
    return WrongInputs(inputs_, inputs.size());
  }
  const bool fits = Fits(inputs);
  bound_ = std::move(inputs);
  if (fits) return absl::OkStatus();
  plan_ = nullptr;
  options_ = {};
  options_.external = [this](std::string_view location) { return external_->Content(location); };
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].kind == OnnxData::Kind::kTensor) {
      options_.input_shapes.emplace(inputs_[i].name, bound_[i].tensor.shape);
    }
    if (!server_import_) {
      options_.values.emplace(inputs_[i].name, std::make_shared<const OnnxData>(bound_[i]));
    }
  }
  ++imports_;
  if (server_import_) return absl::OkStatus();
  absl::StatusOr<OnnxPlan> onnx = ImportOnnx(*file_, options_);
  if (!onnx.ok()) return OfModelFile(path_, onnx.status());
  onnx_ = *std::move(onnx);
  return absl::OkStatus();
}

absl::Status OnnxSession::Set(const OnnxValue& value, const OnnxData& data) {
  if (value.slot >= 0) {
    TG_RETURN_IF_ERROR(plan_->Set(onnx_->plan.slots[value.slot].name, data.tensor));
  }
  for (size_t i = 0; i < value.elements.size(); ++i) {
    TG_RETURN_IF_ERROR(Set(value.elements[i], data.elements[i]));
  }
  return absl::OkStatus();
}

absl::Status OnnxSession::Send(RemoteSession* session) {
  if (plan_ == nullptr && server_import_) {
    const Future<RemoteModel> model = session->Import(
        std::as_bytes(std::span(file_->data(), file_->size())), {.model = options_}, file_);
    if (!model.Get().ok()) return OfModelFile(path_, model.Get().status());
    plan_ = RemotePlan::Create(session, *model.Get());
  } else if (plan_ == nullptr) {
    RemoteState state(session);
    std::map<std::string, std::string_view> weights;
    for (const OnnxWeight& w : onnx_->weights) {
      weights.emplace(onnx_->plan.slots[w.slot].name, w.bytes);
    }
    // The weights lie in these, and are sent from there when the session comes to it.
    using Owners = std::tuple<std::shared_ptr<const std::string>, std::shared_ptr<ExternalFiles>,
                              std::vector<OnnxWeight>>;
    state.Preset(std::move(weights),
                 std::make_shared<const Owners>(file_, external_, onnx_->weights));
    TG_ASSIGN_OR_RETURN(plan_, RemotePlan::Create(session, &state, onnx_->plan));
  }
  const std::vector<Slot> slots = SlotsOf(*plan_, SlotRole::kInput);
  for (size_t i = 0; i < bound_.size(); ++i) {
    TG_RETURN_IF_ERROR(onnx_ ? Set(onnx_->inputs[i], bound_[i])
                             : plan_->Set(slots[i].name, bound_[i].tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxData> OnnxSession::Result(const OnnxValue& value) {
  if (value.kind == OnnxValue::Kind::kFixed) return *value.fixed;
  OnnxData out{.kind = OnnxData::Kind::kTensor};
  if (value.kind == OnnxValue::Kind::kTensor) {
    TG_ASSIGN_OR_RETURN(out.tensor, plan_->Read(onnx_->plan.slots[value.slot].name));
    return out;
  }
  out.kind = OnnxData::Kind::kSequence;
  for (const OnnxValue& element : value.elements) {
    TG_ASSIGN_OR_RETURN(out.elements.emplace_back(), Result(element));
  }
  return out;
}

absl::StatusOr<std::vector<OnnxData>> OnnxSession::Results() {
  std::vector<OnnxData> out;
  if (onnx_) {
    for (const OnnxValue& value : onnx_->outputs) {
      TG_ASSIGN_OR_RETURN(out.emplace_back(), Result(value));
    }
    return out;
  }
  for (const Slot& slot : SlotsOf(*plan_, SlotRole::kOutput)) {
    out.push_back({.kind = OnnxData::Kind::kTensor});
    TG_ASSIGN_OR_RETURN(out.back().tensor, plan_->Read(slot.name));
  }
  return out;
}

}  // namespace telegrad::cli
