// Makes forms for known shapes ahead, gives each tenant a batcher, and frees the buffers of
// tenants that send no requests.
#include "server/serving/served_model.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "server/serving/step_run.h"

namespace telegrad {
namespace {

// How long a tenant that asks for nothing keeps its buffers.
constexpr int64_t kTrimNs = 1'000'000'000;
constexpr int64_t kMostSampleBytes = 64 << 20;

// Shapes for a form that can be made before anybody asks; none where they depend on requests.
std::optional<InputShapes> KnownShapes(const ModelConfig& config, int64_t rows) {
  InputShapes out;
  for (const TensorSpec& spec : config.inputs) {
    Shape shape = spec.model_shape();
    if (rows > 0) shape.front() = rows;
    if (std::ranges::find(shape, -1) != shape.end()) return std::nullopt;
    out.push_back(std::move(shape));
  }
  return out;
}

// Steps may have a model in common.
std::set<const ServedModel*> Distinct(const StepModels& steps) {
  std::set<const ServedModel*> out;
  for (const auto& model : steps.models) out.insert(model.get());
  return out;
}

uint64_t NextLoad() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

ServedModel::ServedModel(const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config,
                         std::string version, const std::shared_ptr<FormSource>& source,
                         std::vector<std::vector<std::string>> labels)
    : maker_(*devices.front().maker),
      alarm_(*alarm),
      config_(std::move(config)),
      version_(std::move(version)),
      loaded_ms_(static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()))),
      load_(NextLoad()),
      batch_sizes_(config_.max_batch > 0 ? BatchSizes(config_) : std::vector<int64_t>{}),
      labels_(std::move(labels)) {
  for (const ModelDevice& device : devices) {
    instances_.push_back(std::make_unique<Instance>(device, config_, source));
  }
}

std::optional<uint64_t> ServedModel::IdleSince() const {
  const StatisticsSnapshot now = statistics_.Snapshot();
  if (now.pending > 0) return std::nullopt;
  return std::max(loaded_ms_, now.last_ms);
}

int64_t ServedModel::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& [device, of] : WeightBytesByDevice()) bytes += of;
  return bytes;
}

std::map<std::string, int64_t> ServedModel::WeightBytesByDevice() const {
  std::map<std::string, int64_t> out;
  for (const auto& instance : instances_) {
    out[std::string(instance->maker.device->name())] += instance->forms->weight_bytes();
  }
  if (steps_ == nullptr) return out;
  for (const ServedModel* const model : Distinct(*steps_)) {
    for (const auto& [device, bytes] : model->WeightBytesByDevice()) out[device] += bytes;
  }
  return out;
}

std::vector<std::shared_ptr<Ending>> ServedModel::Gone() const {
  std::vector<std::shared_ptr<Ending>> out;
  for (const auto& instance : instances_) out.push_back(instance->forms->gone());
  if (steps_ == nullptr) return out;
  for (const ServedModel* const model : Distinct(*steps_)) {
    for (const auto& instance : model->instances_) out.push_back(instance->forms->gone());
  }
  return out;
}

// A form on each device, of which they all differ in nothing else.
absl::StatusOr<FormCache::FormPtr> ServedModel::MakeEverywhere(const FormKey& key, int64_t rows,
                                                               const InputValues& values,
                                                               LoadRoom* room) const {
  FormCache::FormPtr first;
  for (const auto& instance : instances_) {
    auto made = instance->forms->Make(key, rows, values, *maker_.owner, room);
    if (!made.ok() && instances_.size() > 1) {
      return absl::Status(made.status().code(), StrCat("on ", instance->maker.device->name(), ": ",
                                                       ToStd(made.status().message())));
    }
    TG_RETURN_IF_ERROR(made.status());
    room->kept.push_back(*made);
    if (first == nullptr) first = *std::move(made);
  }
  return first;
}

absl::StatusOr<std::shared_ptr<ServedModel>> ServedModel::Load(
    const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config, std::string version,
    std::shared_ptr<FormSource> source, std::vector<std::vector<std::string>> labels,
    LoadRoom* room) {
  auto out = std::make_shared<ServedModel>(devices, alarm, std::move(config), std::move(version),
                                           source, std::move(labels));
  TG_RETURN_IF_ERROR(out->CheckCache());
  TG_RETURN_IF_ERROR(out->WarmUp(room));
  if (out->config_.by_value && out->config_.sequences) {
    return Unimplemented("a model with sequence_batching cannot depend on the values of inputs");
  }
  if (out->config_.by_value && !out->config_.ragged.empty()) {
    return Unimplemented("a model with allow_ragged_batch cannot depend on the values of inputs");
  }
  return out;
}

absl::StatusOr<std::shared_ptr<ServedModel>> ServedModel::OfSteps(
    const std::vector<ModelDevice>& devices, Alarm* alarm, ModelConfig config, std::string version,
    StepModels steps, std::vector<std::vector<std::string>> labels) {
  auto out = std::make_shared<ServedModel>(devices, alarm, std::move(config), std::move(version),
                                           /*source=*/nullptr, std::move(labels));
  TG_RETURN_IF_ERROR(out->CheckCache());
  out->steps_ = std::make_shared<const StepModels>(std::move(steps));
  return out;
}

absl::Status ServedModel::CheckCache() const {
  if (config_.cached && maker_.responses == nullptr) {
    return FailedPrecondition(
        "response_cache is enabled in config.pbtxt, and this server keeps no answers; start it "
        "with --models-response-cache BYTES");
  }
  if (config_.cached && config_.sequences) {
    return InvalidArgument(
        "response_cache is for models whose answers depend on the request "
        "alone, which sequence_batching excludes");
  }
  return absl::OkStatus();
}

// With values as plain as possible: what the outputs are like, and whether it can be imported.
absl::Status ServedModel::WarmUpByValue(LoadRoom* room) {
  config_.by_value = true;
  FormKey key;
  InputValues values;
  for (const TensorSpec& spec : config_.inputs) {
    Shape shape = spec.model_shape();
    std::ranges::replace(shape, -1, 1);
    auto value = std::make_shared<onnx::OnnxData>();
    const auto bytes = CheckedByteSize(spec.strings ? DType::kUInt8 : spec.dtype, shape);
    if (!bytes.ok() || *bytes > kMostSampleBytes) return absl::OkStatus();
    if (spec.strings) {
      value->kind = onnx::OnnxData::Kind::kStrings;
      value->strings = {shape, std::vector<std::string>(static_cast<size_t>(*bytes))};
    } else {
      value->kind = onnx::OnnxData::Kind::kTensor;
      value->tensor = {spec.dtype, shape, std::string(static_cast<size_t>(*bytes), '\0')};
    }
    values[spec.name] = std::move(value);
    key.shapes.push_back(std::move(shape));
  }
  key.values = Sha256("sample");
  const auto made = MakeEverywhere(key, 0, values, room);
  // What is wrong with these values may be right with others; then the first request tells.
  if (!made.ok() && !absl::IsInvalidArgument(made.status())) return made.status();
  return LearnOutputs(made.ok() ? *made : nullptr);
}

absl::Status ServedModel::WarmUp(LoadRoom* room) {
  if (config_.by_value) return WarmUpByValue(room);
  std::vector<int64_t> sizes = {0};
  if (config_.max_batch > 0) {
    sizes = {1};
    if (config_.batching) {
      const auto& preferred = config_.batching->preferred;
      sizes.insert(sizes.end(), preferred.begin(), preferred.end());
    }
    std::ranges::sort(sizes);
    sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  }
  FormCache::FormPtr form;
  for (const int64_t rows : sizes) {
    std::optional<InputShapes> shapes = KnownShapes(config_, rows);
    if (!shapes) {
      // Whether it can be served at all is found out with the smallest sizes that there are.
      ModelConfig smallest = config_;
      for (TensorSpec& spec : smallest.inputs) {
        std::ranges::replace(spec.inner ? *spec.inner : spec.shape, -1, 1);
      }
      shapes = KnownShapes(smallest, rows);
    }
    auto made = MakeEverywhere({.shapes = *shapes}, rows, {}, room);
    if (NeedsValues(made.status())) return WarmUpByValue(room);
    if (!made.ok() && KnownShapes(config_, rows)) return made.status();
    // A model may take no dimension of 1; then the first request tells.
    if (!made.ok() && !absl::IsInvalidArgument(made.status())) return made.status();
    if (!made.ok()) continue;
    form = *made;
  }
  TG_RETURN_IF_ERROR(LearnOutputs(form));
  return MakeSamples(room);
}

// What model_warmup asks for. The values make no difference to what is compiled.
absl::Status ServedModel::MakeSamples(LoadRoom* room) {
  for (const WarmupSample& sample : config_.warmups) {
    int64_t rows = 0;
    if (config_.max_batch > 0) {
      rows = *std::ranges::lower_bound(batch_sizes_, std::max<int64_t>(sample.rows, 1));
    }
    FormKey key;
    for (const TensorSpec& spec : config_.inputs) {
      Shape shape = sample.dims.at(spec.name);
      if (rows > 0) shape.insert(shape.begin(), rows);
      key.shapes.push_back(spec.InModel(shape));
    }
    const auto made = MakeEverywhere(key, rows, {}, room);
    if (made.ok()) continue;
    return absl::Status(made.status().code(),
                        StrCat("model_warmup: ", ToStd(made.status().message())));
  }
  return absl::OkStatus();
}

// What a form tells of the outputs that neither the model nor its configuration describes.
absl::Status ServedModel::LearnOutputs(const FormCache::FormPtr& form) {
  for (size_t i = 0; i < config_.outputs.size(); ++i) {
    TensorSpec& spec = config_.outputs[i];
    if (!DatatypeOf(spec).empty()) continue;
    if (form == nullptr) {
      return InvalidArgument("the type of output '", spec.name,
                             "' is not known before the first request; say it in config.pbtxt");
    }
    spec.dtype = form->outputs[i].dtype;
    spec.strings = form->outputs[i].strings != nullptr;
    if (spec.inner) continue;
    spec.shape = form->outputs[i].shape;
    if (config_.by_value || form->outputs[i].run_shape >= 0 || !KnownShapes(config_, form->rows)) {
      std::ranges::fill(spec.shape, -1);
    }
    if (form->rows > 0) spec.shape.front() = -1;
  }
  return absl::OkStatus();
}

std::shared_ptr<Batcher> ServedModel::BatcherOf(const std::shared_ptr<Tenant>& tenant) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Batcher>& batcher = batchers_[tenant.get()];
  if (batcher == nullptr) batcher = std::make_shared<Batcher>(this, tenant);
  if (!trimming_) {
    trimming_ = true;
    alarm_.At(maker_.env->clock->Ns() + kTrimNs, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Trim();
    });
  }
  return batcher;
}

// What idle tenants keep goes, until nobody keeps anything.
void ServedModel::Trim() {
  std::vector<std::shared_ptr<Batcher>> dropped;  // without the lock
  const MutexLock lock(mutex_);
  for (auto it = batchers_.begin(); it != batchers_.end();) {
    // Two: this map, and whoever is adding a request.
    const bool alone = it->second.use_count() == 1;
    if (it->second->Trim() && alone) {
      dropped.push_back(std::move(it->second));
      it = batchers_.erase(it);
    } else {
      ++it;
    }
  }
  trimming_ = !batchers_.empty();
  if (!trimming_) return;
  alarm_.At(maker_.env->clock->Ns() + kTrimNs, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Trim();
  });
}

// What is kept, for as long as the answer is on its way: the cache may let it go before. The tenant
// pays for that.
absl::StatusOr<InferResult> ServedModel::Paid(
    const Tenant& tenant, const std::shared_ptr<const InferResult>& kept) const {
  struct Owner {
    std::shared_ptr<const InferResult> result;
    Reservation paid;
  };
  int64_t bytes = 0;
  for (const InferOutput& output : kept->outputs) bytes += output.bytes;
  const auto owner = std::make_shared<Owner>(Owner{.result = kept, .paid = {}});
  TG_ASSIGN_OR_RETURN(owner->paid,
                      Reservation::Take(tenant.accounts.shared(Quota::kHostStaging), bytes));
  InferResult out = *kept;
  for (InferOutput& output : out.outputs) output.owner = owner;
  return out;
}

// False where the answer is not kept yet, which it will be, or where there is no room to give it.
bool ServedModel::AnswerFromCache(const Tenant& tenant, Waiting* waiting) {
  const Clock& clock = *maker_.env->clock;
  const int64_t begin_ns = clock.Ns();
  const Digest key = ResponseKey(tenant.name, load_, waiting->request, waiting->inputs);
  const auto kept = maker_.responses->Find(key);
  auto answer = kept == nullptr ? absl::NotFoundError("") : Paid(tenant, kept);
  const int64_t ns = clock.Ns() - begin_ns;
  if (!answer.ok()) {
    statistics_.Missed(ns);
    waiting->done = [responses = maker_.responses, key, of = tenant.name,
                     done = std::move(waiting->done)](absl::StatusOr<InferResult> result) {
      if (result.ok()) responses->Put(of, key, *result);
      done(std::move(result));
    };
    return false;
  }
  statistics_.Hit(ns, static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())));
  const InferDone done = std::move(waiting->done);
  *waiting = {};
  done(std::move(answer));
  return true;
}

// Of an ensemble of steps, each of them.
absl::Status ServedModel::CheckDevices() const {
  std::vector<const ServedModel*> models = {this};
  for (size_t i = 0; i < models.size(); ++i) {
    const ServedModel& model = *models[i];
    if (model.steps_ != nullptr) {
      for (const auto& step : model.steps_->models) {
        if (std::ranges::find(models, step.get()) == models.end()) models.push_back(step.get());
      }
      continue;
    }
    absl::Status why;
    for (const auto& instance : model.instances_) {
      const FormMaker& maker = instance->maker;
      const absl::Status takes = maker.env->devices->CheckTakesWork(*maker.pooled);
      const absl::Status health = takes.ok() ? maker.device->Health() : takes;
      if (health.ok()) {
        why = absl::OkStatus();
        break;
      }
      if (why.ok()) why = health;
    }
    if (!why.ok()) {
      return absl::UnavailableError(StrCat("Request for model '", model.config_.name,
                                           "', which is not ready: ", ToStd(why.message())));
    }
  }
  return absl::OkStatus();
}

void ServedModel::Infer(const std::shared_ptr<Tenant>& tenant, InferRequest request,
                        InferDone done) {
  auto waiting = Admitted(std::move(request));
  if (!waiting.ok()) {
    const absl::Status status = waiting.status();
    statistics_.Arrived();
    statistics_.Failed(FailureReason::kOther, 0,
                       static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())));
    return done(status);
  }
  waiting->done = std::move(done);
  if (config_.cached && AnswerFromCache(*tenant, &*waiting)) return;
  if (steps_ != nullptr) return RunSteps(steps_, shared_from_this(), tenant, *std::move(waiting));
  BatcherOf(tenant)->Add(shared_from_this(), *std::move(waiting));
}

}  // namespace telegrad
