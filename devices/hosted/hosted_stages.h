// A submission that copies from or to memory of this process, part by part: what needs none of it
// is sent as it is; the bytes of the others go through blocks of the staging memory, a few of them
// on their way at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "devices/hosted/hosted_queue.h"

namespace telegrad {

// Of the queue's thread.
class HostedStages {
 public:
  // `waits`: the points of the process that its first part waits for.
  HostedStages(HostedQueue& queue, HostedQueue::ItemRef item, std::vector<HostedPoint> waits)
      : queue_(queue),
        item_(std::move(item)),
        commands_(static_cast<const HostedCommands&>(*item_->work.commands)),
        waits_(std::move(waits)) {}

  // Until all has ended; the first failure.
  absl::Status Run();

 private:
  // On its way.
  struct Flying {
    std::shared_ptr<HostedQueue::Part> part = nullptr;
    size_t first = 0, end = 0;     // its commands
    const char* staged = nullptr;  // copied from there, when it has ended:
    char* to = nullptr;
    size_t length = 0;
  };

  absl::Status RunEach();
  absl::Status RunPiece(size_t first, size_t end);
  absl::Status CopyOne(size_t command);
  absl::Status CopyBlock(size_t command, int64_t at, int64_t length);
  // Sends what `encode` makes of a number and the points that it waits for.
  template <typename Encode>
  absl::Status Send(Flying flying, Encode encode);
  absl::Status AwaitOldest();
  absl::Status AwaitAll();
  const BufferView& Bound(const BoundPart& part) const {
    return item_->work.bindings[static_cast<size_t>(part.binding)];
  }
  absl::Status Check() const;
  void Begin(size_t command);
  void End(size_t first, size_t end);

  HostedQueue& queue_;
  const HostedQueue::ItemRef item_;
  const HostedCommands& commands_;
  std::vector<HostedPoint> waits_;
  std::deque<Flying> flying_;
  uint64_t sent_ = 0;  // the last part's number
  int next_block_ = 0;
  std::vector<std::pair<int64_t, int64_t>> times_;  // of each command that has begun
};

}  // namespace telegrad
