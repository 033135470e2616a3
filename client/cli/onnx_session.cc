// A model is imported again only for inputs that the current import does not fit: other types,
// other shapes outside of --dim, or other values that decide shapes. The server's import gets
// small values at first and all of them if it asks for more.
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

// Values of inputs that travel with a model to the server that imports it: those that may decide
// shapes, which are small, and what is no tensor.
constexpr size_t kMaxSentBytes = 64 << 10;
constexpr size_t kMaxAllSentBytes = 768 << 10;  // an operation has room for 1 MiB beside its data

size_t SizeOf(const OnnxData& data) {
  size_t bytes = data.tensor.bytes.size();
  for (const std::string& s : data.strings.values) bytes += s.size();
  for (const OnnxData& element : data.elements) bytes += element.tensor.bytes.size();
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OnnxSession>> OnnxSession::Open(const std::string& path,
                                                               ModelOptions options) {
  auto out = std::unique_ptr<OnnxSession>(new OnnxSession(path, std::move(options)));
  TG_ASSIGN_OR_RETURN(std::string file, ReadFile(path));
  out->file_ = std::make_shared<const std::string>(std::move(file));
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(*out->file_);
  if (!model.ok()) return OfModelFile(path, model.status());
  out->model_ = *std::move(model);
  out->inputs_ = CallerInputs(out->model_);
  return out;
}

// Whether the plan has the input's sizes as variables.
bool OnnxSession::IsRanged(size_t input) const {
  return std::ranges::any_of(inputs_[input].shape, [this](const onnx::Dimension& dim) {
    return !dim.param.empty() && ranges_.contains(dim.param);
  });
}

absl::Status OnnxSession::FindSizes(const std::vector<OnnxData>& inputs) {
  sizes_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!IsRanged(i)) continue;
    const Shape& shape = inputs[i].tensor.shape;
    const std::vector<onnx::Dimension>& dims = inputs_[i].shape;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      const auto range = ranges_.find(dims[axis].param);
      if (dims[axis].param.empty() || range == ranges_.end()) continue;
      const int64_t size = shape.size() == dims.size() ? shape[axis] : -1;
      const auto [known, added] = sizes_.emplace(dims[axis].param, size);
      if (size < range->second.min || size > range->second.max || known->second != size) {
        return InvalidArgument("input ", inputs_[i].name, " has shape ", ToString(shape),
                               ", whose '", dims[axis].param, "' is to be one size from ",
                               range->second.min, " to ", range->second.max);
      }
    }
  }
  return absl::OkStatus();
}

bool OnnxSession::Fits(const std::vector<OnnxData>& inputs) const {
  if (imports_ == 0) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool same = IsRanged(i) ? inputs[i].tensor.dtype == bound_[i].tensor.dtype
                                  : SameType(inputs[i], bound_[i]);
    if (!same) return false;
    const bool guard = std::ranges::find(guards_, inputs_[i].name) != guards_.end();
    if (guard && inputs[i] != bound_[i]) return false;
  }
  return true;
}

absl::Status OnnxSession::Import(std::vector<OnnxData> inputs) {
  if (inputs.size() != inputs_.size()) {
    return WrongInputs(inputs_, inputs.size());
  }
  TG_RETURN_IF_ERROR(FindSizes(inputs));
  const bool fits = Fits(inputs);
  bound_ = std::move(inputs);
  if (fits) return absl::OkStatus();
  plan_ = nullptr;
  options_ = {};
  options_.external = [this](std::string_view location) { return external_->Content(location); };
  options_.ranges = ranges_;
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (IsRanged(i)) continue;
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
  in_ = onnx_->inputs;
  out_ = onnx_->outputs;
  guards_ = onnx_->guards;
  return absl::OkStatus();
}

absl::Status OnnxSession::Set(const OnnxValue& value, const OnnxData& data) {
  if (value.slot >= 0) {
    const Slot& slot = plan_->slots()[value.slot];
    TG_ASSIGN_OR_RETURN(const HostTensor whole, Widen(data.tensor, slot.shape));
    TG_RETURN_IF_ERROR(plan_->Set(slot.name, whole));
  }
  for (size_t i = 0; i < value.elements.size(); ++i) {
    TG_RETURN_IF_ERROR(Set(value.elements[i], data.elements[i]));
  }
  return absl::OkStatus();
}

// Small values go with the model. Only where it turns out to depend on others do these follow.
absl::Status OnnxSession::ImportOnServer(RemoteSession* session) {
  absl::Status refused;
  for (const size_t most : {kMaxSentBytes, kMaxAllSentBytes}) {
    const size_t before = options_.values.size();
    size_t all = 0;
    for (size_t i = 0; i < bound_.size(); ++i) {
      const size_t bytes = SizeOf(bound_[i]);
      const bool tensor = bound_[i].kind == OnnxData::Kind::kTensor;
      if ((tensor && bytes > most) || (all += bytes) > kMaxAllSentBytes) continue;
      options_.values.emplace(inputs_[i].name, std::make_shared<const OnnxData>(bound_[i]));
    }
    if (!refused.ok() && options_.values.size() == before) break;
    const auto bytes = static_cast<int64_t>(file_->size());
    if (file_handle_ == 0) {  // it travels once
      file_handle_ = session->NewHandle();
      session->Alloc(file_handle_, bytes);
      session->Write(file_handle_, 0, std::as_bytes(std::span(file_->data(), file_->size())),
                     file_);
    }
    const Future<RemoteModel> future = session->Import(file_handle_, bytes, {.model = options_});
    const absl::StatusOr<RemoteModel>& model = future.Get();
    if (model.ok()) {
      plan_ = RemotePlan::Create(session, *model);
      in_ = model->inputs;
      out_ = model->outputs;
      guards_ = model->guards;
      if (guards_.empty()) session->Free(std::exchange(file_handle_, 0));
      if (in_.size() == bound_.size() && !out_.empty()) return absl::OkStatus();
      return FailedPrecondition("the server is older than this program and does not say what the ",
                                "model's inputs and outputs are; run without --server-import");
    }
    refused = model.status();
    if (!absl::IsUnimplemented(refused)) break;
  }
  return OfModelFile(path_, refused);
}

absl::Status OnnxSession::Send(RemoteSession* session) {
  if (plan_ == nullptr && server_import_) {
    TG_RETURN_IF_ERROR(ImportOnServer(session));
  } else if (plan_ == nullptr) {
    if (state_ == nullptr) state_ = std::make_unique<RemoteState>(session);
    Plan plan = onnx_->plan;
    std::map<std::string, std::string_view> weights;
    for (const OnnxWeight& w : onnx_->weights) {
      // Named by its place in the file, so that the next import finds those that are there.
      Slot& slot = plan.slots[w.slot];
      slot.name = w.value == nullptr
                      ? StrCat("weight ", reinterpret_cast<uintptr_t>(w.bytes.data()), " ",
                               Name(slot.dtype), ToString(slot.shape))
                      : StrCat("weight ", w.slot, " of import ", imports_);
      weights.emplace(slot.name, w.bytes);
    }
    // The weights lie in these, and are sent from there when the session comes to it.
    using Owners = std::tuple<std::shared_ptr<const std::string>, std::shared_ptr<ExternalFiles>,
                              std::vector<OnnxWeight>>;
    state_->Preset(std::move(weights),
                   std::make_shared<const Owners>(file_, external_, onnx_->weights));
    TG_ASSIGN_OR_RETURN(plan_, RemotePlan::Create(session, state_.get(), plan));
  }
  for (size_t i = 0; i < bound_.size(); ++i) TG_RETURN_IF_ERROR(Set(in_[i], bound_[i]));
  for (const PlanVariable& variable : onnx_ ? onnx_->plan.variables : std::vector<PlanVariable>{}) {
    TG_RETURN_IF_ERROR(plan_->SetVariable(variable.name, sizes_.at(variable.name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxData> OnnxSession::Result(const OnnxValue& value) {
  if (value.kind == OnnxValue::Kind::kFixed) return *value.fixed;
  OnnxData out{.kind = OnnxData::Kind::kTensor};
  const std::vector<Slot>& slots = plan_->slots();
  if (value.kind == OnnxValue::Kind::kTensor) {
    TG_ASSIGN_OR_RETURN(out.tensor, plan_->Read(slots[value.slot].name));
    if (value.shape_slot < 0) return out;
    TG_ASSIGN_OR_RETURN(const HostTensor shape, plan_->Read(slots[value.shape_slot].name));
    TG_ASSIGN_OR_RETURN(out.tensor, Cut(out.tensor, shape.Values<int64_t>()));
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
  for (const OnnxValue& value : out_) {
    TG_ASSIGN_OR_RETURN(out.emplace_back(), Result(value));
  }
  return out;
}

}  // namespace telegrad::cli
