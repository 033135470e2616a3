// A queue of a device in another process. Submissions that use the device's memory only are sent on
// as soon as what they wait for elsewhere has been reached; a wait for a queue of the same process
// goes with them. One that copies from or to memory of this process is taken apart by the queue's
// thread: its bytes go through blocks of the staging memory, several of them on their way.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/hosted/driver_process.h"
#include "devices/hosted/hosted_commands.h"
#include "engine/base/mutex.h"

namespace telegrad {

class HostedQueue final : public Queue {
 public:
  struct Options {
    size_t index = 0;  // among the device's
    int capacity = 0;
    absl::Duration wait_limit;
  };
  // How a submission ended in the worker.
  struct Ending {
    absl::Status status;
    int64_t device_ns = 0;
    std::vector<std::pair<int64_t, int64_t>> times = {};  // as the worker says: anything
  };

  HostedQueue(std::shared_ptr<DriverProcess> process, const HostedQueueFacts& facts,
              const Options& options);
  ~HostedQueue() override;

  TimelinePoint last() const override;
  // Ends everything that was submitted: what can run runs, what still waits for a point of another
  // device fails with CANCELLED. Nothing is submitted any more.
  void Drain();

  // Of the process's thread: how many submissions have been sent, that they have ended, one after
  // the other, or that all of them have failed with the process.
  uint64_t sent() const { return sent_.load(); }
  void Ended(uint64_t number, Ending ending);
  void FailAll(const absl::Status& why);
  // Those on their way that are to end early, each once.
  void FindCancelled(std::vector<HostedPoint>* cancelled);
  // Whether the first one on its way waits for another queue of the process.
  bool FirstWaits() const;
  // Commands of a submission on its way whose times are asked for; 0: there is none such.
  size_t TimedCommands(uint64_t number) const;
  // Wakes its thread, if it sleeps.
  void Ring() { bell_->Ring(); }
  // Reaches the first point that is not, if its work has ended. By one thread at a time.
  bool SettleFirst();

 private:
  friend class HostedStages;

  // A submission.
  struct Item {
    QueueWork work;
    std::vector<TimelinePoint> waits;
    uint64_t value = 0;
    uint64_t number = 0;  // by which it was sent; 0: it was not, or in parts
    bool done = false;
    absl::Status status;
    // Waits that went with it. Its point is not reached before these.
    std::vector<TimelinePoint> native;
    int64_t sent_ns = 0;
    std::vector<TraceEvent> events;
    int64_t device_ns = 0;
  };
  using ItemRef = std::shared_ptr<Item>;
  // A part of a submission that was sent by itself.
  struct Part {
    std::atomic<bool> done = false;
    absl::Status status;
  };
  struct Flight {
    uint64_t number = 0;
    ItemRef item = nullptr;
    std::shared_ptr<Part> part = nullptr;  // null: all of it
    bool cancelled = false;
  };
  // Where a point of this queue stands.
  struct Standing {
    bool reached = false;
    bool done = false;  // its work has ended, with:
    absl::Status status;
    uint64_t number = 0;  // as which it is on its way; 0: it is not
  };

  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override;
  void Serve();
  // The next to be sent, for whoever asks first; null: there will be none.
  ItemRef Next();
  void EndTurn();
  // By who has submitted it, if nothing is before it, nor has to be waited for here: sends it.
  void SendAtOnce(const ItemRef& item);
  // Whether nothing has to be waited for here; `sent` and the item's `native`: what goes with it.
  bool IsDue(Item* item, std::vector<HostedPoint>* sent);
  HostedQueue* QueueOf(const TimelinePoint& point);
  // Null: it is on its way.
  std::optional<absl::Status> Forward(const ItemRef& item);
  void Done(const ItemRef& item, absl::Status status);
  Standing StandingOf(uint64_t value);
  absl::Status Await(const TimelinePoint& point, Item* item, std::vector<HostedPoint>* sent);
  // Until the point is reached, or `enough` says so.
  absl::Status AwaitHere(const TimelinePoint& point, const std::function<bool()>& enough);
  // Sends what `encode` makes of a number; waits while too many are on their way.
  absl::Status Launch(Flight flight, const std::function<std::string(uint64_t)>& encode);
  absl::Status Run(const ItemRef& item, std::vector<HostedPoint> waits);
  void AddEvents(Item* item, const Ending& ending) const;

  const Options options_;
  const std::shared_ptr<DriverProcess> process_;
  const std::shared_ptr<HostedBell> bell_ = std::make_shared<HostedBell>();
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();

  mutable Mutex mutex_;
  // Whose points are not reached, in order; the first `taken_` of them the thread has looked at.
  std::deque<ItemRef> alive_ TG_GUARDED_BY(mutex_);
  size_t taken_ TG_GUARDED_BY(mutex_) = 0;
  size_t places_ TG_GUARDED_BY(mutex_) = 0;
  std::deque<Flight> flights_ TG_GUARDED_BY(mutex_);
  std::atomic<uint64_t> submitted_ = 0, sent_ = 0;
  std::atomic<size_t> flying_ = 0, unsettled_ = 0;
  // Whether somebody has taken one and looks after it, and whether there is one to be taken.
  // Written under the lock.
  std::atomic<bool> busy_ = false, ready_ = false;
  std::atomic<bool> stop_ = false, wants_room_ = false;

  std::thread thread_;
};

}  // namespace telegrad
