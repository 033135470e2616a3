// The pipeline. Operations wait in a queue; whoever submits, or wakes the session up, becomes the
// drainer and executes from the front until the queue is empty or its front has to wait. There is
// one drainer at a time, so that buffers need no lock; the mutex guards only the queue and the
// answers. An operation that has to wait goes back to the front and is executed again from its
// start when what it waits for has happened.
//
// The drainer may be the thread that reads the stream, a device's thread that reports the end of a
// run (the shortest way to the next operation, but nothing long may be done there), a worker, or a
// thread that compiles.
#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Above these an operation is not done on a reader's or device's thread.
constexpr int64_t kQuickAllocBytes = 4 << 20;
constexpr int64_t kQuickWriteBytes = 64 << 10;

}  // namespace

HeldRead::~HeldRead() {
  for (auto& callback : released_) callback();
}

void HeldRead::OnReleased(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  released_.push_back(std::move(callback));
}

Session::Session(const Environment& env, std::shared_ptr<Tenant> tenant, uint64_t id,
                 std::shared_ptr<AnswerSink> sink)
    : env_(env), tenant_(std::move(tenant)), id_(id), sink_(std::move(sink)) {
  env_.metrics->Add(Metric::kSessions);
  env_.metrics->Add(Metric::kSessionsOpened);
}

Session::~Session() { Close(); }

void Session::Submit(Operation operation) {
  env_.metrics->Add(Metric::kOperations);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    Queued queued;
    if (const auto* write = std::get_if<WriteOp>(&operation.op)) {
      queued.staged = write->payload->size();
    }
    queued.operation = std::move(operation);
    staged_ += queued.staged;
    env_.metrics->Add(Metric::kStagedBytes, queued.staged);
    queue_.push_back(std::move(queued));
  }
  Drain(Where::kReader);
}

bool Session::Congested() const {
  std::lock_guard lock(mutex_);
  return staged_ > env_.limits.staged_bytes ||
         static_cast<int64_t>(queue_.size()) > env_.limits.queued_operations ||
         static_cast<int64_t>(slots_.size()) > env_.limits.unanswered;
}

bool Session::Idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && slots_.empty() && !draining_;
}

void Session::Close() {
  std::deque<Queued> queue;
  std::deque<SlotRef> slots;
  std::shared_ptr<AnswerSink> sink;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (budget_ != nullptr) budget_->Cancel();
    queue.swap(queue_);
    slots.swap(slots_);
    sink.swap(sink_);
    if (!draining_) buffers.swap(buffers_);
    env_.metrics->Add(Metric::kStagedBytes, -std::exchange(staged_, 0));
    env_.metrics->Add(Metric::kSessions, -1);
  }
}

void Session::Drain(Where where) {
  std::unique_lock lock(mutex_);
  if (draining_ || blocked_) return;
  draining_ = true;
  while (!closed_ && !queue_.empty()) {
    Queued queued = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Block block;
    const Step step = Execute(queued, where, &block);
    lock.lock();
    if (closed_) break;
    if (step == Step::kDone) {
      staged_ -= queued.staged;
      env_.metrics->Add(Metric::kStagedBytes, -queued.staged);
      continue;
    }
    queue_.push_front(std::move(queued));
    draining_ = false;
    blocked_ = true;
    lock.unlock();
    Arm(step, block);
    return;
  }
  draining_ = false;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers;
  if (closed_) buffers.swap(buffers_);
  const std::shared_ptr<AnswerSink> sink = sink_;
  lock.unlock();
  if (sink) sink->OnProgress();
}

void Session::Arm(Step step, const Block& block) {
  auto self = shared_from_this();
  if (step == Step::kNeedsWorker) {
    env_.workers->Post([self] { self->Unblock(Where::kWorker); });
  } else if (step == Step::kNeedsCompiler) {
    env_.compilers->Post([self] { self->Unblock(Where::kCompiler); });
  } else if (block.held) {
    // The last reference may go inside the transport, which is no place to do anything.
    block.held->OnReleased(
        [self] { self->env_.workers->Post([self] { self->Unblock(Where::kWorker); }); });
  } else {
    block.point.timeline->OnReached(
        block.point.value, [self](const absl::Status&) { self->Unblock(Where::kDeviceThread); });
  }
}

void Session::Unblock(Where where) {
  {
    std::lock_guard lock(mutex_);
    blocked_ = false;
  }
  Drain(where);
}

Session::Step Session::Execute(Queued& queued, Where where, Block* block) {
  const uint64_t id = queued.operation.id;
  auto& op = queued.operation.op;
  if (auto* alloc = std::get_if<AllocOp>(&op)) return Do(id, *alloc, where);
  if (auto* free = std::get_if<FreeOp>(&op)) return Do(id, *free);
  if (auto* write = std::get_if<WriteOp>(&op)) return Do(id, *write, queued, where, block);
  if (auto* read = std::get_if<ReadOp>(&op)) return Do(id, *read, where, block);
  if (auto* has = std::get_if<HasOp>(&op)) return Do(id, *has);
  if (auto* put = std::get_if<PutOp>(&op)) return Do(id, *put, where);
  if (auto* run = std::get_if<RunOp>(&op)) return Do(id, *run, queued, where, block);
  return Reply(id, {});  // SyncOp
}

Session::SlotRef Session::NewSlot(uint64_t id, bool quiet) {
  auto slot = std::make_shared<Slot>();
  slot->quiet = quiet;
  slot->answer.id = id;
  std::lock_guard lock(mutex_);
  if (!closed_) slots_.push_back(slot);
  return slot;
}

// The slot's answer is complete; it and those that waited behind it go out.
void Session::Finish(const SlotRef& slot) {
  std::shared_ptr<AnswerSink> sink;
  {
    std::lock_guard lock(mutex_);
    slot->done = true;
    EmitLocked();
    sink = sink_;
  }
  if (sink) sink->OnProgress();
}

void Session::EmitLocked() {
  while (!slots_.empty() && slots_.front()->done) {
    const SlotRef slot = std::move(slots_.front());
    slots_.pop_front();
    if (!slot->answer.status.ok()) env_.metrics->Add(Metric::kOperationErrors);
    if (sink_ && !(slot->quiet && slot->answer.status.ok())) {
      sink_->OnAnswer(std::move(slot->answer));
    }
  }
}

Session::Step Session::Reply(uint64_t id, Answer answer) {
  const SlotRef slot = NewSlot(id);
  answer.id = id;
  slot->answer = std::move(answer);
  Finish(slot);
  return Step::kDone;
}

Session::Step Session::Fail(uint64_t id, absl::Status error) {
  Answer answer;
  answer.status = std::move(error);
  return Reply(id, std::move(answer));
}

absl::StatusOr<Buffer*> Session::FindBuffer(uint64_t handle) {
  const auto it = buffers_.find(handle);
  if (it == buffers_.end()) return NotFound("unknown handle ", handle);
  return it->second.get();
}

absl::Status Session::CheckAlloc(const AllocOp& op) const {
  const int64_t handles = static_cast<int64_t>(buffers_.size());
  if (op.handle == 0) return InvalidArgument("handle 0 is reserved");
  if (buffers_.contains(op.handle)) return InvalidArgument("handle ", op.handle, " is in use");
  if (handles >= env_.limits.handles) {
    return ResourceExhausted("this session has ", handles, " buffers; handles is limited to ",
                             env_.limits.handles);
  }
  return absl::OkStatus();
}

Session::Step Session::Do(uint64_t id, AllocOp& op, Where where) {
  const bool quick = where == Where::kReader || where == Where::kDeviceThread;
  if (quick && (op.bytes > kQuickAllocBytes || op.file)) return Step::kNeedsWorker;
  if (absl::Status status = CheckAlloc(op); !status.ok()) return Fail(id, std::move(status));
  const auto allocate = [&]() -> absl::StatusOr<std::unique_ptr<Buffer>> {
    if (op.bytes > static_cast<uint64_t>(env_.limits.bytes - bytes_)) {
      return ResourceExhausted("handle ", op.handle, ": ", op.bytes, " bytes beside the ", bytes_,
                               " that this session has exceed bytes, ", env_.limits.bytes);
    }
    TG_ASSIGN_OR_RETURN(Device * device, env_.devices->Find(op.device));
    TG_RETURN_IF_ERROR(device->Health());
    const int64_t bytes = static_cast<int64_t>(op.bytes);
    if (op.file) {
      if (op.file->offset > INT64_MAX) {
        return InvalidArgument("handle ", op.handle, ": a file offset of ", op.file->offset);
      }
      const auto offset = static_cast<int64_t>(op.file->offset);
      TG_ASSIGN_OR_RETURN(auto memory, device->Open(op.file->path, offset, bytes, op.file->mode));
      return std::make_unique<Buffer>(std::move(memory), bytes, device, env_.metrics);
    }
    TG_ASSIGN_OR_RETURN(auto memory, device->Alloc(std::max<int64_t>(bytes, 1)));
    return std::make_unique<Buffer>(std::move(memory), bytes, device, env_.metrics);
  };
  auto buffer = allocate();
  if (!buffer.ok()) {
    buffers_[op.handle] = std::make_unique<Buffer>(buffer.status(), env_.metrics);
    return Fail(id, buffer.status());
  }
  bytes_ += (*buffer)->bytes();
  buffers_[op.handle] = *std::move(buffer);
  return Step::kDone;
}

// Whatever still uses the memory holds a reference to it.
Session::Step Session::Do(uint64_t id, FreeOp& op) {
  absl::Status status;
  for (const uint64_t handle : op.handles) {
    const auto it = buffers_.find(handle);
    if (it == buffers_.end()) {
      if (status.ok()) status = NotFound("free: unknown handle ", handle);
      continue;
    }
    bytes_ -= it->second->bytes();
    buffers_.erase(it);
  }
  return status.ok() ? Step::kDone : Fail(id, std::move(status));
}

Session::Step Session::Do(uint64_t id, WriteOp& op, Queued& queued, Where where, Block* block) {
  auto found = FindBuffer(op.handle);
  if (!found.ok()) return Fail(id, found.status());
  Buffer& buffer = **found;
  const uint64_t size = static_cast<uint64_t>(op.payload->size());
  const uint64_t bytes = static_cast<uint64_t>(buffer.bytes());
  if (buffer.memory() == nullptr) return Fail(id, buffer.Poison());
  if (op.offset > bytes || size > bytes - op.offset) {
    absl::Status error = InvalidArgument("write of handle ", op.handle, ": ", size, " bytes at ",
                                         op.offset, " do not fit into its ", bytes);
    if (!IsReached(buffer.last_write())) {
      block->point = buffer.last_write();
      return Step::kBlocked;  // so that the run does not overwrite the poison
    }
    buffer.SetPoison(error);
    return Fail(id, std::move(error));
  }
  if (!IsReached(buffer.last_use())) {
    block->point = buffer.last_use();
    return Step::kBlocked;
  }
  if (!buffer.copied_reads().empty()) {
    block->point = buffer.copied_reads().front();
    return Step::kBlocked;
  }
  if ((block->held = buffer.held_read()) != nullptr) return Step::kBlocked;
  if (where == Where::kDeviceThread && size > kQuickWriteBytes) return Step::kNeedsWorker;

  if (std::byte* to = buffer.host(op.offset); to != nullptr) {
    buffer.Poison();  // takes over the failure of a run that has ended, which this write may then
                      // repair
    op.payload->CopyTo(to);
  } else if (!queued.copied) {
    auto copied = WriteStaged(op, buffer);
    if (!copied.ok()) {
      buffer.SetPoison(copied.status());
      return Fail(id, copied.status());
    }
    block->point = *(queued.copied = *std::move(copied));
    return Step::kBlocked;
  } else {
    buffer.Poison();
    if (absl::Status status = queued.copied->Wait(); !status.ok()) {  // it is reached
      buffer.SetPoison(status);
      return Fail(id, std::move(status));
    }
  }
  op.payload.reset();
  buffer.Rewritten(op.offset, size);
  env_.metrics->Add(Metric::kBytesWritten, static_cast<int64_t>(size));
  return Step::kDone;
}

Session::Step Session::Do(uint64_t id, ReadOp& op, Where where, Block* block) {
  auto found = FindBuffer(op.handle);
  if (!found.ok()) return Fail(id, found.status());
  Buffer& buffer = **found;
  if (!buffer.Poison().ok()) return Fail(id, buffer.Poison());
  const uint64_t bytes = static_cast<uint64_t>(buffer.bytes());
  if (op.offset > bytes || op.bytes > bytes - op.offset) {
    return Fail(id, InvalidArgument("read of handle ", op.handle, ": ", op.bytes, " bytes at ",
                                    op.offset, " exceed its ", bytes));
  }
  const std::byte* from = buffer.host(op.offset);
  if (from == nullptr) {
    if (where == Where::kDeviceThread) return Step::kNeedsWorker;
    return ReadStaged(id, op, buffer, block);
  }

  ReadResult result{.offset = op.offset, .bytes = op.bytes, .at = op.offset};
  const bool copy = op.bytes <= static_cast<uint64_t>(env_.limits.copied_read_bytes);
  const TimelinePoint ready = buffer.last_write();
  const TimelinePoint copied{std::make_shared<Timeline>(), 1};
  if (!copy) {
    result.held = std::make_shared<HeldRead>(buffer.memory());
    buffer.ReadUntil(result.held);
  } else if (!IsReached(ready)) {
    buffer.ReadUntil(copied);
  }
  auto taken = [self = shared_from_this(), slot = NewSlot(id), result = std::move(result), copy,
                copied, from, memory = buffer.memory()](const absl::Status& status) mutable {
    if (copy && status.ok()) result.copy.assign(reinterpret_cast<const char*>(from), result.bytes);
    copied.timeline->Signal(1);
    self->Answered(slot, std::move(result), status);
  };
  if (IsReached(ready)) {
    taken(ready.timeline ? ready.timeline->StatusOf(ready.value) : absl::OkStatus());
  } else {
    ready.timeline->OnReached(ready.value, std::move(taken));
  }
  return Step::kDone;
}

void Session::Answered(const SlotRef& slot, ReadResult result, const absl::Status& status) {
  slot->answer.status = status;
  if (status.ok()) {
    env_.metrics->Add(Metric::kBytesRead, static_cast<int64_t>(result.bytes));
    slot->answer.result = std::move(result);
  }
  Finish(slot);
}

}  // namespace telegrad
