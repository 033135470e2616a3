// Of a batch, the copies of its inputs to the device and of its outputs from there: through memory
// of the host for tensors that came with a request or are sent with the answer, and straight from
// and to the memory of devices that clients share.
#include <algorithm>

#include "engine/base/status.h"
#include "server/data/staging.h"
#include "server/serving/batcher.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

// By the one of two devices that reaches the other; see CopyDevice.
absl::StatusOr<TimelinePoint> CopyBetween(SessionQueues& queues, Device& to_device, BufferView to,
                                          Device& from_device, BufferView from,
                                          std::span<const TimelinePoint> waits) {
  Device& by = CopyDevice(to_device, from_device);
  const Device& other = &by == &to_device ? from_device : to_device;
  return EnqueueCopy(queues, by, std::move(to), std::move(from), waits,
                     CopyKind(by, to_device, from_device),
                     &other == &by || other.host_visible() ? nullptr : &other);
}

BufferView PartOf(const BufferView& view, int64_t offset, int64_t length) {
  return {view.memory, view.offset + offset, length};
}

}  // namespace

// Whether some of an input comes from the host: with a request, or as padding.
bool Batcher::FromHost(const Batch& batch, size_t input) {
  int64_t shared = 0;
  for (const Waiting& waiting : batch.requests) {
    const InferInput& from = waiting.request.inputs[waiting.inputs[input]];
    if (from.device) shared += from.bytes;
  }
  return shared < batch.form->inputs[input].bytes;
}

// The bytes of requests are in the device's buffer as Gather has them in that of the host.
absl::Status Batcher::CopyInput(const Batch& batch, size_t input,
                                std::vector<TimelinePoint>* waits) {
  Device& device = *batch.form->device;
  const Form::Io& io = batch.form->inputs[input];
  const BufferView& view = batch.buffers->views[static_cast<size_t>(io.slot)];
  int64_t staged = 0;  // from here on it is not copied yet
  const auto copy_staged = [&](int64_t end) -> absl::Status {
    if (device.host_visible() || staged == end) return absl::OkStatus();
    TG_ASSIGN_OR_RETURN(waits->emplace_back(),
                        EnqueueCopy(queues_, device, PartOf(view, staged, end - staged),
                                    {batch.buffers->inputs[input], staged, end - staged}, {}));
    return absl::OkStatus();
  };
  int64_t at = 0;
  for (const Waiting& waiting : batch.requests) {
    const InferInput& from = waiting.request.inputs[waiting.inputs[input]];
    if (from.device && from.bytes > 0) {
      TG_RETURN_IF_ERROR(copy_staged(at));
      TG_ASSIGN_OR_RETURN(waits->emplace_back(),
                          CopyBetween(queues_, device, PartOf(view, at, from.bytes),
                                      *from.device->device, from.device->view, {}));
      staged = at + from.bytes;
    }
    at += from.bytes;
  }
  return copy_staged(io.bytes);
}

// Where in the memory of a device the output goes that a request asks for by that number; null
// where it passes the host, because the answer is not the output's bytes as the run leaves them.
const DevicePart* Batcher::PartFor(const Batch& batch, const Waiting& waiting, size_t wanted) {
  if (wanted >= waiting.outputs.size()) return nullptr;
  const WantedOutput& output = waiting.request.outputs[wanted];
  const Form::Io& io = batch.form->outputs[waiting.outputs[wanted]];
  const bool as_it_is = output.classes == 0 && io.strings == nullptr && io.run_shape < 0 &&
                        io.bytes > 0 && batch.sizes.empty();
  return output.device && as_it_is ? &*output.device : nullptr;
}

// Whether some request is to have an output at the host.
bool Batcher::ToHost(const Batch& batch, size_t output) {
  return std::ranges::any_of(batch.requests, [&](const Waiting& waiting) {
    const auto asked = std::ranges::find(waiting.outputs, output);
    if (asked == waiting.outputs.end()) return waiting.outputs.empty();
    return PartFor(batch, waiting, static_cast<size_t>(asked - waiting.outputs.begin())) == nullptr;
  });
}

// To the host for those that are to have it there, and to the memory of devices for others. Scatter
// refuses those that have no room.
absl::Status Batcher::CopyOutput(const Batch& batch, size_t output, const TimelinePoint& run,
                                 TimelinePoint* last) {
  Device& device = *batch.form->device;
  const Form::Io& io = batch.form->outputs[output];
  const BufferView& view = batch.buffers->views[static_cast<size_t>(io.slot)];
  int64_t row = 0;
  for (const Waiting& waiting : batch.requests) {
    const int64_t rows = batch.form->rows;
    const int64_t bytes = rows > 0 ? io.bytes / rows * waiting.rows : io.bytes;
    const int64_t from = rows > 0 ? io.bytes / rows * row : 0;
    row += waiting.rows;
    const auto asked = std::ranges::find(waiting.outputs, output);
    const DevicePart* const part =
        PartFor(batch, waiting, static_cast<size_t>(asked - waiting.outputs.begin()));
    if (part == nullptr || bytes > part->view.length) continue;
    const TimelinePoint waits[] = {run, *last};
    TG_ASSIGN_OR_RETURN(*last, CopyBetween(queues_, *part->device, PartOf(part->view, 0, bytes),
                                           device, PartOf(view, from, bytes), waits));
  }
  if (device.host_visible() || !ToHost(batch, output)) return absl::OkStatus();
  const TimelinePoint waits[] = {run, *last};
  TG_ASSIGN_OR_RETURN(
      *last,
      EnqueueCopy(queues_, device, {batch.buffers->outputs[output], 0, io.bytes}, view, waits));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TimelinePoint>> Batcher::CopyIn(const Batch& batch) {
  std::vector<TimelinePoint> waits;
  for (size_t i = 0; i < batch.form->inputs.size(); ++i) {
    if (batch.form->inputs[i].bytes > 0) TG_RETURN_IF_ERROR(CopyInput(batch, i, &waits));
  }
  if (model_.config().sequences) TG_RETURN_IF_ERROR(CopyStatesIn(batch, &waits));
  return waits;
}

// The point at which the outputs are where the host can read them: copies of one lane end in order.
absl::StatusOr<TimelinePoint> Batcher::CopyOut(const Batch& batch, const TimelinePoint& run) {
  TimelinePoint last = run;
  Device& device = *batch.form->device;
  if (model_.config().sequences) TG_RETURN_IF_ERROR(CopyStatesOut(batch, run, &last));
  for (size_t i = 0; i < batch.form->outputs.size(); ++i) {
    if (batch.form->outputs[i].bytes > 0) TG_RETURN_IF_ERROR(CopyOutput(batch, i, run, &last));
  }
  if (device.host_visible()) return last;
  for (size_t i = 0; i < batch.form->shapes.size(); ++i) {
    const Form::Io& io = batch.form->shapes[i];
    if (io.bytes == 0) continue;
    const TimelinePoint waits[] = {run, last};
    TG_ASSIGN_OR_RETURN(last,
                        EnqueueCopy(queues_, device, {batch.buffers->shapes[i], 0, io.bytes},
                                    batch.buffers->views[static_cast<size_t>(io.slot)], waits));
  }
  return last;
}

}  // namespace telegrad
