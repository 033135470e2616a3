// A batch from its form to its answers: the inputs gathered into buffers, the run through the
// tenant's lane of the device's queue, and each request's rows of the outputs.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/data/staging.h"
#include "server/pool/admission.h"
#include "server/serving/batcher.h"
#include "server/serving/classification.h"
#include "server/serving/datatype.h"
#include "server/serving/served_model.h"
#include "server/session/buffer.h"

namespace telegrad {
namespace {

// What a batch may have of inputs and outputs for its copies to be made where it happens to be,
// which may be the device's thread.
constexpr int64_t kCopiedInline = 64 << 10;
constexpr int kMostAttempts = 3;

// Why nobody waits for any request of a batch any more, or OK.
absl::Status WhyUnwanted(const Batch& batch, int64_t now) {
  absl::Status why;
  for (const Waiting& waiting : batch.requests) {
    const auto& cancellation = waiting.request.cancellation;
    absl::Status here = cancellation == nullptr ? absl::OkStatus() : cancellation->Check();
    if (here.ok() && waiting.request.deadline_ns <= now) {
      here = absl::DeadlineExceededError(
          "the request's deadline has passed before its model was "
          "compiled for it");
    }
    if (here.ok()) return here;
    why.Update(here);
  }
  return why;
}

void TracePhases(const Waiting& waiting, const BatchTimes& times) {
  OperationTrace& trace = *waiting.request.trace;
  trace.Add("queue", waiting.arrived_ns, times.taken_ns);
  trace.Add("input", times.taken_ns, times.gathered_ns);
  trace.Add("infer", times.gathered_ns, times.run_ns);
  trace.Add("output", times.run_ns, times.done_ns);
}

}  // namespace

void Batcher::Start(const BatchPtr& batch) {
  FormCache& forms = *batch->model->instances()[batch->place]->forms;
  const Waiting& first = batch->requests.front();
  const FormCache::Wanted wanted = [batch, clock = model_.maker().env->clock] {
    return WhyUnwanted(*batch, clock->Ns());
  };
  if (first.rows == 0) {
    FormKey key{.shapes = first.tails};
    FormCache::ReadValues values = nullptr;
    if (batch->model->config().by_value) {
      std::vector<const InferInput*> inputs;
      for (const size_t i : first.inputs) inputs.push_back(&first.request.inputs[i]);
      key = forms.KeyOf(first.tails, inputs);
      values = [self = shared_from_this(), batch] {
        return batch->model->ValuesOf(batch->requests.front(), *self->tenant_);
      };
    }
    batch->form = forms.Find(key);
    if (batch->form != nullptr) return Run(batch);
    return forms.Get(
        key, 0, std::move(values), tenant_, wanted,
        [self = shared_from_this(), batch](const absl::StatusOr<FormCache::FormPtr>& f) {
          if (!f.ok()) return self->Over(batch, f.status());
          batch->form = *f;
          self->Run(batch);
        });
  }
  // The smallest size that has room, if it is compiled; else a larger one for now, and that one for
  // the next time.
  const std::vector<int64_t>& sizes = batch->model->batch_sizes();
  const auto exact = std::ranges::lower_bound(sizes, batch->rows);
  const InputShapes tails = TailsOf(batch.get());
  for (auto it = exact; it != sizes.end() && batch->form == nullptr; ++it) {
    batch->form = forms.Find({.shapes = WithBatch(tails, *it)});
  }
  const bool found = batch->form != nullptr;
  if (!found || batch->form->rows != *exact) {
    const FormCache::Wanted later = [] { return absl::OkStatus(); };
    forms.Get({.shapes = WithBatch(tails, *exact)}, *exact, nullptr, tenant_,
              found ? later : wanted,
              [self = shared_from_this(),
               batch = found ? nullptr : batch](const absl::StatusOr<FormCache::FormPtr>& form) {
                if (batch == nullptr) return;
                // A size that is rounded up may be more than the model has room for.
                if (absl::IsInvalidArgument(form.status()) && !batch->sizes.empty() &&
                    !std::exchange(batch->exact, true)) {
                  return self->Start(batch);
                }
                if (!form.ok()) return self->Over(batch, form.status());
                batch->form = *form;
                self->Run(batch);
              });
  }
  if (found) Run(batch);
}

// Rows that are only padding are zero.
void Batcher::Gather(const Batch& batch) const {
  const Form& form = *batch.form;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    if (form.inputs[i].bytes == 0 || !FromHost(batch, i) || GatherRagged(batch, i)) continue;
    auto* to = static_cast<uint8_t*>(batch.buffers->inputs[i]->host());
    uint8_t* const end = to + form.inputs[i].bytes;
    for (const Waiting& waiting : batch.requests) {
      const InferInput& input = waiting.request.inputs[waiting.inputs[i]];
      if (input.device) to += input.bytes;  // see CopyInput
      for (const auto& piece : input.pieces) {
        if (piece.empty()) continue;
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    }
    std::memset(to, 0, static_cast<size_t>(end - to));
  }
  if (model_.config().sequences) GatherControls(batch);
}

absl::StatusOr<TimelinePoint> Batcher::Submit(const BatchPtr& batch) {
  TG_ASSIGN_OR_RETURN(const std::vector<TimelinePoint> waits, CopyIn(*batch));
  // One request alone may end with its caller; a batch of several runs on for the others.
  const Waiting& first = batch->requests.front();
  const int64_t deadline_ns = batch->requests.size() == 1 ? first.request.deadline_ns : INT64_MAX;
  QueuesForRun queues(&queues_, Priority::kNormal, deadline_ns, batch->taken);
  TG_ASSIGN_OR_RETURN(
      const TimelinePoint run,
      batch->form->executable->Submit(
          batch->buffers->views, waits, nullptr,
          batch->requests.size() == 1 ? first.request.cancellation : nullptr, queues));
  tenant_->metrics.Add(Metric::kRuns);
  model_.maker().env->metrics->Add(Metric::kRuns);
  auto out = CopyOut(*batch, run);
  if (!out.ok()) batch->buffers->reusable = false;
  return out;
}

void Batcher::Run(const BatchPtr& batch) {
  const Environment& env = *batch->model->maker().env;
  if (batch->buffers == nullptr) {
    auto buffers = TakeBuffers(batch->form);
    if (!buffers.ok()) return Over(batch, buffers.status());
    batch->buffers = *std::move(buffers);
    if (const absl::Status staged = Stage(*batch); !staged.ok()) return Over(batch, staged);
    const auto predicted_ns = static_cast<int64_t>(batch->form->executable->cost().seconds * 1e9);
    auto taken = tenant_->TakeDeviceTime(predicted_ns, env.clock->Ns());
    if (!taken.ok()) return Over(batch, taken.status());
    batch->device_time = *std::move(taken);
    batch->taken->ended_slice = [tenant = tenant_, metrics = env.metrics](int64_t ns) {
      tenant->metrics.Add(Metric::kRunNs, ns);
      metrics->Add(Metric::kRunNs, ns);
    };
    if (model_.config().sequences) {
      if (const absl::Status made = MakeStates(*batch); !made.ok()) return Over(batch, made);
    }
    Gather(*batch);
    batch->times.gathered_ns = env.clock->Ns();
  }
  const auto point = Submit(batch);
  if (absl::IsResourceExhausted(point.status()) && ++batch->attempts < kMostAttempts) {
    // What runs there now holds memory or places in the queue; its end gives them back.
    batch->model->maker().owner->engine->ReleaseMemory();
    FairQueue* const queue = env.devices->queue(*batch->form->device, QueueKind::kCompute);
    const TimelinePoint drained = queue == nullptr ? TimelinePoint{} : queue->Drained();
    const auto again = [self = shared_from_this(), batch, &env](const absl::Status&) {
      env.workers->Post([self, batch] { self->Run(batch); }, self->tenant_->share);
    };
    if (drained.timeline == nullptr) return again(absl::OkStatus());
    return drained.timeline->OnReached(drained.value, again);
  }
  if (!point.ok()) return Over(batch, point.status());
  const int64_t predicted_ns = batch->device_time.ns();
  batch->device_time.Keep();
  const auto ended = [self = shared_from_this(), batch, predicted_ns,
                      &env](const absl::Status& status) {
    batch->times.run_ns = env.clock->Ns();
    const int64_t ns = batch->taken->all_ns();
    self->tenant_->device_time->Correct(predicted_ns, ns);
    batch->model->maker().owner->engine->Ran(*batch->form->executable, ns, self->tenant_->share);
    if (batch->form->io_bytes <= kCopiedInline) return self->Ended(batch, status);
    env.workers->Post([self, batch, status] { self->Ended(batch, status); }, self->tenant_->share);
  };
  if (point->timeline == nullptr) return ended(absl::OkStatus());
  point->timeline->OnReached(point->value, ended);
}

absl::StatusOr<InferResult> Batcher::Scatter(const Batch& batch, const Waiting& waiting,
                                             int64_t first_row) const {
  const ModelConfig& config = batch.model->config();
  InferResult result{.model = config.name, .version = batch.model->version(), .outputs = {}};
  const Form& form = *batch.form;
  const auto add = [&](size_t output, int64_t classes, size_t wanted) -> absl::Status {
    const Form::Io& io = form.outputs[output];
    InferOutput out{.name = config.outputs[output].name,
                    .datatype = DatatypeOf(io.dtype),
                    .shape = config.outputs[output].InRequests(io.shape),
                    .owner = batch.buffers};
    if (io.strings != nullptr) {
      if (classes > 0) {
        return InvalidArgument("output '", out.name, "' is BYTES, which has no classification");
      }
      out.datatype = kBytesDatatype;
      out.data = io.strings->data();
      out.bytes = static_cast<int64_t>(io.strings->size());
      out.owner = io.strings;
      result.outputs.push_back(std::move(out));
      return absl::OkStatus();
    }
    out.bytes = io.bytes;
    const std::shared_ptr<Memory>& memory = batch.buffers->outputs[output];
    const auto* data = memory == nullptr ? nullptr : static_cast<const uint8_t*>(memory->host());
    if (form.rows > 0) {
      const int64_t row_bytes = io.bytes / form.rows;
      out.shape.front() = waiting.rows;
      out.bytes = row_bytes * waiting.rows;
      if (data != nullptr) data += row_bytes * first_row;
    }
    if (PartFor(batch, waiting, wanted) != nullptr) {
      out.region = waiting.request.outputs[wanted].region;
      if (out.bytes > out.region->bytes) return NoRoom(out.name, out.bytes, *out.region);
      out.region->bytes = std::exchange(out.bytes, 0);
      out.owner = nullptr;
      result.outputs.push_back(std::move(out));
      return absl::OkStatus();
    }
    out.data = data;
    if (!batch.sizes.empty()) TG_RETURN_IF_ERROR(Cut(batch, waiting, output, &out));
    if (io.run_shape >= 0) TG_RETURN_IF_ERROR(CutToRun(batch, io, &out));
    if (classes > 0) {
      TG_RETURN_IF_ERROR(Classify(io.dtype, classes, form.rows > 0, batch.model->labels(output),
                                  tenant_->accounts.shared(Quota::kHostStaging), &out));
    }
    result.outputs.push_back(std::move(out));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < waiting.outputs.size(); ++i) {
    TG_RETURN_IF_ERROR(add(waiting.outputs[i], waiting.request.outputs[i].classes, i));
  }
  for (size_t i = 0; waiting.outputs.empty() && i < form.outputs.size(); ++i) {
    TG_RETURN_IF_ERROR(add(i, 0, SIZE_MAX));
  }
  return result;
}

void Batcher::Ended(const BatchPtr& batch, const absl::Status& status) {
  if (!status.ok()) return Over(batch, status);
  Learn(*batch);
  if (model_.config().sequences) KeepStates(*batch);
  ServedModel& model = *batch->model;
  const Environment& env = *model.maker().env;
  std::vector<absl::StatusOr<InferResult>> results;
  int64_t row = 0;
  for (const Waiting& waiting : batch->requests) {
    results.push_back(Scatter(*batch, waiting, row));
    row += waiting.rows;
  }
  batch->times.done_ns = env.clock->Ns();
  model.statistics().Ran(std::max<int64_t>(batch->rows, 1), batch->times);
  const auto now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  for (size_t i = 0; i < results.size(); ++i) {
    Waiting& waiting = batch->requests[i];
    if (!results[i].ok()) {
      Refuse(model, waiting, results[i].status());
      continue;
    }
    model.statistics().Succeeded(std::max<int64_t>(waiting.rows, 1), waiting.arrived_ns,
                                 batch->times, now_ms);
    if (waiting.request.trace != nullptr) TracePhases(waiting, batch->times);
    const InferDone done = std::move(waiting.done);
    waiting = {};
    done(std::move(results[i]));
  }
  batch->requests.clear();
  Over(batch, absl::OkStatus());
}

// Makes room for the next batch; what was not answered is refused.
void Batcher::Over(const BatchPtr& batch, const absl::Status& status) {
  if (!status.ok() && MoveAway(batch, status)) return;
  const std::shared_ptr<ServedModel> model = batch->model;
  for (Waiting& waiting : batch->requests) Refuse(*model, waiting, status);
  batch->requests.clear();
  batch->buffers = nullptr;
  Release(*batch);
  {
    const MutexLock lock(mutex_);
    --running_[batch->place];
    for (const auto& [sequence, ends] : batch->sequences) {
      if (!status.ok()) sequences_->Lose(sequence, status);
      sequences_->Done(sequence, ends, model_.maker().env->clock->Ns());
    }
  }
  // Gathering the next batch's inputs may be long, and this may be the device's thread.
  const bool small = batch->form == nullptr || batch->form->io_bytes <= kCopiedInline;
  if (small) return Dispatch(model);
  model->maker().env->workers->Post([self = shared_from_this(), model] { self->Dispatch(model); },
                                    tenant_->share);
}

}  // namespace telegrad
