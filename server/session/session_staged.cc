// Writes and reads of memory that the host cannot address, a file's or another device's: they go
// through memory of the host, from which or to which the buffer's device copies. A session stages
// at most one write and one read at a time; staging is charged like buffers.
#include <utility>

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
