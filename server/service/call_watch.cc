// A list of the calls; the thread that looks copies it and ends calls without holding the lock.
#include "server/service/call_watch.h"

#include <utility>

#include "engine/base/status.h"
#include "server/service/raw_stream.h"

namespace telegrad {

CallWatch::CallWatch(std::chrono::milliseconds first_message, Check check, const Clock* clock)
    : first_message_ns_(std::chrono::nanoseconds(first_message).count()),
      check_(std::move(check)),
      clock_(clock) {}

std::shared_ptr<CallWatch::Row> CallWatch::Enter(RawStream* stream,
                                                 std::shared_ptr<const Known> known) {
  const auto row = std::make_shared<Row>();
  row->watch_ = this;
  row->began_ns_ = clock_->Ns();
  row->known_ = std::move(known);
  {
    const MutexLock lock(row->mutex_);
    row->stream_ = stream;
  }
  const MutexLock lock(mutex_);
  row->at_ = rows_.insert(rows_.end(), row);
  return row;
}

void CallWatch::Row::Leave() {
  {
    const MutexLock lock(mutex_);
    stream_ = nullptr;
  }
  const MutexLock lock(watch_->mutex_);
  watch_->rows_.erase(at_);
}

std::list<std::shared_ptr<CallWatch::Row>> CallWatch::All() {
  const MutexLock lock(mutex_);
  return rows_;
}

void CallWatch::Look() {
  const int64_t now = clock_->Ns();
  bool draining;
  {
    const MutexLock lock(mutex_);
    draining = draining_;
  }
  for (const std::shared_ptr<Row>& row : All()) {
    const MutexLock lock(row->mutex_);
    if (row->stream_ == nullptr) continue;
    const bool silent = !row->stream_->heard();
    absl::Status why;
    if (silent && draining) {
      why = absl::UnavailableError("the server is shutting down");
    } else if (silent && now - row->began_ns_ >= first_message_ns_) {
      why = absl::DeadlineExceededError(StrCat("no message came within ",
                                               first_message_ns_ / 1'000'000,
                                               " ms; the server's --handshake-time"));
    } else if (row->known_) {
      why = check_(*row->known_);
    }
    if (why.ok()) continue;
    ended_.Write({{"subject", row->known_ ? row->known_->principal.subject : ""},
                  {"reason", why.message()}});
    // What was wrong is for the log alone.
    if (absl::IsUnauthenticated(why)) {
      why = absl::UnauthenticatedError("the credentials of this call were withdrawn");
    }
    row->stream_->End(std::move(why));
  }
}

void CallWatch::Drain() {
  {
    const MutexLock lock(mutex_);
    draining_ = true;
  }
  Look();
  for (const std::shared_ptr<Row>& row : All()) {
    const MutexLock lock(row->mutex_);
    if (row->stream_ != nullptr) row->stream_->OnDrain();
  }
}

}  // namespace telegrad
