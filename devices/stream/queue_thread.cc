// The queue's thread. It hands over what nobody else has, and ends flights: when the GPU has passed
// a flight's mark, the references go, then the place in the ring, then the point is signalled, so
// that whoever sees the point finds all that free.
//
// It looks at the mark for a moment, because most work is short; then it sleeps until the GPU rings
// from a stream of its own, so that the work itself never waits for the host. A GPU that has failed
// neither writes its word nor rings, so the thread asks the driver from time to time.
#include <algorithm>
#include <chrono>
#include <utility>

#include "devices/api/keep_for_driver.h"
#include "devices/api/spin.h"
#include "devices/stream/queue.h"
#include "devices/stream/queue_table.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

// So often in a row the driver may not tell how far the GPU is.
constexpr int kMostAsked = 3;

void RingBell(void* bell) { static_cast<Bell*>(bell)->RingAsPromised(); }

}  // namespace

absl::StatusOr<std::unique_ptr<StreamQueue>> StreamQueue::Create(std::shared_ptr<Context> context,
                                                                 QueueOptions options) {
  TG_ASSIGN_OR_RETURN(auto stream, Stream::Create(context));
  TG_ASSIGN_OR_RETURN(auto notices, Stream::Create(context));
  return std::unique_ptr<StreamQueue>(new StreamQueue(std::move(context), std::move(options),
                                                      std::move(stream), std::move(notices)));
}

StreamQueue::StreamQueue(std::shared_ptr<Context> context, QueueOptions options,
                         std::unique_ptr<Stream> stream, std::unique_ptr<Stream> notices)
    : Queue(options.name, options.takes),
      context_(std::move(context)),
      options_(std::move(options)),
      stream_(std::move(stream)),
      notices_(std::move(notices)),
      marks_(std::make_unique<Marks>(context_, options_.words)),
      ring_(static_cast<size_t>(std::max(options_.capacity, 1))),
      staging_(std::make_unique<Staging>(context_, *marks_,
                                         [this](const Mark& mark) { return AwaitMark(mark); })) {
  context_->AddBell(bell_);
  context_->driver().queues().Add(timeline_, flights_);
  thread_ = std::thread([this] { Serve(); });
}

StreamQueue::~StreamQueue() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  bell_->Ring();
  thread_.join();
  context_->driver().queues().Remove(*timeline_);
  staging_ = nullptr;
  stream_ = nullptr;
  notices_ = nullptr;
  marks_ = nullptr;
  // Where the driver did not even wait for its streams.
  if (bell_->is_promised()) KeepForDriver(bell_);
}

void StreamQueue::AddSibling(const StreamQueue& sibling) {
  siblings_.emplace_back(sibling.timeline_, sibling.flights_);
}

void StreamQueue::Peers::Add(const TimelinePoint& point) {
  const MutexLock lock(mutex_);
  points_.push_back(point);
}

bool StreamQueue::Peers::are_awaited() {
  const MutexLock lock(mutex_);
  std::erase_if(points_,
                [](const TimelinePoint& point) { return point.timeline->value() >= point.value; });
  return !points_.empty();
}

void StreamQueue::Serve() {
  while (true) {
    const bool ended = EndFlights();
    if (TryIssue(Issuer::kThread) || ended) continue;
    {
      const MutexLock lock(mutex_);
      if (stop_ && finished_ == submitted_) return;
    }
    Sleep();
  }
}

void StreamQueue::Sleep() {
  const Flight* const first = flights_->First();
  // It is rung when those end that the flight depends on.
  if (first != nullptr && first->passed) return bell_->Await(kLookAgain);
  if (first != nullptr && first->on_stream) {
    AwaitNews(first->done);
    return;
  }
  ReleasableLock lock(mutex_);
  const bool is_open = issued_ < submitted_ && awaited_ == issued_ + 1;
  lock.unlock();
  if (!is_open || options_.wait_limit == absl::InfiniteDuration()) return bell_->Await();
  const absl::Duration waited = absl::Nanoseconds(SteadyNs() - waiting_since_);
  bell_->Await(absl::ToChronoNanoseconds(options_.wait_limit - waited));
}

bool StreamQueue::EndFlights() {
  bool any = false;
  while (Flight* flight = flights_->First()) {
    absl::Status status = flight->status;
    if (flight->on_stream && !flight->passed) {
      absl::Status ran;
      if (!HasPassed(flight->done, &ran)) break;
      if (!ran.ok()) status = std::move(ran);
    } else if (status.ok()) {
      status = context_->health();
    }
    if (status.ok() && !HaveEnded(flight, &status)) break;
    progress_ns_ = 0;
    End(flight, status);
    any = true;
  }
  return any;
}

// Those that it depends on; the status of the first that failed. Where they have not, their queue's
// thread, which sees the same event pass, rings.
bool StreamQueue::HaveEnded(Flight* flight, absl::Status* status) {
  for (const TimelinePoint& point : flight->depends) {
    if (point.timeline->value() >= point.value) {
      if (status->ok()) *status = point.timeline->StatusOf(point.value);
      continue;
    }
    if (!std::exchange(flight->passed, true)) {
      for (const TimelinePoint& each : flight->depends) {
        each.timeline->OnReached(each.value, [bell = bell_](const absl::Status&) { bell->Ring(); });
      }
    }
    return false;
  }
  return true;
}

void StreamQueue::End(Flight* flight, const absl::Status& status) {
  if (flight->instance != nullptr) flight->work.commands->Return(flight->instance);
  if (flight->work.trace != nullptr) AddEvents(flight);
  const EventHandle done = flight->done.event;
  // A GPU that is stuck may still write what it was given, of its peers, too.
  if (flight->on_stream && context_->stuck()) {
    context_->Keep(std::make_shared<Submission>(std::move(flight->work)));
  }
  flight->work = {};
  {
    const MutexLock lock(mutex_);
    finished_ = flight->value;
  }
  timeline_->Signal(flight->value, status);
  flights_->Drop();
  if (done == nullptr) return;
  if (noticed_ == done) noticed_ = nullptr;
  context_->ReturnEvent(done, kUntimed);
}

// The clock of the GPU's events has another zero: their distance from the last one, which it has
// just passed, is taken from now.
void StreamQueue::AddEvents(Flight* flight) {
  const int64_t now = SteadyNs();
  const absl::Status entered = context_->Enter();
  int64_t latest = flight->begin_ns;
  const auto time_of = [&](size_t mark) {
    float ms = 0;
    if (entered.ok() && mark < flight->marks.size()) {
      context_->calls().event_elapsed(&ms, flight->marks[mark], flight->marks.back());
    }
    latest = std::clamp(now - static_cast<int64_t>(1e6 * double{ms}), latest, now);
    return latest;
  };
  int64_t begin = time_of(0);
  for (size_t i = 0; i < flight->events.size(); ++i) {
    TraceEvent& event = flight->events[i];
    event.queue = name();
    event.begin_ns = begin;
    event.end_ns = begin = time_of(i + 1);
  }
  for (const EventHandle mark : flight->marks) context_->ReturnEvent(mark, kTimed);
  flight->work.trace->Add(std::move(flight->events));
}

absl::StatusOr<bool> StreamQueue::Query(EventHandle event) {
  const Calls& calls = context_->calls();
  const Result result =
      event != nullptr ? calls.event_query(event) : calls.stream_query(stream_->handle());
  if (result == kNotReady) return false;
  TG_RETURN_IF_ERROR(
      context_->Check(event != nullptr ? calls.event_query.name : calls.stream_query.name, result));
  return true;
}

// Of the driver; of a mark with a word, which shows itself, only so often, and where the device has
// failed, so that no word comes.
absl::StatusOr<bool> StreamQueue::Ask(const Mark& mark) {
  const int64_t now = SteadyNs();
  if (progress_ns_ == 0) asked_ns_ = now;
  if (mark.word != 0 && context_->health().ok() &&
      std::chrono::nanoseconds(now - asked_ns_) < kLookAgain) {
    return false;
  }
  asked_ns_ = now;
  TG_RETURN_IF_ERROR(context_->Enter());
  return Query(mark.event);
}

// True, with how it went, once the GPU has passed the mark or never will. A GPU that has failed
// may still be at work on what it has, and is awaited as any other.
bool StreamQueue::HasPassed(const Mark& mark, absl::Status* status) {
  const absl::StatusOr<bool> passed = marks_->Shows(mark) ? true : Ask(mark);
  if (!passed.ok()) {
    const bool never = WillNotTell(passed.status());
    *status = context_->health();
    return never;
  }
  asked_in_vain_ = 0;
  if (*passed) {
    if (doubted_) *status = context_->health();
    return true;
  }
  const int64_t now = SteadyNs();
  const bool waits = std::ranges::any_of(siblings_, &Sibling::is_awaited) || peers_.are_awaited();
  if (progress_ns_ == 0 || waits) progress_ns_ = now;
  if (absl::Nanoseconds(now - progress_ns_) > options_.hang_limit) {
    context_->Fail(
        absl::UnavailableError(StrCat(name(), " (generation ", context_->generation(),
                                      ") is stuck and takes no more work: nothing ended within ",
                                      absl::FormatDuration(options_.hang_limit))),
        /*stuck=*/true);
  }
  *status = context_->health();
  return context_->stuck();
}

// What the driver says of the GPU's work fails the device, whichever error it is: what else was not
// done is not known. Whether nothing more will be heard: the context is dead; or the driver does
// not answer, and the GPU may be at work for good.
bool StreamQueue::WillNotTell(const absl::Status& why) {
  doubted_ = true;
  context_->Fail(absl::UnavailableError(
      StrCat(context_->title(), " failed and takes no more work: ", ToStd(why.message()))));
  if (context_->dead() || context_->stuck()) return true;
  if (++asked_in_vain_ < kMostAsked) return false;
  context_->Fail(context_->health(), /*stuck=*/true);
  return true;
}

// Of a mark without a word, the driver was just asked. Its refusals to ring are not told: without,
// the thread looks from time to time.
void StreamQueue::AwaitNews(const Mark& mark) {
  const auto passed = [&] {
    if (mark.word != 0) return marks_->Shows(mark);
    const absl::StatusOr<bool> query = Query(mark.event);
    if (!query.ok()) WillNotTell(query.status());
    return !query.ok() || *query;
  };
  if (SpinUntil(passed)) return;
  if (mark.event != nullptr && noticed_ != mark.event && context_->Enter().ok() &&
      context_->calls().stream_wait_event(notices_->handle(), mark.event, 0) == kSuccess) {
    bell_->Promise();
    if (context_->calls().launch_host_function(notices_->handle(), &RingBell, bell_.get()) ==
        kSuccess) {
      noticed_ = mark.event;
    } else {
      bell_->Withdraw();
    }
  }
  bell_->Await(kLookAgain);
}

absl::Status StreamQueue::AwaitMark(const Mark& mark) {
  absl::Status status;
  while (!HasPassed(mark, &status)) {
    if (!EndFlights()) AwaitNews(mark);
  }
  if (noticed_ == mark.event) noticed_ = nullptr;  // it will be recorded again
  progress_ns_ = 0;
  return status;
}

}  // namespace telegrad::stream
