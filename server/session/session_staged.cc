// Writes and reads of memory that the host cannot address, a file's or another device's: they go
// through memory of the host, from which or to which the buffer's device copies. What a session has
// staged at once is one write and one read, so it is no more than its buffers, which are charged.
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"
#include "server/session/staging.h"

namespace telegrad {
absl::StatusOr<TimelinePoint> Session::WriteStaged(const WriteOp& op, const Buffer& buffer) {
  const auto size = static_cast<uint64_t>(op.payload->size());
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> staged,
                      AllocStaging(*env_.devices, *buffer.device(), size));
  op.payload->CopyTo(staged->host());
  return EnqueueCopy(*buffer.device(), Part(buffer.memory(), op.offset, size),
                     Part(staged, 0, size), {});
}

Session::Step Session::ReadStaged(uint64_t id, const ReadOp& op, Buffer& buffer, Block* block) {
  if ((block->held = staged_read_.lock()) != nullptr) return Step::kBlocked;
  const auto copy = [&](const std::shared_ptr<Memory>& staged) {
    const TimelinePoint waits[] = {buffer.last_write()};
    return EnqueueCopy(*buffer.device(), Part(staged, 0, op.bytes),
                       Part(buffer.memory(), op.offset, op.bytes), waits);
  };
  auto staged = AllocStaging(*env_.devices, *buffer.device(), op.bytes);
  auto copied = staged.ok() ? copy(*staged) : staged.status();
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
