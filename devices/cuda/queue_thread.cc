// The queue's thread. It hands over what nobody else has, and ends flights: when the GPU has passed
// a flight's event, the references go, then the place in the ring, then the point is signalled, so
// that whoever sees the point finds all that free.
//
// It looks at the event for a moment, because most work is short; then it sleeps until the GPU
// rings from a stream of its own, so that the work itself never waits for the host. A GPU that has
// failed does not ring, so it looks again from time to time.
#include <algorithm>
#include <chrono>
#include <utility>

#include "devices/api/spin.h"
#include "devices/cuda/queue.h"
#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

void RingBell(void* bell) { static_cast<Bell*>(bell)->Ring(); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaQueue>> CudaQueue::Create(std::shared_ptr<Context> context,
                                                             QueueOptions options) {
  TG_ASSIGN_OR_RETURN(auto stream, Stream::Create(context));
  TG_ASSIGN_OR_RETURN(auto notices, Stream::Create(context));
  return std::unique_ptr<CudaQueue>(
      new CudaQueue(std::move(context), std::move(options), std::move(stream), std::move(notices)));
}

CudaQueue::CudaQueue(std::shared_ptr<Context> context, QueueOptions options,
                     std::unique_ptr<Stream> stream, std::unique_ptr<Stream> notices)
    : context_(std::move(context)),
      options_(std::move(options)),
      stream_(std::move(stream)),
      notices_(std::move(notices)),
      ring_(static_cast<size_t>(std::max(options_.capacity, 1))),
      staging_(std::make_unique<Staging>(context_,
                                         [this](CUevent event) { return AwaitEvent(event); })) {
  context_->AddBell(bell_);
  thread_ = std::thread([this] { Serve(); });
}

CudaQueue::~CudaQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  bell_->Ring();
  thread_.join();
}

void CudaQueue::SetSibling(const CudaQueue& sibling) {
  sibling_timeline_ = sibling.timeline_;
  sibling_flights_ = sibling.flights_;
}

void CudaQueue::Serve() {
  while (true) {
    const bool ended = EndFlights();
    if (TryIssue(Issuer::kThread) || ended) continue;
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && finished_ == submitted_) return;
    }
    Sleep();
  }
}

void CudaQueue::Sleep() {
  if (const Flight* first = flights_->First(); first != nullptr && first->done != nullptr) {
    AwaitNews(first->done);
    return;
  }
  std::unique_lock lock(mutex_);
  const bool is_open = issued_ < submitted_ && awaited_ == issued_ + 1;
  lock.unlock();
  if (!is_open || options_.wait_limit == absl::InfiniteDuration()) return bell_->Await();
  const absl::Duration waited = absl::Nanoseconds(SteadyNs() - waiting_since_);
  bell_->Await(absl::ToChronoNanoseconds(options_.wait_limit - waited));
}

bool CudaQueue::EndFlights() {
  bool any = false;
  while (Flight* flight = flights_->First()) {
    absl::Status status = flight->status;
    if (flight->done != nullptr) {
      absl::Status ran;
      if (!HasPassed(flight->done, &ran)) break;
      if (!ran.ok()) status = std::move(ran);
    } else if (status.ok()) {
      status = context_->health();
    }
    progress_ns_ = 0;
    End(flight, status);
    any = true;
  }
  return any;
}

void CudaQueue::End(Flight* flight, const absl::Status& status) {
  if (flight->instance != nullptr) flight->work.commands->Return(flight->instance);
  if (flight->work.trace != nullptr) AddEvents(flight);
  const CUevent done = flight->done;
  flight->work = {};
  {
    const std::lock_guard lock(mutex_);
    finished_ = flight->value;
  }
  timeline_->Signal(flight->value, status);
  flights_->Drop();
  if (done == nullptr) return;
  if (noticed_ == done) noticed_ = nullptr;
  context_->ReturnEvent(done, CU_EVENT_DISABLE_TIMING);
}

// The clock of the GPU's events has another zero: their distance from the last one, which it has
// just passed, is taken from now.
void CudaQueue::AddEvents(Flight* flight) {
  const int64_t now = SteadyNs();
  context_->Enter();
  int64_t latest = flight->begin_ns;
  const auto time_of = [&](size_t mark) {
    float ms = 0;
    if (mark < flight->marks.size()) {
      context_->api().cuEventElapsedTime(&ms, flight->marks[mark], flight->marks.back());
    }
    latest = std::clamp(now - static_cast<int64_t>(1e6 * double{ms}), latest, now);
    return latest;
  };
  int64_t begin = time_of(0);
  for (size_t i = 0; i < flight->events.size(); ++i) {
    TraceEvent& event = flight->events[i];
    event.queue = options_.name;
    event.begin_ns = begin;
    event.end_ns = begin = time_of(i + 1);
  }
  for (const CUevent mark : flight->marks) context_->ReturnEvent(mark, CU_EVENT_DEFAULT);
  flight->work.trace->Add(std::move(flight->events));
}

// True, with how it went, once the GPU has passed the event or never will.
bool CudaQueue::HasPassed(CUevent event, absl::Status* status) {
  context_->Enter();
  const CUresult result = context_->api().cuEventQuery(event);
  if (result == CUDA_SUCCESS) return true;
  if (result != CUDA_ERROR_NOT_READY) {
    // What the GPU did fails the device, whichever error it is: what else it did not do is not
    // known.
    if (const absl::Status failed = context_->Check("cuEventQuery", result); !failed.ok()) {
      context_->Fail(absl::UnavailableError(
          StrCat("the GPU failed and takes no more work: ", ToStd(failed.message()))));
    }
  } else {
    const int64_t now = SteadyNs();
    const bool waits = sibling_timeline_ && sibling_timeline_->value() < sibling_awaited_.load();
    if (progress_ns_ == 0 || waits) progress_ns_ = now;
    if (absl::Nanoseconds(now - progress_ns_) > options_.hang_limit) {
      context_->Fail(absl::UnavailableError(StrCat(
                         options_.name, " is stuck and takes no more work: nothing ended within ",
                         absl::FormatDuration(options_.hang_limit))),
                     /*stuck=*/true);
    }
  }
  *status = context_->health();
  return !status->ok();
}

void CudaQueue::AwaitNews(CUevent event) {
  context_->Enter();
  const auto passed = [&] { return context_->api().cuEventQuery(event) != CUDA_ERROR_NOT_READY; };
  if (SpinUntil(passed)) return;
  if (noticed_ != event) {
    // If it fails, the next look says why.
    if (context_->api().cuStreamWaitEvent(notices_->handle(), event, 0) == CUDA_SUCCESS &&
        context_->api().cuLaunchHostFunc(notices_->handle(), &RingBell, bell_.get()) ==
            CUDA_SUCCESS) {
      noticed_ = event;
    }
  }
  bell_->Await(kLookAgain);
}

absl::Status CudaQueue::AwaitEvent(CUevent event) {
  absl::Status status;
  while (!HasPassed(event, &status)) {
    if (!EndFlights()) AwaitNews(event);
  }
  if (noticed_ == event) noticed_ = nullptr;  // it will be recorded again
  progress_ns_ = 0;
  return status;
}

}  // namespace telegrad::cuda
