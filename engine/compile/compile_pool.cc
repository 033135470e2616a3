// One thread looks after one worker: it starts it, takes a job, asks, and passes the answer on. The
// threads live as long as the pool, which matters, since a worker dies with the thread that started
// it. Jobs wait in one queue; who asked for one waits for its `done`.
#include "engine/compile/compile_pool.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/fair_tasks.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "engine/base/share.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/worker_process.h"

namespace telegrad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartTime{10};

// For whoever wants something compiled: where the workers are on this machine and what the system
// says of them is for its operator, to whom on_death tells it.
absl::Status NoWorkers() {
  return absl::UnavailableError(
      "the server can start no compile worker; its log says why: ask its operator, and try again");
}

struct Job {
  WorkerRequest request;
  int deaths = 0;           // of workers that had it,
  int crashes = 0;          // but for those that somebody has killed
  std::string first_death;  // how the first of them ended
  bool done = false;
  bool abandoned = false;                     // by who asked: nobody takes the answer
  Digest left = {};                           // the name under which it is in Pool::left_, if it is
  WorkerProcess* process = nullptr;           // that has it
  Clock::time_point begin;                    // since when
  int64_t took_ns = 0;                        // in workers before
  int64_t paid_ns = 0;                        // of that, by those who asked before
  std::shared_ptr<const Share> left_by = {};  // while it goes on without anybody; null: no tenant
  absl::StatusOr<ProgramImage> result;
};

// Of kernels whose jobs have run out of time; at most so many, and bytes of code.
constexpr size_t kMostLeft = 256;
constexpr size_t kMostLeftBytes = size_t{64} << 20;

class Pool final : public CompilePool {
 public:
  explicit Pool(const Options& options)
      : options_(options),
        processes_(static_cast<size_t>(options.workers + options.spare)),
        ready_(processes_.size()),
        failed_(static_cast<size_t>(options.workers)),
        killed_starts_(processes_.size()) {
    for (size_t i = 0; i < processes_.size(); ++i) {
      threads_.emplace_back([this, i] { LookAfter(i); });
    }
  }

  ~Pool() override {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
      for (WorkerProcess* process : processes_) {
        if (process != nullptr) process->Interrupt();
      }
    }
    work_.notify_all();
    stopping_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status WaitForTheFirst() {
    ReleasableLock lock(mutex_);
    while (alive_ == 0 && !IsHopeless()) done_.wait(lock);
    return alive_ > 0 ? absl::OkStatus() : start_error_;
  }

  absl::StatusOr<ProgramImage> Compile(const std::string& source, const std::string& name,
                                       const Target& target, Budget* budget) override {
    TG_RETURN_IF_ERROR(CheckIrSize(source, name));
    const Digest left_as = LeftAs(source, name, target);
    ReleasableLock lock(mutex_);
    if (const auto owed = owed_.extract(budget->share())) budget->Worked(owed.mapped());
    std::shared_ptr<Job> job = TakeLeft(left_as);
    if (job == nullptr) {
      job = std::make_shared<Job>();
      job->request = {next_id_++, name, target, source};
      if (IsHopeless()) return NoWorkers();
      waiting_.Push(budget->share(), job);
      work_.notify_all();  // it may suit some of them only
    }
    while (!job->done) {
      done_.wait_for(lock, Budget::kTick);
      if (job->done) break;
      const bool waits = job->process == nullptr;
      const std::string what =
          waits ? StrCat("waiting for a compile worker for kernel ", name)
                : StrCat("compiling kernel ", name,
                         ", which goes on, so that another attempt finds it done");
      const Budget::Doing doing(budget, what);
      if (absl::Status status = budget->CheckTime(); !status.ok()) {
        if (!waits && absl::IsDeadlineExceeded(status)) {
          Pay(budget, *job, job->took_ns + NsOf(Clock::now() - job->begin));
          job->left_by = budget->share();
          LeaveToItself(job, left_as);
        } else {
          Pay(budget, *job, Abandon(job));
        }
        return status;
      }
    }
    Pay(budget, *job, job->took_ns);
    return std::move(job->result);
  }

  const std::string& identity() const override { return *identity_; }

  Stats stats() const override {
    const MutexLock lock(mutex_);
    Stats s = stats_;
    s.workers = alive_;
    s.waiting = waiting_.size();
    return s;
  }

 private:
  // What a request is known by: equal ones have equal answers.
  static Digest LeftAs(const std::string& source, const std::string& name, const Target& target) {
    return Sha256(StrCat(name, "\n", target.Key(), "\n", source));
  }

  static void Pay(Budget* budget, Job& job, int64_t took_ns) {
    budget->Worked(took_ns - job.paid_ns);
    job.paid_ns = took_ns;
  }

  // Its worker goes on, and who asks next gets what comes of it.
  void LeaveToItself(const std::shared_ptr<Job>& job, const Digest& as) TG_REQUIRES(mutex_) {
    job->left = as;
    left_.push_back(job);
    BoundLeft();
  }

  // Nobody waits for what it has taken since it was left, so who left it pays with the next job.
  void Owe(Job& job) TG_REQUIRES(mutex_) {
    std::erase_if(owed_, [](const auto& entry) { return entry.first.use_count() == 1; });
    owed_[job.left_by] += job.took_ns - job.paid_ns;
    job.paid_ns = job.took_ns;
    job.left_by = nullptr;
  }

  // The job that somebody has left, under way or done; else null. It is the caller's then.
  std::shared_ptr<Job> TakeLeft(const Digest& as) TG_REQUIRES(mutex_) {
    const auto at = std::ranges::find_if(left_, [&](const auto& job) { return job->left == as; });
    if (at == left_.end()) return nullptr;
    std::shared_ptr<Job> job = *at;
    job->left_by = nullptr;
    left_.erase(at);
    return job;
  }

  // Those that are under way are as few as workers. Errors of the moment are nobody's.
  void BoundLeft() TG_REQUIRES(mutex_) {
    std::erase_if(left_, [](const auto& job) {
      return job->done && !job->result.ok() && !absl::IsInternal(job->result.status());
    });
    size_t number = 0, bytes = 0;
    for (size_t i = left_.size(); i-- > 0;) {  // the newest first
      const Job& job = *left_[i];
      if (!job.done) continue;
      bytes += job.request.source.size() + (job.result.ok() ? job.result->binary.size() : 0);
      if (++number > kMostLeft || bytes > kMostLeftBytes) left_.erase(left_.begin() + i);
    }
  }

  // What the job has taken so far, with the start of a process for the one that it costs.
  int64_t Abandon(const std::shared_ptr<Job>& job) TG_REQUIRES(mutex_) {
    waiting_.Erase(job);
    if (job->process == nullptr) return job->took_ns;
    job->abandoned = true;
    job->process->Interrupt();
    return job->took_ns + NsOf(Clock::now() - job->begin) + start_ns_;
  }

  static int64_t NsOf(Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

  bool IsSpare(size_t index) const { return index >= static_cast<size_t>(options_.workers); }

  // Whether no worker can be started: none is there, and the last start of each has failed.
  bool IsHopeless() const TG_REQUIRES(mutex_) {
    return alive_ == 0 && std::ranges::all_of(failed_, std::identity());
  }

  // Whether a spare worker should be there for somebody.
  bool NeedsSpare() const TG_REQUIRES(mutex_) {
    return stats_.compiling >= options_.workers &&
           waiting_.idle_tenants() > std::ranges::count(ready_, true);
  }

  void LookAfter(size_t index) {
    Clock::duration delay{0};
    while (true) {
      ReleasableLock lock(mutex_);
      ready_[index] = false;
      const Clock::time_point begin = Clock::now() + delay;
      while (!stop_ && stopping_.wait_until(lock, begin) != std::cv_status::timeout) {
      }
      while (IsSpare(index) && !stop_ && !NeedsSpare()) work_.wait(lock);
      if (stop_) return;
      ready_[index] = IsSpare(index);
      lock.unlock();
      std::unique_ptr<WorkerProcess> process = StartOne(index);
      const bool worked = process != nullptr && Work(index, *process);
      delay = worked ? Clock::duration{0}
                     : std::clamp<Clock::duration>(2 * delay, options_.first_delay,
                                                   options_.last_delay);
    }
  }

  std::unique_ptr<WorkerProcess> StartOne(size_t index) {
    const Clock::time_point begin = Clock::now();
    auto process = WorkerProcess::Start(
        {options_.executable, options_.opencl_library, options_.memory_bytes, options_.nice},
        kStartTime);
    const MutexLock lock(mutex_);
    start_ns_ = NsOf(Clock::now() - begin);
    if (process.ok() && !identity_) identity_ = (*process)->identity();
    absl::Status status = process.status();
    if (process.ok() && (*process)->identity() != identity_) {
      status = absl::UnavailableError(StrCat("the compile worker ", options_.executable,
                                             " is now of another build (", (*process)->identity(),
                                             "); restart the daemon"));
    }
    if (!status.ok()) {
      StartFailed(index, status);
      return nullptr;
    }
    killed_starts_[index] = 0;
    if (!IsSpare(index)) failed_[index] = false;
    ++alive_;
    processes_[index] = process->get();
    if (stop_) (*process)->Interrupt();
    done_.notify_all();
    return *std::move(process);
  }

  // Whoever is killed as it starts is only started again, a number of times.
  void StartFailed(size_t index, const absl::Status& status) TG_REQUIRES(mutex_) {
    const std::string what(status.message());
    if (absl::IsAborted(status) && ++killed_starts_[index] < options_.attempts) {
      Report(what, "");
      return;
    }
    start_error_ = absl::UnavailableError(what);
    if (options_.on_death) options_.on_death(what, "");
    if (!IsSpare(index)) failed_[index] = true;
    if (IsHopeless()) FailAllWaiting(NoWorkers());
    done_.notify_all();
  }

  // Waits for a job that the worker may take. False where it is to end first.
  bool WaitForWork(size_t index) TG_REQUIRES(mutex_) {
    if (IsSpare(index)) {
      const Clock::time_point end = Clock::now() + options_.spare_idle;
      while (!stop_ && waiting_.idle_tenants() == 0) {
        if (work_.wait_until(mutex_, end) == std::cv_status::timeout) break;
      }
      return !stop_ && waiting_.idle_tenants() > 0;
    }
    while (!stop_ && waiting_.size() == 0) work_.wait(mutex_);
    return !stop_;
  }

  // Gives jobs to the process until it has died, is not needed any more or the pool stops. Whether
  // it did what it was for, so that the next one may be started at once.
  bool Work(size_t index, WorkerProcess& process) {
    bool worked = IsSpare(index);
    while (true) {
      ReleasableLock lock(mutex_);
      if (!WaitForWork(index)) {
        Leave(index);
        return worked;
      }
      if (!process.IsIdle()) {
        Leave(index);
        Report("it exited while it was idle", "");
        return worked;
      }
      const auto taken = *waiting_.Pop(/*idle_only=*/IsSpare(index));
      const std::shared_ptr<Job> job = taken.task;
      ++stats_.compiling;
      ready_[index] = false;
      if (NeedsSpare()) work_.notify_all();
      job->process = &process;
      job->begin = Clock::now();
      lock.unlock();
      auto answer = process.Ask(job->request, options_.deadline);
      lock.lock();
      const int64_t took = NsOf(Clock::now() - job->begin);
      job->process = nullptr;
      job->took_ns += took;
      --stats_.compiling;
      if (!answer.ok()) {
        if (!job->abandoned) Died(*job, answer.status(), process.was_killed());
        if (!job->done && !job->abandoned) waiting_.PutBack(taken.flow, job);
      }
      waiting_.Ended(taken.flow, taken.predicted_ns, static_cast<double>(took));
      if (job->abandoned) {  // also where the answer came just before: the socket is shut
        Leave(index);
        return true;
      }
      if (!answer.ok()) {
        Leave(index);
        Report(std::string(answer.status().message()), job->request.name);
        return worked;
      }
      worked = true;
      ready_[index] = IsSpare(index);
      Finish(*job, std::move(answer->image));
    }
  }

  // What becomes of a job whose worker has not answered.
  void Died(Job& job, const absl::Status& how, bool killed) TG_REQUIRES(mutex_) {
    const auto bad = [&](const auto&... what) {
      return Internal("kernel ", job.request.name, ": ", what...);
    };
    if (stop_) {
      Finish(job, absl::CancelledError("the compile service stops"));
    } else if (absl::IsDeadlineExceeded(how)) {
      Finish(job, bad("its compiler took longer than ", options_.deadline.count(),
                      " ms and was killed"));
    } else if (job.crashes += killed ? 0 : 1; job.crashes == 2) {
      Finish(job, bad(ToStd(how.message()), "; a second attempt in a fresh process, after ",
                      job.first_death));
    } else if (++job.deaths == options_.attempts) {
      Finish(job, bad(ToStd(how.message()), "; attempt ", job.deaths, ", after ", job.first_death));
    } else {
      if (job.first_death.empty() || !killed) job.first_death = std::string(how.message());
      ++stats_.retries;
    }
  }

  void Leave(size_t index) TG_REQUIRES(mutex_) {
    processes_[index] = nullptr;
    --alive_;
    if (waiting_.size() > 0) work_.notify_all();
  }

  // Of a worker that has ended unasked.
  void Report(const std::string& what, const std::string& kernel) TG_REQUIRES(mutex_) {
    if (stop_) return;
    ++stats_.deaths;
    if (options_.on_death) options_.on_death(what, kernel);
  }

  void Finish(Job& job, absl::StatusOr<ProgramImage> result) TG_REQUIRES(mutex_) {
    job.result = std::move(result);
    job.done = true;
    if (job.left_by != nullptr) Owe(job);
    BoundLeft();
    done_.notify_all();
  }

  void FailAllWaiting(const absl::Status& status) TG_REQUIRES(mutex_) {
    for (const auto& job : waiting_.TakeAll()) Finish(*job, status);
  }

  const Options options_;
  std::optional<std::string> identity_;  // written once, before Start returns
  mutable Mutex mutex_;                  // of jobs, too
  ConditionVariable work_, done_, stopping_;
  FairTasks<std::shared_ptr<Job>> waiting_ TG_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Job>> left_ TG_GUARDED_BY(mutex_);  // the latest last
  // By tenant, while there is one; see Owe.
  std::map<std::shared_ptr<const Share>, int64_t> owed_ TG_GUARDED_BY(mutex_);
  std::vector<WorkerProcess*> processes_ TG_GUARDED_BY(mutex_);  // those alive, for Interrupt
  absl::Status start_error_ TG_GUARDED_BY(mutex_);  // of the last start that has failed
  int64_t alive_ TG_GUARDED_BY(mutex_) = 0;
  int64_t start_ns_ TG_GUARDED_BY(mutex_) = 0;  // that the last start took
  // By worker: a spare one that starts or waits for a kernel.
  std::vector<bool> ready_ TG_GUARDED_BY(mutex_);
  // By worker but the spare ones: its last start has failed.
  std::vector<bool> failed_ TG_GUARDED_BY(mutex_);
  // By worker: how often it was killed as it started, in a row.
  std::vector<int> killed_starts_ TG_GUARDED_BY(mutex_);
  uint64_t next_id_ TG_GUARDED_BY(mutex_) = 1;
  Stats stats_ TG_GUARDED_BY(mutex_);
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompilePool>> CompilePool::Start(const Options& options) {
  if (options.workers < 1) return InvalidArgument("a compile pool of ", options.workers);
  auto pool = std::make_unique<Pool>(options);
  TG_RETURN_IF_ERROR(pool->WaitForTheFirst());
  return pool;
}

}  // namespace telegrad
