// A queue that is a stream of the GPU. Submissions are given to the GPU in order and ahead of
// its work, each as soon as what it waits for is reached or is on a stream of the same driver.
// Their points are signalled in order, when the GPU has passed a mark behind them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/stream/bell.h"
#include "devices/stream/flights.h"
#include "devices/stream/marks.h"
#include "devices/stream/staging.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

struct QueueOptions {
  std::string name;  // see Queue, as the next
  QueueCapability takes;
  size_t index = 0;           // among the device's queues
  bool words = false;         // as Description's
  int capacity = 0;           // submissions
  absl::Duration wait_limit;  // see HostQueueOptions
  // A GPU that is at the same submission for so long is taken for stuck. What waits for a sibling
  // is not counted: that has a clock of its own.
  absl::Duration hang_limit;
};

class StreamQueue final : public Queue {
 public:
  static absl::StatusOr<std::unique_ptr<StreamQueue>> Create(std::shared_ptr<Context> context,
                                                             QueueOptions options);
  // Ends everything that was submitted, as ~HostQueue does.
  ~StreamQueue() override;

  TimelinePoint last() const override;

  // Another queue of the device, before anything is submitted. It may go first.
  void AddSibling(const StreamQueue& sibling);

 private:
  enum class Issuer { kSubmitter, kThread };  // the thread may block
  struct Sibling {
    std::shared_ptr<const Timeline> timeline;
    std::shared_ptr<Flights> flights;
    std::atomic<uint64_t> awaited{0};  // its point that the stream waits for

    bool is_awaited() const { return timeline->value() < awaited.load(); }
  };
  // Points of queues of other GPUs that the stream waits for. Thread-safe.
  class Peers {
   public:
    void Add(const TimelinePoint& point);
    bool are_awaited();

   private:
    Mutex mutex_;
    std::vector<TimelinePoint> points_ TG_GUARDED_BY(mutex_);
  };

  StreamQueue(std::shared_ptr<Context> context, QueueOptions options,
              std::unique_ptr<Stream> stream, std::unique_ptr<Stream> notices);

  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override;

  // Handing over, by whoever has set issuing_.
  bool TryIssue(Issuer issuer);
  bool IssueNext(Issuer issuer);
  void HandOver(Flight* flight, std::span<const Address> addresses);
  // What a wait is that has not failed.
  enum class Wait { kReached, kOnStream, kOpen };
  // What it has in flight, of whichever queue of the driver; null for others' points.
  std::shared_ptr<Flights> FlightsOf(const TimelinePoint& point) const;
  Sibling* FindSibling(const TimelinePoint& point);
  bool IsOfDevice(const TimelinePoint& point) const;
  // `by_peers`: whether the stream may wait for other GPUs.
  absl::StatusOr<Wait> Look(const TimelinePoint& point, bool by_peers) const;
  // Until the first wait that is open or has failed; how many are before that.
  absl::StatusOr<Wait> LookAtAll(const Submission& work, size_t* passed) const;
  absl::Status StayOpen(uint64_t value, std::span<const TimelinePoint> open);
  // False where the driver refuses one, which is open then.
  absl::StatusOr<bool> AwaitOnStream(Flight* flight, std::span<const TimelinePoint> waits);
  absl::Status TakeMemories(Flight* flight);
  bool MayBlock(const Submission& work) const;
  bool IsGraph(const Submission& work) const;
  bool IsOwn(const BufferView& view) const;
  // Whether the GPU copies from and to it.
  bool IsPinned(const BufferView& view) const;
  // Whether the host copies from or to memory of it.
  bool HasHostMemory(const Submission& work) const;
  absl::Status PutBatches(Flight* flight, std::span<const Address> addresses);
  absl::Status PutCommands(Flight* flight, const StreamCommandBuffer::Batch& batch,
                           std::span<const Address> addresses);
  absl::Status PutCommand(const Command& command, std::span<const BufferView> bindings,
                          std::span<const Address> addresses);
  absl::Status PutCopy(const CopyBytes& copy, std::span<const BufferView> bindings,
                       std::span<const Address> addresses);
  absl::Status PutTimed(Flight* flight);

  // On the queue's thread.
  void Serve();
  bool EndFlights();
  bool HaveEnded(Flight* flight, absl::Status* status);
  void End(Flight* flight, const absl::Status& status);
  void AddEvents(Flight* flight);
  void Sleep();
  absl::Status AwaitMark(const Mark& mark);
  absl::StatusOr<bool> Query(EventHandle event);
  absl::StatusOr<bool> Ask(const Mark& mark);
  bool HasPassed(const Mark& mark, absl::Status* status);
  bool WillNotTell(const absl::Status& why);
  void AwaitNews(const Mark& mark);

  const std::shared_ptr<Context> context_;
  const QueueOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> notices_;  // where the GPU rings the bell
  std::unique_ptr<Marks> marks_;     // of the stream
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  const std::shared_ptr<Flights> flights_ = std::make_shared<Flights>();
  std::deque<Sibling> siblings_;
  Peers peers_;

  mutable Mutex mutex_;
  // Submission n, from 1, is at n % size; that after issued_ is of whoever has set issuing_.
  std::vector<Submission> ring_ TG_GUARDED_BY(mutex_);
  uint64_t submitted_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t issued_ TG_GUARDED_BY(mutex_) = 0;    // taken out of the ring
  uint64_t finished_ TG_GUARDED_BY(mutex_) = 0;  // those whose place is free again
  bool issuing_ TG_GUARDED_BY(mutex_) = false;   // somebody hands over the one after issued_
  bool stop_ TG_GUARDED_BY(mutex_) = false;

  // Of whoever hands over:
  uint64_t zeroed_ = 0;    // zeroings that the stream has waited for
  TimelinePoint refused_;  // the last for which the driver would not let it wait

  // Of the thread:
  uint64_t awaited_ = 0;           // the submission whose waits ring the bell
  int64_t waiting_since_ = 0;      // when that began
  int64_t progress_ns_ = 0;        // when the GPU was last seen to pass something, or began
  int64_t asked_ns_ = 0;           // when the driver was last asked, or that began
  EventHandle noticed_ = nullptr;  // behind which the GPU rings
  int asked_in_vain_ = 0;          // how often in a row the driver did not tell
  bool doubted_ = false;           // it once did not
  std::unique_ptr<Staging> staging_;

  std::thread thread_;
};

}  // namespace telegrad::stream
