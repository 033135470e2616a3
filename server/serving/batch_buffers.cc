// The memory that the runs of a form bind, and that of the host through which they are filled and
// read: kept for later runs of the same form.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/status.h"
#include "server/data/staging.h"
#include "server/serving/batcher.h"
#include "server/serving/served_model.h"
#include "server/session/buffer.h"

namespace telegrad {
namespace {

constexpr int64_t kKeptBytes = int64_t{256} << 20;  // of buffers for later runs

int64_t BytesOf(const BufferSet& buffers, const Form& form) {
  int64_t bytes = 0;
  for (const auto* ios : {&form.inputs, &form.outputs, &form.controls, &form.states_in,
                          &form.states_out, &form.shapes, &form.hidden}) {
    for (const Form::Io& io : *ios) {
      if (io.slot >= 0) bytes += buffers.views[static_cast<size_t>(io.slot)].length;
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BufferSet>> Batcher::NewBuffers(const Form& form) {
  Device& device = *form.device;
  auto out = std::make_unique<BufferSet>();
  out->views = form.weights;
  const auto add = [&](const Form::Io& io,
                       std::vector<std::shared_ptr<Memory>>* hosts) -> absl::Status {
    if (io.bytes == 0) {
      if (hosts != nullptr) hosts->push_back(nullptr);
      return absl::OkStatus();
    }
    BufferView& view = out->views[static_cast<size_t>(io.slot)];
    TG_ASSIGN_OR_RETURN(auto memory, tenant_->Alloc(device, io.bytes));
    view = {memory, 0, io.bytes};
    if (hosts == nullptr) return absl::OkStatus();
    if (memory->host() == nullptr) memory = nullptr;  // until it is needed, see Stage
    hosts->push_back(std::move(memory));
    return absl::OkStatus();
  };
  for (const Form::Io& io : form.inputs) TG_RETURN_IF_ERROR(add(io, &out->inputs));
  for (const Form::Io& io : form.outputs) TG_RETURN_IF_ERROR(add(io, &out->outputs));
  for (const Form::Io& io : form.controls) TG_RETURN_IF_ERROR(add(io, &out->controls));
  for (const Form::Io& io : form.states_in) TG_RETURN_IF_ERROR(add(io, &out->states_in));
  for (const Form::Io& io : form.states_out) TG_RETURN_IF_ERROR(add(io, nullptr));
  for (const Form::Io& io : form.shapes) TG_RETURN_IF_ERROR(add(io, &out->shapes));
  for (const Form::Io& io : form.hidden) TG_RETURN_IF_ERROR(add(io, nullptr));
  return out;
}

// Memory of the host for what passes it on the way to and from a device whose own the host cannot
// address. The tenant pays for what a batch needs, not for tensors that clients share on the
// device.
absl::Status Batcher::Stage(const Batch& batch) const {
  const Form& form = *batch.form;
  BufferSet& buffers = *batch.buffers;
  const auto stage = [&](const Form::Io& io, std::shared_ptr<Memory>* host) -> absl::Status {
    if (io.bytes == 0 || *host != nullptr) return absl::OkStatus();
    TG_ASSIGN_OR_RETURN(auto taken,
                        Reservation::Take(tenant_->accounts.shared(Quota::kHostStaging), io.bytes));
    TG_ASSIGN_OR_RETURN(auto memory, AllocStaging(*model_.maker().env->devices, *form.device,
                                                  static_cast<uint64_t>(io.bytes)));
    Memory* const raw = memory.get();
    *host = std::shared_ptr<Memory>(
        raw, [memory = std::move(memory),
              paid = std::make_shared<Reservation>(std::move(taken))](Memory*) {});
    return absl::OkStatus();
  };
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    if (FromHost(batch, i)) TG_RETURN_IF_ERROR(stage(form.inputs[i], &buffers.inputs[i]));
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    if (ToHost(batch, i)) TG_RETURN_IF_ERROR(stage(form.outputs[i], &buffers.outputs[i]));
  }
  for (const auto& [ios, hosts] : {std::pair(&form.controls, &buffers.controls),
                                   {&form.states_in, &buffers.states_in},
                                   {&form.shapes, &buffers.shapes}}) {
    for (size_t i = 0; i < ios->size(); ++i) TG_RETURN_IF_ERROR(stage((*ios)[i], &(*hosts)[i]));
  }
  return absl::OkStatus();
}

// Buffers of an earlier run of this tenant's, or new ones. They come back when the last answer that
// refers to them is sent.
absl::StatusOr<std::shared_ptr<BufferSet>> Batcher::TakeBuffers(
    const std::shared_ptr<const Form>& form) {
  std::unique_ptr<BufferSet> buffers;
  {
    const MutexLock lock(mutex_);
    const auto it = std::ranges::find(kept_, form, [](const auto& kept) { return kept.first; });
    if (it != kept_.end()) {
      buffers = std::move(it->second);
      kept_.erase(it);
    }
  }
  if (buffers == nullptr) {
    TG_ASSIGN_OR_RETURN(buffers, NewBuffers(*form));
  }
  return std::shared_ptr<BufferSet>(buffers.release(),
                                    [weak = weak_from_this(), form](BufferSet* set) {
                                      std::unique_ptr<BufferSet> owned(set);
                                      if (const auto self = weak.lock())
                                        self->KeepBuffers(form, std::move(owned));
                                    });
}

void Batcher::KeepBuffers(std::shared_ptr<const Form> form, std::unique_ptr<BufferSet> buffers) {
  if (!buffers->reusable) return;
  std::unique_ptr<BufferSet> dropped;  // without the lock
  const MutexLock lock(mutex_);
  int64_t bytes = BytesOf(*buffers, *form);
  for (const auto& [of, kept] : kept_) bytes += BytesOf(*kept, *of);
  const int64_t most = std::accumulate(most_running_.begin(), most_running_.end(), int64_t{0});
  if (bytes > kKeptBytes || kept_.size() > static_cast<size_t>(most)) {
    dropped = std::move(buffers);
  } else {
    kept_.emplace_back(std::move(form), std::move(buffers));
  }
}

}  // namespace telegrad
