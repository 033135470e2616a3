#include "server/serving/model_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "server/serving/datatype.h"
#include "server/serving/plan_model.h"
#include "server/serving/reshape.h"

namespace telegrad {
namespace {

constexpr int64_t kMostBatch = 65'536;

absl::StatusOr<TensorSpec> SpecOf(const onnx::ValueInfo& value) {
  const bool strings = value.elem_type == onnx::kStringType;
  const bool known = value.elem_type >= 1 && value.elem_type <= 1000;
  const DType dtype = known
                          ? DTypeFromOnnx(static_cast<int>(value.elem_type)).value_or(DType::kVoid)
                          : DType::kVoid;
  if (value.other || !value.wrappers.empty() || (!strings && DatatypeOf(dtype).empty())) {
    return Unimplemented("the model's '", value.name.substr(0, 256),
                         "' is not a tensor of a type that the protocol has; only such are served");
  }
  TensorSpec out{.name = std::string(value.name), .dtype = dtype, .shape = {}, .strings = strings};
  for (const onnx::Dimension& dim : value.shape) {
    out.shape.push_back(dim.param.empty() && dim.value >= 0 ? dim.value : -1);
    out.names.emplace_back(dim.param);
  }
  return out;
}

// The names by which exporters call the dimension of a batch.
bool IsBatchName(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(name));
  return lower == "n" || lower == "b" || lower.find("batch") != std::string::npos;
}

struct Declared {
  std::vector<TensorSpec> inputs, outputs;
  bool batches = false;  // by the names of its dimensions
};

// Whether all inputs and outputs begin with one dimension that is called as a batch's is.
bool BatchesByName(const Declared& declared) {
  std::set<std::string_view> first;
  for (const auto* specs : {&declared.inputs, &declared.outputs}) {
    for (const TensorSpec& spec : *specs) {
      first.insert(spec.names.empty() ? std::string_view() : spec.names.front());
    }
  }
  return first.size() == 1 && IsBatchName(*first.begin());
}

absl::StatusOr<Declared> DeclaredOfPlan(std::string_view file) {
  Budget budget;
  TG_ASSIGN_OR_RETURN(const PlanModel model, ReadPlanModel(file, &budget));
  Declared out;
  TG_ASSIGN_OR_RETURN(const auto variables, DimVariables(model.plan));
  for (size_t i = 0; i < model.plan.slots.size(); ++i) {
    const Slot& slot = model.plan.slots[i];
    if (slot.role == SlotRole::kState) continue;
    if (DatatypeOf(slot.dtype).empty()) {
      return Unimplemented("the plan's '", Clip(slot.name, 256), "' is of type ", Name(slot.dtype),
                           ", which the protocol does not have");
    }
    (slot.role == SlotRole::kInput ? out.inputs : out.outputs)
        .push_back({.name = slot.name, .dtype = slot.dtype, .shape = model.shapes[i]});
    TensorSpec& spec = slot.role == SlotRole::kInput ? out.inputs.back() : out.outputs.back();
    for (const int number : variables[i]) {
      spec.names.push_back(number < 0 ? ""
                                      : model.plan.variables[static_cast<size_t>(number)].name);
    }
  }
  if (out.inputs.empty()) return InvalidArgument("the plan has no inputs");
  out.batches = BatchesByName(out);
  return out;
}

absl::StatusOr<Declared> DeclaredOf(std::string_view file) {
  if (FormatOf(file) == ModelFormat::kPlan) return DeclaredOfPlan(file);
  const absl::StatusOr<onnx::Model> parsed = onnx::ParseModel(file);
  if (!parsed.ok()) {
    return absl::Status(parsed.status().code(), StrCat("ONNX: ", ToStd(parsed.status().message())));
  }
  const onnx::Model& model = *parsed;
  std::set<std::string_view> defaults;
  for (const onnx::TensorProto& t : model.initializers) defaults.insert(t.name);
  Declared out;
  const auto add = [&](const onnx::ValueInfo& value, std::vector<TensorSpec>* to) -> absl::Status {
    TG_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(value));
    to->push_back(std::move(spec));
    return absl::OkStatus();
  };
  for (const onnx::ValueInfo& input : model.inputs) {
    if (!defaults.contains(input.name)) TG_RETURN_IF_ERROR(add(input, &out.inputs));
  }
  for (const onnx::ValueInfo& output : model.outputs) {
    if (output.has_shape && output.elem_type != 0) {
      TG_RETURN_IF_ERROR(add(output, &out.outputs));
    } else {
      // Its type and shape are known once the model is imported.
      out.outputs.push_back({.name = std::string(output.name), .dtype = DType::kVoid, .shape = {}});
    }
  }
  if (out.inputs.empty()) return InvalidArgument("the model has no inputs");
  out.batches = BatchesByName(out);
  return out;
}

bool IsKnown(const TensorSpec& spec) { return spec.strings || spec.dtype != DType::kVoid; }

bool Fits(const Shape& said, const Shape& declared) {
  if (said.size() != declared.size()) return false;
  for (size_t i = 0; i < said.size(); ++i) {
    if (said[i] >= 0 && declared[i] >= 0 && said[i] != declared[i]) return false;
  }
  return true;
}

// Joins what the configuration says of the model's tensors to what the model says.
absl::Status Join(std::string_view what, bool batches, const std::vector<TensorSpec>& declared,
                  std::vector<TensorSpec>* said) {
  std::vector<TensorSpec> joined = declared;
  for (const TensorSpec& spec : *said) {
    const auto it = std::ranges::find(joined, spec.name, &TensorSpec::name);
    if (it == joined.end()) {
      return InvalidArgument("config.pbtxt names ", what, " '", spec.name,
                             "', which the model does not have");
    }
    if (IsKnown(spec) && IsKnown(*it) && DatatypeOf(spec) != DatatypeOf(*it)) {
      return InvalidArgument("config.pbtxt: ", what, " '", spec.name, "' is ", DatatypeOf(spec),
                             ", the model has ", DatatypeOf(*it));
    }
    Shape shape = spec.model_shape();
    if (batches) shape.insert(shape.begin(), -1);
    const bool known = IsKnown(*it);  // only then is its shape
    if (known && !Fits(shape, it->shape)) {
      return InvalidArgument("config.pbtxt: ", what, " '", spec.name, "' has ",
                             spec.inner ? "the reshape " : "dims ", ToString(spec.model_shape()),
                             batches ? " behind the batch's" : "", ", the model has ",
                             ToString(it->shape));
    }
    it->labels = spec.labels;
    it->ragged = spec.ragged;
    if (!known) it->dtype = spec.dtype;
    if (!known) it->strings = spec.strings;
    if (!known) it->shape = shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (it->shape[i] < 0) it->shape[i] = shape[i];
    }
    if (!spec.inner) continue;
    it->inner = std::exchange(it->shape, spec.shape);
    if (batches) it->shape.insert(it->shape.begin(), -1);
    const absl::Status fits = CheckReshape(it->shape, *it->inner);
    if (!fits.ok()) {
      return InvalidArgument("config.pbtxt: ", what, " '", spec.name, "': ", ToStd(fits.message()));
    }
  }
  *said = std::move(joined);
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> VersionPolicy::Choose(const std::vector<int64_t>& available) const {
  std::vector<int64_t> out = available;
  std::ranges::sort(out);
  if (kind == Kind::kLatest && static_cast<int64_t>(out.size()) > latest) {
    out.erase(out.begin(), out.end() - latest);
  }
  if (kind == Kind::kSpecific) {
    std::erase_if(out, [&](int64_t v) { return std::ranges::find(versions, v) == versions.end(); });
  }
  return out;
}

std::string_view DatatypeOf(const TensorSpec& spec) {
  return spec.strings ? kBytesDatatype : DatatypeOf(spec.dtype);
}

Shape TensorSpec::InModel(const Shape& of_request) const {
  return inner ? Reshaped(of_request, shape, *inner) : of_request;
}

Shape TensorSpec::InRequests(const Shape& of_model) const {
  return inner ? Reshaped(of_model, *inner, shape) : of_model;
}

namespace {

// The tensor of that name, which clients do not see any more.
absl::Status TakeSpec(std::string_view what, bool batches, std::vector<TensorSpec>* declared,
                      TensorSpec* said) {
  const auto it = std::ranges::find(*declared, said->name, &TensorSpec::name);
  if (it == declared->end()) {
    return InvalidArgument("sequence_batching names the ", what, " '", Clip(said->name, 64),
                           "', which the model does not have");
  }
  Shape shape = said->shape;
  if (batches) shape.insert(shape.begin(), -1);
  if (it->strings ||
      (said->dtype != DType::kVoid && it->dtype != DType::kVoid && said->dtype != it->dtype)) {
    return InvalidArgument(
        "sequence_batching: ", what, " '", it->name, "' is ", DatatypeOf(*it),
        said->dtype == DType::kVoid ? "" : StrCat(", expected ", DatatypeOf(said->dtype)));
  }
  if (IsKnown(*it) && !Fits(shape, it->shape)) {
    return InvalidArgument("sequence_batching: ", what, " '", it->name, "' has shape ",
                           ToString(it->shape), ", expected ", ToString(shape));
  }
  said->shape = std::move(shape);
  if (it->dtype != DType::kVoid) said->dtype = it->dtype;
  declared->erase(it);
  return absl::OkStatus();
}

// What sequences need of the model's tensors is not among those of requests.
absl::Status TakeSequenceSpecs(Declared* declared, ModelConfig* config) {
  SequenceBatching& sequences = *config->sequences;
  const bool batches = config->max_batch > 0;
  for (SequenceControl& control : sequences.controls) {
    // One value, or one for each row.
    const auto it = std::ranges::find(declared->inputs, control.spec.name, &TensorSpec::name);
    if (it != declared->inputs.end()) {
      control.spec.shape = it->shape;
      if (batches && !it->shape.empty()) control.spec.shape.erase(control.spec.shape.begin());
      std::ranges::replace(control.spec.shape, -1, 1);
    }
    TG_RETURN_IF_ERROR(TakeSpec("control_input", batches, &declared->inputs, &control.spec));
  }
  for (SequenceState& state : sequences.states) {
    TG_RETURN_IF_ERROR(TakeSpec("state", batches, &declared->inputs, &state.in));
    TG_RETURN_IF_ERROR(TakeSpec("state", batches, &declared->outputs, &state.out));
    state.out.dtype = state.in.dtype;
  }
  if (declared->inputs.empty() || declared->outputs.empty()) {
    return InvalidArgument(
        "a model with sequence_batching needs inputs and outputs beside its states");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteConfig(std::string_view file, ModelConfig* config) {
  const ModelFormat format = FormatOf(file);
  if (config->format.value_or(format) != format) {
    return InvalidArgument("config.pbtxt says platform ", Info(*config->format).platform,
                           ", and the file is ", Info(format).what);
  }
  config->format = format;
  TG_ASSIGN_OR_RETURN(Declared declared, DeclaredOf(file));
  if (config->sequences) TG_RETURN_IF_ERROR(TakeSequenceSpecs(&declared, config));
  config->by_value = std::ranges::any_of(declared.inputs, &TensorSpec::strings);
  if (!config->batch_said && !config->sequences && config->inputs.empty() &&
      config->outputs.empty() && declared.batches) {
    config->max_batch = kInferredMaxBatch;
    if (!config->batching) config->batching.emplace();
  }
  return JoinSpecs(declared.inputs, declared.outputs, config);
}

namespace {

absl::Status CheckWarmups(const ModelConfig& config) {
  for (const WarmupSample& sample : config.warmups) {
    if (sample.rows > std::max<int64_t>(config.max_batch, 1)) {
      return InvalidArgument("model_warmup has batch_size ", sample.rows,
                             ", more than max_batch_size, ", config.max_batch);
    }
    for (const TensorSpec& spec : config.inputs) {
      const auto it = sample.dims.find(spec.name);
      if (it == sample.dims.end()) {
        return InvalidArgument("model_warmup has nothing for input '", spec.name, "'");
      }
      Shape shape = spec.shape;
      if (config.max_batch > 0) shape.erase(shape.begin());
      if (std::ranges::find(it->second, -1) == it->second.end() && Fits(it->second, shape))
        continue;
      return InvalidArgument("model_warmup: input '", spec.name, "' has dims ",
                             ToString(it->second), ", expected ", ToString(shape),
                             " without any -1");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status JoinSpecs(const std::vector<TensorSpec>& inputs,
                       const std::vector<TensorSpec>& outputs, ModelConfig* config) {
  const bool batches = config->max_batch > 0;
  if (config->max_batch < 0 || config->max_batch > kMostBatch) {
    return InvalidArgument("max_batch_size is ", config->max_batch, ", expected 0 to ", kMostBatch);
  }
  if (config->batching && !batches) {
    return InvalidArgument("dynamic_batching needs a max_batch_size above 0");
  }
  TG_RETURN_IF_ERROR(Join("input", batches, inputs, &config->inputs));
  TG_RETURN_IF_ERROR(Join("output", batches, outputs, &config->outputs));
  TG_RETURN_IF_ERROR(CheckWarmups(*config));
  TG_ASSIGN_OR_RETURN(config->ragged, FindRagged(*config));
  if (!batches) return absl::OkStatus();
  for (const auto* specs : {&config->inputs, &config->outputs}) {
    for (const TensorSpec& spec : *specs) {
      if (!IsKnown(spec)) continue;
      const Shape& shape = spec.model_shape();
      if (shape.empty() || shape.front() >= 0) {
        return InvalidArgument("max_batch_size is ", config->max_batch, ", but the model's '",
                               spec.name, "' has shape ", ToString(shape),
                               ", whose first dimension is fixed; set max_batch_size to 0, or "
                               "export the model with a dynamic first dimension");
      }
    }
  }
  if (!config->batching) return absl::OkStatus();
  DynamicBatching& batching = *config->batching;
  for (const int64_t size : batching.preferred) {
    if (size < 1 || size > config->max_batch) {
      return InvalidArgument("preferred_batch_size ", size, " is not within 1 and max_batch_size, ",
                             config->max_batch);
    }
  }
  std::ranges::sort(batching.preferred);
  if (batching.levels > 0 &&
      (batching.default_level < 1 || batching.default_level > batching.levels)) {
    return InvalidArgument("default_priority_level is ", batching.default_level,
                           ", expected 1 to priority_levels, ", batching.levels);
  }
  return absl::OkStatus();
}

std::vector<int64_t> BatchSizes(const ModelConfig& config) {
  std::set<int64_t> sizes;
  for (int64_t size = 1; size < config.max_batch; size *= 2) sizes.insert(size);
  sizes.insert(config.max_batch);
  if (config.batching) {
    sizes.insert(config.batching->preferred.begin(), config.batching->preferred.end());
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace telegrad
