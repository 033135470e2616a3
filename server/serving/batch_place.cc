// Where a batch runs, if its model has instances on several devices: where it is expected to end
// first. A batch that a device has lost, because another machine is gone, runs elsewhere.
#include <algorithm>
#include <numeric>
#include <utility>

#include "server/serving/batcher.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

constexpr int64_t kFirstGuessNs = 100'000;     // before a batch has run anywhere
constexpr int64_t kAvoidedNs = 5'000'000'000;  // after a device has lost a batch
constexpr int64_t kStaleNs = 1'000'000'000;    // after which a device is tried again

using Instances = std::vector<std::unique_ptr<ServedModel::Instance>>;

// How long a batch is expected to run there: as long as lately or, where nothing is known of late,
// as long as where it is shortest. Otherwise a device that was slow once would never be tried
// again.
int64_t MeanNs(const Instances& instances, size_t place, int64_t now) {
  const ServedModel::Instance& instance = *instances[place];
  const int64_t known = instance.time.ns();
  const bool fresh = now - instance.time.learned_ns() < kStaleNs;
  if (known > 0 && fresh) return known;
  int64_t least = known > 0 ? known : INT64_MAX;
  for (const auto& other : instances) {
    const int64_t ns = other->time.ns();
    if (ns > 0) least = std::min(least, ns);
  }
  return least == INT64_MAX ? kFirstGuessNs : least;
}

// When a batch that is handed in now would have ended, from now.
int64_t EndNs(const Instances& instances, size_t place, int64_t now) {
  const FormMaker& maker = instances[place]->maker;
  const FairQueue* const queue = maker.env->devices->queue(*maker.device, QueueKind::kCompute);
  const auto queued = queue == nullptr ? 0 : static_cast<int64_t>(queue->backlog_ns());
  return std::max(queued, maker.expected_ns->load(std::memory_order_relaxed)) +
         MeanNs(instances, place, now);
}

bool IsWell(const ServedModel::Instance& instance, int64_t now) {
  const FormMaker& maker = instance.maker;
  return instance.avoid_ns.load(std::memory_order_relaxed) <= now &&
         maker.env->devices->CheckTakesWork(*maker.pooled).ok() && maker.device->Health().ok();
}

}  // namespace

absl::InlinedVector<size_t, 2> Batcher::PlacesLocked(int64_t now) const {
  const auto& instances = model_.instances();
  struct Row {
    bool ill;
    int64_t end_ns;
    size_t place;
    auto operator<=>(const Row&) const = default;
  };
  std::vector<Row> rows;
  bool some_are_well = false;
  for (size_t i = 0; i < instances.size(); ++i) {
    const bool ill = !IsWell(*instances[i], now);
    some_are_well |= !ill;
    if (running_[i] >= most_running_[i]) continue;
    if (instances.size() == 1) return {0};
    rows.push_back({ill, EndNs(instances, i, now), i});
  }
  std::ranges::sort(rows);
  absl::InlinedVector<size_t, 2> out;
  for (const Row& row : rows) {
    // What is not well is only better than nothing, except for the states that it has. A device
    // that is well and has all the work that it may have now is not nothing.
    if (!row.ill || !some_are_well || sequences_ != nullptr) out.push_back(row.place);
  }
  return out;
}

Batcher::BatchPtr Batcher::NextLocked(int64_t now, int64_t* wake_ns) {
  if (waiting_ == 0) return nullptr;
  for (const size_t place : PlacesLocked(now)) {
    BatchPtr batch = TakeLocked(place, now, wake_ns);
    if (batch != nullptr) {
      ++running_[place];
      Occupy(batch.get(), place, now);
      return batch;
    }
    if (sequences_ == nullptr) break;  // another place would have nothing, either
  }
  return nullptr;
}

void Batcher::Occupy(Batch* batch, size_t place, int64_t now) const {
  batch->place = place;
  batch->expected_ns = MeanNs(model_.instances(), place, now);
  model_.instances()[place]->maker.expected_ns->fetch_add(batch->expected_ns,
                                                          std::memory_order_relaxed);
}

void Batcher::Release(const Batch& batch) const {
  const ServedModel::Instance& instance = *model_.instances()[batch.place];
  instance.maker.expected_ns->fetch_sub(batch.expected_ns, std::memory_order_relaxed);
}

// Only while the device runs what is under way, whose form may yet be compiled, and has nothing
// else to do: among others, a tenant that has nothing ready loses its turn. Nor on another machine,
// where the end of a batch is known late.
bool Batcher::IsTooEarlyLocked(size_t place, int64_t rows) const {
  const ServedModel::Instance& instance = *model_.instances()[place];
  if (running_[place] < instance.count) return false;
  if (!IsTooEarly(rows, instance.usual_rows.load(), instance.time.ns())) return false;
  const FormMaker& maker = instance.maker;
  const FairQueue* const queue = maker.env->devices->queue(*maker.device, QueueKind::kCompute);
  if (queue == nullptr || maker.device->link()) return false;
  const int64_t works = queue->works();
  return works >= instance.count && works <= running_[place];
}

// How many of the first `count` requests, which all have these tails, the next batch takes.
size_t Batcher::BestCountLocked(size_t place, size_t count, const InputShapes& tails, int64_t now) {
  if (count == 1) return 1;
  std::vector<int64_t> rows;
  for (const auto& [level, queue] : levels_) {
    for (const Waiting& waiting : queue) {
      if (rows.size() == count) break;
      rows.push_back(waiting.rows);
    }
  }
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const FormCache& forms = *model_.instances()[place]->forms;
  std::atomic<int64_t>& usual = model_.instances()[place]->usual_rows;
  std::vector<BatchSize> sizes;
  for (const int64_t size : model_.batch_sizes()) {
    const auto form = forms.Peek({.shapes = WithBatch(tails, size)});
    BatchSize& known = sizes.emplace_back(
        BatchSize{.rows = size, .made = form != nullptr, .usual = size == usual.load()});
    if (form != nullptr) {
      known.ns = form->time->ns();
      known.stale = form->time->IsOld(now);
      known.aged = form->time->IsAged(now);
    }
    if (size >= all) break;
  }
  const BatchChoice choice = ChooseBatch(sizes, rows);
  if (choice.usual > 0) usual.store(choice.usual);
  std::atomic<int64_t>& next_form_ns = model_.instances()[place]->next_form_ns;
  if (choice.wanted > 0 && next_form_ns.load(std::memory_order_relaxed) <= now) {
    next_form_ns.store(INT64_MAX, std::memory_order_relaxed);
    wanted_.push_back({place, choice.wanted, WithBatch(tails, choice.wanted)});
  }
  return choice.requests;
}

void Batcher::Learn(const Batch& batch) const {
  const int64_t taken = batch.taken->all_ns();
  const int64_t ns =
      std::max<int64_t>(taken > 0 ? taken : batch.times.run_ns - batch.times.gathered_ns, 1);
  model_.instances()[batch.place]->time.Add(ns, batch.times.run_ns);
  // Times that contain waiting for other batches tell nothing of a size. Those of a request that
  // was alone say little of it among many: it runs while those arrive, or while nobody else does.
  LearnedTime& time = *batch.form->time;
  if (taken > 0 && (batch.among_many || time.ns() == 0)) time.Add(taken, batch.times.run_ns);
}

// True if the batch runs elsewhere now, or again where the device has come back without the weights
// that it had. States are only where they are, and nobody knows whether a
// run of theirs has ended there.
bool Batcher::MoveAway(const BatchPtr& batch, const absl::Status& status) {
  const auto& instances = model_.instances();
  ServedModel::Instance& here = *instances[batch->place];
  const bool renewed =
      batch->form != nullptr && batch->form->generation != here.maker.device->memory_generation();
  const bool linked = here.maker.device->link().has_value();
  if (!absl::IsUnavailable(status) || !(linked || renewed)) return false;
  // The weights that it had are gone, too, even if it is there again.
  if (batch->form != nullptr && here.forms->Forget(batch->form)) here.maker.weights->Forget();
  const int64_t now = model_.maker().env->clock->Ns();
  if (linked) here.avoid_ns.store(now + kAvoidedNs, std::memory_order_relaxed);
  if (model_.config().sequences) return false;
  size_t best = batch->place;
  if (linked) {
    if (++batch->moves >= static_cast<int>(instances.size())) return false;
    for (size_t i = 0; i < instances.size(); ++i) {
      if (!IsWell(*instances[i], now)) continue;
      if (best == batch->place || EndNs(instances, i, now) < EndNs(instances, best, now)) best = i;
    }
    if (best == batch->place) return false;
  } else if (++batch->moves > static_cast<int>(instances.size())) {
    return false;
  }
  Release(*batch);
  {
    const MutexLock lock(mutex_);
    --running_[batch->place];
    ++running_[best];  // above its most for once
  }
  Occupy(batch.get(), best, now);
  batch->buffers = nullptr;
  batch->form = nullptr;
  batch->taken = std::make_shared<DeviceTime>();
  batch->device_time = {};
  model_.maker().env->workers->Post([self = shared_from_this(), batch] { self->Start(batch); },
                                    tenant_->share);
  return true;
}

}  // namespace telegrad
