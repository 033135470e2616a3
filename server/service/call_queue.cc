// A call goes when all that it was to be told has been told: its arrival, its end, the end of
// Finish, and of each read and write.
#include "server/service/call_queue.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/base/burst.h"
#include "engine/base/clock.h"
#include "engine/base/thread.h"
#include "proto/call_event.h"

namespace telegrad {
namespace {

// Threads: one per two processors, as gRPC's callbacks have. On one processor a second thread would
// only take turns with the first: gRPC wakes it to poll whenever the first has something to do.
constexpr int kLeastThreads = 2, kMostThreads = 16;
// That may arrive at once without waiting until a thread expects them.
constexpr int kExpected = 32;

// Whether to look if a further event is there, which polls the sockets once more: not where it was
// in vain the last times, but now and then.
class LookAhead {
 public:
  bool IsWorthIt() { return in_vain_ < kInVain || ++in_vain_ % kNowAndThen == 0; }
  bool Saw(bool event) {
    if (event) in_vain_ = 0;
    if (!event && in_vain_ < kInVain) ++in_vain_;
    return event;
  }

 private:
  static constexpr unsigned kInVain = 4, kNowAndThen = 16;
  unsigned in_vain_ = 0;
};

}  // namespace

class CallQueue::Call final : public StreamTransport {
 public:
  explicit Call(CallQueue* queue) : queue_(*queue) {
    context_.AsyncNotifyWhenDone(over_.tag());
    queue_.service_.RequestCall(&context_, &stream_, queue_.queue_.get(), queue_.queue_.get(),
                                arrived_.tag());
  }

  void Read(grpc::ByteBuffer* message) override {
    Expect();
    stream_.Read(message, received_.tag());
  }
  void Write(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) override {
    Expect();
    stream_.Write(message, options, sent_.tag());
  }
  void WriteAndFinish(const grpc::ByteBuffer& message, const grpc::WriteOptions& options,
                      const grpc::Status& status) override {
    stream_.WriteAndFinish(message, options, status, finished_.tag());
  }
  void Finish(const grpc::Status& status) override { stream_.Finish(status, finished_.tag()); }
  bool PrefersLateReads() const override { return true; }

 private:
  using Event = EventOf<Call>;

  void Expect() { expected_.fetch_add(1, std::memory_order_relaxed); }
  void Told() {
    if (expected_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (handler_ != nullptr) handler_->OnDone();
    CallQueue& queue = queue_;
    delete this;
    queue.Forget();
  }

  void OnArrived(bool ok) {
    if (!ok) {  // the server is shut down; nothing is told of this one
      expected_.store(1, std::memory_order_relaxed);
      return Told();
    }
    queue_.Expect();
    handler_ = queue_.open_(&context_);
    handler_->Bind(this);
    MaybeCancel();
    Told();
  }
  void OnReceived(bool ok) {
    handler_->OnReadDone(ok);
    Told();
  }
  void OnSent(bool ok) {
    handler_->OnWriteDone(ok);
    Told();
  }
  void OnFinished(bool /*ok*/) { Told(); }
  void OnOver(bool /*ok*/) {
    if (context_.IsCancelled()) MaybeCancel();
    Told();
  }
  // Once the handler is bound and the call was cancelled; either may come first.
  void MaybeCancel() {
    if (cancelled_and_bound_.fetch_add(1, std::memory_order_acq_rel) == 1) handler_->OnCancel();
  }

  CallQueue& queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Event arrived_{this, &Call::OnArrived}, received_{this, &Call::OnReceived},
      sent_{this, &Call::OnSent}, finished_{this, &Call::OnFinished}, over_{this, &Call::OnOver};
  RawStream* handler_ = nullptr;
  std::atomic<int> expected_ = 3;  // its arrival, the end of Finish, and of the call
  std::atomic<int> cancelled_and_bound_ = 0;
};

CallQueue::CallQueue(grpc::ServerBuilder* builder, Open open)
    : open_(std::move(open)), queue_(builder->AddCompletionQueue()) {
  builder->RegisterAsyncGenericService(&service_);
}

void CallQueue::Start() {
  for (int i = 0; i < kExpected; ++i) Expect();
  const int processors = AvailableProcessors();
  const int threads = std::min(processors, std::clamp(processors / 2, kLeastThreads, kMostThreads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "calls");
      Run();
    });
  }
}

void CallQueue::Stop() {
  {
    ReleasableLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    while (calls_ > 0) none_.wait(lock);
  }
  queue_->Shutdown();
  if (threads_.empty()) Run();  // it was never started: nothing is left in the queue
  for (std::thread& thread : threads_) thread.join();
}

void CallQueue::Expect() {
  {
    const MutexLock lock(mutex_);
    ++calls_;
  }
  new Call(this);  // which owns itself until it is over
}

void CallQueue::Forget() {
  const MutexLock lock(mutex_);
  if (--calls_ == 0) none_.notify_all();
}

// The next event; false: none follows. Meanwhile it begins the reads that are late.
bool CallQueue::Await(LateReads& late, void** event, bool* ok) {
  while (true) {
    const int64_t first = late.FirstNs();
    if (first == INT64_MAX) return queue_->Next(event, ok);
    const int64_t now = Clock::Steady()->Ns();
    if (first <= now) {
      late.Begin(now);
      continue;
    }
    const gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(first - now, GPR_TIMESPAN));
    const auto next = queue_->AsyncNext(event, ok, until);
    if (next != grpc::CompletionQueue::TIMEOUT) return next == grpc::CompletionQueue::GOT_EVENT;
  }
}

void CallQueue::Run() {
  void* event = nullptr;
  bool ok = false;
  const auto is_next = [&] {
    return queue_->AsyncNext(&event, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC)) ==
           grpc::CompletionQueue::GOT_EVENT;
  };
  LookAhead look_ahead;
  LateReads late;
  while (Await(late, &event, &ok)) {
    Burst burst;
    CallEvent::Of(event)->Happened(ok);
    while (burst.MayGoOn() && look_ahead.IsWorthIt() && look_ahead.Saw(is_next())) {
      CallEvent::Of(event)->Happened(ok);
    }
  }
}

}  // namespace telegrad
