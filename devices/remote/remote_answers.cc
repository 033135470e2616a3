// What the answers to commands make of a submission (Take), its end in the order of its queue
// (Finish), which is told without the lock (Settle), and the end of what was cancelled (Tick).
//
// A submission whose cancellation has no answer after a moment is abandoned: it ends here with the
// reason of its cancellation, for its client waits no longer than her deadline. Until the server
// has answered or is lost, what it uses stays allocated and it keeps its place in the queue:
// nothing is freed under it, and a silent server does not gather submissions without end. Memory of
// the host that it reads into is taken back before, because its owner may use it again. What it
// sends from there is read as long as the server takes it, whatever it is by then: the buffer that
// gets it is poisoned.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "devices/remote/remote_items.h"
#include "devices/remote/remote_link.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// That the server has to answer a cancellation.
constexpr int64_t kCancelNs = 1'000'000'000;

constexpr char kNeverEnded[] =
    "the server has not ended a run that was cancelled, nor said anything of it, within the time "
    "that it has to answer";

}  // namespace

void RemoteLink::OnEnded(Ended ended) {
  if (RemoteLinkHolder::holds == this) {
    mutex_.AssertHeld();
    ended_.push_back(std::move(ended));
    return;
  }
  {
    const MutexLock lock(mutex_);
    ended_.push_back(std::move(ended));
  }
  // Of the answers that came together.
  if (!Burst::PutOffFirst(shared_from_this())) EndOfBurst();
}

void RemoteLink::EndOfBurst() {
  Enter([] {});
}

// The answer to a command has come, or will not.
void RemoteLink::Take(Ended ended) {
  Item& item = *ended.item;
  // Else this side has ended it.
  if (!item.took_back || !absl::IsCancelled(ended.status)) progressed_ = heard_ = SteadyNs();
  if (!ended.status.ok() && far_ != nullptr && far_->generation == item.generation) {
    if (absl::Status over = far_->session->Over(); !over.ok()) LoseLocked(over);
  }
  const bool lost = far_ == nullptr || far_->generation != item.generation;
  if (ended.command < item.events.size() && !item.abandoned) {  // else they may be told now
    TraceEvent& event = item.events[ended.command];
    const int64_t now = SteadyNs();
    const int64_t took = now - event.begin_ns;
    event.end_ns = now;
    if (ended.info.device_ns > 0)
      event.begin_ns = std::max(event.begin_ns, now - ended.info.device_ns);
    if (ended.info.trace != nullptr) {
      item.detailed = ended.info.trace->events;
      for (RunEvent& e : item.detailed) e.begin_ns += now - ended.info.trace->end_ns;
    }
    const Command& command = item.commands->commands()[ended.command];
    if (command.kind == CommandKind::kCopy) {
      std::erase_if(host_reads_, [&](const HostRead& read) {
        return read.item == &item && read.command == ended.command;
      });
      if (ended.status.ok() && !item.copies.contains(ended.command)) {
        server_->Measured(command.copy.length, took);
      }
    }
  }
  const RemoteProgram* program = nullptr;
  if (ended.command < item.events.size()) {
    const Command& command = item.commands->commands()[ended.command];
    if (command.kind == CommandKind::kLaunch) {
      program = static_cast<const RemoteProgram*>(command.launch.program.get());
    }
  }
  if (traced_ == &item && program != nullptr) traced_ = nullptr;
  if (!ended.status.ok() && !item.abandoned && ended.command < item.first_failed) {
    item.first_failed = ended.command;
    if (lost) {
      item.status = LostLocked();
    } else if (!item.took_back || !absl::IsCancelled(ended.status)) {  // else Tick has said why
      const bool dropped = program != nullptr && absl::IsNotFound(ended.status) &&
                           ended.status.message().find("unknown graph") != std::string::npos;
      if (dropped) program->SetGeneration(0);
      // A copy between servers has said which of the two it is.
      const std::string words =
          item.copies.contains(ended.command) ? Reason(ended.status) : server_->Words(ended.status);
      item.status = absl::Status(dropped ? absl::StatusCode::kUnavailable : ended.status.code(),
                                 words + (dropped ? "; it is sent again with its next run" : ""));
      // Of a device there, which comes back there.
      if (IsDeviceLost(ended.status)) {
        item.status = DeviceLostError(words);
        server_->NoteLoss(tenant_);
      }
      const absl::Status cancelled =
          item.cancellation == nullptr ? absl::OkStatus() : item.cancellation->Check();
      if (item.cancel_sent != 0 && absl::IsCancelled(ended.status)) item.status = cancelled;
    }
  }
  if (--item.open == 0 && item.abandoned) ForgetAbandoned(ended.item);
}

// Its reads end soon, as cancelled.
void RemoteLink::TakeBackMemory(Item& item) {
  if (std::exchange(item.took_back, true)) return;
  for (const HostRead& read : host_reads_) {
    if (read.item != &item || read.lent == nullptr) continue;
    later_.push_back([lent = read.lent, told = read.told] {
      lent->TakeBack([told] { told.Set(absl::CancelledError("")); });
    });
  }
}

bool RemoteLink::CanAbandon(const Item& item) const {
  return item.sent && item.open > 0 && std::ranges::none_of(host_reads_, [&](const HostRead& read) {
           return read.item == &item;
         });
}

void RemoteLink::ForgetAbandoned(const ItemRef& item) {
  --item->queue->places;
  std::erase(abandoned_, item);
  later_.push_back([item] {
    item->commands.reset();
    item->bindings.clear();
    item->copies.clear();
    item->by_way.clear();
    item->link.reset();
  });
}

// Takes the first open submission off its queue if it has ended.
bool RemoteLink::Finish(QueueState& queue) {
  if (queue.finished == queue.alive.size()) return false;
  const ItemRef& item = queue.alive[queue.finished];
  if (!item->sent || (item->open > 0 && !item->abandoned)) return false;
  for (const TimelinePoint& wait : item->native) {
    if (item->abandoned) break;
    absl::Status failed;
    if (const Item* before = AliveAt(wait); before != nullptr) {
      if (!before->sent || (before->open > 0 && !before->abandoned)) return false;
      failed = before->status;
    } else {
      failed = wait.timeline->StatusOf(wait.value);
    }
    if (!failed.ok()) {
      item->status = failed;
      break;
    }
  }
  item->native.clear();
  finished_.push_back(item);
  ++queue.finished;
  return true;
}

// Without the lock: first the references, then the place, then the point, so that whoever sees the
// point finds all that free. One thread at a time, so that points are reached in their order.
void RemoteLink::Settle() {
  ReleasableLock lock(mutex_);
  for (std::vector<TimelinePoint> arm = std::exchange(arm_, {}); !arm.empty();
       arm = std::exchange(arm_, {})) {
    lock.unlock();
    for (const TimelinePoint& point : arm) {
      point.timeline->OnReached(point.value, [link = weak_from_this()](const absl::Status&) {
        if (const auto self = link.lock()) self->Enter([] {});
      });
    }
    arm.clear();
    lock.lock();
  }
  for (auto later = std::exchange(later_, {}); !later.empty(); later = std::exchange(later_, {})) {
    lock.unlock();
    for (const auto& what : later) what();
    later.clear();  // with what they hold
    lock.lock();
  }
  if (settling_) return;
  settling_ = true;
  while (!finished_.empty()) {
    settled_.swap(finished_);
    lock.unlock();
    for (const ItemRef& item : settled_) {
      if (!item->abandoned) {
        item->commands.reset();
        item->link.reset();
        item->bindings.clear();
        item->copies.clear();
        item->by_way.clear();
      }
      item->waits.clear();
      if (item->trace != nullptr) TellTrace(*item, item->queue->name);
      item->trace.reset();  // perhaps with a session and all of its memory
      item->cancellation.reset();
    }
    lock.lock();
    for (const ItemRef& item : settled_) {
      if (!item->abandoned) --item->queue->places;
    }
    lock.unlock();
    for (const ItemRef& item : settled_) item->queue->timeline->Signal(item->value, item->status);
    lock.lock();
    for (const ItemRef& item : settled_) {
      item->queue->alive.pop_front();
      --item->queue->finished;
    }
    items_ -= static_cast<int64_t>(settled_.size());
    if (items_ == 0) idle_.notify_all();
    settled_.clear();
  }
  settling_ = false;
}

// The events of its commands, one after the other.
void RemoteLink::TellTrace(Item& item, const std::string& queue) {
  std::vector<TraceEvent> events;
  int64_t end = 0, ns = 0;
  for (TraceEvent& event : item.events) {
    if (event.end_ns == 0) continue;  // it was not sent
    event.begin_ns = std::max(event.begin_ns, end);
    event.end_ns = std::max(event.end_ns, event.begin_ns);
    end = event.end_ns;
    ns += event.end_ns - event.begin_ns;
    if (!item.trace->detailed()) continue;
    event.queue = queue;
    if (event.kind == CommandKind::kLaunch && !item.detailed.empty()) continue;
    events.push_back(std::move(event));
  }
  if (!item.trace->detailed()) return item.trace->AddTime(ns);
  for (RunEvent& from : item.detailed) {
    events.push_back({.kind = from.copy ? CommandKind::kCopy : CommandKind::kLaunch,
                      .name = std::move(from.name),
                      .queue = absl::StrCat(name(), "/", from.queue),
                      .begin_ns = from.begin_ns,
                      .end_ns = from.begin_ns + from.duration_ns,
                      .bytes = from.bytes,
                      .flops = from.flops});
  }
  item.trace->Add(std::move(events));
}

bool RemoteLink::Tick() {
  bool busy = false;
  Enter([&]() TG_REQUIRES(mutex_) {
    busy = items_ > 0 || !abandoned_.empty();
    // Whatever has become of this server: the other one of a copy may be silent.
    const auto look = [&](const ItemRef& item) TG_REQUIRES(mutex_) {
      for (const auto& [command, copy] : item->copies) {
        later_.push_back([copy = copy] { copy->Look(); });
      }
    };
    for (const ItemRef& item : abandoned_) look(item);
    for (const auto& queue : queues_) {
      for (const ItemRef& item : queue->open()) look(item);
    }
    if (far_ == nullptr) return;
    if (absl::Status over = far_->session->Over(); !over.ok()) return LoseLocked(over);
    const int64_t now = SteadyNs(), grace = absl::ToInt64Nanoseconds(server_->options().grace);
    const auto here = [&](const Item& item) TG_REQUIRES(mutex_) {
      return item.generation == far_->generation;  // else of a session that is over
    };
    for (const ItemRef& item : abandoned_) {
      if (item->cancel_sent != 0 && here(*item) &&
          now - std::max(item->cancel_sent, progressed_) >= grace) {
        return LoseLocked(absl::UnavailableError(kNeverEnded));
      }
    }
    for (const auto& queue : queues_) {
      for (const ItemRef& item : queue->open()) {
        if (!item->copies.empty() && !item->copies_cancelled && item->cancellation != nullptr) {
          const absl::Status cancelled = item->cancellation->Check();
          if (!cancelled.ok()) {
            item->copies_cancelled = true;
            CancelCopies(*item, cancelled);
          }
        }
        if (item->open == 0 || item->abandoned || item->cancellation == nullptr) continue;
        absl::Status cancelled = item->cancellation->Check();
        if (cancelled.ok()) continue;
        if (item->cancelled == 0) item->cancelled = now;
        if (item->cancel_sent == 0 && item->first_operation != 0 && here(*item)) {
          item->cancel_sent = now;
          Send(
              [first = item->first_operation, last = item->last_operation](RemoteSession* session) {
                if (session != nullptr) session->Cancel(first, last);
              });
        }
        if (item->cancel_sent != 0 && here(*item) &&
            now - std::max(item->cancel_sent, progressed_) >= grace) {
          return LoseLocked(absl::UnavailableError(kNeverEnded));
        }
        if (now - item->cancelled < kCancelNs) continue;
        if (item->status.ok()) {  // before what is taken back ends, which does not say why
          const bool waits = item->first_operation == 0;
          item->status = absl::Status(cancelled.code(),
                                      StrCat(ToStd(cancelled.message()), "; ", queue->name,
                                             ": the server at ", server_->options().address,
                                             waits ? " takes nothing more" : " has not answered"));
        }
        TakeBackMemory(*item);
        if (CanAbandon(*item)) {
          item->abandoned = true;
          abandoned_.push_back(item);
        }
      }
    }
  });
  return busy;
}

}  // namespace telegrad
