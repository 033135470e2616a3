// Replies, failures and waits of the operation whose turn it is, passed on to its session.
#include "server/session/turn.h"

namespace telegrad {

Step Action::Refuse(Turn& turn, const absl::Status& error) { return turn.Fail(error); }

void PendingAnswer::Give(const absl::Status& status, std::shared_ptr<const Result> result) const {
  slot_->answer.status = Clipped(status);
  if (status.ok()) slot_->answer.result = std::move(result);
  session_->Finish(slot_);
}

Step Turn::Reply(std::shared_ptr<const Result> result) {
  Later().Give(absl::OkStatus(), std::move(result));
  return Step::kDone;
}

Step Turn::Fail(const absl::Status& error) {
  if (trace_ != nullptr) trace_->Note(error);
  Later().Give(error);
  return Step::kDone;
}

PendingAnswer Turn::Later(bool quiet, std::shared_ptr<Cancellation> cancellation) {
  answers_ = true;
  return {session_.shared_from_this(), session_.NewSlot(id_, quiet, std::move(cancellation))};
}

Step Turn::Wait(TimelinePoint point, bool others) {
  point_ = std::move(point);
  others_ = others;
  return Step::kBlocked;
}

Step Turn::Wait(std::shared_ptr<HeldRead> held) {
  held_ = std::move(held);
  return Step::kBlocked;
}

absl::StatusOr<Turn::Job> Turn::Job::Begin(Turn& turn, Budget* budget) {
  const MutexLock lock(turn.session_.mutex_);
  if (turn.session_.closed_) return absl::CancelledError("the session has ended");
  budget->SetProgress(turn.session_.compiling_);
  return Job(&turn.session_, std::exchange(turn.session_.budget_, budget));
}

Turn::Job::~Job() {
  if (session_ == nullptr) return;
  const MutexLock lock(session_->mutex_);
  session_->budget_ = before_;
}

}  // namespace telegrad
