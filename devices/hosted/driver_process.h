// The process that hosts a driver, seen from the daemon: it is started, given orders, watched, and
// removed when it has ended or cannot be used any more. One thread watches how far its queues have
// come, and tells it; what it tells may call anything back, also requests to this process. Another
// one only reads what the process says, so that whoever waits for an answer or for room on the
// socket does not wait in vain.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/shared_memory.h"
#include "devices/hosted/hosted_control.h"
#include "devices/hosted/messages.h"
#include "devices/worker/short_lives.h"
#include "engine/base/mutex.h"
#include "engine/base/temporary_folder.h"
#include "engine/base/unique_fd.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"
#include "engine/process/processor_use.h"

namespace telegrad {

class HostedQueue;

// Wakes the thread of a queue. Callbacks on foreign timelines hold it, which may outlive the
// device.
struct HostedBell {
  Mutex mutex;
  ConditionVariable rung;

  void Ring() {
    {
      const MutexLock lock(mutex);  // whoever has looked sleeps by now
    }
    rung.notify_all();
  }
};

class DriverProcess {
 public:
  struct Options {
    std::string executable;
    std::string whose;  // "OPENCL:0's worker", for messages
    HostedSetup setup;
    std::vector<std::string> environment = {};  // NAME=VALUE, beside what drivers read
    // Whether what the driver compiles is kept in files of this process alone, which go with it,
    // not in those of the user.
    bool own_caches = false;
    // How long it may answer nothing while work is awaited of it before it is taken for hung,
    // without the time for which it waits for a processor; see PatienceLeft.
    absl::Duration hang_limit = absl::Seconds(1);
    // How long it may end nothing of what it has been given, nor answer a request.
    absl::Duration stuck_limit = absl::Minutes(5);
    // How long the first submission that a queue has not ended may take, whatever else the worker
    // does meanwhile, unless it waits for another queue.
    absl::Duration run_limit = absl::InfiniteDuration();
    // How long it may take to open the driver, without the time for which it waits for a processor;
    // see PatienceLeft.
    std::chrono::nanoseconds patience = std::chrono::seconds(60);
    size_t longest_order = kMaxHostedOrder;  // bytes of what it is asked and sent
    // What ends sooner after it has opened the driver, and without having ended any work, has ended
    // at once; and how many in a row before it have.
    absl::Duration short_life = kShortWorkerLife;
    int64_t short_lives_before = 0;
    // Called by a thread of this when it has ended, also where that was wanted.
    std::function<void()> on_over = {};
  };

  // Starts one and waits until it has opened the driver. UNAVAILABLE, naming the executable and
  // what happened.
  static absl::StatusOr<std::shared_ptr<DriverProcess>> Start(Options options);
  ~DriverProcess();

  // Kills it, if it has not ended. Not by its own thread; before the last reference goes.
  void Stop();

  pid_t pid() const { return pid_; }
  const HostedOpened& opened() const { return opened_; }
  const std::shared_ptr<std::atomic<int64_t>>& used() const { return used_; }
  // What the device there holds, as of the last answer.
  int64_t footprint() const { return footprint_.load(); }

  // Thread-safe, all of these. OK, or the error of a lost device that says how it ended.
  absl::Status Over() const;
  // The same for the operator, with what it wrote last, which may be about any tenant's work.
  std::string OverWithOutput() const;
  // The same of one that is_over, whose end may not be told yet.
  absl::Status AwaitOver() const;
  bool is_over() const { return is_over_.load(); }
  // Of one that is_over: whether it has ended at once, and when: SteadyNs.
  bool EndedAtOnce() const { return ended_at_once_.load(); }
  int64_t ended_ns() const { return ended_ns_.load(); }
  uint64_t NewId() { return last_id_.fetch_add(1) + 1; }
  // Waits for the answer to a request; `rest`: what it has behind its number. The status that the
  // worker answers, or Over; DEADLINE_EXCEEDED after `patience`, and at once while an answer is due
  // that nobody waits for any more.
  absl::StatusOr<HostedAnswer> Ask(HostedOrder kind,
                                   const std::function<void(ByteWriter*)>& rest = {},
                                   absl::Duration patience = absl::InfiniteDuration());
  absl::Duration hang_limit() const { return options_.hang_limit; }
  // Has the worker drop what has that id, at some time. Never blocks.
  void Drop(uint64_t id);

  // By the queues.
  void SetQueues(std::vector<HostedQueue*> queues);
  const std::vector<HostedQueue*>& queues() const { return queues_; }
  absl::Status Send(std::string_view frame);
  // Something is waiting to be sent that nobody waits for; then it is sent.
  bool has_pending() const { return has_pending_.load(); }
  void SendPending();
  // Wakes the threads of all queues, for something that each of them may wait for.
  void RingAll();
  // How many threads wait for another queue of the process to send something.
  std::atomic<int>& sibling_waits() { return sibling_waits_; }
  // Tells what has ended, in order, on this thread or on one that does so now.
  void Settle();
  // Has the thread look at the queues soon, if it sleeps for long.
  void NoteWork();
  char* Staging(size_t queue, int block) const {
    return staging_->base() + StagingOffset(queue, block);
  }
  static int64_t StagingOffset(size_t queue, int block) {
    return (static_cast<int64_t>(queue) * kStagingBlocks + block) * kStagingBlock;
  }

 private:
  struct Waiting {
    bool answered = false;
    HostedAnswer answer;
  };

  explicit DriverProcess(Options options);
  HostedControl& control() const { return *reinterpret_cast<HostedControl*>(control_->base()); }

  // Of the thread that watches:
  void Keep();
  absl::Status Open();
  absl::Status Greet(const UniqueFd& control, const UniqueFd& staging);
  absl::StatusOr<std::string> ReadPatiently(size_t most);
  void Watch();
  bool AnyNews() const;
  void Collect();
  bool CollectOne(size_t queue, uint64_t number);
  bool AwaitTimes(size_t queue, uint64_t number, HostedTimes* times);
  void Sleep(bool busy);
  void LookAtTime(bool busy);
  bool LookAtRuns(int64_t now);
  // Of the thread that reads:
  void Read();
  bool ReadSaying();
  bool TakeAnswer(ByteReader* in);
  bool TakeTimes(ByteReader* in);
  // Of either. Kills it, because of `why`; "": it has ended by itself.
  void End(std::string_view why);

  // Has it ended, because of `why`, by the thread that reads.
  void Break(std::string why);
  bool IsWatching() const { return std::this_thread::get_id() == watcher_.load(); }
  void Wake();
  bool HasRequests() const;

  const Options options_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  std::unique_ptr<SharedMapping> control_, staging_;
  UniqueFd eventfd_;
  std::unique_ptr<ChildProcess> process_;
  std::optional<TemporaryFolder>
      folder_;  // for the driver's temporary files; the system may give none
  pid_t pid_ = 0;
  HostedOpened opened_;
  std::vector<HostedQueue*> queues_;
  std::atomic<uint64_t> last_id_ = 0;
  std::atomic<int64_t> footprint_ = 0;
  std::atomic<int64_t> opened_ns_ = 0, ended_ns_ = 0;
  std::atomic<bool> ended_at_once_ = false, has_worked_ = false;
  std::atomic<bool> is_over_ = false, stop_ = false, has_pending_ = false;
  std::atomic<bool> sleeps_long_ = false;
  std::atomic<int> settling_ = 0, sibling_waits_ = 0;
  std::atomic<std::thread::id> watcher_ = {};

  // Of the thread that watches; others read them:
  std::array<std::atomic<uint64_t>, kHostedQueues> collected_ = {};  // of each queue
  std::atomic<int64_t> progressed_ = 0;                              // SteadyNs
  int64_t pinged_ = 0, busy_until_ = 0;
  bool was_busy_ = false;  // at the last look
  // The first submission that a queue has not ended, as of the last look.
  struct Front {
    uint64_t ended = 0;  // before it
    int64_t since = 0;   // SteadyNs; 0: there was none
  };
  std::array<Front, kHostedQueues> fronts_ = {};
  uint32_t ping_ = 0;
  ProcessorUse used_at_ping_ = {};

  Mutex ending_;   // before the next two
  Mutex writing_;  // over a frame that is written
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  bool has_queues_ TG_GUARDED_BY(mutex_) = false;
  bool opened_or_not_ TG_GUARDED_BY(mutex_) = false;
  absl::Status why_not_ TG_GUARDED_BY(mutex_);
  absl::Status over_ TG_GUARDED_BY(mutex_);        // once it has ended
  std::string last_output_ TG_GUARDED_BY(mutex_);  // then, too
  std::string broken_ TG_GUARDED_BY(mutex_);
  uint64_t last_request_ TG_GUARDED_BY(mutex_) = 0;
  // Null: nobody waits for the answer any more.
  std::map<uint64_t, Waiting*> requests_ TG_GUARDED_BY(mutex_);
  std::vector<uint64_t> dropped_ TG_GUARDED_BY(mutex_);
  std::vector<HostedPoint> cancelled_ TG_GUARDED_BY(mutex_);
  std::map<std::pair<size_t, uint64_t>, HostedTimes> times_ TG_GUARDED_BY(mutex_);

  std::thread thread_, reader_;
};

}  // namespace telegrad
