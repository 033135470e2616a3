// Submissions under way to another server. Included by the sources of RemoteLink only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "devices/remote/remote_copy.h"
#include "devices/remote/remote_link.h"

namespace telegrad {

// Operations that one Post may send: those of a command and a Sync.
inline constexpr size_t kOperationsOfPost = 4;

// The link whose lock this thread holds: what ends meanwhile, on this thread, is taken by it.
struct RemoteLinkHolder {
  static thread_local RemoteLink* holds;
};

// Null: it is not of a server.
inline const RemoteMemory* AsRemote(const BufferView& view) {
  return dynamic_cast<const RemoteMemory*>(view.memory.get());
}

// The server's words without the number of the operation that they belong to.
inline std::string Reason(const absl::Status& status) {
  std::string text(status.message());
  const size_t end = text.starts_with("operation ") ? text.find("): ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 3);
}

struct RemoteLink::Item final : RunSink, std::enable_shared_from_this<Item> {
  // The answer to a launch, which is one of its commands.
  void OnRun(uint64_t command, const absl::StatusOr<RunInfo>& info) override;

  std::shared_ptr<RemoteLink> link;  // from its first launch to its end
  std::shared_ptr<QueueState> queue;
  uint64_t value = 0;
  std::shared_ptr<const RemoteCommands> commands;
  std::vector<BufferView> bindings;
  std::vector<uint64_t> scalars;
  std::vector<TimelinePoint> waits;
  std::shared_ptr<RunTrace> trace;
  std::shared_ptr<const Cancellation> cancellation;

  size_t looked = 0;                  // waits that hold it up no more
  bool armed = false;                 // somebody calls when the next one is reached
  int64_t blocked_since = 0;          // SteadyNs, by a point of another device; 0: it is not
  std::vector<TimelinePoint> native;  // waits for what was sent before it

  size_t cursor = 0;      // the next command to be sent
  bool sent = false;      // all of them were, or will not be
  int open = 0;           // commands that have no answer yet
  bool answered = false;  // the last one that was sent has an answer of its own
  bool synced = false;    // a Sync was sent behind the last copy
  uint64_t generation = 0;
  uint64_t first_operation = 0, last_operation = 0;
  int64_t cancelled = 0;           // SteadyNs, when its cancellation was seen; 0: it was not
  int64_t cancel_sent = 0;         // SteadyNs; 0: it was not
  bool took_back = false;          // the memory of its reads
  bool abandoned = false;          // it has ended here, though commands have no answer; see Tick
  size_t first_failed = SIZE_MAX;  // command
  absl::Status status;
  std::map<size_t, BufferView>
      by_way;  // by command: of the host, of a copy that goes there and back
  std::map<size_t, std::shared_ptr<RemoteCopy>> copies;  // by command: to or from another server
  bool copies_cancelled = false;
  absl::InlinedVector<TraceEvent, 1> events;  // by command; with names where the trace has them
  std::vector<RunEvent> detailed;             // of its traced run
};

struct RemoteLink::QueueState {
  std::string name;
  int capacity = 0;
  const std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();
  uint64_t submitted = 0;
  int places = 0;  // taken
  bool closed = false;
  std::deque<ItemRef> unsent;
  // Whose points are not signalled, in the order of their points, which is that of their ends: each
  // point is one above the one before.
  std::deque<ItemRef> alive;
  size_t finished = 0;  // the first of them, whose points are about to be signalled

  // Those that are yet to end.
  auto open() const { return alive | std::views::drop(finished); }
};

// An operation goes out only where nothing is before it.
template <typename Operations>
void RemoteLink::Send(Operations post) {
  if (far_ == nullptr) return post(nullptr);
  if (outbox_.empty() && far_->session->HasRoom(kOperationsOfPost)) {
    return post(far_->session.get());
  }
  outbox_.push_back(std::move(post));
}

// Runs under the lock and on this thread what may end operations of the link.
template <typename Do>
void RemoteLink::Enter(Do what) {
  bool settles;
  {
    const MutexLock lock(mutex_);
    RemoteLink* const before = std::exchange(RemoteLinkHolder::holds, this);
    what();
    do {
      taking_.swap(ended_);
      for (Ended& ended : taking_) Take(std::move(ended));
      taking_.clear();
      Flush();
      AdvanceAll();
      Flush();
    } while (!ended_.empty());
    RemoteLinkHolder::holds = before;
    // Whoever settles looks for more before it ends.
    settles = !arm_.empty() || !later_.empty() || (!finished_.empty() && !settling_);
  }
  if (settles) Settle();
}

}  // namespace telegrad
