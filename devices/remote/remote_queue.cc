// What becomes of a submission: it is checked and queued (Submit), sent command by command once
// what it waits for allows (Advance), ended by the answers to its commands (Take), and told to who
// waits for its point, in the order of its queue (Finish, Settle).
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "devices/api/host_memory.h"
#include "devices/remote/remote_items.h"
#include "devices/remote/remote_link.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

const RemoteMemory* AsRemote(const BufferView& view) {
  return dynamic_cast<const RemoteMemory*>(view.memory.get());
}

bool IsReachedPoint(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

}  // namespace

std::shared_ptr<RemoteLink::QueueState> RemoteLink::NewQueue(std::string queue_name,
                                                             QueueKind kind) {
  auto queue = std::make_shared<QueueState>();
  queue->name = std::move(queue_name);
  queue->kind = kind;
  queue->capacity = std::max(server_->options().queue_capacity, 1);
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto& known) { return known.expired(); });
  absl::erase_if(timelines_, [](const auto& known) { return known.second.expired(); });
  queues_.push_back(queue);
  timelines_[queue->timeline.get()] = queue;
  return queue;
}

void RemoteLink::CloseQueue(const std::shared_ptr<QueueState>& queue) {
  Enter([&] { queue->closed = true; });
}

TimelinePoint RemoteLink::Last(const QueueState& queue) const {
  const std::lock_guard lock(mutex_);
  return {queue.timeline, queue.submitted};
}

absl::Status RemoteLink::CheckBindings(const CommandBuffer* commands,
                                       std::span<const BufferView> bindings) const {
  const auto* list = dynamic_cast<const RemoteCommands*>(commands);
  if (list == nullptr) return InvalidArgument("the commands were not encoded for ", name());
  TG_RETURN_IF_ERROR(list->Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    const RemoteMemory* remote = AsRemote(bindings[i]);
    if (remote != nullptr ? &remote->link() == this : bindings[i].memory->host() != nullptr) {
      continue;
    }
    return InvalidArgument("binding ", i, " is memory that ", name(), " cannot reach");
  }
  for (size_t i = 0; i < list->commands().size(); ++i) {
    const Command& command = list->commands()[i];
    if (command.kind == CommandKind::kCopy) {
      if (AsRemote(bindings[command.copy.to.binding]) == nullptr &&
          AsRemote(bindings[command.copy.from.binding]) == nullptr) {
        return InvalidArgument("command ", i, " copies between memories of which none is on ",
                               name());
      }
      continue;
    }
    for (const Launch::Argument& argument : command.launch.arguments) {
      if (AsRemote(bindings[argument.binding]) == nullptr) {
        return InvalidArgument("command ", i, ": binding ", argument.binding, " is not on ", name(),
                               ", which alone its programs reach");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TimelinePoint> RemoteLink::Submit(const std::shared_ptr<QueueState>& queue,
                                                 std::shared_ptr<const CommandBuffer> commands,
                                                 std::vector<BufferView> bindings,
                                                 std::span<const TimelinePoint> waits,
                                                 std::shared_ptr<RunTrace> trace,
                                                 std::shared_ptr<const Cancellation> cancellation) {
  TG_RETURN_IF_ERROR(CheckBindings(commands.get(), bindings));
  if (queue->kind == QueueKind::kCopy &&
      static_cast<const RemoteCommands&>(*commands).has_launches()) {
    return InvalidArgument("a launch on a copy queue");
  }
  auto item = std::make_shared<Item>();
  item->queue = queue;
  item->commands = std::static_pointer_cast<const RemoteCommands>(std::move(commands));
  item->bindings = std::move(bindings);
  item->waits.assign(waits.begin(), waits.end());
  item->trace = std::move(trace);
  item->cancellation = std::move(cancellation);
  item->events.resize(item->commands->commands().size());
  absl::Status status;
  Enter([&] {
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
    queue->unsent.push_back(item);
    queue->open.push_back(item);
    queue->alive.emplace(item->value, item);
  });
  TG_RETURN_IF_ERROR(status);
  return TimelinePoint{queue->timeline, item->value};
}

// What is sent for one queue may be what another has waited for, and so may an end.
bool RemoteLink::AdvanceAll() {
  bool any = false;
  for (bool more = true; more; any |= more) {
    more = false;
    for (const auto& known : queues_) {
      if (const auto queue = known.lock()) {
        while (!queue->unsent.empty() && Begin(*queue, queue->unsent.front()) == Step::kSent) {
          queue->unsent.pop_front();
          more = true;
        }
        while (Finish(*queue)) more = true;
      }
    }
  }
  return any;
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
  const auto queue = own->second.lock();
  if (queue == nullptr) return nullptr;
  const auto it = queue->alive.find(point.value);
  return it == queue->alive.end() ? nullptr : it->second.get();
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
      if (before->open == 0 && !before->status.ok()) {
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
      const RemoteMemory* remote = AsRemote(view);
      if (remote == nullptr || (far_ != nullptr && remote->generation() == far_->generation)) {
        continue;
      }
      Fail(*item, LostLocked());
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
    for (const Launch::Argument* end : {&copy.to, &copy.from}) {
      if (MustWaitForRead(item->bindings[end->binding], end->offset, copy.length)) {
        return Step::kBlocked;
      }
    }
    const BufferView& to = item->bindings[copy.to.binding];
    const BufferView& from = item->bindings[copy.from.binding];
    const auto part = [&](const BufferView& view, int64_t offset) {
      return BufferView{view.memory, view.offset + offset, copy.length};
    };
    item->events[i] = item->commands->Describe(i);
    item->events[i].begin_ns = item->events[i].end_ns = SteadyNs();
    if (copy.length == 0) continue;
    if (!far_->copies && AsRemote(to) != nullptr && AsRemote(from) != nullptr) {
      if (CopyByWayOfHost(item, i) == Step::kBlocked) return Step::kBlocked;
      continue;
    }
    PostCopy(item, i, part(to, copy.to.offset), part(from, copy.from.offset));
  }
  // Only what is sent later tells that these were carried out.
  if (!item->answered && (item->open > 0 || !item->native.empty())) {
    const Future<Done> synced;
    if (item->open == 0) {
      ++item->open;
      synced.Then([self = shared_from_this(), item](const absl::StatusOr<Done>&) {
        self->OnEnded({.item = item, .command = SIZE_MAX, .status = {}});
      });
    }
    Send([synced](RemoteSession* session) {
      if (session == nullptr) return synced.Set(Done{});
      session->SyncTold(synced);
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

void RemoteLink::PostLaunch(const ItemRef& item, size_t i) {
  const Launch& launch = item->commands->commands()[i].launch;
  const auto program = std::static_pointer_cast<const RemoteProgram>(launch.program);
  item->events[i] = item->commands->Describe(i);
  item->events[i].begin_ns = SteadyNs();
  if (program->generation() != item->generation) {  // not sent in this session, or dropped there
    program->SetGeneration(item->generation);
    Send([program](RemoteSession* session) {
      if (session != nullptr) session->PutTold(program->graph(), /*compile=*/false);
    });
  }
  const bool trace = item->trace != nullptr && item->trace->detailed() && traced_ == nullptr;
  if (trace) traced_ = item.get();
  const Future<RunInfo> told;
  ++item->open;
  item->answered = true;
  told.Then([self = shared_from_this(), item, i, program](const absl::StatusOr<RunInfo>& info) {
    self->OnEnded({.item = item,
                   .command = i,
                   .status = info.status(),
                   .info = info.ok() ? *info : RunInfo(),
                   .program = program});
  });
  Send([item, i, program, trace, told](RemoteSession* session) {
    if (session == nullptr) return told.Set(absl::UnavailableError(""));
    std::vector<uint64_t> handles, offsets;
    const Launch& run = item->commands->commands()[i].launch;
    for (const Launch::Argument& argument : run.arguments) {
      const BufferView& view = item->bindings[argument.binding];
      handles.push_back(AsRemote(view)->handle());
      offsets.push_back(static_cast<uint64_t>(view.offset + argument.offset));
    }
    if (item->first_operation == 0) item->first_operation = session->NextOperation();
    session->RunTold(program->hash(), {handles, offsets, run.variables, program->devices(), trace},
                     told);
    item->last_operation = session->NextOperation() - 1;
  });
}

// First a read, and a write once that has ended: whatever waits for the copy waits here meanwhile.
RemoteLink::Step RemoteLink::CopyByWayOfHost(const ItemRef& item, size_t i) {
  const CopyBytes& copy = item->commands->commands()[i].copy;
  BufferView& host = item->by_way[i];
  if (host.memory == nullptr) {
    auto memory = AllocHostMemory(copy.length);
    if (!memory.ok()) {
      item->first_failed = i;
      Fail(*item, memory.status());
      return Step::kSent;
    }
    host = {*std::move(memory), 0, copy.length};
    BufferView from = item->bindings[copy.from.binding];
    from.offset += copy.from.offset;
    PostCopy(item, i, host, from);
  }
  if (MustWaitForRead(host, 0, copy.length)) return Step::kBlocked;
  if (item->first_failed != SIZE_MAX) return Step::kSent;  // there is nothing to write
  BufferView to = item->bindings[copy.to.binding];
  to.offset += copy.to.offset;
  PostCopy(item, i, to, host);
  return Step::kSent;
}

// As many bytes as the command copies.
void RemoteLink::PostCopy(const ItemRef& item, size_t i, const BufferView& to,
                          const BufferView& from) {
  const int64_t to_offset = to.offset, from_offset = from.offset;
  const auto length = static_cast<size_t>(item->commands->commands()[i].copy.length);
  const RemoteMemory *far_to = AsRemote(to), *far_from = AsRemote(from);
  const Future<Done> told;
  ++item->open;
  item->answered = far_to == nullptr;
  told.Then([self = shared_from_this(), item, i](const absl::StatusOr<Done>& done) {
    self->OnEnded({.item = item, .command = i, .status = done.status()});
  });
  Post post;
  if (far_to != nullptr && far_from != nullptr) {
    post = [=, to = far_to->handle(), from = far_from->handle()](RemoteSession* session) {
      session->CopyTold(to, to_offset, from, from_offset, static_cast<int64_t>(length), told);
    };
  } else if (far_to != nullptr) {
    const auto* at = static_cast<const std::byte*>(from.memory->host()) + from_offset;
    post = [=, to = far_to->handle(), keep = from.memory](RemoteSession* session) {
      session->WriteTold(to, to_offset, {at, length}, keep, told);
    };
  } else {
    auto* at = static_cast<std::byte*>(to.memory->host()) + to_offset;
    const auto* begin = reinterpret_cast<const char*>(at);
    host_reads_.push_back({begin, begin + length, item.get(), i});
    post = [=, from = far_from->handle()](RemoteSession* session) {
      session->ReadTold(from, from_offset, {at, length}, told);
    };
  }
  Send([item, told, post = std::move(post)](RemoteSession* session) {
    if (session == nullptr) return told.Set(absl::UnavailableError(""));
    if (item->first_operation == 0) item->first_operation = session->NextOperation();
    post(session);
    item->last_operation = session->NextOperation() - 1;
  });
}

void RemoteLink::OnEnded(Ended ended) {
  if (RemoteLinkHolder::holds == this) {
    ended_.push_back(std::move(ended));
    return;
  }
  Enter([&] { ended_.push_back(std::move(ended)); });
}

// The answer to a command has come, or will not.
void RemoteLink::Take(Ended ended) {
  Item& item = *ended.item;
  if (!ended.status.ok() && far_ != nullptr && far_->generation == item.generation) {
    if (absl::Status over = far_->session->Over(); !over.ok()) LoseLocked(over);
  }
  const bool lost = far_ == nullptr || far_->generation != item.generation;
  if (ended.command < item.events.size()) {
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
      if (ended.status.ok()) server_->Measured(command.copy.length, took);
    }
  }
  if (traced_ == &item && ended.program != nullptr) traced_ = nullptr;
  if (!ended.status.ok() && ended.command < item.first_failed) {
    item.first_failed = ended.command;
    if (lost) {
      item.status = LostLocked();
    } else {
      const bool dropped = ended.program != nullptr && absl::IsNotFound(ended.status) &&
                           ended.status.message().find("unknown graph") != std::string::npos;
      if (dropped) ended.program->SetGeneration(0);
      item.status = absl::Status(
          dropped ? absl::StatusCode::kUnavailable : ended.status.code(),
          Reason(ended.status) + (dropped ? "; it is sent again with its next run" : ""));
      const absl::Status cancelled =
          item.cancellation == nullptr ? absl::OkStatus() : item.cancellation->Check();
      if (item.cancel_sent && absl::IsCancelled(ended.status)) item.status = cancelled;
    }
  }
  --item.open;
}

// Takes the first open submission off its queue if it has ended.
bool RemoteLink::Finish(QueueState& queue) {
  if (queue.open.empty()) return false;
  const ItemRef& item = queue.open.front();
  if (!item->sent || item->open > 0) return false;
  for (const TimelinePoint& wait : item->native) {
    absl::Status failed;
    if (const Item* before = AliveAt(wait); before != nullptr) {
      if (!before->sent || before->open > 0) return false;
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
  queue.open.pop_front();
  return true;
}

// Without the lock: first the references, then the place, then the point, so that whoever sees the
// point finds all that free. One thread at a time, so that points are reached in their order.
void RemoteLink::Settle() {
  std::unique_lock lock(mutex_);
  for (std::vector<TimelinePoint> arm = std::exchange(arm_, {}); !arm.empty();
       arm = std::exchange(arm_, {})) {
    lock.unlock();
    for (const TimelinePoint& point : arm) {
      point.timeline->OnReached(point.value, [link = weak_from_this()](const absl::Status&) {
        if (const auto self = link.lock()) self->Enter([] {});
      });
    }
    lock.lock();
  }
  if (settling_) return;
  settling_ = true;
  while (!finished_.empty()) {
    const ItemRef item = std::move(finished_.front());
    finished_.pop_front();
    lock.unlock();
    const auto queue = item->queue;
    item->commands.reset();
    item->bindings.clear();
    item->waits.clear();
    if (item->trace != nullptr) TellTrace(*item, queue->name);
    item->cancellation.reset();
    lock.lock();
    --queue->places;
    lock.unlock();
    queue->timeline->Signal(item->value, item->status);
    lock.lock();
    queue->alive.erase(item->value);
    if (--items_ == 0) idle_.notify_all();
  }
  settling_ = false;
}

// The events of its commands, one after the other.
void RemoteLink::TellTrace(Item& item, const std::string& queue) {
  std::vector<TraceEvent> events;
  int64_t end = 0;
  for (TraceEvent& event : item.events) {
    if (event.end_ns == 0) continue;  // it was not sent
    event.begin_ns = std::max(event.begin_ns, end);
    event.end_ns = std::max(event.end_ns, event.begin_ns);
    end = event.end_ns;
    event.queue = queue;
    if (event.kind == CommandKind::kLaunch && !item.detailed.empty()) continue;
    events.push_back(std::move(event));
  }
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
  Enter([&] {
    busy = items_ > 0;
    if (far_ == nullptr) return;
    if (absl::Status over = far_->session->Over(); !over.ok()) return LoseLocked(over);
    for (const auto& known : queues_) {
      const auto queue = known.lock();
      if (queue == nullptr) continue;
      for (const ItemRef& item : queue->open) {
        if (item->cancel_sent || item->open == 0 || item->first_operation == 0) continue;
        if (item->cancellation == nullptr || item->cancellation->Check().ok()) continue;
        item->cancel_sent = true;
        Send([first = item->first_operation, last = item->last_operation](RemoteSession* session) {
          if (session != nullptr) session->Cancel(first, last);
        });
      }
    }
  });
  return busy;
}

}  // namespace telegrad
