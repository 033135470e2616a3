// A thread looks at one submission after the other: it waits for what has to be waited for here,
// and sends it. The process's thread says what has ended. Points are reached in their order by
// whoever of the two finds the first one's work ended (DriverProcess::Settle).
#include "devices/hosted/hosted_queue.h"

#include <algorithm>

#include "devices/hosted/hosted_stages.h"
#include "engine/base/burst.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// With more on their way, whoever submits does not write to the socket, where there may be no room.
constexpr size_t kFewFlights = 64;

}  // namespace

HostedQueue::HostedQueue(std::shared_ptr<DriverProcess> process, const HostedQueueFacts& facts,
                         const Options& options)
    : Queue(facts.name, facts.takes), options_(options), process_(std::move(process)) {
  thread_ = std::thread([this] { Serve(); });
}

HostedQueue::~HostedQueue() { Drain(); }

void HostedQueue::Drain() {
  if (!thread_.joinable()) return;
  stop_ = true;
  bell_->Ring();
  thread_.join();
  ReleasableLock lock(bell_->mutex);
  bell_->rung.wait(lock, [&] { return unsettled_.load() == 0; });
}

TimelinePoint HostedQueue::last() const { return {timeline_, submitted_.load()}; }

absl::StatusOr<TimelinePoint> HostedQueue::Enqueue(QueueWork work,
                                                   std::span<const TimelinePoint> waits) {
  const auto* const commands = dynamic_cast<const HostedCommands*>(work.commands.get());
  if (commands == nullptr || commands->process() != process_.get()) {
    return InvalidArgument(name(), ": the commands were not encoded for its device");
  }
  TG_RETURN_IF_ERROR(commands->CheckReach(work.bindings, name()));
  auto item = std::make_shared<Item>();
  item->work = std::move(work);
  item->waits.assign(waits.begin(), waits.end());
  bool here;
  {
    const MutexLock lock(mutex_);
    const uint64_t before = submitted_.load();
    if (places_ == static_cast<size_t>(options_.capacity)) {
      return ResourceExhausted(name(), ": the queue holds its limit of ", options_.capacity,
                               " submissions");
    }
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == timeline_ && wait.value > before) {
        return InvalidArgument(name(), ": a wait for point ", wait.value, " of a queue that is at ",
                               before);
      }
    }
    item->value = before + 1;
    alive_.push_back(item);
    ++places_;
    ++unsettled_;
    submitted_ = before + 1;
    if (busy_.load()) return TimelinePoint{timeline_, item->value};  // it is seen at the turn's end
    here = taken_ + 1 == alive_.size() && flying_.load() < kFewFlights;
    busy_ = here;
    ready_ = !here;
    if (here) ++taken_;
  }
  const TimelinePoint point{timeline_, item->value};
  if (here) {
    SendAtOnce(item);
  } else {
    bell_->Ring();
  }
  return point;
}

void HostedQueue::SendAtOnce(const ItemRef& item) {
  const auto& commands = static_cast<const HostedCommands&>(*item->work.commands);
  std::vector<HostedPoint> waits;
  // What fails is left to the thread, too: whoever submits may hold any lock, and is not to be the
  // one who tells of it.
  const bool sent = !commands.TouchesHost(item->work.bindings) && IsDue(item.get(), &waits) &&
                    Run(item, std::move(waits)).ok();
  {
    const MutexLock lock(mutex_);
    if (!sent) --taken_;
    busy_ = false;
    ready_ = taken_ < alive_.size();
  }
  if (ready_.load() || stop_.load()) bell_->Ring();
}

bool HostedQueue::IsDue(Item* item, std::vector<HostedPoint>* sent) {
  if (process_->is_over()) return false;
  if (item->work.cancellation != nullptr && !item->work.cancellation->Check().ok()) return false;
  for (const TimelinePoint& point : item->waits) {
    if (point.timeline == nullptr) continue;
    HostedQueue* const sibling = QueueOf(point);
    const Standing at = sibling == nullptr ? Standing{} : sibling->StandingOf(point.value);
    if (!at.done && at.number != 0) {
      sent->push_back({static_cast<uint32_t>(sibling->options_.index), at.number});
      item->native.push_back(point);
    } else if (point.timeline->value() < point.value ||
               !point.timeline->StatusOf(point.value).ok()) {
      item->native.clear();
      return false;
    }
  }
  return true;
}

HostedQueue* HostedQueue::QueueOf(const TimelinePoint& point) {
  for (HostedQueue* const queue : process_->queues()) {
    if (queue->timeline_ == point.timeline) return queue;
  }
  return nullptr;
}

void HostedQueue::Serve() {
  while (const ItemRef item = Next()) {
    if (auto status = Forward(item)) Done(item, *std::move(status));
    EndTurn();
  }
}

void HostedQueue::EndTurn() {
  const MutexLock lock(mutex_);
  busy_ = false;
  ready_ = taken_ < alive_.size();
}

HostedQueue::ItemRef HostedQueue::Next() {
  while (true) {
    process_->SendPending();
    {
      const MutexLock lock(mutex_);
      if (!busy_.load() && taken_ < alive_.size()) {
        busy_ = true;
        ready_ = false;
        return alive_[taken_++];
      }
      if (!busy_.load() && stop_.load()) return nullptr;
    }
    ReleasableLock lock(bell_->mutex);
    bell_->rung.wait(lock, [&] {
      return ready_.load() || (stop_.load() && !busy_.load()) ||
             (process_->has_pending() && !process_->is_over());
    });
  }
}

std::optional<absl::Status> HostedQueue::Forward(const ItemRef& item) {
  std::vector<HostedPoint> waits;
  for (const TimelinePoint& point : item->waits) {
    if (point.timeline == nullptr) continue;
    if (absl::Status status = Await(point, item.get(), &waits); !status.ok()) return status;
  }
  if (item->work.cancellation != nullptr) {
    if (absl::Status status = item->work.cancellation->Check(); !status.ok()) return status;
  }
  if (process_->is_over()) return process_->AwaitOver();
  const auto& commands = static_cast<const HostedCommands&>(*item->work.commands);
  if (commands.TouchesHost(item->work.bindings)) {
    return HostedStages(*this, item, std::move(waits)).Run();
  }
  absl::Status status = Run(item, std::move(waits));
  if (status.ok()) return std::nullopt;
  return status;
}

void HostedQueue::Done(const ItemRef& item, absl::Status status) {
  {
    const MutexLock lock(mutex_);
    item->status = std::move(status);
    item->done = true;
  }
  process_->Settle();
}

HostedQueue::Standing HostedQueue::StandingOf(uint64_t value) {
  if (timeline_->value() >= value) return {.reached = true, .status = timeline_->StatusOf(value)};
  const MutexLock lock(mutex_);
  if (alive_.empty() || value < alive_.front()->value) return {};  // soon
  const uint64_t at = value - alive_.front()->value;
  if (at >= alive_.size()) return {};
  const Item& item = *alive_[at];
  return {.done = item.done, .status = item.status, .number = item.number};
}

absl::Status HostedQueue::AwaitHere(const TimelinePoint& point,
                                    const std::function<bool()>& enough) {
  const auto reached = [&] { return point.timeline->value() >= point.value || enough(); };
  if (reached()) return absl::OkStatus();
  Burst::Flush();  // which the point may depend on
  point.timeline->OnReached(point.value, [bell = bell_](const absl::Status&) { bell->Ring(); });
  const auto over = [&] {
    return reached() || stop_.load() || process_->is_over() || process_->has_pending();
  };
  const bool forever = options_.wait_limit == absl::InfiniteDuration();
  const auto until =
      std::chrono::steady_clock::now() +
      (forever ? std::chrono::hours(24 * 365) : absl::ToChronoNanoseconds(options_.wait_limit));
  while (!reached()) {
    if (process_->is_over()) return process_->AwaitOver();
    if (stop_.load())
      return absl::CancelledError("the device was closed before the work could run");
    process_->SendPending();
    ReleasableLock lock(bell_->mutex);
    if (bell_->rung.wait_until(lock, until, over)) continue;
    return absl::DeadlineExceededError(
        StrCat("a point that the work waits for was not reached within ",
               absl::FormatDuration(options_.wait_limit)));
  }
  return absl::OkStatus();
}

absl::Status HostedQueue::Await(const TimelinePoint& point, Item* item,
                                std::vector<HostedPoint>* sent) {
  HostedQueue* const sibling = QueueOf(point);
  if (sibling == nullptr) {
    TG_RETURN_IF_ERROR(AwaitHere(point, [] { return false; }));
    return point.timeline->StatusOf(point.value);
  }
  while (true) {
    const Standing at = sibling->StandingOf(point.value);
    // In a queue, what is before has ended before; only how matters.
    if (at.reached || (at.done && sibling == this)) return at.status;
    if (!at.done && at.number != 0) {
      sent->push_back({static_cast<uint32_t>(sibling->options_.index), at.number});
      item->native.push_back(point);
      return absl::OkStatus();
    }
    ++process_->sibling_waits();
    const absl::Status status = AwaitHere(point, [&] {
      const Standing now = sibling->StandingOf(point.value);
      return now.reached || (now.number != 0 && !now.done);
    });
    --process_->sibling_waits();
    TG_RETURN_IF_ERROR(status);
  }
}

absl::Status HostedQueue::Launch(Flight flight,
                                 const std::function<std::string(uint64_t)>& encode) {
  if (flying_.load() >= kHostedFlights) {
    wants_room_ = true;
    ReleasableLock lock(bell_->mutex);
    bell_->rung.wait(lock, [&] { return flying_.load() < kHostedFlights || process_->is_over(); });
    wants_room_ = false;
  }
  uint64_t number;
  {
    const MutexLock lock(mutex_);
    number = flight.number = sent_.load() + 1;
    flight.item->sent_ns = SteadyNs();
    if (flight.part == nullptr) flight.item->number = number;
    flights_.push_back(std::move(flight));
    ++flying_;
    sent_ = number;
  }
  process_->NoteWork();
  absl::Status status = process_->Send(encode(number));
  if (status.ok()) {
    if (process_->sibling_waits().load() != 0) process_->RingAll();
    return status;
  }
  // Unless it has been failed with the others.
  const MutexLock lock(mutex_);
  const auto it = std::ranges::find(flights_, number, &Flight::number);
  if (it == flights_.end()) return absl::OkStatus();
  if (it->part != nullptr) {
    it->part->status = status;
    it->part->done = true;
  }
  flights_.erase(it);
  --flying_;
  return status;
}

absl::Status HostedQueue::Run(const ItemRef& item, std::vector<HostedPoint> waits) {
  const auto& commands = static_cast<const HostedCommands&>(*item->work.commands);
  HostedRun run{
      .waits = std::move(waits), .commands = commands.id(), .scalars = item->work.scalars};
  for (const BufferView& view : item->work.bindings) {
    const HostedMemory* own = commands.Own(view);
    if (own == nullptr) {  // of this process, which no command uses
      run.bindings.push_back({});
    } else {
      run.bindings.push_back({own->id(), view.offset, view.length});
    }
  }
  if (const RunTrace* trace = item->work.trace.get()) {
    run.trace = trace->detailed() ? HostedTrace::kDetailed : HostedTrace::kTime;
  }
  return Launch({.item = item}, [&](uint64_t number) {
    run.point = {static_cast<uint32_t>(options_.index), number};
    return EncodeHostedRun(run);
  });
}

void HostedQueue::Ended(uint64_t number, Ending ending) {
  bool ring = wants_room_.load();
  {
    const MutexLock lock(mutex_);
    if (flights_.empty() || flights_.front().number != number) return;
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    --flying_;
    Item& item = *flight.item;
    if (absl::IsCancelled(ending.status) && item.work.cancellation != nullptr) {
      const absl::Status cancelled = item.work.cancellation->Check();
      if (!cancelled.ok()) ending.status = cancelled;
    }
    if (flight.part != nullptr) {
      flight.part->status = std::move(ending.status);
      flight.part->done = true;
      ring = true;
    } else {
      AddEvents(&item, ending);
      item.status = std::move(ending.status);
      item.done = true;
    }
  }
  if (ring) bell_->Ring();
}

void HostedQueue::FailAll(const absl::Status& why) {
  const MutexLock lock(mutex_);
  for (const Flight& flight : flights_) {
    if (flight.part != nullptr) {
      flight.part->status = why;
      flight.part->done = true;
    } else {
      flight.item->status = why;
      flight.item->done = true;
    }
  }
  flights_.clear();
  flying_ = 0;
}

void HostedQueue::FindCancelled(std::vector<HostedPoint>* cancelled) {
  const MutexLock lock(mutex_);
  for (Flight& flight : flights_) {
    const Cancellation* asked = flight.item->work.cancellation.get();
    if (flight.cancelled || asked == nullptr || asked->Check().ok()) continue;
    flight.cancelled = true;
    cancelled->push_back({static_cast<uint32_t>(options_.index), flight.number});
  }
}

bool HostedQueue::FirstWaits() const {
  const MutexLock lock(mutex_);
  return !flights_.empty() &&
         std::ranges::any_of(flights_.front().item->native, [](const TimelinePoint& point) {
           return point.timeline->value() < point.value;
         });
}

size_t HostedQueue::TimedCommands(uint64_t number) const {
  const MutexLock lock(mutex_);
  const auto it = std::ranges::find(flights_, number, &Flight::number);
  if (it == flights_.end() || it->part != nullptr) return 0;
  const QueueWork& work = it->item->work;
  if (work.trace == nullptr || !work.trace->detailed()) return 0;
  return static_cast<const HostedCommands&>(*work.commands).commands().size();
}

// When its commands ran, as far as the worker's word can be true.
void HostedQueue::AddEvents(Item* item, const Ending& ending) const {
  if (item->work.trace == nullptr) return;
  const auto& commands = static_cast<const HostedCommands&>(*item->work.commands);
  int64_t at = item->sent_ns;
  const int64_t now = SteadyNs();
  item->device_ns = std::clamp<int64_t>(ending.device_ns, 0, now - item->sent_ns);
  const size_t count = std::min(ending.times.size(), commands.commands().size());
  for (size_t i = 0; i < count; ++i) {
    TraceEvent event = commands.Describe(i);
    event.begin_ns = std::clamp(ending.times[i].first, at, now);
    event.end_ns = at = std::clamp(ending.times[i].second, event.begin_ns, now);
    item->events.push_back(std::move(event));
  }
}

bool HostedQueue::SettleFirst() {
  ItemRef item;
  {
    const MutexLock lock(mutex_);
    if (alive_.empty() || !alive_.front()->done) return false;
    item = alive_.front();
  }
  for (const TimelinePoint& point : item->native) {
    if (point.timeline->value() < point.value) return false;  // its process has ended it, too
    if (absl::Status failed = point.timeline->StatusOf(point.value); !failed.ok()) {
      item->status = std::move(failed);
      break;
    }
  }
  if (RunTrace* const trace = item->work.trace.get()) {
    for (TraceEvent& event : item->events) event.queue = name();
    if (trace->detailed()) {
      trace->Add(std::move(item->events));
    } else {
      trace->AddTime(item->device_ns);
    }
  }
  // First the references, then the place, then the point: whoever sees the point finds all that
  // free.
  item->work = {};
  item->waits.clear();
  item->native.clear();
  {
    const MutexLock lock(mutex_);
    --places_;
  }
  timeline_->Signal(item->value, item->status);
  {
    const MutexLock lock(mutex_);
    alive_.pop_front();
    --taken_;
  }
  if (--unsettled_ == 0 && stop_.load()) bell_->Ring();
  return true;
}

}  // namespace telegrad
