// One GPU as its driver has it: its context, the free events, and whether it still works. Every
// object of the GPU holds a reference to it, so it is destroyed last.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/stream/bell.h"
#include "devices/stream/driver.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // `name` and `generation` for messages, "CUDA:0".
  static absl::StatusOr<std::shared_ptr<Context>> Open(std::shared_ptr<const Driver> driver,
                                                       int device, std::string name,
                                                       uint64_t generation);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::string& name() const { return name_; }
  uint64_t generation() const { return generation_; }
  // "CUDA:0 (generation 1)"
  std::string title() const;
  const Driver& driver() const { return *driver_; }
  const Calls& calls() const { return driver_->calls(); }
  int device() const { return device_; }
  ContextHandle handle() const { return handle_; }

  // Makes the context the thread's current one, in which all calls below work.
  [[nodiscard]] absl::Status Enter();
  // Calls `give_back` in the context, unless nothing of it can be given back any more: what the
  // driver does not take goes with the context.
  template <typename GiveBack>
  void Release(GiveBack give_back) const {
    const SharedLock lock(life_);
    if (stuck() || (discarded_ && !driver_->ReleasesAfterReset())) return;
    driver_->Enter(device_, handle_);
    give_back();
  }

  // The same of what may wait for all that runs: no lock is held meanwhile, and Discard waits.
  template <typename GiveBack>
  void ReleaseUnlocked(GiveBack give_back) {
    const auto use = UseByPeer();
    if (!use.ok()) return Release(give_back);
    if (stuck()) return;
    driver_->Enter(device_, handle_);
    give_back();
  }

  // As Driver's, with the device's name in front. An error after which the driver refuses all
  // further work in the context is the end of the device, see Fail.
  absl::Status Check(std::string_view call, Result result);
  absl::Status Check(const Called& called) { return Check(called.name, called.result); }

  // The device takes no more work, because of `why`; the first reason stays. All queues are rung.
  // `stuck`: the GPU may still be at work on something that never ends, so nothing of it can be
  // waited for, freed or used again, and the context stays for good.
  void Fail(const absl::Status& why, bool stuck = false);
  // Holds something that the GPU may still read, write or call, until the context is reset.
  void Keep(std::shared_ptr<const void> kept);
  // Whether the GPU has ended all that it was given; false also where the driver does not tell. In
  // the current context.
  bool IsIdle();
  // Whether a GPU that was stuck has ended all it had, and can be discarded. Of a lost device.
  bool HasCalmed();
  // OK while the device can be trusted.
  absl::Status health() const;
  bool stuck() const;
  // The driver refuses everything in the context, and nothing runs there.
  bool dead() const;
  void AddBell(std::shared_ptr<Bell> bell);

  // `give_back` is called by Discard, for what the driver keeps when the context goes.
  void OnDiscard(std::function<void()> give_back);
  // Gives the context back with all that is in it, once no peer's work uses memory of it. Once.
  void Discard();
  // For work of a peer with memory of this context, until that has ended: what is returned puts
  // Discard off. UNAVAILABLE if that has begun.
  absl::StatusOr<std::shared_ptr<const void>> UseByPeer();
  // The error of what was in it.
  absl::Status Lost() const;
  bool discarded() const {
    const SharedLock lock(life_);
    return discarded_;
  }

  absl::StatusOr<EventHandle> TakeEvent(unsigned int flags);
  void ReturnEvent(EventHandle event, unsigned int flags);

 private:
  friend class Stream;

  Context(std::shared_ptr<const Driver> driver, int device, ContextHandle handle, std::string name,
          uint64_t generation)
      : driver_(std::move(driver)),
        device_(device),
        handle_(handle),
        name_(std::move(name)),
        generation_(generation) {}

  std::vector<StreamHandle> Streams() const;
  std::vector<EventHandle>& FreeEvents(unsigned int flags) TG_REQUIRES(mutex_) {
    return flags == kUntimed ? untimed_ : timed_;
  }

  const std::shared_ptr<const Driver> driver_;
  const int device_;
  const ContextHandle handle_;
  const std::string name_;
  const uint64_t generation_;

  mutable SharedMutex life_;  // held for reading while something is given back; before mutex_
  bool discarded_ TG_GUARDED_BY(life_) = false;
  mutable Mutex mutex_;
  absl::Status health_ TG_GUARDED_BY(mutex_);
  bool stuck_ TG_GUARDED_BY(mutex_) = false;
  bool dead_ TG_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Bell>> bells_ TG_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_ TG_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> on_discard_ TG_GUARDED_BY(mutex_);
  bool closing_ TG_GUARDED_BY(mutex_) = false;
  int uses_ TG_GUARDED_BY(mutex_) = 0;  // by peers
  ConditionVariable unused_;
  std::vector<EventHandle> timed_ TG_GUARDED_BY(mutex_);  // free ones
  std::vector<EventHandle> untimed_ TG_GUARDED_BY(mutex_);
  mutable Mutex streams_mutex_;  // behind which there is only a look at each
  std::vector<StreamHandle> streams_ TG_GUARDED_BY(streams_mutex_);  // that are not given back
};

// A stream of a context, and what a queue or a memory enqueues there.
class Stream {
 public:
  static absl::StatusOr<std::unique_ptr<Stream>> Create(std::shared_ptr<Context> context);
  // Waits for what is on it, unless the GPU is stuck.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }

 private:
  Stream(std::shared_ptr<Context> context, StreamHandle handle)
      : context_(std::move(context)), handle_(handle) {}

  const std::shared_ptr<Context> context_;
  const StreamHandle handle_;
};

}  // namespace telegrad::stream
