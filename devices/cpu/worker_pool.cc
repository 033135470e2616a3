// One word says which job there is, whether it still takes workers and how many are inside. A
// worker enters by adding itself while the job is open; the caller, out of parts, closes it and
// waits for those inside alone. So nobody waits for a worker that is still waking up: it finds the
// job closed and sleeps again.
//
// Each thread begins with a share of its own, the same part of all iterations in every job: what it
// wrote in one kernel is what it reads in the next one, where both walk along the same axis, and is
// still in its own cache. Reading it from another core's takes several times as long. Who is done
// with that takes parts of the others' shares.
#include "devices/cpu/worker_pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>

#include "devices/api/spin.h"
#include "devices/cpu/interrupt.h"

namespace telegrad {
namespace {

constexpr uint32_t kOpen = 1u << 12;
constexpr uint32_t kInside = kOpen - 1;
constexpr uint32_t kJob = kOpen << 1;  // one in the job's number

// Parts for each thread, at least: one that starts late or runs slow leaves little to wait for. The
// last ones are smaller, so that all threads end at about the same time whatever the number is.
constexpr int64_t kPartsPerThread = 4, kLastPartsPerThread = 2;

// Kernels compute as IEEE 754 says: to nearest, with subnormal numbers, without traps. A thread may
// come with other settings, its own or those of the thread that started it, and gets them back.
class IeeeArithmetic {
 public:
#if defined(__x86_64__)
  IeeeArithmetic() : before_(_mm_getcsr()) {
    if ((before_ & kControl) != kDefault) _mm_setcsr(kDefault);
  }
  ~IeeeArithmetic() {
    if ((before_ & kControl) != kDefault) _mm_setcsr(before_);
  }

 private:
  static constexpr uint32_t kControl = 0xffc0;  // of MXCSR; what is below says what happened
  static constexpr uint32_t kDefault = 0x1f80;
  const uint32_t before_;
#endif
};

}  // namespace

WorkerPool::WorkerPool(int threads)
    : shares_(static_cast<size_t>(std::clamp(threads, 1, kMaxThreads))) {
  for (int i = 1; i < std::ssize(shares_); ++i) {
    workers_.emplace_back([this, i] { Work(i); });
  }
}

WorkerPool::~WorkerPool() {
  stop_.store(true);
  state_.fetch_add(kJob);  // so that no sleeper finds the word it went to sleep on
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::TakeParts(int thread) {
  for (int i = 0; i < sharing_; ++i) {
    Share& share = shares_[static_cast<size_t>((thread + i) % sharing_)];
    int64_t begin = share.next.load(std::memory_order_relaxed);
    while (begin < share.end) {
      const int64_t part = std::clamp<int64_t>((share.end - begin) / last_parts_, 1, part_);
      if (!share.next.compare_exchange_weak(begin, begin + part, std::memory_order_relaxed)) {
        continue;
      }
      body_(words_, begin, begin + part);
      begin = share.next.load(std::memory_order_relaxed);
    }
  }
}

void WorkerPool::RunParts(int thread) {
  [[maybe_unused]] const IeeeArithmetic ieee;
  struct Taker {
    WorkerPool* pool;
    int thread;
  } taker{this, thread};
  const auto take = [](void* self) {
    static_cast<Taker*>(self)->pool->TakeParts(static_cast<Taker*>(self)->thread);
  };
  if (CallInterruptibly(take, &taker, number_, interrupted_)) return;
  // Nobody begins another part.
  for (Share& share : shares_) share.next.store(share.end, std::memory_order_relaxed);
}

void WorkerPool::Interrupt(uint64_t job, pthread_t caller) {
  if (!kCanInterruptKernels || job == 0 || running_.load() != job) return;
  interrupted_.store(job);
  InterruptCall(caller);
  for (std::thread& worker : workers_) InterruptCall(worker.native_handle());
}

bool WorkerPool::Run(Body body, const uint64_t* words, int64_t begin, int64_t end, int helpers) {
  const int64_t iterations = end - begin;
  if (iterations <= 0) return true;
  running_.store(++number_, std::memory_order_release);
  RunJob(body, words, begin, end, helpers);
  running_.store(0, std::memory_order_release);
  return interrupted_.load(std::memory_order_relaxed) != number_;
}

void WorkerPool::RunJob(Body body, const uint64_t* words, int64_t begin, int64_t end, int helpers) {
  const int64_t iterations = end - begin;
  helpers = static_cast<int>(std::min<int64_t>({helpers, threads() - 1, iterations - 1}));
  body_ = body;
  words_ = words;
  sharing_ = std::max(helpers, 0) + 1;
  part_ =
      sharing_ == 1 ? iterations : std::max<int64_t>(1, iterations / (sharing_ * kPartsPerThread));
  last_parts_ = sharing_ == 1 ? 1 : kLastPartsPerThread;
  int64_t at = begin;
  for (int i = 0; i < sharing_; ++i) {
    Share& share = shares_[static_cast<size_t>(i)];
    share.next.store(at, std::memory_order_relaxed);
    at = share.end = at + iterations / sharing_ + (i < iterations % sharing_ ? 1 : 0);
  }
  if (helpers <= 0) return RunParts(0);
  const uint32_t emptied = emptied_.load(std::memory_order_relaxed);
  // The word is closed and empty here, so this only opens the next job.
  state_.store(((state_.load(std::memory_order_relaxed) & ~(kOpen | kInside)) + kJob) | kOpen);
  if (helpers == threads() - 1) {
    state_.notify_all();
  } else {
    for (int i = 0; i < helpers; ++i) state_.notify_one();
  }
  RunParts(0);
  const uint32_t closed = state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if ((closed & kInside) == 0) return;
  const auto empty = [&] { return emptied_.load(std::memory_order_acquire) != emptied; };
  while (!SpinUntil(empty)) emptied_.wait(emptied, std::memory_order_acquire);
}

void WorkerPool::Work(int thread) {
  uint32_t seen = state_.load();  // a job that began before this thread is joined, too
  seen -= kJob;
  while (true) {
    uint32_t state = state_.load(std::memory_order_acquire);
    const auto news = [&] {
      state = state_.load(std::memory_order_acquire);
      return stop_.load(std::memory_order_relaxed) ||
             ((state & kOpen) != 0 && (state ^ seen) >= kJob);
    };
    if (!SpinUntil(news)) {
      state_.wait(state, std::memory_order_acquire);
      continue;
    }
    if (stop_.load()) return;
    if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) continue;
    seen = state;
    RunParts(thread);
    const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kOpen) == 0 && (before & kInside) == 1) {
      emptied_.fetch_add(1, std::memory_order_release);
      emptied_.notify_one();
    }
  }
}

}  // namespace telegrad
