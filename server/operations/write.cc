// An upload's bytes are written directly to the buffer as soon as nothing else uses it; the
// operation and all after it wait for the last byte.
//
// Of memory that the host cannot address a session has writes under way of so many bytes as may
// wait of those that it receives: these are handed to the queue of the device behind the runs that
// were before, so a chain of runs and writes waits for nothing.
#include "server/operations/write.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/operations/staged.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

// Above these it is not done on a device's thread, or on a reader's.
constexpr uint64_t kQuickWriteBytes = 64 << 10;
constexpr uint64_t kQuickStagedBytes = 64 << 10;

class WriteAction final : public Action {
 public:
  explicit WriteAction(WriteOp op) : op_(std::move(op)) {}

  void Arrive(const Arrival& arrival) override;
  int64_t staged_bytes() const override { return op_.payload ? op_.payload->size() : 0; }
  Step Do(Turn& turn) override;
  Step Refuse(Turn& turn, const absl::Status& error) override;
  bool Interrupt() override;
  bool committed() const override { return copied_.has_value(); }

 private:
  Step Fail(Turn& turn, const absl::Status& error) const;
  Step DoUpload(Turn& turn, Buffer& buffer);
  Step DoBehind(Turn& turn, Buffer& buffer);
  Step DoThroughHost(Turn& turn, Buffer& buffer);
  Step Written(Turn& turn, Buffer& buffer);

  WriteOp op_;
  bool paid_ = false;                    // for its transfer
  absl::Status numbered_;                // whether the number of its transfer is one
  std::shared_ptr<Upload> upload_;       // if it is a transfer
  bool uploading_ = false;               // straight into its buffer
  int64_t opened_ns_ = 0;                // since when, if it is traced
  std::optional<TimelinePoint> copied_;  // its bytes are in its buffer
};

// Registered when the operation arrives, so that numbers ascend in the order of the operations,
// even if another one takes effect first.
void WriteAction::Arrive(const Arrival& arrival) {
  if (op_.transfer == 0) return;
  auto upload = arrival.transfers.Expect(op_.transfer, op_.bytes, arrival.leftovers);
  numbered_ = upload.status();
  if (upload.ok()) upload_ = *std::move(upload);
}

bool WriteAction::Interrupt() {
  if (!uploading_) return false;
  upload_->End(absl::CancelledError("cancelled before all of its bytes had arrived"));
  return true;
}

Step WriteAction::Refuse(Turn& turn, const absl::Status& error) {
  if (upload_ != nullptr) turn.transfers().Finish(op_.transfer);
  const auto buffer = turn.handles().Find(op_.handle);
  if (buffer.ok() && (*buffer)->memory() != nullptr) (*buffer)->SetPoison(error);
  return turn.Fail(error);
}

Step WriteAction::Fail(Turn& turn, const absl::Status& error) const {
  if (upload_ != nullptr) turn.transfers().Finish(op_.transfer);
  return turn.Fail(error);
}

Step WriteAction::Do(Turn& turn) {
  const auto found = turn.handles().Find(op_.handle);
  if (!found.ok()) return Fail(turn, found.status());
  Buffer& buffer = **found;
  const uint64_t size = op_.size();
  const auto bytes = static_cast<uint64_t>(buffer.bytes());
  if (buffer.memory() == nullptr) return Fail(turn, buffer.Poison());
  absl::Status error = numbered_;
  if (op_.offset > bytes || size > bytes - op_.offset) {
    error = InvalidArgument("write of handle ", op_.handle, ": ", size, " bytes at ", op_.offset,
                            " do not fit into its ", bytes);
  }
  if (!error.ok()) {
    // So that the run does not overwrite the poison.
    if (!IsReached(buffer.last_write())) return turn.Wait(buffer.last_write());
    buffer.SetPoison(error);
    return Fail(turn, error);
  }
  if (!paid_) {
    const absl::Status taken = turn.tenant().TakeTransfer(size, turn.env().clock->Ns());
    if (!taken.ok()) return Refuse(turn, taken);
    paid_ = true;
  }
  const bool whole = op_.offset == 0 && size == bytes;
  if (op_.transfer == 0 && buffer.host(0) == nullptr && (whole || buffer.Poison().ok())) {
    return DoBehind(turn, buffer);
  }
  if (!uploading_) {
    if (const Step step = AwaitUses(turn, buffer); step != Step::kDone) return step;
  }
  if (op_.transfer != 0) return DoUpload(turn, buffer);
  if (turn.where() == OnThread::kDevice && size > kQuickWriteBytes) return Step::kNeedsWorker;

  if (std::byte* to = buffer.host(op_.offset); to != nullptr) {
    buffer.Poison();  // takes over the failure of a run that has ended, which this write may then
                      // repair
    op_.payload->CopyTo(to);
    return Written(turn, buffer);
  }
  return DoThroughHost(turn, buffer);
}

Step WriteAction::Written(Turn& turn, Buffer& buffer) {
  const uint64_t size = op_.size();
  op_.payload.reset();
  buffer.Rewritten(op_.offset, size);
  turn.Count(Metric::kBytesWritten, static_cast<int64_t>(size));
  return Step::kDone;
}

// A part of a poisoned buffer, which no device may read before it is whole again.
Step WriteAction::DoThroughHost(Turn& turn, Buffer& buffer) {
  absl::Status status;
  if (!copied_) {
    auto copied = WriteStaged(turn, *op_.payload, op_.offset, buffer);
    if (copied.ok()) return turn.Wait(*(copied_ = *std::move(copied)));
    status = copied.status();
  } else {
    buffer.Poison();
    status = copied_->Wait();  // it is reached
  }
  if (status.ok()) return Written(turn, buffer);
  buffer.SetPoison(status);
  return turn.Fail(status);
}

Step WriteAction::DoUpload(Turn& turn, Buffer& buffer) {
  if (!uploading_) {
    if (!turn.long_work() && upload_->staged_bytes() > kQuickStagedBytes) return Step::kNeedsWorker;
    uploading_ = true;
    if (turn.trace() != nullptr) opened_ns_ = turn.trace()->Now();
    upload_->Open(Part(buffer.memory(), op_.offset, op_.bytes), buffer.device());
  }
  const TimelinePoint& ended = upload_->ended();
  if (!IsReached(ended)) return turn.Wait(ended);
  if (turn.trace() != nullptr) turn.trace()->Add("transfer", opened_ns_, turn.trace()->Now());
  turn.transfers().Finish(op_.transfer);
  buffer.Poison();
  if (absl::Status status = ended.timeline->StatusOf(ended.value); !status.ok()) {
    buffer.SetPoison(status);
    return turn.Fail(status);
  }
  buffer.Rewritten(op_.offset, op_.bytes);
  return Step::kDone;
}

// In the order of the device's runs. One of the whole buffer makes it good again; a part inherits
// the failure of what wrote the rest.
Step WriteAction::DoBehind(Turn& turn, Buffer& buffer) {
  const uint64_t size = op_.size();
  if (turn.where() == OnThread::kDevice) return Step::kNeedsWorker;
  if (auto held = buffer.held_read()) return turn.Wait(std::move(held));
  auto& under_way = turn.state<StagedCopies>().writes;
  while (!under_way.empty() && IsReached(under_way.front().copied)) under_way.pop_front();
  uint64_t staged = 0;
  for (const StagedCopies::Write& write : under_way) staged += write.bytes;
  const bool full = staged + size > static_cast<uint64_t>(turn.env().limits.staged_bytes) ||
                    turn.tenant().accounts[Quota::kHostStaging].full();
  if (full && !under_way.empty()) return turn.Wait(under_way.front().copied);
  const auto memory = StageReceived(turn, buffer, *op_.payload);
  absl::StatusOr<TimelinePoint> copied = TimelinePoint();
  if (!memory.ok()) {
    copied = memory.status();
  } else {
    std::vector<TimelinePoint> waits = buffer.copied_reads();
    if (op_.offset != 0 || size != static_cast<uint64_t>(buffer.bytes())) {
      waits.push_back(buffer.last_write());
    }
    copied = CopyInto(turn, buffer, op_.offset, Part(*memory, 0, size), waits, size);
  }
  if (!copied.ok()) {
    buffer.SetPoison(copied.status());
    return turn.Fail(copied.status());
  }
  op_.payload.reset();
  under_way.push_back({*copied, size});
  WrittenBehind(turn, buffer, *copied, size);
  return Step::kDone;
}

}  // namespace

std::unique_ptr<Action> MakeAction(WriteOp op) {
  return std::make_unique<WriteAction>(std::move(op));
}

}  // namespace telegrad
