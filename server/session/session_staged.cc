// Writes and reads of memory that the host cannot address, a file's or another device's: they go
// through memory of the host, from which or to which the buffer's device copies. It is charged like
// buffers. A session has one such read at a time, and writes of so many bytes as may wait of those
// that it receives: these are handed to the queue of the device behind the runs that were before,
// so a chain of runs and writes waits for nothing.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/session/session.h"
#include "server/session/staging.h"

namespace telegrad {
absl::StatusOr<std::shared_ptr<Memory>> Session::Stage(const Buffer& buffer, uint64_t bytes) {
  for (const auto& device : env_.devices->devices()) {
    if (device->host_visible()) return tenant_->Alloc(*device, static_cast<int64_t>(bytes));
  }
  return Unimplemented("no device has memory through which ", buffer.device()->name(),
                       " could be read or written");
}

absl::StatusOr<TimelinePoint> Session::WriteStaged(const Payload& payload, uint64_t offset,
                                                   const Buffer& buffer) {
  const auto size = static_cast<uint64_t>(payload.size());
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> staged, Stage(buffer, size));
  payload.CopyTo(staged->host());
  return EnqueueCopy(*queues_, *buffer.device(), Part(buffer.memory(), offset, size),
                     Part(staged, 0, size), {});
}

absl::StatusOr<TimelinePoint> Session::CopyOut(const Buffer& buffer, uint64_t offset,
                                               uint64_t bytes, const std::shared_ptr<Memory>& to) {
  const TimelinePoint waits[] = {buffer.last_write()};
  return EnqueueCopy(*queues_, *buffer.device(), Part(to, 0, bytes),
                     Part(buffer.memory(), offset, bytes), waits);
}

// In the order of the device's runs. One of the whole buffer makes it good again; a part inherits
// the failure of what wrote the rest.
Session::Step Session::WriteBehind(uint64_t id, WriteOp& op, Buffer& buffer, Where where,
                                   Block* block) {
  const uint64_t size = op.size();
  if (where == Where::kDeviceThread) return Step::kNeedsWorker;
  if ((block->held = buffer.held_read()) != nullptr) return Step::kBlocked;
  uint64_t staged = 0;
  while (!staged_writes_.empty() && IsReached(staged_writes_.front().copied)) {
    staged_writes_.pop_front();
  }
  for (const StagedWrite& write : staged_writes_) staged += write.bytes;
  const auto wait = [&] {
    block->point = staged_writes_.front().copied;
    return Step::kBlocked;
  };
  const bool full = staged + size > static_cast<uint64_t>(env_.limits.staged_bytes);
  if (full && !staged_writes_.empty()) return wait();
  auto memory = Stage(buffer, std::max<uint64_t>(size, 1));
  if (absl::IsResourceExhausted(memory.status()) && !staged_writes_.empty()) return wait();
  absl::StatusOr<TimelinePoint> copied = TimelinePoint();
  if (!memory.ok()) {
    copied = memory.status();
  } else {
    op.payload->CopyTo((*memory)->host());
    std::vector<TimelinePoint> waits = buffer.copied_reads();
    if (op.offset != 0 || size != static_cast<uint64_t>(buffer.bytes())) {
      waits.push_back(buffer.last_write());
    }
    copied = EnqueueCopy(*queues_, *buffer.device(), Part(buffer.memory(), op.offset, size),
                         Part(*memory, 0, size), waits, QueueKind::kCompute);
  }
  if (!copied.ok()) {
    buffer.SetPoison(copied.status());
    return Fail(id, copied.status());
  }
  op.payload.reset();
  staged_writes_.push_back({*copied, size});
  WrittenBehind(id, buffer, *copied, size);
  return Step::kDone;
}

// The operation's answer, which there is if it fails.
void Session::WrittenBehind(uint64_t id, Buffer& buffer, const TimelinePoint& point,
                            uint64_t bytes) {
  buffer.UsedBy(point);
  buffer.WrittenBy(point);
  auto ended = [self = shared_from_this(), slot = NewSlot(id, /*quiet=*/true),
                bytes](const absl::Status& status) {
    slot->answer.status = Clipped(status);
    if (status.ok()) self->Count(Metric::kBytesWritten, static_cast<int64_t>(bytes));
    self->Finish(slot);
  };
  if (point.timeline == nullptr) return ended(absl::OkStatus());
  point.timeline->OnReached(point.value, std::move(ended));
}

// On the queue in which the device runs, so that nothing has to wait for what was before on the
// same device.
absl::StatusOr<TimelinePoint> Session::CopyInto(Buffer& to, uint64_t to_offset, BufferView from,
                                                std::vector<TimelinePoint> waits, uint64_t bytes) {
  return EnqueueCopy(*queues_, *to.device(), Part(to.memory(), to_offset, bytes), std::move(from),
                     waits, QueueKind::kCompute);
}

Session::Step Session::Do(uint64_t id, CopyOp& op, Where where, Block* block) {
  const auto fail = [&](absl::Status error, Buffer* spoiled = nullptr) {
    if (spoiled != nullptr) spoiled->SetPoison(error);
    return Fail(id, std::move(error));
  };
  const auto to_found = FindBuffer(op.to), from_found = FindBuffer(op.from);
  if (!to_found.ok()) return fail(to_found.status());
  Buffer& to = **to_found;
  if (to.memory() == nullptr) return fail(to.Poison());
  if (!from_found.ok()) return fail(from_found.status(), &to);
  Buffer& from = **from_found;
  if (!from.Poison().ok()) return fail(from.Poison(), &to);
  const auto inside = [&](const Buffer& buffer, uint64_t offset) {
    const auto size = static_cast<uint64_t>(buffer.bytes());
    return offset <= size && op.bytes <= size - offset;
  };
  if (!inside(to, op.to_offset) || !inside(from, op.from_offset)) {
    return fail(InvalidArgument("copy of ", op.bytes, " bytes from ", op.from_offset, " of handle ",
                                op.from, ", which has ", from.bytes(), ", to ", op.to_offset,
                                " of handle ", op.to, ", which has ", to.bytes()),
                &to);
  }
  const bool whole = op.to_offset == 0 && op.bytes == static_cast<uint64_t>(to.bytes());
  if (!whole && !to.Poison().ok()) return fail(to.Poison());
  if ((block->held = to.held_read()) != nullptr) return Step::kBlocked;
  std::vector<TimelinePoint> waits = to.copied_reads();
  if (from.last_write().timeline != nullptr) waits.push_back(from.last_write());
  if (!whole && to.last_write().timeline != nullptr) waits.push_back(to.last_write());
  const BufferView source = Part(from.memory(), op.from_offset, op.bytes);
  absl::StatusOr<TimelinePoint> copied = absl::InternalError("");
  if (to.device() == from.device()) {
    copied = CopyInto(to, op.to_offset, source, std::move(waits), op.bytes);
  } else if (!MayWrite(to, block)) {
    return Step::kBlocked;
  } else if (NeedsHost(*to.device(), *from.device())) {
    if (where == Where::kDeviceThread) return Step::kNeedsWorker;
    const auto host = Stage(to, std::max<uint64_t>(op.bytes, 1));
    copied = host.ok() ? CopyOut(from, op.from_offset, op.bytes, *host) : host.status();
    if (copied.ok()) {
      waits.push_back(*copied);
      copied = CopyInto(to, op.to_offset, Part(*host, 0, op.bytes), std::move(waits), op.bytes);
    }
  } else {
    Device& device = CopyDevice(*to.device(), *from.device());
    copied =
        EnqueueCopy(*queues_, device, Part(to.memory(), op.to_offset, op.bytes), source, waits);
  }
  if (!copied.ok()) return fail(copied.status(), &to);
  if (to.device() == from.device()) {
    from.UsedBy(*copied);  // behind all that used it before
  } else {
    const TimelinePoint read{std::make_shared<Timeline>(), 1};  // never fails
    from.ReadUntil(read);
    copied->timeline->OnReached(
        copied->value, [timeline = read.timeline](const absl::Status&) { timeline->Signal(1); });
  }
  WrittenBehind(id, to, *copied, op.bytes);
  return Step::kDone;
}

Session::Step Session::ReadStaged(uint64_t id, const ReadOp& op, Buffer& buffer, Block* block) {
  if ((block->held = staged_read_.lock()) != nullptr) return Step::kBlocked;
  auto staged = Stage(buffer, op.bytes);
  auto copied = staged.ok() ? CopyOut(buffer, op.offset, op.bytes, *staged) : staged.status();
  if (!copied.ok()) return Fail(id, copied.status());
  buffer.ReadUntil(*copied);
  ReadResult result{.offset = op.offset, .bytes = op.bytes};
  result.held = std::make_shared<HeldRead>(*std::move(staged));
  staged_read_ = result.held;
  copied->timeline->OnReached(
      copied->value,
      [self = shared_from_this(), slot = NewSlot(id), result = std::move(result)](
          const absl::Status& status) mutable { self->Answered(slot, std::move(result), status); });
  return Step::kDone;
}

}  // namespace telegrad
