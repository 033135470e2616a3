// A session and the streams that serve it, one after another. What a resumable session answers is
// kept until the client says that it has it, so that the next stream can repeat what was lost with
// the one before; and operations that were taken before are known by their ids, so that none is
// carried out twice.
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"

namespace telegrad {

std::shared_ptr<AnswerSink> Session::Attach(std::shared_ptr<AnswerSink> sink, Answer opened,
                                            uint64_t acknowledged) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<AnswerSink> before = std::exchange(sink_, std::move(sink));
  RenewLocked();
  ForgetLocked(acknowledged);
  std::get<OpenResult>(opened.result).last_op_id = last_operation_;
  sink_->OnAnswer(std::move(opened));
  for (const Answer& answer : kept_) sink_->OnAnswer(answer);
  return before;
}

bool Session::Detach(const AnswerSink& sink) {
  std::shared_ptr<AnswerSink> detached;  // goes without the lock
  std::lock_guard lock(mutex_);
  if (sink_.get() != &sink) return false;
  detached.swap(sink_);
  if (terms_.resumable) ends_at_ = env_.clock->Ns() + terms_.grace_ns;
  return true;
}

void Session::Acknowledge(uint64_t id) {
  std::lock_guard lock(mutex_);
  RenewLocked();
  ForgetLocked(id);
}

void Session::Renew() {
  std::lock_guard lock(mutex_);
  RenewLocked();
}

void Session::RenewLocked() {
  if (terms_.resumable) ends_at_ = env_.clock->Ns() + terms_.lease_ns;
}

int64_t Session::EndsAt() const {
  std::lock_guard lock(mutex_);
  return ends_at_;
}

uint64_t Session::last_operation() const {
  std::lock_guard lock(mutex_);
  return last_operation_;
}

void Session::EmitLocked() {
  while (!slots_.empty() && slots_.front()->done) {
    const SlotRef slot = std::move(slots_.front());
    slots_.pop_front();
    const bool ok = slot->answer.status.ok();
    if (!ok) env_.metrics->Add(Metric::kOperationErrors);
    if (slot->quiet && ok) continue;
    if (terms_.resumable) KeepLocked(slot->answer);
    if (sink_) sink_->OnAnswer(std::move(slot->answer));
  }
}

// What an answer can be repeated from without keeping device memory, or more of the host's than a
// session may: the trace of a run is given once, and so are the bytes of a long read.
void Session::KeepLocked(const Answer& answer) {
  Answer kept{.id = answer.id, .status = answer.status, .result = {}};
  if (const auto* read = std::get_if<ReadResult>(&answer.result)) {
    const auto bytes = static_cast<int64_t>(read->copy.size());
    if (read->held != nullptr || bytes > env_.limits.kept_read_bytes - kept_read_bytes_) {
      kept.status = absl::AbortedError(
          "the stream broke before the client had all of it, and it is not kept; read it once "
          "more");
    } else {
      kept_read_bytes_ += bytes;
      kept.result = *read;
    }
  } else if (const auto* run = std::get_if<RunResult>(&answer.result)) {
    RunResult result = *run;
    result.traced = nullptr;
    kept.result = std::move(result);
  } else {
    kept.result = answer.result;
  }
  kept_.push_back(std::move(kept));
}

void Session::ForgetLocked(uint64_t acknowledged) {
  while (!kept_.empty() && kept_.front().id <= acknowledged) {
    if (const auto* read = std::get_if<ReadResult>(&kept_.front().result)) {
      kept_read_bytes_ -= static_cast<int64_t>(read->copy.size());
    }
    kept_.pop_front();
  }
}

}  // namespace telegrad
