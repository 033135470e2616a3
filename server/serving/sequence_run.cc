// The part of a batch's run that is about sequences: which of their requests are taken, what the
// model is told of them, and their states, which are copied between the rows of a batch and the
// memory of each sequence on the device.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "engine/base/status.h"
#include "server/data/staging.h"
#include "server/serving/batcher.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

// The value of a control, as the model's type has it.
template <typename T>
void FillWith(T value, uint8_t* to, int64_t bytes) {
  for (int64_t at = 0; at + static_cast<int64_t>(sizeof(T)) <= bytes; at += sizeof(T)) {
    std::memcpy(to + at, &value, sizeof(T));
  }
}

void FillNumber(DType dtype, uint64_t number, uint8_t* to, int64_t bytes) {
  if (dtype == DType::kUInt64 || dtype == DType::kInt64) return FillWith(number, to, bytes);
  FillWith(static_cast<uint32_t>(number), to, bytes);
}

void FillFlag(const SequenceControl& control, bool flag, uint8_t* to, int64_t bytes) {
  const double value = flag ? control.if_true : control.if_false;
  if (control.spec.dtype == DType::kInt32) return FillWith(static_cast<int32_t>(value), to, bytes);
  if (control.spec.dtype == DType::kFloat32) return FillWith(static_cast<float>(value), to, bytes);
  FillWith(static_cast<uint8_t>(value != 0), to, bytes);
}

int64_t RowBytes(const Form& form, const Form::Io& io) {
  return form.rows > 0 ? io.bytes / form.rows : io.bytes;
}

}  // namespace

// The oldest request of each sequence of which none is running, as many as a batch has room for, of
// those sequences that are at `place` or that begin.
Batcher::BatchPtr Batcher::TakeSequencesLocked(size_t place, int64_t now, int64_t* wake_ns) {
  const ModelConfig& config = model_.config();
  if (levels_.empty()) return nullptr;
  std::deque<Waiting>& queue = levels_.begin()->second;
  const size_t most = static_cast<size_t>(std::max<int64_t>(config.max_batch, 1));
  std::set<const Sequence*> seen;
  std::vector<size_t> chosen;
  int64_t oldest = INT64_MAX;
  for (size_t i = 0; i < queue.size() && chosen.size() < most; ++i) {
    Sequence& sequence = *queue[i].sequence;
    if (!seen.insert(&sequence).second || sequence.running) continue;
    if (sequence.place.value_or(place) != place) continue;
    if (!chosen.empty() && queue[i].tails != queue[chosen.front()].tails) continue;
    if (!sequences_->Activate(sequence)) continue;
    chosen.push_back(i);
    oldest = std::min(oldest, queue[i].arrived_ns);
  }
  if (chosen.empty()) return nullptr;
  constexpr int64_t kNsInUs = 1000;
  const int64_t leaves = oldest + config.sequences->delay_us * kNsInUs;
  if (chosen.size() < most && leaves > now) {
    *wake_ns = std::min(*wake_ns, leaves);
    return nullptr;
  }
  auto batch = std::make_shared<Batch>();
  for (const size_t i : chosen) {
    Waiting& waiting = queue[i];
    waiting.sequence->running = true;
    waiting.sequence->place = place;
    --waiting.sequence->waiting;
    batch->rows += waiting.rows;
    batch->sequences.push_back({waiting.sequence, waiting.request.sequence.end});
    batch->requests.push_back(std::move(waiting));
  }
  for (auto it = chosen.rbegin(); it != chosen.rend(); ++it) {
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(*it));
  }
  waiting_ -= static_cast<int64_t>(chosen.size());
  if (queue.empty()) levels_.erase(levels_.begin());
  return batch;
}

// Memory for the states of sequences that begin.
absl::Status Batcher::MakeStates(const Batch& batch) {
  for (const auto& [sequence, ends] : batch.sequences) {
    if (!sequence->states.empty()) continue;
    for (const Form::Io& io : batch.form->states_in) {
      std::shared_ptr<Memory>& state = sequence->states.emplace_back();
      const int64_t bytes = RowBytes(*batch.form, io);
      if (bytes == 0) continue;
      TG_ASSIGN_OR_RETURN(state, tenant_->Alloc(*batch.form->device, bytes));
    }
  }
  return absl::OkStatus();
}

// What the model is told; rows that are only padding are not ready.
void Batcher::GatherControls(const Batch& batch) const {
  const Form& form = *batch.form;
  const std::vector<SequenceControl>& controls = model_.config().sequences->controls;
  for (size_t i = 0; i < controls.size(); ++i) {
    const int64_t bytes = RowBytes(form, form.controls[i]);
    if (bytes == 0) continue;
    auto* to = static_cast<uint8_t*>(batch.buffers->controls[i]->host());
    for (int64_t row = 0; row < std::max<int64_t>(form.rows, 1); ++row, to += bytes) {
      const bool real = row < static_cast<int64_t>(batch.requests.size());
      const Waiting* const waiting = real ? &batch.requests[static_cast<size_t>(row)] : nullptr;
      switch (controls[i].kind) {
        case SequenceControl::Kind::kStart:
          FillFlag(controls[i], real && waiting->request.sequence.start, to, bytes);
          break;
        case SequenceControl::Kind::kEnd:
          FillFlag(controls[i], real && waiting->request.sequence.end, to, bytes);
          break;
        case SequenceControl::Kind::kReady:
          FillFlag(controls[i], real, to, bytes);
          break;
        case SequenceControl::Kind::kId:
          FillNumber(controls[i].spec.dtype, real ? waiting->sequence->number : 0, to, bytes);
          break;
      }
    }
  }
}

// Puts controls and states into the batch's rows. A state is zero at a sequence's start, and in
// rows that are only padding.
absl::Status Batcher::CopyStatesIn(const Batch& batch, std::vector<TimelinePoint>* waits) {
  Device& device = *batch.form->device;
  const Form& form = *batch.form;
  for (size_t i = 0; i < form.controls.size() && !device.host_visible(); ++i) {
    const Form::Io& io = form.controls[i];
    if (io.bytes == 0) continue;
    TG_ASSIGN_OR_RETURN(
        waits->emplace_back(),
        EnqueueCopy(queues_, device, batch.buffers->views[static_cast<size_t>(io.slot)],
                    {batch.buffers->controls[i], 0, io.bytes}, {}));
  }
  for (size_t i = 0; i < form.states_in.size(); ++i) {
    const Form::Io& io = form.states_in[i];
    if (io.bytes == 0) continue;
    const int64_t bytes = RowBytes(form, io);
    const BufferView& whole = batch.buffers->views[static_cast<size_t>(io.slot)];
    const std::shared_ptr<Memory>& host = batch.buffers->states_in[i];
    for (int64_t row = 0; row < std::max<int64_t>(form.rows, 1); ++row) {
      const auto number = static_cast<size_t>(row);
      const bool known =
          number < batch.requests.size() && !batch.requests[number].request.sequence.start;
      const BufferView to{whole.memory, whole.offset + row * bytes, bytes};
      auto* const there = static_cast<uint8_t*>(host->host()) + row * bytes;
      if (!known) std::memset(there, 0, static_cast<size_t>(bytes));
      const std::shared_ptr<Memory> state =
          known ? batch.sequences[number].first->states[i] : nullptr;
      if (device.host_visible()) {
        if (known) std::memcpy(there, state->host(), static_cast<size_t>(bytes));
        continue;
      }
      const BufferView from =
          known ? BufferView{state, 0, bytes} : BufferView{host, row * bytes, bytes};
      TG_ASSIGN_OR_RETURN(waits->emplace_back(), EnqueueCopy(queues_, device, to, from, {}));
    }
  }
  return absl::OkStatus();
}

// The states that a run has left, to the sequences; behind `last` in the lane of copies. Where the
// host reaches the device's memory, KeepStates does it once the run has ended.
absl::Status Batcher::CopyStatesOut(const Batch& batch, const TimelinePoint& run,
                                    TimelinePoint* last) {
  Device& device = *batch.form->device;
  const Form& form = *batch.form;
  for (size_t i = 0; i < form.states_out.size() && !device.host_visible(); ++i) {
    const Form::Io& io = form.states_out[i];
    const int64_t bytes = RowBytes(form, io);
    if (bytes == 0) continue;
    const BufferView& whole = batch.buffers->views[static_cast<size_t>(io.slot)];
    for (size_t row = 0; row < batch.sequences.size(); ++row) {
      const TimelinePoint waits[] = {run, *last};
      const BufferView from{whole.memory, whole.offset + static_cast<int64_t>(row) * bytes, bytes};
      TG_ASSIGN_OR_RETURN(
          *last, EnqueueCopy(queues_, device, {batch.sequences[row].first->states[i], 0, bytes},
                             from, waits));
    }
  }
  return absl::OkStatus();
}

void Batcher::KeepStates(const Batch& batch) const {
  if (!batch.form->device->host_visible()) return;
  const Form& form = *batch.form;
  for (size_t i = 0; i < form.states_out.size(); ++i) {
    const Form::Io& io = form.states_out[i];
    const int64_t bytes = RowBytes(form, io);
    if (bytes == 0) continue;
    const BufferView& whole = batch.buffers->views[static_cast<size_t>(io.slot)];
    const auto* from = static_cast<const uint8_t*>(whole.memory->host()) + whole.offset;
    for (size_t row = 0; row < batch.sequences.size(); ++row) {
      std::memcpy(batch.sequences[row].first->states[i]->host(),
                  from + static_cast<int64_t>(row) * bytes, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace telegrad
