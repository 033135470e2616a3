// What becomes of a submission: it is checked and queued (Submit), and sent command by command once
// what it waits for allows (AdvanceAll). What is sent is in remote_send.cc, what becomes of the
// answers in remote_answers.cc.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "devices/remote/remote_items.h"
#include "devices/remote/remote_link.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

bool IsReachedPoint(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

// Nothing is left of a wait for it.
bool IsReachedWell(const TimelinePoint& point) {
  return point.timeline == nullptr ||
         (IsReachedPoint(point) && point.timeline->StatusOf(point.value).ok());
}

}  // namespace

std::shared_ptr<RemoteLink::QueueState> RemoteLink::NewQueue(std::string queue_name) {
  auto queue = std::make_shared<QueueState>();
  queue->name = std::move(queue_name);
  queue->capacity = std::max(server_->options().queue_capacity, 1);
  ForgetQueues();
  const MutexLock lock(mutex_);
  queues_.push_back(queue);
  timelines_[queue->timeline.get()] = queue.get();
  return queue;
}

void RemoteLink::CloseQueue(const std::shared_ptr<QueueState>& queue) {
  Enter([&] { queue->closed = true; });
  ForgetQueues();
}

// Those that are closed, once all of their points are signalled.
void RemoteLink::ForgetQueues() {
  std::vector<std::shared_ptr<QueueState>> gone;  // without the lock
  const MutexLock lock(mutex_);
  std::erase_if(queues_, [&](std::shared_ptr<QueueState>& queue) TG_REQUIRES(mutex_) {
    if (!queue->closed || !queue->alive.empty()) return false;
    timelines_.erase(queue->timeline.get());
    gone.push_back(std::move(queue));
    return true;
  });
}

TimelinePoint RemoteLink::Last(const QueueState& queue) const {
  const MutexLock lock(mutex_);
  return {queue.timeline, queue.submitted};
}

bool RemoteLink::IsOwn(const BufferView& view) const {
  const RemoteMemory* const remote = AsRemote(view);
  return remote != nullptr && &remote->link() == this;
}

absl::Status RemoteLink::CheckBindings(const CommandBuffer* commands,
                                       std::span<const BufferView> bindings) const {
  const auto* list = dynamic_cast<const RemoteCommands*>(commands);
  if (list == nullptr) return InvalidArgument("the commands were not encoded for ", name());
  TG_RETURN_IF_ERROR(list->Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    const RemoteMemory* remote = AsRemote(bindings[i]);
    if (remote == nullptr && bindings[i].memory->host() != nullptr) continue;
    if (remote != nullptr && (&remote->link() == this || Exchanges(remote->link()))) continue;
    return InvalidArgument("binding ", i, " is memory that ", name(), " cannot reach");
  }
  for (size_t i = 0; i < list->commands().size(); ++i) {
    const Command& command = list->commands()[i];
    if (command.kind == CommandKind::kCopy) {
      if (!IsOwn(bindings[command.copy.to.binding]) &&
          !IsOwn(bindings[command.copy.from.binding])) {
        return InvalidArgument("command ", i, " copies between memories of which none is on ",
                               name());
      }
      continue;
    }
    for (const Launch::Argument& argument : command.launch.arguments) {
      if (!argument.is_buffer()) continue;
      const int32_t binding = argument.part().binding;
      if (!IsOwn(bindings[binding])) {
        return InvalidArgument("command ", i, ": binding ", binding, " is not on ", name(),
                               ", which alone its programs reach");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TimelinePoint> RemoteLink::Submit(const std::shared_ptr<QueueState>& queue,
                                                 QueueWork work,
                                                 std::span<const TimelinePoint> waits) {
  TG_RETURN_IF_ERROR(CheckBindings(work.commands.get(), work.bindings));
  auto item = std::make_shared<Item>();
  item->queue = queue;
  item->commands = std::static_pointer_cast<const RemoteCommands>(std::move(work.commands));
  item->bindings = std::move(work.bindings);
  item->scalars = std::move(work.scalars);
  std::ranges::copy_if(waits, std::back_inserter(item->waits),
                       [](const TimelinePoint& wait) { return !IsReachedWell(wait); });
  item->trace = std::move(work.trace);
  item->cancellation = std::move(work.cancellation);
  item->events.resize(item->commands->commands().size());
  absl::Status status;
  Enter([&]() TG_REQUIRES(mutex_) {
    if (queue->places >= queue->capacity) {
      status = ResourceExhausted(queue->name, ": the queue holds its limit of ", queue->capacity,
                                 " submissions");
      return;
    }
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == queue->timeline && wait.value > queue->submitted) {
        status = InvalidArgument(queue->name, ": a wait for point ", wait.value,
                                 " of a queue that is at ", queue->submitted);
        return;
      }
    }
    item->value = ++queue->submitted;
    ++queue->places;
    ++items_;
    queue->alive.push_back(item);
    if (!queue->unsent.empty() || Begin(*queue, item) == Step::kBlocked) {
      queue->unsent.push_back(item);
    }
  });
  TG_RETURN_IF_ERROR(status);
  return TimelinePoint{queue->timeline, item->value};
}

// What is sent for one queue may be what another has waited for, and so may an end.
void RemoteLink::AdvanceAll() {
  for (bool more = true; more;) {
    more = false;
    for (const auto& queue : queues_) {
      while (!queue->unsent.empty() && Begin(*queue, queue->unsent.front()) == Step::kSent) {
        queue->unsent.pop_front();
        more = true;
      }
      while (Finish(*queue)) more = true;
    }
  }
}

void RemoteLink::Fail(Item& item, absl::Status status) {
  if (item.status.ok()) item.status = std::move(status);
  item.sent = true;
}

RemoteLink::Step RemoteLink::Begin(QueueState& queue, const ItemRef& item) {
  if (item->cancellation != nullptr) {
    if (absl::Status cancelled = item->cancellation->Check(); !cancelled.ok()) {
      Fail(*item, std::move(cancelled));
    }
  }
  if (!item->sent && Await(queue, item) == Step::kBlocked) return Step::kBlocked;
  if (!item->sent && Go(item) == Step::kBlocked) return Step::kBlocked;
  return Step::kSent;
}

// The submission of this link whose point that is; null: it is another's, or was signalled.
const RemoteLink::Item* RemoteLink::AliveAt(const TimelinePoint& point) const {
  const auto own = timelines_.find(point.timeline.get());
  if (own == timelines_.end()) return nullptr;
  const std::deque<ItemRef>& alive = own->second->alive;
  if (alive.empty() || point.value < alive.front()->value) return nullptr;
  const uint64_t at = point.value - alive.front()->value;
  return at < alive.size() ? alive[at].get() : nullptr;
}

RemoteLink::Step RemoteLink::Await(QueueState& queue, const ItemRef& item) {
  for (; item->looked < item->waits.size(); ++item->looked) {
    const TimelinePoint& wait = item->waits[item->looked];
    if (wait.timeline == nullptr) continue;
    if (IsReachedPoint(wait)) {
      item->armed = false;
      item->blocked_since = 0;
      absl::Status failed = wait.timeline->StatusOf(wait.value);
      if (failed.ok()) continue;
      Fail(*item, std::move(failed));
      return Step::kSent;
    }
    if (const Item* before = AliveAt(wait); before != nullptr) {
      if (!before->sent) return Step::kBlocked;
      if ((before->open == 0 || before->abandoned) && !before->status.ok()) {
        Fail(*item, before->status);
        return Step::kSent;
      }
      item->native.push_back(wait);
      continue;
    }
    if (queue.closed) {
      Fail(*item, absl::CancelledError("the device was closed before the work could run"));
      return Step::kSent;
    }
    const int64_t now = SteadyNs();
    if (item->blocked_since == 0) item->blocked_since = now;
    const absl::Duration limit = server_->options().wait_limit;
    if (limit != absl::InfiniteDuration() &&
        now - item->blocked_since > absl::ToInt64Nanoseconds(limit)) {
      Fail(*item, absl::DeadlineExceededError(
                      StrCat("a point that the work waits for was not reached within ",
                             absl::FormatDuration(limit))));
      return Step::kSent;
    }
    if (!item->armed) {
      item->armed = true;
      // Not under the lock, for it may be reached by now.
      arm_.push_back(wait);
    }
    return Step::kBlocked;
  }
  return Step::kSent;
}

// Sends what is left of its commands.
RemoteLink::Step RemoteLink::Go(const ItemRef& item) {
  const auto commands = item->commands->commands();
  if (item->cursor == 0) {
    item->generation = far_ == nullptr ? 0 : far_->generation;
    for (const BufferView& view : item->bindings) {
      if (!IsOwn(view) || (far_ != nullptr && AsRemote(view)->generation() == far_->generation)) {
        continue;
      }
      Fail(*item, LostLocked(AsRemote(view)->generation()));
      return Step::kSent;
    }
  }
  for (; item->cursor < commands.size(); ++item->cursor) {
    const size_t i = item->cursor;
    if (far_ == nullptr || far_->generation != item->generation) {
      Fail(*item, LostLocked());
      return Step::kSent;
    }
    if (commands[i].kind == CommandKind::kLaunch) {
      PostLaunch(item, i);
      continue;
    }
    const CopyBytes& copy = commands[i].copy;
    for (const BoundPart* end : {&copy.to, &copy.from}) {
      if (MustWaitForRead(item->bindings[end->binding], end->offset, copy.length)) {
        return Step::kBlocked;
      }
    }
    const BufferView& to = item->bindings[copy.to.binding];
    const BufferView& from = item->bindings[copy.from.binding];
    const auto part = [&](const BufferView& view, int64_t offset) {
      return BufferView{view.memory, view.offset + offset, copy.length};
    };
    Describe(*item, i);
    item->events[i].end_ns = item->events[i].begin_ns;
    if (copy.length == 0) continue;
    if (AsRemote(to) != nullptr && AsRemote(from) != nullptr && IsOwn(to) != IsOwn(from)) {
      if (CopyBetweenServers(item, i) == Step::kBlocked) return Step::kBlocked;
      continue;
    }
    if (!far_->copies && AsRemote(to) != nullptr && AsRemote(from) != nullptr) {
      if (CopyByWayOfHost(item, i) == Step::kBlocked) return Step::kBlocked;
      continue;
    }
    PostCopy(item, i, part(to, copy.to.offset), part(from, copy.from.offset));
  }
  // Only what is sent later tells that these were carried out.
  if (!item->answered && (item->open > 0 || !item->native.empty())) {
    const Future<Done> synced;
    const bool is_awaited = item->open == 0;
    if (is_awaited) {
      ++item->open;
      synced.Then([self = shared_from_this(), item](const absl::StatusOr<Done>&) {
        self->OnEnded({.item = item, .command = SIZE_MAX, .status = {}});
      });
    }
    Send([item, synced, is_awaited](RemoteSession* session) {
      if (session == nullptr) return synced.Set(Done{});
      if (is_awaited || !item->synced) session->SyncTold(synced);
    });
  }
  item->sent = true;
  return Step::kSent;
}

// Whether a read is still bringing bytes of the host that the copy would send or overwrite.
bool RemoteLink::MustWaitForRead(const BufferView& view, int64_t offset, int64_t length) const {
  const auto* host = static_cast<const char*>(view.memory->host());
  if (host == nullptr || length == 0) return false;
  const char* const begin = host + view.offset + offset;
  return std::ranges::any_of(host_reads_, [&](const HostRead& read) {
    return begin < read.end && read.begin < begin + length;
  });
}

}  // namespace telegrad
