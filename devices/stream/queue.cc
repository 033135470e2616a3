// Handing over. Whoever submits does it himself if nothing is before him and it cannot block; so an
// idle GPU begins without a thread being woken for it. All else is done by the queue's thread,
// which also sees to it that points are signalled: queue_thread.cc.
//
// A wait that the GPU can do, for a flight of another queue of the device or of another GPU of the
// driver, is put on the stream. Such a flight can only fail with its whole GPU, for what fails
// before it is on its stream is known when it becomes a flight. What waits for another GPU ends
// behind that one's point, and fails with it. Every other wait is done before anything is handed
// over.
#include "devices/stream/queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/stream/memory.h"
#include "devices/stream/program.h"
#include "devices/stream/queue_table.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

// So many batches of one submission are on the stream at a time: one that runs and one behind it.
constexpr size_t kBatchesAhead = 2;

}  // namespace

absl::StatusOr<TimelinePoint> StreamQueue::Enqueue(QueueWork work,
                                                   std::span<const TimelinePoint> waits) {
  auto encoded = std::dynamic_pointer_cast<const StreamCommandBuffer>(std::move(work.commands));
  if (encoded == nullptr || &encoded->context() != context_.get()) {
    return InvalidArgument("the commands were not encoded for ", context_->name());
  }
  TG_RETURN_IF_ERROR(encoded->Check(work.bindings));
  TG_RETURN_IF_ERROR(context_->health());
  TimelinePoint point{timeline_, 0};
  {
    const MutexLock lock(mutex_);
    if (submitted_ - finished_ == ring_.size()) {
      return ResourceExhausted(name(), ": the queue holds its limit of ", ring_.size(),
                               " submissions");
    }
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == timeline_ && wait.value > submitted_) {
        return InvalidArgument(name(), ": a wait for point ", wait.value, " of a queue that is at ",
                               submitted_);
      }
    }
    point.value = ++submitted_;
    ring_[point.value % ring_.size()] = {std::move(encoded),      std::move(work.bindings),
                                         std::move(work.scalars), {waits.begin(), waits.end()},
                                         std::move(work.trace),   std::move(work.cancellation)};
  }
  TryIssue(Issuer::kSubmitter);
  bell_->Ring();
  return point;
}

TimelinePoint StreamQueue::last() const {
  const MutexLock lock(mutex_);
  return {timeline_, submitted_};
}

bool StreamQueue::TryIssue(Issuer issuer) {
  {
    const MutexLock lock(mutex_);
    if (issuing_ || issued_ == submitted_) return false;
    issuing_ = true;
  }
  bool any = false;
  while (IssueNext(issuer)) any = true;
  const MutexLock lock(mutex_);
  issuing_ = false;
  return any;
}

// Whether it became a flight, also one that has failed.
bool StreamQueue::IssueNext(Issuer issuer) {
  Flight flight;
  Submission* work;
  bool stop;
  {
    const MutexLock lock(mutex_);
    if (issued_ == submitted_) return false;
    flight.value = issued_ + 1;
    work = &ring_[flight.value % ring_.size()];
    stop = stop_;
  }
  size_t passed = 0;
  absl::Status status = context_->health();
  if (status.ok()) {
    const auto waits = LookAtAll(*work, &passed);
    status = waits.status();
    if (waits.ok() && *waits == Wait::kOpen) {
      if (issuer == Issuer::kSubmitter) return false;
      status = stop ? absl::CancelledError("the device was closed before the work could run")
                    : StayOpen(flight.value, std::span(work->waits).subspan(passed));
      if (status.ok()) return false;
    }
  }
  if (status.ok() && work->cancellation != nullptr) status = work->cancellation->Check();
  if (status.ok() && issuer == Issuer::kSubmitter && MayBlock(*work)) return false;

  const absl::Status entered = context_->Enter();
  if (status.ok()) status = entered;
  const std::vector<Address> addresses = work->commands->Words(work->bindings, work->scalars);
  if (status.ok() && IsGraph(*work)) {
    const auto instance =
        work->commands->Take(options_.index, addresses, /*may_build=*/issuer == Issuer::kThread);
    // The thread builds one, or one comes back with a flight.
    if (instance.ok() && *instance == nullptr) return false;
    status = instance.status();
    if (instance.ok()) flight.instance = *instance;
  }
  // Also what has failed by now ends behind the waits that it has passed.
  if (entered.ok() && context_->health().ok()) {
    const auto awaited = AwaitOnStream(&flight, std::span(work->waits).first(passed));
    if (awaited.ok() && !*awaited) {
      if (flight.instance != nullptr) work->commands->Return(flight.instance);
      bell_->Ring();  // so that the thread looks again
      return false;
    }
    if (status.ok()) status = awaited.status();
  }
  flight.work = std::move(*work);
  if (flight.work.trace != nullptr) flight.begin_ns = SteadyNs();
  flight.status = std::move(status);
  // Nothing is asked of a GPU that has failed, for it may never answer.
  if (entered.ok() && context_->health().ok()) HandOver(&flight, addresses);
  flights_->Add(std::move(flight));
  const MutexLock lock(mutex_);
  ++issued_;
  return true;
}

// Also what has failed already gets a mark behind the waits that it has passed: it ends no
// earlier than these.
void StreamQueue::HandOver(Flight* flight, std::span<const Address> addresses) {
  absl::Status& status = flight->status;
  const auto done = context_->TakeEvent(kUntimed);
  if (!done.ok()) {
    if (status.ok()) status = done.status();
    return;
  }
  if (status.ok()) status = TakeMemories(flight);
  if (status.ok()) status = PutBatches(flight, addresses);
  flight->on_stream = true;
  Mark mark{.event = *done};
  absl::Status recorded = context_->Enter();
  if (recorded.ok()) recorded = marks_->Put(&mark, stream_->handle());
  if (recorded.ok()) {
    flight->done = mark;
    return;
  }
  // Nothing may follow on the stream what has no mark behind it, or its end would not be seen.
  if (status.ok()) status = recorded;
  context_->ReturnEvent(*done, kUntimed);
  context_->Fail(absl::UnavailableError(
      StrCat(context_->title(), " takes no more work: ", ToStd(recorded.message()))));
}

StreamQueue::Sibling* StreamQueue::FindSibling(const TimelinePoint& point) {
  const auto found = std::ranges::find(siblings_, point.timeline, &Sibling::timeline);
  return found == siblings_.end() ? nullptr : &*found;
}

bool StreamQueue::IsOfDevice(const TimelinePoint& point) const {
  return point.timeline == timeline_ ||
         std::ranges::find(siblings_, point.timeline, &Sibling::timeline) != siblings_.end();
}

std::shared_ptr<Flights> StreamQueue::FlightsOf(const TimelinePoint& point) const {
  if (point.timeline == timeline_) return flights_;
  const auto sibling = std::ranges::find(siblings_, point.timeline, &Sibling::timeline);
  if (sibling != siblings_.end()) return sibling->flights;
  return context_->driver().queues().Find(*point.timeline);
}

absl::StatusOr<StreamQueue::Wait> StreamQueue::Look(const TimelinePoint& point,
                                                    bool by_peers) const {
  if (point.timeline == nullptr) return Wait::kReached;
  const bool of_device = IsOfDevice(point);
  const bool is_refused = point.timeline == refused_.timeline && point.value == refused_.value;
  if (of_device || (by_peers && !is_refused && point.timeline->value() < point.value)) {
    absl::Status failure;
    const auto flights = FlightsOf(point);
    const auto stand =
        flights == nullptr ? Flights::Stand::kUnknown : flights->Look(point.value, &failure);
    if (stand == Flights::Stand::kFailed) return failure;
    if (stand != Flights::Stand::kUnknown) {
      return point.timeline == timeline_ ? Wait::kReached : Wait::kOnStream;
    }
  }
  if (point.timeline->value() < point.value) return Wait::kOpen;
  TG_RETURN_IF_ERROR(point.timeline->StatusOf(point.value));
  return Wait::kReached;
}

// The host copies when work is handed over, so what it reads and writes must be ready by then; of
// flights of the device, it is.
absl::StatusOr<StreamQueue::Wait> StreamQueue::LookAtAll(const Submission& work,
                                                         size_t* passed) const {
  const bool by_peers = !HasHostMemory(work);
  for (const TimelinePoint& point : work.waits) {
    TG_ASSIGN_OR_RETURN(const Wait wait, Look(point, by_peers));
    if (wait == Wait::kOpen) return wait;
    ++*passed;
  }
  return Wait::kReached;
}

// The thread's, which is rung when an open point is reached, or its own GPU can wait for it.
absl::Status StreamQueue::StayOpen(uint64_t value, std::span<const TimelinePoint> open) {
  if (awaited_ != value) {
    awaited_ = value;
    waiting_since_ = SteadyNs();
    for (const TimelinePoint& point : open) {
      // Also behind those that are reached by now: they were not when the thread looked.
      if (point.timeline == nullptr) continue;
      if (const auto flights = FlightsOf(point)) flights->RingAtFlight(point.value, bell_);
      point.timeline->OnReached(point.value, [bell = bell_](const absl::Status&) { bell->Ring(); });
    }
  }
  if (absl::Nanoseconds(SteadyNs() - waiting_since_) < options_.wait_limit) return absl::OkStatus();
  return absl::DeadlineExceededError(
      StrCat("a point that the work waits for was not reached within ",
             absl::FormatDuration(options_.wait_limit)));
}

absl::StatusOr<bool> StreamQueue::AwaitOnStream(Flight* flight,
                                                std::span<const TimelinePoint> waits) {
  for (const TimelinePoint& point : waits) {
    if (point.timeline == nullptr) continue;
    const bool own = point.timeline == timeline_;
    Sibling* const sibling = FindSibling(point);
    const bool is_peers = !own && sibling == nullptr;
    if (is_peers && point.timeline->value() >= point.value) {
      TG_RETURN_IF_ERROR(point.timeline->StatusOf(point.value));
      continue;
    }
    const auto flights = FlightsOf(point);
    if (flights == nullptr) continue;
    absl::Status failure;
    Result result = kSuccess;
    if (sibling != nullptr) {
      sibling->awaited.store(std::max(sibling->awaited.load(), point.value));
    }
    const auto stand =
        own ? flights->Look(point.value, &failure)
            : flights->Await(point.value, context_->calls(), stream_->handle(), &result, &failure);
    // One that has ended since it was looked at.
    if (stand == Flights::Stand::kUnknown) failure = point.timeline->StatusOf(point.value);
    TG_RETURN_IF_ERROR(failure);
    if (stand == Flights::Stand::kUnknown) continue;
    if (sibling != nullptr) {
      TG_RETURN_IF_ERROR(context_->Check(context_->calls().stream_wait_event.name, result));
    } else if (result != kSuccess) {
      refused_ = point;
      return false;
    }
    if (is_peers) peers_.Add(point);
    if (is_peers || stand == Flights::Stand::kDependent) flight->depends.push_back(point);
  }
  return true;
}

// Memory of peers stays until the flight has ended, and new memory is zero before it begins.
absl::Status StreamQueue::TakeMemories(Flight* flight) {
  for (const BufferView& view : flight->work.bindings) {
    const auto* memory = dynamic_cast<const StreamMemory*>(view.memory.get());
    if (memory == nullptr) continue;
    const bool own = &memory->owner().context() == context_.get();
    if (own && memory->zeroing() <= zeroed_) continue;
    if (!own) {
      TG_ASSIGN_OR_RETURN(flight->peers.emplace_back(), memory->owner().context().UseByPeer());
    }
    TG_ASSIGN_OR_RETURN(const uint64_t zeroed,
                        memory->owner().AwaitZeroed(*context_, stream_->handle()));
    if (own) zeroed_ = zeroed;
  }
  return absl::OkStatus();
}

bool StreamQueue::MayBlock(const Submission& work) const {
  if (work.trace != nullptr || work.commands->batches().size() > kBatchesAhead) return true;
  return std::ranges::any_of(work.bindings, [](const BufferView& view) {
    return dynamic_cast<const StreamMemory*>(view.memory.get()) == nullptr;
  });
}

bool StreamQueue::IsGraph(const Submission& work) const {
  return work.commands->graphable() && work.trace == nullptr &&
         std::ranges::all_of(work.bindings, [&](const BufferView& view) { return IsOwn(view); });
}

bool StreamQueue::IsOwn(const BufferView& view) const {
  const auto* memory = dynamic_cast<const StreamMemory*>(view.memory.get());
  return memory != nullptr && &memory->owner().context() == context_.get();
}

bool StreamQueue::IsPinned(const BufferView& view) const {
  const auto* memory = dynamic_cast<const PinnedMemory*>(view.memory.get());
  return memory != nullptr && &memory->context() == context_.get();
}

bool StreamQueue::HasHostMemory(const Submission& work) const {
  return std::ranges::any_of(work.bindings, [&](const BufferView& view) {
    return dynamic_cast<const StreamMemory*>(view.memory.get()) == nullptr && !IsPinned(view);
  });
}

absl::Status StreamQueue::PutBatches(Flight* flight, std::span<const Address> addresses) {
  const Submission& work = flight->work;
  const auto batches = work.commands->batches();
  std::vector<Mark> ends;
  if (work.trace != nullptr) TG_RETURN_IF_ERROR(PutTimed(flight));
  const auto put = [&](size_t b) -> absl::Status {
    if (work.cancellation != nullptr) TG_RETURN_IF_ERROR(work.cancellation->Check());
    if (b >= kBatchesAhead) TG_RETURN_IF_ERROR(AwaitMark(ends[b - kBatchesAhead]));
    TG_RETURN_IF_ERROR(context_->Enter());
    const auto& batch = batches[b];
    if (flight->instance == nullptr) {
      TG_RETURN_IF_ERROR(PutCommands(flight, batch, addresses.subspan(batch.arguments)));
    } else if (flight->instance->graphs[b] != nullptr) {
      TG_RETURN_IF_ERROR(flight->instance->graphs[b]->Launch(stream_->handle()));
    }
    if (b + kBatchesAhead >= batches.size()) return absl::OkStatus();
    TG_ASSIGN_OR_RETURN(ends.emplace_back().event, context_->TakeEvent(kUntimed));
    return marks_->Put(&ends.back(), stream_->handle());
  };
  absl::Status status;
  for (size_t b = 0; status.ok() && b < batches.size(); ++b) status = put(b);
  for (const Mark& end : ends) {
    if (end.event != nullptr) context_->ReturnEvent(end.event, kUntimed);
  }
  return status;
}

absl::Status StreamQueue::PutCommands(Flight* flight, const StreamCommandBuffer::Batch& batch,
                                      std::span<const Address> addresses) {
  const Submission& work = flight->work;
  for (size_t i = batch.begin, next = 0; i < batch.end; ++i) {
    if (work.cancellation != nullptr) TG_RETURN_IF_ERROR(work.cancellation->Check());
    const Command& command = work.commands->commands()[i];
    absl::Status status;
    if (next < batch.working.size() && batch.working[next] == &command) {
      ++next;
      const size_t count = WordsOf(command);
      status = PutCommand(command, work.bindings, addresses.first(count));
      addresses = addresses.subspan(count);
    }
    if (work.trace != nullptr) {
      flight->events.push_back(work.commands->Describe(i));
      const absl::Status marked = PutTimed(flight);
      if (status.ok()) status = marked;
    }
    TG_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status StreamQueue::PutCommand(const Command& command, std::span<const BufferView> bindings,
                                     std::span<const Address> addresses) {
  if (command.kind == CommandKind::kCopy) return PutCopy(command.copy, bindings, addresses);
  return KernelCall(command.launch, addresses).Enqueue(*context_, stream_->handle());
}

// What the host does of a copy, it does now: so its memory is read and written in the order of the
// commands, too. Of pinned memory, which the GPU reads and writes in its turn, the host does what
// it does once the GPU has.
absl::Status StreamQueue::PutCopy(const CopyBytes& copy, std::span<const BufferView> bindings,
                                  std::span<const Address> addresses) {
  const auto host = [&](const BoundPart& part) {
    const BufferView& view = bindings[static_cast<size_t>(part.binding)];
    return static_cast<char*>(view.memory->host()) + view.offset + part.offset;
  };
  const Address to = addresses[0], from = addresses[1];
  const auto bytes = static_cast<size_t>(copy.length);
  const BufferView& to_view = bindings[static_cast<size_t>(copy.to.binding)];
  const BufferView& from_view = bindings[static_cast<size_t>(copy.from.binding)];
  if (to == 0 && from == 0) {
    if (IsPinned(to_view) || IsPinned(from_view)) TG_RETURN_IF_ERROR(AwaitMark(Mark{}));
    std::memcpy(host(copy.to), host(copy.from), bytes);
    return absl::OkStatus();
  }
  if (from == 0 && IsPinned(from_view)) {
    return TG_STREAM(*context_, copy_from_host, to, host(copy.from), bytes, stream_->handle());
  }
  if (to == 0 && IsPinned(to_view)) {
    return TG_STREAM(*context_, copy_to_host, host(copy.to), from, bytes, stream_->handle());
  }
  if (from == 0) return staging_->Upload(to, host(copy.from), copy.length, stream_->handle());
  if (to == 0) return staging_->Download(host(copy.to), from, copy.length, stream_->handle());
  const auto context = [&](const BoundPart& part) -> Context& {
    const BufferView& view = bindings[static_cast<size_t>(part.binding)];
    return static_cast<const StreamMemory&>(*view.memory).owner().context();
  };
  Context& to_context = context(copy.to);
  Context& from_context = context(copy.from);
  if (&to_context == &from_context) {
    return TG_STREAM(*context_, copy_within, to, from, bytes, stream_->handle());
  }
  return context_->Check(context_->driver().CopyAcross(
      {to_context.device(), to_context.handle(), to},
      {from_context.device(), from_context.handle(), from}, bytes, stream_->handle()));
}

absl::Status StreamQueue::PutTimed(Flight* flight) {
  TG_RETURN_IF_ERROR(context_->Enter());
  TG_ASSIGN_OR_RETURN(const EventHandle mark, context_->TakeEvent(kTimed));
  flight->marks.push_back(mark);
  return TG_STREAM(*context_, event_record, mark, stream_->handle());
}

}  // namespace telegrad::stream
