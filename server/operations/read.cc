// A short read is copied as soon as its bytes are ready. A longer one is sent from device memory,
// and only writers of its buffer wait for the client. Of memory that the host cannot address, a
// session has one longer read at a time, and some short ones: their device may be at the other end
// of a network, and what follows them must not wait for each of their answers.
#include "server/operations/read.h"

#include <memory>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "server/data/download.h"
#include "server/operations/staged.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

constexpr size_t kShortReads = 64;

void Answered(const PendingAnswer& answer, ReadResult result, const absl::Status& status) {
  if (!status.ok()) return answer.Give(status);
  answer.Count(Metric::kBytesRead, static_cast<int64_t>(result.bytes));
  answer.Give(status, MakeResult(std::move(result)));
}

template <typename Callback>
void WhenReached(const TimelinePoint& point, Callback callback) {
  if (IsReached(point)) {
    callback(point.timeline ? point.timeline->StatusOf(point.value) : absl::OkStatus());
  } else {
    point.timeline->OnReached(point.value, std::move(callback));
  }
}

class ReadAction final : public Action {
 public:
  explicit ReadAction(ReadOp op) : op_(op) {}

  void Arrive(const Arrival& arrival) override {
    if (op_.transfer != 0) numbered_ = arrival.transfers.Announce(op_.transfer, arrival.leftovers);
  }

  Step Refuse(Turn& turn, const absl::Status& error) override {
    if (numbered_.ok()) turn.transfers().Finish(op_.transfer);
    return turn.Fail(error);
  }

  Step Do(Turn& turn) override {
    const auto found = turn.handles().Find(op_.handle);
    if (!found.ok()) return Refuse(turn, found.status());
    if (!numbered_.ok()) return turn.Fail(numbered_);
    Buffer& buffer = **found;
    if (!buffer.Poison().ok()) return Refuse(turn, buffer.Poison());
    const auto bytes = static_cast<uint64_t>(buffer.bytes());
    if (op_.offset > bytes || op_.bytes > bytes - op_.offset) {
      return Refuse(turn, InvalidArgument("read of handle ", op_.handle, ": ", op_.bytes,
                                          " bytes at ", op_.offset, " exceed its ", bytes));
    }
    if (!paid_) {
      const absl::Status taken = turn.tenant().TakeTransfer(op_.bytes, turn.env().clock->Ns());
      if (!taken.ok()) return Refuse(turn, taken);
      paid_ = true;
    }
    if (op_.transfer != 0) return DoDownload(turn, buffer);
    if (buffer.host(op_.offset) != nullptr) return DoVisible(turn, buffer);
    if (turn.where() == OnThread::kDevice) return Step::kNeedsWorker;
    return DoStaged(turn, buffer);
  }

 private:
  Step DoVisible(Turn& turn, Buffer& buffer) const;
  Step DoStaged(Turn& turn, Buffer& buffer) const;
  Step DoDownload(Turn& turn, Buffer& buffer) const;

  const ReadOp op_;
  bool paid_ = false;      // for its transfer
  absl::Status numbered_;  // whether the number of its transfer is one
};

Step ReadAction::DoVisible(Turn& turn, Buffer& buffer) const {
  ReadResult result{.offset = op_.offset, .bytes = op_.bytes, .at = op_.offset};
  const bool copy = op_.bytes <= static_cast<uint64_t>(turn.env().limits.copied_read_bytes);
  const TimelinePoint ready = buffer.last_write();
  const TimelinePoint copied{std::make_shared<Timeline>(), 1};
  if (!copy) {
    result.held = std::make_shared<HeldRead>(buffer.memory());
    buffer.ReadUntil(result.held);
  } else if (!IsReached(ready)) {
    buffer.ReadUntil(copied);
  }
  WhenReached(ready, [answer = turn.Later(), result = std::move(result), copy, copied,
                      from = buffer.host(op_.offset),
                      memory = buffer.memory()](const absl::Status& status) mutable {
    if (copy && status.ok()) result.copy.assign(reinterpret_cast<const char*>(from), result.bytes);
    copied.timeline->Signal(1);
    Answered(answer, std::move(result), status);
  });
  return Step::kDone;
}

Step ReadAction::DoStaged(Turn& turn, Buffer& buffer) const {
  // A short one is kept for repetition, as of other memory.
  const bool copy = op_.bytes <= static_cast<uint64_t>(turn.env().limits.copied_read_bytes);
  auto& [writes, longer, shorts] = turn.state<StagedCopies>();
  while (!shorts.empty() && shorts.front().expired()) shorts.pop_front();
  std::shared_ptr<HeldRead> before = copy || !longer ? nullptr : longer->lock();
  if (copy && shorts.size() >= kShortReads) before = shorts.front().lock();
  if (before != nullptr) return turn.Wait(std::move(before));
  auto staged = Stage(turn, buffer, op_.bytes);
  if (absl::IsResourceExhausted(staged.status())) {
    if (const std::optional<Step> step = AwaitStaged(turn)) return *step;
  }
  auto copied =
      staged.ok() ? CopyOut(turn, buffer, op_.offset, op_.bytes, *staged) : staged.status();
  if (!copied.ok()) return turn.Fail(copied.status());
  buffer.ReadUntil(*copied);
  ReadResult result{.offset = op_.offset, .bytes = op_.bytes};
  result.held = std::make_shared<HeldRead>(*std::move(staged));
  if (copy) {
    shorts.push_back(result.held);
  } else {
    longer = result.held;
  }
  copied->timeline->OnReached(copied->value, [answer = turn.Later(), result = std::move(result),
                                              copy](const absl::Status& status) mutable {
    if (copy && status.ok()) {
      result.copy.assign(static_cast<const char*>(result.held->memory()->host()), result.bytes);
      result.held.reset();
    }
    Answered(answer, std::move(result), status);
  });
  return Step::kDone;
}

// A download only holds its buffer: later operations continue unless they write there.
Step ReadAction::DoDownload(Turn& turn, Buffer& buffer) const {
  auto held = std::make_shared<HeldRead>(buffer.memory());
  buffer.ReadUntil(held);
  auto download = std::make_shared<const Download>(
      std::move(held), op_.offset, op_.bytes, buffer.device(), turn.queues(),
      turn.tenant().accounts.shared(Quota::kHostStaging));
  WhenReached(buffer.last_write(),
              [answer = turn.Later(), op = op_,
               download = std::move(download)](const absl::Status& status) mutable {
                if (status.ok()) {
                  answer.transfers().Begin(op.transfer, std::move(download));
                } else {
                  answer.transfers().Finish(op.transfer);
                }
                download = nullptr;
                Answered(answer, ReadResult{.offset = op.offset}, status);
              });
  return Step::kDone;
}

}  // namespace

std::optional<ReadResult> ReadResult::Kept() const {
  if (bytes > kMostKeptRead) return std::nullopt;
  ReadResult kept{.offset = offset, .bytes = bytes};
  kept.copy.assign(static_cast<const char*>(held->memory()->host()) + at, bytes);
  return kept;
}

std::unique_ptr<Action> MakeAction(ReadOp op) { return std::make_unique<ReadAction>(op); }

}  // namespace telegrad
