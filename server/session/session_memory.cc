// The operations of a session that are about its buffers: Alloc, Free, Write and Read.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"

namespace telegrad {
namespace {

// Above these an operation is not done on a reader's or device's thread.
constexpr int64_t kQuickAllocBytes = 4 << 20;
constexpr int64_t kQuickWriteBytes = 64 << 10;
// What a buffer and its memory take beside its bytes, as estimated from the smallest ones, with the
// timelines of the runs that wrote and used it last.
constexpr int64_t kHandleBytes = 448 + 2 * (sizeof(Timeline) + 32);

}  // namespace

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
    return ResourceExhausted("this session has ", handles, " buffers, of which it may have ",
                             env_.limits.handles, "; raise it with --session-handles");
  }
  return absl::OkStatus();
}

// Allocates the buffer of `op`, which the caller charges to the session.
absl::StatusOr<std::unique_ptr<Buffer>> Session::NewBuffer(const AllocOp& op) {
  if (op.bytes > static_cast<uint64_t>(env_.limits.bytes - bytes_)) {
    return ResourceExhausted("handle ", op.handle, ": ", op.bytes, " bytes beside the ", bytes_,
                             " that this session has exceed its limit of ", env_.limits.bytes,
                             "; raise it with --session-bytes");
  }
  TG_ASSIGN_OR_RETURN(
      Reservation paid,
      Reservation::Take(tenant_->accounts.shared(Quota::kHostMemory), kHandleBytes));
  TG_ASSIGN_OR_RETURN(Device * device, env_.devices->Find(op.device));
  device = tenant_->View(*device);
  TG_RETURN_IF_ERROR(device->Health());
  TG_RETURN_IF_ERROR(env_.devices->CheckTakesWork(*device));
  const int64_t bytes = static_cast<int64_t>(op.bytes);
  if (op.file) {
    if (op.file->offset > INT64_MAX) {
      return InvalidArgument("handle ", op.handle, ": a file offset of ", op.file->offset);
    }
    const auto offset = static_cast<int64_t>(op.file->offset);
    TG_RETURN_IF_ERROR(tenant_->MayUse(*device, op.file->mode != OpenMode::kRead));
    std::optional<Reservation> growth;  // for good, once the file is made
    if (op.file->mode == OpenMode::kCreate && bytes <= INT64_MAX - offset) {
      TG_ASSIGN_OR_RETURN(
          growth, Reservation::Take(tenant_->accounts.shared(Quota::kDiskBytes), offset + bytes));
    }
    TG_ASSIGN_OR_RETURN(auto memory, device->Open(op.file->path, offset, bytes, op.file->mode));
    if (growth) growth->Keep();
    auto buffer = std::make_unique<Buffer>(std::move(memory), bytes, device, env_.metrics);
    buffer->Pay(std::move(paid));
    return buffer;
  }
  TG_RETURN_IF_ERROR(tenant_->MayUse(*device, /*write=*/true));
  TG_ASSIGN_OR_RETURN(auto memory, tenant_->Alloc(*device, std::max<int64_t>(bytes, 1)));
  auto buffer = std::make_unique<Buffer>(std::move(memory), bytes, device, env_.metrics);
  buffer->Pay(std::move(paid));
  return buffer;
}

// Keeps the error under the handle for operations that use it. If the tenant's quota has no room,
// the handle stays unknown.
void Session::Poisoned(uint64_t handle, const absl::Status& error) {
  auto paid = Reservation::Try(tenant_->accounts.shared(Quota::kHostMemory),
                               kHandleBytes + static_cast<int64_t>(error.message().size()));
  if (!paid) return;
  auto buffer = std::make_unique<Buffer>(error, env_.metrics);
  buffer->Pay(*std::move(paid));
  buffers_[handle] = std::move(buffer);
}

void Session::Drop(uint64_t handle) {
  const auto it = buffers_.find(handle);
  bytes_ -= it->second->bytes();
  buffers_.erase(it);
}

Session::Step Session::Do(uint64_t id, AllocOp& op, Where where) {
  const bool quick = where == Where::kReader || where == Where::kDeviceThread;
  if (quick && (op.bytes > kQuickAllocBytes || op.file)) return Step::kNeedsWorker;
  if (absl::Status status = CheckAlloc(op); !status.ok()) return Fail(id, std::move(status));
  auto buffer = NewBuffer(op);
  if (!buffer.ok()) {
    Poisoned(op.handle, buffer.status());
    return Fail(id, buffer.status());
  }
  bytes_ += (*buffer)->bytes();
  buffers_[op.handle] = *std::move(buffer);
  return Step::kDone;
}

// Runs and reads under way hold a reference to the memory.
Session::Step Session::Do(uint64_t id, FreeOp& op) {
  absl::Status status;
  for (const uint64_t handle : op.handles) {
    if (!buffers_.contains(handle)) {
      if (status.ok()) status = NotFound("free: unknown handle ", handle);
      continue;
    }
    Drop(handle);
  }
  return status.ok() ? Step::kDone : Fail(id, std::move(status));
}

// False while something uses the buffer that the host must not write meanwhile.
bool Session::MayWrite(Buffer& buffer, Block* block) {
  if (!IsReached(buffer.last_use())) {
    block->point = buffer.last_use();
    return false;
  }
  if (!buffer.copied_reads().empty()) {
    block->point = buffer.copied_reads().front();
    return false;
  }
  return (block->held = buffer.held_read()) == nullptr;
}

Session::Step Session::Do(uint64_t id, WriteOp& op, Queued& queued, Where where, Block* block) {
  const auto fail = [&](absl::Status error) {
    if (queued.upload != nullptr) transfers_.Finish(op.transfer);
    return Fail(id, std::move(error));
  };
  auto found = FindBuffer(op.handle);
  if (!found.ok()) return fail(found.status());
  Buffer& buffer = **found;
  const uint64_t size = op.size();
  const uint64_t bytes = static_cast<uint64_t>(buffer.bytes());
  if (buffer.memory() == nullptr) return fail(buffer.Poison());
  absl::Status error = queued.transfer;
  if (op.offset > bytes || size > bytes - op.offset) {
    error = InvalidArgument("write of handle ", op.handle, ": ", size, " bytes at ", op.offset,
                            " do not fit into its ", bytes);
  }
  if (!error.ok()) {
    if (!IsReached(buffer.last_write())) {
      block->point = buffer.last_write();
      return Step::kBlocked;  // so that the run does not overwrite the poison
    }
    buffer.SetPoison(error);
    return fail(std::move(error));
  }
  const bool whole = op.offset == 0 && size == bytes;
  if (op.transfer == 0 && buffer.host(0) == nullptr && (whole || buffer.Poison().ok())) {
    return WriteBehind(id, op, buffer, where, block);
  }
  if (!queued.uploading && !MayWrite(buffer, block)) return Step::kBlocked;
  if (op.transfer != 0) return DoUpload(id, op, queued, buffer, where, block);
  if (where == Where::kDeviceThread && size > kQuickWriteBytes) return Step::kNeedsWorker;

  if (std::byte* to = buffer.host(op.offset); to != nullptr) {
    buffer.Poison();  // takes over the failure of a run that has ended, which this write may then
                      // repair
    op.payload->CopyTo(to);
  } else if (!queued.copied) {
    auto copied = WriteStaged(*op.payload, op.offset, buffer);
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
  Count(Metric::kBytesWritten, static_cast<int64_t>(size));
  return Step::kDone;
}

Session::Step Session::Do(uint64_t id, ReadOp& op, const Queued& queued, Where where,
                          Block* block) {
  const auto fail = [&](absl::Status error) {
    if (queued.transfer.ok()) transfers_.Finish(op.transfer);
    return Fail(id, std::move(error));
  };
  auto found = FindBuffer(op.handle);
  if (!found.ok()) return fail(found.status());
  if (!queued.transfer.ok()) return fail(queued.transfer);
  Buffer& buffer = **found;
  if (!buffer.Poison().ok()) return fail(buffer.Poison());
  const uint64_t bytes = static_cast<uint64_t>(buffer.bytes());
  if (op.offset > bytes || op.bytes > bytes - op.offset) {
    return fail(InvalidArgument("read of handle ", op.handle, ": ", op.bytes, " bytes at ",
                                op.offset, " exceed its ", bytes));
  }
  if (op.transfer != 0) return DoDownload(id, op, buffer);
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
  slot->answer.status = Clipped(status);
  if (status.ok()) {
    Count(Metric::kBytesRead, static_cast<int64_t>(result.bytes));
    slot->answer.result = std::move(result);
  }
  Finish(slot);
}

}  // namespace telegrad
