// Parts of a credit are taken for staged bytes and given back to the accounts of session and
// tenant once the stream is closed.
#include "server/data/credit.h"

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<CreditLine::Part> CreditLine::Take(uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (closed_) return absl::AbortedError("the stream has ended");
  if (bytes > bytes_ - used_) {
    return ResourceExhausted(
        "a chunk of ", bytes, " bytes beside the ", used_,
        " that are not in their buffers yet exceeds the credit of this stream, ", bytes_,
        "; wait until the server grants more");
  }
  used_ += bytes;
  return Part(shared_from_this(), bytes);
}

void CreditLine::Close() {
  std::vector<Reservation> done;
  const MutexLock lock(mutex_);
  closed_ = true;
  granted_ = nullptr;
  if (used_ == 0) done.swap(reserved_);
}

void CreditLine::GiveBack(uint64_t bytes) {
  Granted granted;
  std::vector<Reservation> done;
  {
    const MutexLock lock(mutex_);
    used_ -= bytes;
    granted = granted_;
    if (closed_ && used_ == 0) done.swap(reserved_);
  }
  if (granted) granted(bytes);
}

}  // namespace telegrad
