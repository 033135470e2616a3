// One copy from a buffer of a server to a buffer of another: the receiving server is asked for a
// ticket, then the one is told to send and the other to receive. The bytes do not come here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "client/cc/peer_admission.h"
#include "devices/remote/remote_link.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe. None of its functions but posted() is called with the lock of a link.
class RemoteCopy : public std::enable_shared_from_this<RemoteCopy> {
 public:
  struct End {
    std::shared_ptr<RemoteLink> link;
    uint64_t generation = 0;  // of the session that has the buffer
    uint64_t handle = 0;
    int64_t offset = 0;
  };
  // `posted` is called once both servers were told, or will not be; `ended`, once.
  RemoteCopy(End from, End to, int64_t bytes, std::function<void()> posted,
             std::function<void(const absl::Status&)> ended)
      : from_(std::move(from)),
        to_(std::move(to)),
        bytes_(bytes),
        on_posted_(std::move(posted)),
        on_ended_(std::move(ended)) {}

  void Start();
  // Ends it soon, with this error.
  void Cancel(const absl::Status& why);
  // Waits no longer for a server that has not ended its half within the grace after that was
  // cancelled. It keeps its session: answers come in order, so this one may be behind a long run,
  // and the server itself orders what is asked of the buffers from now on.
  void Look();
  bool posted() const { return posted_.load(); }

 private:
  struct Half {  // of what the servers were told; with the lock, but for `operation`
    bool ended = false;
    absl::Status status;
    std::atomic<uint64_t> operation{0};
  };

  void Admitted(const absl::StatusOr<PeerTicket>& ticket);
  void PostBoth(const PeerTicket& ticket);
  void HalfEnded(Half& half, const absl::Status& status);
  void CancelHalf(const End& end, const Half& half);
  void Posted();
  void Ended(const absl::Status& status);  // before anything was posted

  const End from_, to_;
  const int64_t bytes_;
  std::atomic<bool> posted_{false};

  Mutex mutex_;
  std::function<void()> on_posted_ TG_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> on_ended_ TG_GUARDED_BY(mutex_);
  bool begun_ TG_GUARDED_BY(mutex_) = false;  // to be posted: both halves end
  bool ended_ TG_GUARDED_BY(mutex_) = false;
  absl::Status why_ TG_GUARDED_BY(mutex_);  // the first failure
  // SteadyNs; 0: what is under way was not cancelled.
  int64_t cancelled_ns_ TG_GUARDED_BY(mutex_) = 0;
  Half send_, receive_;
};

}  // namespace telegrad
