// What a process is asked, sent and told. The thread that watches waits for the eventfd, which the
// worker rings when it has ended something and this side sleeps, or for the time at which it is to
// look whether the worker answers.
#include "devices/hosted/driver_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "devices/api/futex.h"
#include "devices/api/spin.h"
#include "devices/api/trace.h"
#include "devices/hosted/hosted_queue.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

// Between two looks while work is awaited, and between two pings.
constexpr int64_t kLookNs = 10'000'000, kPingNs = 200'000'000;
// After the last work, it goes on looking for so long: whoever submits next need not wake it.
constexpr int64_t kLingerNs = 50'000'000;
// A request may begin to wait while the thread sleeps for long.
constexpr std::chrono::milliseconds kAskLook{100};

}  // namespace

DriverProcess::DriverProcess(Options options) : options_(std::move(options)) {}

DriverProcess::~DriverProcess() = default;

void DriverProcess::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

absl::Status DriverProcess::Over() const {
  const MutexLock lock(mutex_);
  return over_;
}

std::string DriverProcess::OverWithOutput() const {
  const MutexLock lock(mutex_);
  std::string text(ToStd(over_.message()));
  if (!last_output_.empty()) StrAppend(&text, ", its last output: ", last_output_);
  return text;
}

absl::Status DriverProcess::AwaitOver() const {
  ReleasableLock lock(mutex_);
  while (over_.ok()) changed_.wait(lock);
  return over_;
}

void DriverProcess::SetQueues(std::vector<HostedQueue*> queues) {
  const MutexLock lock(mutex_);
  queues_ = std::move(queues);
  has_queues_ = true;
  changed_.notify_all();
}

absl::StatusOr<HostedAnswer> DriverProcess::Ask(HostedOrder kind,
                                                const std::function<void(ByteWriter*)>& rest,
                                                absl::Duration patience) {
  SendPending();  // what was dropped before makes room for what is asked for now
  Waiting waiting;
  uint64_t number;
  {
    const MutexLock lock(mutex_);
    if (!over_.ok()) return over_;
    if (patience != absl::InfiniteDuration() &&
        std::ranges::any_of(requests_, [](const auto& it) { return it.second == nullptr; })) {
      return absl::DeadlineExceededError(StrCat(options_.whose, " still has to answer"));
    }
    number = ++last_request_;
    requests_[number] = &waiting;
  }
  ByteWriter out;
  out.Word(kind);
  out.Word(number);
  if (rest) rest(&out);
  const std::string frame = out.Take();
  NoteWork();
  // A worker that is sent more than it reads would end, with what all others have there.
  const absl::Status sent =
      frame.size() <= options_.longest_order
          ? Send(frame)
          : ResourceExhausted(options_.whose, ": an order of ", frame.size(),
                              " bytes is longer than the limit of ", options_.longest_order);
  ReleasableLock lock(mutex_);
  if (!sent.ok()) {
    requests_.erase(number);
    return sent;
  }
  const int64_t begin = SteadyNs();
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.stuck_limit);
  while (!waiting.answered && over_.ok()) {
    if (changed_.wait_for(lock, kAskLook) != std::cv_status::timeout) continue;
    if (!waiting.answered && over_.ok() && absl::Nanoseconds(SteadyNs() - begin) > patience) {
      requests_[number] = nullptr;
      return absl::DeadlineExceededError(
          StrCat(options_.whose, " has not answered for ", absl::FormatDuration(patience)));
    }
    std::string late;
    if (std::chrono::steady_clock::now() > until) {
      late = StrCat("has not answered a request for ", absl::FormatDuration(options_.stuck_limit));
    }
    lock.unlock();
    // Called back, the thread that watches goes on watching here.
    if (IsWatching()) LookAtTime(/*busy=*/true);
    if (!late.empty()) Break(std::move(late));
    lock.lock();
  }
  requests_.erase(number);
  if (!waiting.answered) return over_;
  if (!waiting.answer.status.ok()) return waiting.answer.status;
  return std::move(waiting.answer);
}

void DriverProcess::Drop(uint64_t id) {
  {
    const MutexLock lock(mutex_);
    if (!over_.ok()) return;
    dropped_.push_back(id);
    if (has_pending_.exchange(true)) return;
  }
  RingAll();
}

void DriverProcess::RingAll() {
  for (HostedQueue* const queue : queues_) queue->Ring();
}

void DriverProcess::SendPending() {
  if (!has_pending_.load()) return;
  std::vector<uint64_t> dropped;
  std::vector<HostedPoint> cancelled;
  {
    const MutexLock lock(mutex_);
    has_pending_ = false;
    dropped.swap(dropped_);
    cancelled.swap(cancelled_);
  }
  for (const HostedPoint& point : cancelled) {
    ByteWriter out;
    out.Word(HostedOrder::kCancel);
    out.Word(point.queue);
    out.Word(point.number);
    (void)Send(out.Take());
  }
  if (dropped.empty()) return;
  ByteWriter out;
  out.Word(HostedOrder::kDrop);
  out.Word(static_cast<uint64_t>(dropped.size()));
  for (const uint64_t id : dropped) out.Word(id);
  (void)Send(out.Take());
}

absl::Status DriverProcess::Send(std::string_view frame) {
  absl::Status status;
  {
    const MutexLock lock(writing_);
    status = is_over() ? absl::UnavailableError("")
                       : WriteFrame(process_->socket(), frame,
                                    std::chrono::steady_clock::now() +
                                        absl::ToChronoNanoseconds(options_.hang_limit));
  }
  if (status.ok()) return status;
  if (!absl::IsUnavailable(status)) {
    Break(StrCat("has read nothing for ", absl::FormatDuration(options_.hang_limit)));
  }
  return AwaitOver();
}

// What its end calls back is called by a thread of this, not by whoever found it out, who may hold
// any lock.
void DriverProcess::Break(std::string why) {
  {
    const MutexLock lock(mutex_);
    if (broken_.empty()) broken_ = std::move(why);
  }
  process_->Interrupt();
}

void DriverProcess::Wake() {
  const uint64_t one = 1;
  if (eventfd_.valid()) (void)!write(eventfd_.get(), &one, sizeof(one));
}

void DriverProcess::NoteWork() {
  if (sleeps_long_.load()) Wake();
}

bool DriverProcess::HasRequests() const {
  const MutexLock lock(mutex_);
  return !requests_.empty();
}

void DriverProcess::Settle() {
  // Whoever is in there goes round once more for each who came meanwhile.
  if (settling_.fetch_add(1) != 0) return;
  int seen = 1;
  do {
    bool any;
    do {
      any = false;
      for (HostedQueue* const queue : queues_) any |= queue->SettleFirst();
    } while (any);
    seen = settling_.fetch_sub(seen) - seen;
  } while (seen != 0);
}

bool DriverProcess::AnyNews() const {
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (control().queues[i].ended.value.load() != collected_[i].load()) return true;
  }
  return false;
}

void DriverProcess::Watch() {
  {
    ReleasableLock lock(mutex_);
    while (!has_queues_ && !stop_.load()) changed_.wait(lock);
  }
  const bool spins = AvailableProcessors() > 1;
  progressed_ = SteadyNs();
  while (!stop_.load() && !is_over()) {
    Collect();
    bool busy = HasRequests();
    bool runs = false;
    for (size_t i = 0; i < queues_.size(); ++i) runs |= queues_[i]->sent() != collected_[i].load();
    busy |= runs;
    if (is_over()) return;
    LookAtTime(busy);
    if (is_over() || (runs && spins && SpinUntil([&] { return AnyNews(); }))) continue;
    Sleep(busy);
  }
}

void DriverProcess::Sleep(bool busy) {
  const int64_t now = SteadyNs();
  if (busy) busy_until_ = now + kLingerNs;
  const bool briefly = now < busy_until_;
  sleeps_long_ = !briefly;
  control().asleep.store(1);
  pollfd watched{eventfd_.get(), POLLIN, 0};
  // Whoever gives it work now wakes it, and so does what has ended now.
  const auto idle = [&] {
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i]->sent() != collected_[i].load()) return false;
    }
    return !HasRequests();
  };
  const bool none = !AnyNews() && !stop_.load() && !is_over() && (busy || briefly || idle());
  const int ready = poll(&watched, 1, none ? (briefly ? kLookNs / 1'000'000 : -1) : 0);
  control().asleep.store(0);
  sleeps_long_ = false;
  if (ready <= 0) return;
  uint64_t rung;
  (void)!read(eventfd_.get(), &rung, sizeof(rung));
}

void DriverProcess::LookAtTime(bool busy) {
  const int64_t now = SteadyNs(), limit = absl::ToInt64Nanoseconds(options_.hang_limit);
  if (!busy) {
    pinged_ = 0;
    fronts_ = {};
    was_busy_ = false;
    return;
  }
  // Since the last look, it may have slept for any time.
  if (!std::exchange(was_busy_, true)) progressed_ = now;
  const bool heard = control().pong.load() == ping_;
  if (pinged_ != 0 && !heard && now - pinged_ > limit &&
      PatienceLeft(used_at_ping_, ProcessorUseOf(pid_), std::chrono::nanoseconds(now - pinged_),
                   std::chrono::nanoseconds(limit)) <= std::chrono::nanoseconds(0)) {
    return End(StrCat("has not answered for ", absl::FormatDuration(options_.hang_limit)));
  }
  if (now - progressed_.load() > absl::ToInt64Nanoseconds(options_.stuck_limit)) {
    return End(StrCat("has ended nothing for ", absl::FormatDuration(options_.stuck_limit)));
  }
  if (!LookAtRuns(now)) {
    return End(
        StrCat("has ended nothing of a queue for ", absl::FormatDuration(options_.run_limit)));
  }
  if (pinged_ == 0 || (heard && now - pinged_ > kPingNs)) {
    pinged_ = now;
    used_at_ping_ = ProcessorUseOf(pid_);
    control().ping.store(++ping_);
    FutexWake(control().ping);
  }
  std::vector<HostedPoint> cancelled;
  for (HostedQueue* const queue : queues_) queue->FindCancelled(&cancelled);
  if (cancelled.empty()) return;
  {
    const MutexLock lock(mutex_);
    cancelled_.insert(cancelled_.end(), cancelled.begin(), cancelled.end());
    has_pending_ = true;
  }
  RingAll();
}

// False where one takes too long. What has ended counts as soon as the worker says so: this may be
// called by what a callback waits for, when nothing has been collected for long.
bool DriverProcess::LookAtRuns(int64_t now) {
  const int64_t limit = absl::ToInt64Nanoseconds(options_.run_limit);
  for (size_t i = 0; i < queues_.size(); ++i) {
    const uint64_t ended = control().queues[i].ended.value.load();
    Front& front = fronts_[i];
    if (ended == queues_[i]->sent() || queues_[i]->FirstWaits()) {
      front = {};
    } else if (front.since == 0 || front.ended != ended) {
      front = {ended, now};
    } else if (now - front.since > limit) {
      return false;
    }
  }
  return true;
}

void DriverProcess::Collect() {
  bool any = false;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const uint64_t ended = control().queues[i].ended.value.load();
    if (ended > queues_[i]->sent()) {
      return End("broke the protocol: it ended what it was not given");
    }
    if (ended < collected_[i].load()) {
      return End("broke the protocol: it took back what it had ended");
    }
    while (collected_[i].load() < ended) {
      if (!CollectOne(i, collected_[i].load() + 1)) return;
      ++collected_[i];
      any = true;
    }
  }
  if (!any) return;
  progressed_ = SteadyNs();
  Settle();
}

bool DriverProcess::CollectOne(size_t queue, uint64_t number) {
  // Copied whole before anything is looked at: the worker may go on writing.
  HostedOutcome outcome;
  std::memcpy(&outcome, &control().queues[queue].OutcomeOf(number), sizeof(outcome));
  const uint32_t bytes = std::min(outcome.message_bytes, kHostedMessage);
  const bool lost = outcome.lost != 0;
  HostedQueue::Ending ending{
      .status = HostedStatus(outcome.code, std::string(outcome.message.data(), bytes), lost),
      .device_ns = outcome.device_ns};
  if (outcome.traced != 0) {
    HostedTimes times;
    if (!AwaitTimes(queue, number, &times)) return false;
    ending.times = std::move(times.times);
  } else {  // of which it may have sent some nevertheless
    const MutexLock lock(mutex_);
    times_.erase({queue, number});
  }
  // Reported by itself, by what says why.
  if (ending.status.ok() || !lost) {
    has_worked_ = true;
    queues_[queue]->Ended(number, std::move(ending));
    return true;
  }
  End(StrCat("has lost its device: ", ToStd(ending.status.message())));
  return false;
}

// They were sent before the outcome was there, and so come at once.
bool DriverProcess::AwaitTimes(size_t queue, uint64_t number, HostedTimes* times) {
  {
    const std::pair key(queue, number);
    const auto until =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.hang_limit);
    ReleasableLock lock(mutex_);
    while (over_.ok() && !times_.contains(key) &&
           changed_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    if (auto told = times_.extract(key)) {
      *times = std::move(told.mapped());
      return true;
    }
  }
  End("broke the protocol: it has not said what it said that it did");
  return false;
}

void DriverProcess::Read() {
  while (!is_over() && AwaitFrame(process_->socket(), kNoDeadline).ok() && ReadSaying()) {
  }
}

bool DriverProcess::ReadSaying() {
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.hang_limit);
  const auto frame = ReadFrame(process_->socket(), kMaxHostedAnswer, until);
  if (absl::IsUnavailable(frame.status())) {
    End("");
    return false;
  }
  if (frame.ok()) {
    ByteReader in(*frame);
    switch (ReadKind(&in, HostedSaying::kLost)) {
      case HostedSaying::kAnswer:
        if (TakeAnswer(&in)) return true;
        break;
      case HostedSaying::kTimes:
        if (TakeTimes(&in)) return true;
        break;
      case HostedSaying::kLost: {
        const std::string why = ReadHostedLoss(&in);
        if (!in.Done()) break;
        End(StrCat("has lost its device: ", why));
        return false;
      }
    }
  }
  End(StrCat("broke the protocol (",
             frame.ok() ? "it said what it was not asked" : ToStd(frame.status().message()), ")"));
  return false;
}

bool DriverProcess::TakeAnswer(ByteReader* in) {
  HostedAnswer answer = ReadHostedAnswer(in);
  if (!in->Done()) return false;
  progressed_ = SteadyNs();
  footprint_ = answer.footprint;
  const MutexLock lock(mutex_);
  const auto it = requests_.find(answer.request);
  if (it == requests_.end()) return false;
  if (it->second == nullptr) {
    requests_.erase(it);
    return true;
  }
  if (it->second->answered) return false;
  it->second->answer = std::move(answer);
  it->second->answered = true;
  changed_.notify_all();
  return true;
}

bool DriverProcess::TakeTimes(ByteReader* in) {
  HostedTimes times = ReadHostedTimes(in);
  const auto [queue, number] = times.point;
  {
    const MutexLock lock(mutex_);
    if (!in->Done() || !has_queues_ || queue >= queues_.size() ||
        number <= collected_[queue].load() || number > queues_[queue]->sent()) {
      return false;
    }
  }
  // No more is kept than was asked for, or a worker could fill this process.
  if (const size_t most = queues_[queue]->TimedCommands(number); times.times.size() > most) {
    // Copied to a place of their own: shrink_to_fit keeps the memory in a build without exceptions.
    times.times = {times.times.begin(), times.times.begin() + static_cast<ptrdiff_t>(most)};
  }
  const MutexLock lock(mutex_);
  changed_.notify_all();
  return times_.emplace(std::pair<size_t, uint64_t>(queue, number), std::move(times)).second;
}

void DriverProcess::End(std::string_view why) {
  absl::Status over;
  {
    const MutexLock one(ending_);
    if (is_over()) return;
    std::string how;
    {
      const MutexLock writing(writing_);  // nobody writes to what is gone
      ended_ns_ = SteadyNs();
      ended_at_once_ =
          !stop_.load() && !has_worked_.load() && opened_ns_.load() != 0 &&
          ended_ns_.load() - opened_ns_.load() < absl::ToInt64Nanoseconds(options_.short_life);
      is_over_ = true;
      // Who is taken for hung has not closed its end, and is killed at once.
      ChildProcess::End end = process_->BuryApart();
      how = std::move(end.how);
      const MutexLock lock(mutex_);
      last_output_ = std::move(end.last_output);
    }
    const MutexLock lock(mutex_);
    const std::string_view because = broken_.empty() ? why : broken_;
    over_ = DeviceLostError(
        StrCat(options_.whose, " (process ", pid_, ") ", because, because.empty() ? "" : " and ",
               how, " (generation ", options_.setup.generation, ")",
               ended_at_once_.load() ? ShortLives::Told(options_.short_lives_before + 1) : ""));
    over = over_;
    changed_.notify_all();
  }
  for (HostedQueue* const queue : queues_) queue->FailAll(over);
  Settle();
  RingAll();
  Wake();
  if (options_.on_over) options_.on_over();
}

}  // namespace telegrad
