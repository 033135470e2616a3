// Parses config.pbtxt with protobuf's text format, limits its nesting, and converts fields one
// by one; errors name the field or the place.
#include "server/service/model_config_text.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "engine/base/status.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "server/admin/log.h"
#include "server/service/sequence_config_text.h"
#include "server/serving/model_files.h"

namespace telegrad {
namespace {

constexpr int kMostNesting = 32;

// The first error, with its place as an editor counts.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = StrCat(line + 1, ":", column + 1, ": ", message);
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    Log(LogLevel::kWarning, "model_config",
        {{"at", StrCat(line + 1, ":", column + 1)}, {"message", message}});
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr struct {
  inference::DataType number;
  DType dtype;
} kTypes[] = {
    {inference::TYPE_BOOL, DType::kBool},     {inference::TYPE_UINT8, DType::kUInt8},
    {inference::TYPE_UINT16, DType::kUInt16}, {inference::TYPE_UINT32, DType::kUInt32},
    {inference::TYPE_UINT64, DType::kUInt64}, {inference::TYPE_INT8, DType::kInt8},
    {inference::TYPE_INT16, DType::kInt16},   {inference::TYPE_INT32, DType::kInt32},
    {inference::TYPE_INT64, DType::kInt64},   {inference::TYPE_FP16, DType::kFloat16},
    {inference::TYPE_FP32, DType::kFloat32},  {inference::TYPE_FP64, DType::kFloat64},
    {inference::TYPE_BF16, DType::kBFloat16},
};

absl::StatusOr<DType> ToDType(inference::DataType type, const std::string& name) {
  if (type == inference::TYPE_INVALID) return DType::kVoid;  // as the model has it
  for (const auto& row : kTypes) {
    if (row.number == type) return row.dtype;
  }
  return Unimplemented("'", name, "' has data_type ", inference::DataType_Name(type),
                       ", which no model here has");
}

inference::DataType FromDType(DType dtype) {
  for (const auto& row : kTypes) {
    if (row.dtype == dtype) return row.number;
  }
  return inference::TYPE_INVALID;
}

template <typename Io>
absl::Status ReadIo(const Io& io, std::vector<TensorSpec>* out) {
  TensorSpec spec{.name = io.name(), .dtype = DType::kVoid, .shape = {}};
  spec.strings = io.data_type() == inference::TYPE_STRING;
  if (!spec.strings) {
    TG_ASSIGN_OR_RETURN(spec.dtype, ToDType(io.data_type(), io.name()));
  }
  for (const int64_t dim : io.dims()) {
    if (dim < -1) return InvalidArgument("'", io.name(), "' has the dimension ", dim);
    spec.shape.push_back(dim);
  }
  if (io.has_reshape()) {
    spec.inner = Shape(io.reshape().shape().begin(), io.reshape().shape().end());
    if (std::ranges::any_of(*spec.inner, [](int64_t dim) { return dim < -1; })) {
      return InvalidArgument("'", io.name(), "' has the reshape ", ToString(*spec.inner));
    }
  }
  if (io.is_shape_tensor()) {
    return Unimplemented("'", io.name(), "': is_shape_tensor is not supported");
  }
  if constexpr (requires { io.label_filename(); }) spec.labels = io.label_filename();
  if constexpr (requires { io.optional(); }) {
    if (io.optional()) {
      return Unimplemented("'", io.name(), "': optional inputs are not supported");
    }
    spec.ragged = io.allow_ragged_batch();
  }
  out->push_back(std::move(spec));
  return absl::OkStatus();
}

// None where the configuration leaves it to the file.
absl::StatusOr<std::optional<ModelFormat>> FormatFrom(const std::string& platform,
                                                      const std::string& backend) {
  if (platform.empty() && backend.empty()) return std::optional<ModelFormat>();
  std::string known;
  for (size_t i = 0; i < std::size(kModelFormats); ++i) {
    const ModelFormatInfo& info = kModelFormats[i];
    StrAppend(&known, known.empty() ? "" : "; ", info.platform,
              info.backend.empty() ? "" : StrCat(", backend ", info.backend));
    const bool short_name = info.backend == "onnxruntime";  // which some write as "onnx"
    const auto is = [&](const std::string& text, std::string_view name) {
      return text.empty() || text == name || (short_name && text == "onnx");
    };
    if (is(platform, info.platform) && is(backend, info.backend)) {
      return std::optional(static_cast<ModelFormat>(i));
    }
  }
  return Unimplemented("platform '", Clip(platform, 64), "', backend '", Clip(backend, 64),
                       "' is not served; known are ", known);
}

absl::StatusOr<int64_t> Microseconds(uint64_t us, std::string_view what) {
  constexpr uint64_t kMost = uint64_t{86'400} * 1'000'000;
  if (us <= kMost) return static_cast<int64_t>(us);
  return InvalidArgument(what, " is ", us, ", expected at most ", kMost, ", a day");
}

absl::StatusOr<QueuePolicy> ReadPolicy(const inference::ModelQueuePolicy& policy) {
  QueuePolicy out{.delay = policy.timeout_action() == inference::ModelQueuePolicy::DELAY,
                  .may_override = policy.allow_timeout_override(),
                  .most = policy.max_queue_size()};
  TG_ASSIGN_OR_RETURN(out.timeout_us, Microseconds(policy.default_timeout_microseconds(),
                                                   "default_timeout_microseconds"));
  return out;
}

absl::StatusOr<DynamicBatching> ReadBatching(const inference::ModelDynamicBatching& batching) {
  DynamicBatching out{
      .preferred = {batching.preferred_batch_size().begin(), batching.preferred_batch_size().end()},
      .levels = batching.priority_levels(),
      .default_level = batching.default_priority_level()};
  TG_ASSIGN_OR_RETURN(out.delay_us, Microseconds(batching.max_queue_delay_microseconds(),
                                                 "max_queue_delay_microseconds"));
  TG_ASSIGN_OR_RETURN(out.policy, ReadPolicy(batching.default_queue_policy()));
  for (const auto& [level, policy] : batching.priority_queue_policy()) {
    TG_ASSIGN_OR_RETURN(out.policies[level], ReadPolicy(policy));
  }
  return out;
}

absl::Status ReadVersions(const inference::ModelVersionPolicy& policy, VersionPolicy* out) {
  if (policy.has_all()) out->kind = VersionPolicy::Kind::kAll;
  if (policy.has_latest()) {
    if (policy.latest().num_versions() < 1) return InvalidArgument("num_versions is 0");
    out->latest = policy.latest().num_versions();
  }
  if (policy.has_specific()) {
    out->kind = VersionPolicy::Kind::kSpecific;
    out->versions.assign(policy.specific().versions().begin(), policy.specific().versions().end());
  }
  return absl::OkStatus();
}

absl::Status ReadGroups(const inference::ModelConfig& in, std::vector<InstanceGroup>* out) {
  constexpr int kMostInstances = 64;
  for (const auto& group : in.instance_group()) {
    if (group.count() < 0 || group.count() > kMostInstances) {
      return InvalidArgument("instance_group has count ", group.count(), ", expected 1 to ",
                             kMostInstances);
    }
    if (!group.secondary_devices().empty() || !group.profile().empty()) {
      return Unimplemented("instance_group: secondary_devices and profile are not supported");
    }
    if (group.passive()) continue;  // takes no requests of its own
    InstanceGroup& to = out->emplace_back();
    to.kind = static_cast<InstanceGroup::Kind>(group.kind());  // the numbers are the same
    to.count = std::max(group.count(), 1);
    to.gpus.assign(group.gpus().begin(), group.gpus().end());
    to.devices.assign(group.devices().begin(), group.devices().end());
    const bool all_known = inference::ModelInstanceGroup::Kind_IsValid(group.kind()) &&
                           std::ranges::all_of(to.gpus, [](int64_t gpu) { return gpu >= 0; });
    if (!all_known || (to.kind == InstanceGroup::Kind::kCpu && !to.gpus.empty())) {
      return InvalidArgument("instance_group: gpus are numbers from 0, and none for KIND_CPU");
    }
  }
  if (!in.instance_group().empty() && out->empty()) {
    return InvalidArgument("instance_group: every group is passive, so that none takes requests");
  }
  return absl::OkStatus();
}

std::vector<WarmupSample> ReadWarmups(const inference::ModelConfig& in) {
  std::vector<WarmupSample> out;
  for (const auto& warmup : in.model_warmup()) {
    WarmupSample& sample = out.emplace_back();
    sample.rows = warmup.batch_size();
    for (const auto& [name, input] : warmup.inputs()) {
      sample.dims[name] = Shape(input.dims().begin(), input.dims().end());
    }
  }
  return out;
}

// What other servers do with a model and this one does not need.
void LogPassedOver(const inference::ModelConfig& in) {
  const std::pair<bool, std::string_view> fields[] = {
      {in.has_optimization(), "optimization"},
      {!in.cc_model_filenames().empty(), "cc_model_filenames"},
      {!in.metric_tags().empty(), "metric_tags"},
      {in.has_model_operations(), "model_operations"},
      {in.has_model_repository_agents(), "model_repository_agents"},
      {in.has_model_metrics(), "model_metrics"}};
  for (const auto& [there, name] : fields) {
    if (!there) continue;
    Log(LogLevel::kWarning, "model_config",
        {{"model", in.name()}, {"message", StrCat(name, " is passed over")}});
  }
}

absl::Status ReadSteps(const inference::ModelConfig& in, ModelConfig* out) {
  const bool ensemble = out->format == ModelFormat::kEnsemble;
  if (!in.has_ensemble_scheduling() && !ensemble) return absl::OkStatus();
  const auto& steps = in.ensemble_scheduling().step();
  if (out->format.value_or(ModelFormat::kEnsemble) != ModelFormat::kEnsemble) {
    return InvalidArgument("ensemble_scheduling is of platform ensemble, not ",
                           out->format_info().platform);
  }
  if (steps.empty()) return InvalidArgument("an ensemble needs an ensemble_scheduling with steps");
  if (in.input().empty() || in.output().empty()) {
    return InvalidArgument("an ensemble needs its inputs and outputs in config.pbtxt");
  }
  out->format = ModelFormat::kEnsemble;
  for (const auto& step : steps) {
    if (!step.model_namespace().empty()) return Unimplemented("model_namespace is not supported");
    if (!IsModelName(step.model_name())) {
      return InvalidArgument("step ", out->steps.size() + 1, ": model_name '",
                             Clip(step.model_name(), 64), "' is not a model's name");
    }
    // 0 is what a step has that says nothing; versions begin at 1.
    out->steps.push_back({.model = step.model_name(),
                          .version = step.model_version() > 0 ? step.model_version() : -1,
                          .inputs = {step.input_map().begin(), step.input_map().end()},
                          .outputs = {step.output_map().begin(), step.output_map().end()}});
  }
  return absl::OkStatus();
}

void WriteSteps(const std::vector<EnsembleStep>& steps, inference::ModelEnsembling* out) {
  for (const EnsembleStep& step : steps) {
    auto* to = out->add_step();
    to->set_model_name(step.model);
    to->set_model_version(step.version);
    to->mutable_input_map()->insert(step.inputs.begin(), step.inputs.end());
    to->mutable_output_map()->insert(step.outputs.begin(), step.outputs.end());
  }
}

void WritePolicy(const QueuePolicy& policy, inference::ModelQueuePolicy* out) {
  if (policy.delay) out->set_timeout_action(inference::ModelQueuePolicy::DELAY);
  out->set_default_timeout_microseconds(static_cast<uint64_t>(policy.timeout_us));
  out->set_allow_timeout_override(policy.may_override);
  out->set_max_queue_size(static_cast<uint32_t>(policy.most));
}

template <typename Io>
void WriteIo(const TensorSpec& spec, bool batches, Io* out) {
  out->set_name(spec.name);
  out->set_data_type(spec.strings ? inference::TYPE_STRING : FromDType(spec.dtype));
  const size_t first = batches ? 1 : 0;
  for (size_t i = first; i < spec.shape.size(); ++i) out->add_dims(spec.shape[i]);
  if (spec.inner) {
    auto* const shape = out->mutable_reshape()->mutable_shape();
    for (size_t i = first; i < spec.inner->size(); ++i) shape->Add((*spec.inner)[i]);
  }
  if constexpr (requires { out->set_label_filename(""); }) out->set_label_filename(spec.labels);
  if constexpr (requires { out->set_allow_ragged_batch(true); }) {
    out->set_allow_ragged_batch(spec.ragged);
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ParseConfigText(std::string_view text) {
  inference::ModelConfig in;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kMostNesting);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &in)) return InvalidArgument(error.text());
  // Its texts are sent to clients, whose messages take UTF-8 alone. Reading a message checks that,
  // and the parser of texts does not.
  if (!inference::ModelConfig().ParseFromString(in.SerializeAsString())) {
    return InvalidArgument("one of its texts is not UTF-8");
  }
  return FromProto(in, text.find("max_batch_size") != text.npos);
}

absl::StatusOr<ModelConfig> FromProto(const inference::ModelConfig& in, bool batch_said) {
  ModelConfig out{.name = in.name()};
  TG_ASSIGN_OR_RETURN(out.format, FormatFrom(in.platform(), in.backend()));
  TG_RETURN_IF_ERROR(ReadSteps(in, &out));
  if (in.has_sequence_batching()) {
    TG_ASSIGN_OR_RETURN(out.sequences, ReadSequences(in.sequence_batching()));
  }
  if (in.model_transaction_policy().decoupled()) {
    return Unimplemented("decoupled models are not supported");
  }
  if (!in.batch_input().empty() || !in.batch_output().empty()) {
    return Unimplemented("batch_input and batch_output are not supported");
  }
  LogPassedOver(in);
  out.warmups = ReadWarmups(in);
  for (const auto& [name, value] : in.parameters()) out.parameters[name] = value.string_value();
  out.cached = in.response_cache().enable();
  if (!in.default_model_filename().empty()) out.file = in.default_model_filename();
  if (!out.file.empty() && !IsModelName(out.file)) {
    return InvalidArgument("default_model_filename '", Clip(out.file, 64),
                           "' is not a file's name");
  }
  // Written as 0 it says as much as any other number.
  out.max_batch = in.max_batch_size();
  out.batch_said = in.max_batch_size() != 0 || batch_said;
  for (const auto& input : in.input()) TG_RETURN_IF_ERROR(ReadIo(input, &out.inputs));
  for (const auto& output : in.output()) TG_RETURN_IF_ERROR(ReadIo(output, &out.outputs));
  for (const TensorSpec& spec : out.outputs) {
    if (!spec.labels.empty() && !IsModelName(spec.labels)) {
      return InvalidArgument("label_filename '", Clip(spec.labels, 64), "' is not a file's name");
    }
  }
  if (in.has_dynamic_batching()) {
    TG_ASSIGN_OR_RETURN(out.batching, ReadBatching(in.dynamic_batching()));
  }
  TG_RETURN_IF_ERROR(ReadGroups(in, &out.groups));
  TG_RETURN_IF_ERROR(ReadVersions(in.version_policy(), &out.versions));
  return out;
}

void ToProto(const ModelConfig& config, inference::ModelConfig* out) {
  const bool batches = config.max_batch > 0;
  out->set_name(config.name);
  out->set_platform(std::string(config.format_info().platform));
  out->set_backend(std::string(config.format_info().backend));
  out->set_default_model_filename(config.file);
  out->set_max_batch_size(static_cast<int32_t>(config.max_batch));
  if (config.cached) out->mutable_response_cache()->set_enable(true);
  for (const TensorSpec& spec : config.inputs) WriteIo(spec, batches, out->add_input());
  for (const TensorSpec& spec : config.outputs) WriteIo(spec, batches, out->add_output());
  for (const auto& [name, value] : config.parameters) {
    (*out->mutable_parameters())[name].set_string_value(value);
  }
  for (const InstanceGroup& from : config.groups) {
    auto* group = out->add_instance_group();
    group->set_name(StrCat(config.name, "_", out->instance_group_size() - 1));
    group->set_kind(static_cast<inference::ModelInstanceGroup::Kind>(from.kind));
    group->set_count(static_cast<int32_t>(from.count));
    for (const int64_t gpu : from.gpus) group->add_gpus(static_cast<int32_t>(gpu));
    for (const std::string& device : from.devices) group->add_devices(device);
  }
  auto* versions = out->mutable_version_policy();
  switch (config.versions.kind) {
    case VersionPolicy::Kind::kAll:
      versions->mutable_all();
      break;
    case VersionPolicy::Kind::kLatest:
      versions->mutable_latest()->set_num_versions(static_cast<uint32_t>(config.versions.latest));
      break;
    case VersionPolicy::Kind::kSpecific:
      versions->mutable_specific()->mutable_versions()->Add(config.versions.versions.begin(),
                                                            config.versions.versions.end());
      break;
  }
  // A configuration has one way of scheduling.
  if (!config.steps.empty()) return WriteSteps(config.steps, out->mutable_ensemble_scheduling());
  if (config.sequences) {
    return WriteSequences(*config.sequences, batches, out->mutable_sequence_batching());
  }
  if (!config.batching) return;
  auto* batching = out->mutable_dynamic_batching();
  batching->mutable_preferred_batch_size()->Add(config.batching->preferred.begin(),
                                                config.batching->preferred.end());
  batching->set_max_queue_delay_microseconds(static_cast<uint64_t>(config.batching->delay_us));
  batching->set_priority_levels(config.batching->levels);
  batching->set_default_priority_level(config.batching->default_level);
  WritePolicy(config.batching->policy, batching->mutable_default_queue_policy());
  for (const auto& [level, policy] : config.batching->policies) {
    WritePolicy(policy, &(*batching->mutable_priority_queue_policy())[level]);
  }
}

}  // namespace telegrad
