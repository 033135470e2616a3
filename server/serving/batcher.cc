// The queue's side of a Batcher: which requests become a batch, and when. How a batch is run is in
// batch_run.cc.
#include "server/serving/batcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

// Of one tenant for one version of a model, where the model's configuration says nothing.
constexpr int64_t kMostWaiting = 4096;
constexpr int64_t kUnbatchedRunning = 16;
constexpr int64_t kNsPerUs = 1000;
constexpr size_t kKeptLevels = 4;  // with their memory while no request is in them
constexpr int kMostInline = 64;    // batches' ends after which a thread leaves the next to a worker
constexpr int64_t kNotAgainNs = 60'000'000'000;  // after a form that no request needs has failed

// By its instances.
std::vector<int64_t> MostRunning(const ServedModel& model) {
  const ModelConfig& config = model.config();
  const bool batches = config.max_batch > 0 && !config.by_value;
  std::vector<int64_t> out;
  for (const auto& instance : model.instances()) {
    // One that runs and one that is ready behind it.
    out.push_back(batches ? instance->count + 1 : std::max(kUnbatchedRunning, instance->count));
  }
  return out;
}

std::unique_ptr<SequenceTable> SequencesOf(const ModelConfig& config,
                                           const std::vector<int64_t>& most_running) {
  if (!config.sequences) return nullptr;
  const int64_t said = config.sequences->candidates;
  const int64_t room = std::max<int64_t>(config.max_batch, 1) *
                       std::accumulate(most_running.begin(), most_running.end(), int64_t{0});
  return std::make_unique<SequenceTable>(&*config.sequences,
                                         static_cast<size_t>(said > 0 ? said : room));
}

}  // namespace

Batcher::Batcher(ServedModel* model, std::shared_ptr<Tenant> tenant)
    : model_(*model),
      tenant_(std::move(tenant)),
      queues_(model->maker().env->devices, tenant_->share),
      most_running_(MostRunning(*model)),
      running_(most_running_.size()),
      sequences_(SequencesOf(model->config(), most_running_)) {
  tenant_->Enter();
}

Batcher::~Batcher() { tenant_->Leave(); }

void Batcher::Refuse(ServedModel& model, Waiting& request, const absl::Status& status) const {
  const int64_t now = model.maker().env->clock->Ns();
  model.statistics().Failed(ReasonOf(status), now - request.arrived_ns,
                            static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())));
  const InferDone done = std::move(request.done);
  request = {};  // gives back what it holds before anybody is told
  done(status);
}

void Batcher::Add(const std::shared_ptr<ServedModel>& model, Waiting request) {
  const ModelConfig& config = model->config();
  const QueuePolicy policy =
      config.batching ? config.batching->PolicyOf(request.level) : QueuePolicy{};
  request.arrived_ns = model->maker().env->clock->Ns();
  const auto limit = [&](int64_t from_ns, int64_t timeout_us) {
    if (timeout_us <= 0 || timeout_us >= (INT64_MAX - from_ns) / kNsPerUs) return;
    request.expires_ns = std::min(request.expires_ns, from_ns + timeout_us * kNsPerUs);
  };
  limit(request.arrived_ns, policy.timeout_us);
  if (policy.may_override) {
    limit(request.request.arrived_ns.value_or(request.arrived_ns), request.request.timeout_us);
  }
  model->statistics().Arrived();
  absl::Status full;
  Refused gone;  // without the lock
  {
    const MutexLock lock(mutex_);
    // Those for which nobody waits any more take no place.
    int64_t wake_ns = INT64_MAX;
    if (IsFullLocked(request.level, policy.most)) {
      DropLocked(request.arrived_ns, &gone, &wake_ns);
    }
    const bool is_full = IsFullLocked(request.level, policy.most);
    if (is_full && waiting_ < kMostWaiting) {
      full =
          absl::UnavailableError(StrCat("model '", config.name, "': Exceeds maximum queue size, ",
                                        policy.most, " of max_queue_size"));
    } else if (is_full) {
      full =
          absl::UnavailableError(StrCat("model '", config.name, "': Exceeds maximum queue size, ",
                                        kMostWaiting, " requests of one tenant"));
    } else {
      full = EnqueueLocked(&request);
    }
  }
  for (auto& [waiting, status] : gone) Refuse(*model, waiting, status);
  if (!full.ok()) return Refuse(*model, request, full);
  Dispatch(model);
}

absl::Status Batcher::EnqueueLocked(Waiting* request) {
  if (sequences_ != nullptr) {
    TG_ASSIGN_OR_RETURN(
        request->sequence,
        sequences_->Take(request->request.sequence, model_.config().name, request->arrived_ns));
  }
  levels_[request->level].push_back(std::move(*request));
  ++waiting_;
  return absl::OkStatus();
}

bool Batcher::IsFullLocked(uint64_t level, int64_t most) const {
  const auto it = levels_.find(level);
  const size_t of_level = it == levels_.end() ? 0 : it->second.size();
  return waiting_ >= kMostWaiting || (most > 0 && static_cast<int64_t>(of_level) >= most);
}

// Takes out what nobody waits for any more and what has waited too long.
void Batcher::DropLocked(int64_t now, Refused* refused, int64_t* wake_ns) {
  std::vector<Waiting> delayed;
  for (auto& [level, queue] : levels_) {
    const auto check = [&](Waiting& waiting) {
      absl::Status status = waiting.request.cancellation == nullptr
                                ? absl::OkStatus()
                                : waiting.request.cancellation->Check();
      if (status.ok() && waiting.request.deadline_ns <= now) {
        status = absl::DeadlineExceededError("the request's deadline has passed in the queue");
      }
      if (status.ok() && waiting.sequence != nullptr) status = waiting.sequence->lost;
      if (status.ok() && waiting.expires_ns <= now) {
        waiting.expires_ns = INT64_MAX;
        const auto& batching = model_.config().batching;
        if (batching && batching->PolicyOf(waiting.level).delay) {
          delayed.push_back(std::move(waiting));
          return true;
        }
        status = absl::UnavailableError(
            StrCat("model '", model_.config().name, "': Request timeout expired in the queue"));
      }
      if (status.ok()) {
        *wake_ns = std::min({*wake_ns, waiting.expires_ns, waiting.request.deadline_ns});
        return false;
      }
      // So that those behind it in the queue are refused, too.
      if (waiting.sequence != nullptr) MarkLost(*waiting.sequence, status);
      refused->emplace_back(std::move(waiting), std::move(status));
      return true;
    };
    const size_t before = refused->size();
    std::erase_if(queue, check);
    waiting_ -= static_cast<int64_t>(refused->size() - before);
    for (size_t i = before; i < refused->size(); ++i) {
      const auto& [waiting, status] = (*refused)[i];
      if (waiting.sequence == nullptr) continue;
      --waiting.sequence->waiting;
      sequences_->Lose(waiting.sequence, status);
    }
  }
  for (Waiting& waiting : delayed) levels_[kDelayed].push_back(std::move(waiting));
}

Batcher::BatchPtr Batcher::TakeFirstLocked(size_t count) {
  auto batch = std::make_shared<Batch>();
  for (auto it = levels_.begin(); it != levels_.end() && batch->requests.size() < count;) {
    while (!it->second.empty() && batch->requests.size() < count) {
      batch->rows += it->second.front().rows;
      batch->requests.push_back(std::move(it->second.front()));
      it->second.pop_front();
      --waiting_;
    }
    it = it->second.empty() && levels_.size() > kKeptLevels ? levels_.erase(it) : std::next(it);
  }
  return batch;
}

// The next batch; null where there is none, or where it is worth waiting for more requests.
Batcher::BatchPtr Batcher::TakeLocked(size_t place, int64_t now, int64_t* wake_ns) {
  const ModelConfig& config = model_.config();
  if (sequences_ != nullptr) return TakeSequencesLocked(place, now, wake_ns);
  size_t count = 0, preferred_count = 0;
  int64_t rows = 0, oldest = INT64_MAX;
  bool closed = false;  // no later request can join
  const InputShapes* tails = nullptr;
  for (const auto& [level, queue] : levels_) {
    for (const Waiting& waiting : queue) {
      closed =
          tails != nullptr && (waiting.tails != *tails || rows + waiting.rows > config.max_batch);
      if (closed) break;
      tails = &waiting.tails;
      ++count;
      rows += waiting.rows;
      oldest = std::min(oldest, waiting.arrived_ns);
      if (!config.batching || config.by_value) return TakeFirstLocked(1);
      if (std::ranges::binary_search(config.batching->preferred, rows)) preferred_count = count;
    }
    if (closed) break;
  }
  if (count == 0) return nullptr;
  if (preferred_count > 0) return TakeFirstLocked(preferred_count);
  if (!closed && rows < config.max_batch) {
    const int64_t leaves = oldest + config.batching->delay_us * kNsPerUs;
    if (leaves > now) {
      *wake_ns = std::min(*wake_ns, leaves);
      return nullptr;
    }
  }
  if (!closed && IsTooEarlyLocked(place, rows)) return nullptr;
  if (!config.ragged.empty()) return TakeFirstLocked(count);
  BatchPtr batch = TakeFirstLocked(BestCountLocked(place, count, *tails, now));
  batch->among_many = count > 1;
  return batch;
}

// A batch that ends at once asks for the next one from within, and an ensemble's step asks another
// model: those are next for the same thread, so that a long queue of requests that fail is no deep
// recursion. A worker goes on with what a thread, which may be gRPC's, has kept for too long.
void Batcher::Dispatch(const std::shared_ptr<ServedModel>& model) {
  struct Next {
    std::shared_ptr<Batcher> batcher;
    std::shared_ptr<ServedModel> model;
  };
  thread_local std::vector<Next>* inside = nullptr;
  if (inside != nullptr) {
    const auto same = [this](const Next& next) { return next.batcher.get() == this; };
    if (std::ranges::none_of(*inside, same)) inside->push_back({shared_from_this(), model});
    return;
  }
  std::vector<Next> next;
  inside = &next;
  DispatchNow(model);
  for (int left = kMostInline; !next.empty(); --left) {
    const Next taken = std::move(next.back());
    next.pop_back();
    if (left > 0) {
      taken.batcher->DispatchNow(taken.model);
    } else {
      taken.model->maker().env->workers->Post([taken] { taken.batcher->Dispatch(taken.model); },
                                              taken.batcher->tenant_->share);
    }
  }
  inside = nullptr;
}

void Batcher::DispatchNow(const std::shared_ptr<ServedModel>& model) {
  Refused refused;
  absl::InlinedVector<BatchPtr, 2> batches;
  std::vector<std::shared_ptr<Sequence>> gone;  // without the lock
  std::vector<Wanted> wanted;
  int64_t wake_ns = INT64_MAX;
  {
    const MutexLock lock(mutex_);
    if (waiting_ == 0 && sequences_ == nullptr) return;
    const int64_t now = model->maker().env->clock->Ns();
    DropLocked(now, &refused, &wake_ns);
    if (sequences_ != nullptr) wake_ns = std::min(wake_ns, sequences_->Expire(now, &gone));
    while (BatchPtr batch = NextLocked(now, &wake_ns)) {
      batch->times.taken_ns = now;
      batch->model = model;
      batches.push_back(std::move(batch));
    }
    wanted = std::exchange(wanted_, {});
    // One alarm at a time, the earliest; what comes too early does no harm.
    const bool idle = waiting_ == 0 && (sequences_ == nullptr || sequences_->size() == 0);
    if (idle || (wake_ns_ <= wake_ns && wake_ns_ > now)) {
      wake_ns = INT64_MAX;
    } else {
      wake_ns_ = wake_ns;
    }
  }
  if (wake_ns != INT64_MAX) {
    model->alarm().At(wake_ns, [weak = weak_from_this(), of = std::weak_ptr(model)] {
      const auto kept = of.lock();
      const auto self = weak.lock();
      if (kept != nullptr && self != nullptr) self->Dispatch(kept);
    });
  }
  for (auto& [waiting, status] : refused) Refuse(*model, waiting, status);
  for (const BatchPtr& batch : batches) Start(batch);
  for (const Wanted& form : wanted) {
    const auto made = [model, place = form.place](const absl::StatusOr<FormCache::FormPtr>& got) {
      const int64_t later = got.ok() ? 0 : model->maker().env->clock->Ns() + kNotAgainNs;
      model->instances()[place]->next_form_ns.store(later, std::memory_order_relaxed);
    };
    model->instances()[form.place]->forms->Get({.shapes = form.shapes}, form.rows, nullptr, tenant_,
                                               /*wanted=*/nullptr, made);
  }
}

bool Batcher::Trim() {
  decltype(kept_) dropped;
  const MutexLock lock(mutex_);
  dropped = std::exchange(kept_, {});
  const bool runs = std::ranges::any_of(running_, [](int64_t of_place) { return of_place > 0; });
  return waiting_ == 0 && !runs && (sequences_ == nullptr || sequences_->size() == 0);
}

}  // namespace telegrad
