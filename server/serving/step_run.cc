// An object for each request keeps the tensors that are there, and starts a step once it has all
// of its inputs.
#include "server/serving/step_run.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/serving/classification.h"
#include "server/serving/datatype.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

// What a request or a step has given.
struct Tensor {
  std::string datatype;
  Shape shape;
  std::vector<std::span<const uint8_t>> pieces;
  int64_t bytes = 0;
  std::shared_ptr<const void> owner;
};

class StepRun : public std::enable_shared_from_this<StepRun> {
 public:
  StepRun(std::shared_ptr<const StepModels> steps, std::shared_ptr<ServedModel> whole,
          std::shared_ptr<Tenant> tenant, Waiting request)
      : steps_(std::move(steps)),
        whole_(std::move(whole)),
        tenant_(std::move(tenant)),
        request_(std::move(request)),
        tensors_(steps_->ensemble.tensors),
        takers_(steps_->ensemble.tensors, 0),
        missing_(steps_->ensemble.steps.size(), 0) {
    const Ensemble& ensemble = steps_->ensemble;
    for (size_t i = 0; i < ensemble.inputs.size(); ++i) {
      const InferInput& input = request_.request.inputs[request_.inputs[i]];
      tensors_[ensemble.inputs[i]] = {input.datatype, input.shape, input.pieces, input.bytes,
                                      request_.request.owner};
    }
    for (const size_t tensor : ensemble.outputs) ++takers_[tensor];  // the answer
    for (size_t i = 0; i < ensemble.steps.size(); ++i) {
      for (const size_t tensor : ensemble.steps[i].inputs) {
        ++takers_[tensor];
        if (!tensors_[tensor]) ++missing_[i];
      }
      if (missing_[i] == 0) ready_.push_back(i);
    }
  }

  // Asks for the steps that are ready, one thread at a time: a step that is answered at once does
  // not nest the next one in its call. Whoever finds that nothing runs any more gives the answer.
  void Pump() {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(asking_, true)) return;
    }
    bool over = false;
    while (const std::optional<size_t> step = NextStep(&over)) {
      steps_->models[*step]->Infer(
          tenant_, RequestOf(*step),
          [self = shared_from_this(), step = *step](absl::StatusOr<InferResult> result) {
            self->Ended(step, std::move(result));
            self->Pump();
          });
    }
    if (over) Answer();
  }

 private:
  // None where nobody is to be asked now, which ends the asking; `over` once, at the end of all.
  std::optional<size_t> NextStep(bool* over) {
    const MutexLock lock(mutex_);
    if (!failed_.ok()) ready_.clear();
    if (ready_.empty()) {
      asking_ = false;
      *over = running_ == 0 && !std::exchange(over_, true);
      return std::nullopt;
    }
    const size_t step = ready_.front();
    ready_.pop_front();
    ++running_;
    return step;
  }

  InferRequest RequestOf(size_t number) {
    const Ensemble::Step& step = steps_->ensemble.steps[number];
    const ModelConfig& config = steps_->models[number]->config();
    const InferRequest& whole = request_.request;
    InferRequest out{.model = config.name,
                     .version = steps_->models[number]->version(),
                     .inputs = {},
                     .outputs = {},
                     .timeout_us = whole.timeout_us,
                     .arrived_ns = request_.arrived_ns,
                     .deadline_ns = whole.deadline_ns,
                     .cancellation = whole.cancellation,
                     .trace = whole.trace};
    auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const Tensor& tensor = *tensors_[step.inputs[i]];
      out.inputs.push_back(
          {config.inputs[i].name, tensor.datatype, tensor.shape, tensor.pieces, tensor.bytes});
      owners->push_back(tensor.owner);
    }
    out.owner = std::move(owners);
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] != Ensemble::kNobody) out.outputs.push_back({config.outputs[i].name});
    }
    return out;
  }

  void Ended(size_t number, absl::StatusOr<InferResult> result) {
    const Ensemble& ensemble = steps_->ensemble;
    const Ensemble::Step& step = ensemble.steps[number];
    std::vector<std::optional<Tensor>> dropped;  // without the lock
    const MutexLock lock(mutex_);
    --running_;
    if (!result.ok()) {
      if (failed_.ok()) {
        failed_ = absl::Status(result.status().code(),
                               StrCat(step.where, ": ", ToStd(result.status().message())));
      }
      return;
    }
    size_t next = 0;
    for (const size_t made : step.outputs) {
      if (made == Ensemble::kNobody) continue;
      InferOutput& output = result->outputs[next++];
      if (takers_[made] == 0) continue;  // nobody waits for it
      const auto* data = static_cast<const uint8_t*>(output.data);
      tensors_[made] = {std::string(output.datatype),
                        std::move(output.shape),
                        {},
                        output.bytes,
                        std::move(output.owner)};
      if (output.bytes > 0) {
        tensors_[made]->pieces.emplace_back(data, static_cast<size_t>(output.bytes));
      }
    }
    for (size_t i = 0; i < ensemble.steps.size(); ++i) {
      for (const size_t taken : ensemble.steps[i].inputs) {
        if (std::ranges::find(step.outputs, taken) == step.outputs.end()) continue;
        if (--missing_[i] == 0) ready_.push_back(i);
      }
    }
    for (const size_t taken : step.inputs) {
      if (--takers_[taken] == 0) dropped.push_back(std::exchange(tensors_[taken], std::nullopt));
    }
  }

  absl::Status AddOutput(size_t number, int64_t classes, InferResult* result) TG_REQUIRES(mutex_) {
    const ModelConfig& config = whole_->config();
    const TensorSpec& spec = config.outputs[number];
    const Tensor& tensor = *tensors_[steps_->ensemble.outputs[number]];
    InferOutput& output = result->outputs.emplace_back(
        InferOutput{.name = spec.name,
                    .datatype = DatatypeOf(spec),
                    .shape = tensor.shape,
                    .data = tensor.pieces.empty() ? nullptr : tensor.pieces.front().data(),
                    .bytes = tensor.bytes,
                    .owner = tensor.owner});
    if (classes == 0) return absl::OkStatus();
    if (spec.strings) {
      return InvalidArgument("output '", spec.name, "' is BYTES, which has no classification");
    }
    return Classify(spec.dtype, classes, config.max_batch > 0, whole_->labels(number),
                    tenant_->accounts.shared(Quota::kHostStaging), &output);
  }

  absl::StatusOr<InferResult> Result() TG_REQUIRES(mutex_) {
    InferResult out{.model = whole_->config().name, .version = whole_->version(), .outputs = {}};
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      TG_RETURN_IF_ERROR(AddOutput(request_.outputs[i], request_.request.outputs[i].classes, &out));
    }
    for (size_t i = 0; request_.outputs.empty() && i < whole_->config().outputs.size(); ++i) {
      TG_RETURN_IF_ERROR(AddOutput(i, 0, &out));
    }
    return out;
  }

  void Answer() {
    absl::StatusOr<InferResult> result = absl::UnknownError("");
    {
      const MutexLock lock(mutex_);
      result = failed_.ok() ? Result() : absl::StatusOr<InferResult>(failed_);
      tensors_.clear();
    }
    const InferDone done = std::move(request_.done);
    const int64_t arrived = request_.arrived_ns, now = whole_->maker().env->clock->Ns();
    const int64_t rows = std::max<int64_t>(request_.rows, 1);
    const auto now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
    request_ = {};  // gives back what it holds before anybody is told
    if (!result.ok()) {
      whole_->statistics().Failed(ReasonOf(result.status()), now - arrived, now_ms);
      return done(result.status());
    }
    const BatchTimes times{
        .taken_ns = arrived, .gathered_ns = arrived, .run_ns = now, .done_ns = now};
    whole_->statistics().Ran(rows, times);
    whole_->statistics().Succeeded(rows, arrived, times, now_ms);
    done(std::move(result));
  }

  const std::shared_ptr<const StepModels> steps_;
  const std::shared_ptr<ServedModel> whole_;
  const std::shared_ptr<Tenant> tenant_;
  Waiting request_;
  Mutex mutex_;
  std::vector<std::optional<Tensor>> tensors_ TG_GUARDED_BY(mutex_);  // by number
  // By tensor: how many steps and outputs are still to take it.
  std::vector<size_t> takers_ TG_GUARDED_BY(mutex_);
  std::vector<size_t> missing_ TG_GUARDED_BY(mutex_);  // by step: how many tensors it waits for
  std::deque<size_t> ready_ TG_GUARDED_BY(mutex_);
  size_t running_ TG_GUARDED_BY(mutex_) = 0;
  bool asking_ TG_GUARDED_BY(mutex_) = false, over_ TG_GUARDED_BY(mutex_) = false;
  absl::Status failed_ TG_GUARDED_BY(mutex_);
};

}  // namespace

void RunSteps(std::shared_ptr<const StepModels> steps, std::shared_ptr<ServedModel> whole,
              std::shared_ptr<Tenant> tenant, Waiting request) {
  request.arrived_ns = whole->maker().env->clock->Ns();
  whole->statistics().Arrived();
  std::make_shared<StepRun>(std::move(steps), std::move(whole), std::move(tenant),
                            std::move(request))
      ->Pump();
}

}  // namespace telegrad
