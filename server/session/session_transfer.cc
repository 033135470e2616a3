// Writes and reads whose bytes travel beside the operations, see transfers.h.
//
// An upload's bytes are written directly to the buffer as soon as nothing else uses it; the
// operation and all after it wait for the last byte. A download only holds its buffer: later
// operations continue unless they write there.
#include <memory>
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"
#include "server/session/staging.h"

namespace telegrad {
namespace {

constexpr uint64_t kQuickStagedBytes = 64 << 10;

}  // namespace

// Registers the transfer when its operation arrives, so that numbers ascend in the order of the
// operations, even if another one takes effect first.
void Session::NameTransfer(Queued& queued, Transfers::Leftovers* leftovers) {
  if (const auto* write = std::get_if<WriteOp>(&queued.operation.op)) {
    if (write->transfer == 0) return;
    auto upload = transfers_.Expect(write->transfer, write->bytes, leftovers);
    queued.transfer = upload.status();
    if (upload.ok()) queued.upload = *std::move(upload);
  } else if (const auto* read = std::get_if<ReadOp>(&queued.operation.op)) {
    if (read->transfer != 0) queued.transfer = transfers_.Announce(read->transfer, leftovers);
  }
}

Session::Step Session::DoUpload(uint64_t id, const WriteOp& op, Queued& queued, Buffer& buffer,
                                Where where, Block* block) {
  Upload& upload = *queued.upload;
  if (!queued.uploading) {
    const bool quick = where == Where::kReader || where == Where::kDeviceThread;
    if (quick && upload.staged_bytes() > kQuickStagedBytes) return Step::kNeedsWorker;
    queued.uploading = true;
    upload.Open(Part(buffer.memory(), op.offset, op.bytes), buffer.device());
  }
  const TimelinePoint& ended = upload.ended();
  if (!IsReached(ended)) {
    block->point = ended;
    return Step::kBlocked;
  }
  transfers_.Finish(op.transfer);
  buffer.Poison();
  if (absl::Status status = ended.timeline->StatusOf(ended.value); !status.ok()) {
    buffer.SetPoison(status);
    return Fail(id, std::move(status));
  }
  buffer.Rewritten(op.offset, op.bytes);
  return Step::kDone;
}

Session::Step Session::DoDownload(uint64_t id, const ReadOp& op, Buffer& buffer) {
  auto held = std::make_shared<HeldRead>(buffer.memory());
  buffer.ReadUntil(held);
  auto begin =
      [self = shared_from_this(), slot = NewSlot(id), transfer = op.transfer, offset = op.offset,
       download = std::make_shared<const Download>(
           std::move(held), op.offset, op.bytes, buffer.device(), queues_,
           tenant_->accounts.shared(Quota::kHostStaging))](const absl::Status& status) mutable {
        if (status.ok()) {
          self->transfers_.Begin(transfer, std::move(download));
        } else {
          self->transfers_.Finish(transfer);
        }
        download = nullptr;
        self->Answered(slot, ReadResult{.offset = offset}, status);
      };
  const TimelinePoint ready = buffer.last_write();
  if (IsReached(ready)) {
    begin(ready.timeline ? ready.timeline->StatusOf(ready.value) : absl::OkStatus());
  } else {
    ready.timeline->OnReached(ready.value, std::move(begin));
  }
  return Step::kDone;
}

}  // namespace telegrad
