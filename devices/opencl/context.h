// One device as its driver has it: its context, and whether it still works. Every object of the
// device holds a reference to it, so it is destroyed last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/opencl/device_facts.h"
#include "engine/opencl/library.h"

namespace telegrad::opencl {

// Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // `name` and `generation` for messages, "OPENCL:0".
  static absl::StatusOr<std::shared_ptr<Context>> Open(std::shared_ptr<const Library> library,
                                                       const PlatformDevice& device,
                                                       std::string name, uint64_t generation,
                                                       absl::Duration hang_limit);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::string& name() const { return name_; }
  // "OPENCL:0 (generation 1)"
  std::string title() const;
  const Library& library() const { return *library_; }
  const Symbols& api() const { return library_->api(); }
  cl_device_id device() const { return device_; }
  cl_context handle() const { return handle_; }

  // As opencl::Check, with the device's name in front. That the device is not available any more is
  // its end, see Fail.
  absl::Status Check(std::string_view call, cl_int error);

  // The device takes no more work, because of `why`; the first reason stays. All wakers are called.
  void Fail(const absl::Status& why);
  // The same, and it may still be at work on something that never ends, so nothing of it can be
  // waited for or freed until `has_ended`, which may be asked on any thread.
  void FailStuck(const absl::Status& why, std::function<bool()> has_ended);
  // OK, or UNAVAILABLE with the reason.
  absl::Status health() const;
  bool stuck() const;
  void AddWaker(std::function<void()> waker);
  // Holds something that a stuck device may still read or write, until it is discarded.
  void Keep(std::shared_ptr<const void> kept);

  // Of a lost device. Whether it has ended all it was stuck at.
  bool HasCalmed();
  // Nothing of it is used any more, and what was kept goes. Once.
  void Discard();
  bool discarded() const;

  absl::Duration hang_limit() const { return hang_limit_; }

 private:
  Context(std::shared_ptr<const Library> library, cl_device_id device, cl_context handle,
          std::string name, uint64_t generation, absl::Duration hang_limit)
      : library_(std::move(library)),
        device_(device),
        handle_(handle),
        name_(std::move(name)),
        generation_(generation),
        hang_limit_(hang_limit) {}

  const std::shared_ptr<const Library> library_;
  const cl_device_id device_;
  const cl_context handle_;
  const std::string name_;
  const uint64_t generation_;
  const absl::Duration hang_limit_;

  mutable Mutex mutex_;
  absl::Status failure_ TG_GUARDED_BY(mutex_);
  // Each tells whether it has ended; of a device that is stuck.
  std::vector<std::function<bool()>> stuck_at_ TG_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> wakers_ TG_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_ TG_GUARDED_BY(mutex_);
  bool discarded_ TG_GUARDED_BY(mutex_) = false;
};

#define TG_CL_IN(context, name, ...) (context).Check(#name, (context).api().name(__VA_ARGS__))

// A command queue of the driver, in order. Not thread-safe.
class CommandQueue {
 public:
  static absl::StatusOr<std::unique_ptr<CommandQueue>> Create(std::shared_ptr<Context> context);
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  cl_command_queue handle() const { return handle_; }

  // Blocks until all that was put on the queue has ended. UNAVAILABLE, with which the device is
  // lost, if a command of it failed or nothing ended for the hang limit; another error if the
  // driver refuses to tell of the end.
  absl::Status Await();

 private:
  struct Ending;
  static void Tell(cl_event event, cl_int status, void* data);
  absl::Status Notify(const std::shared_ptr<Ending>& ending);
  absl::Status Drain(const absl::Status& why);
  static bool HasEnded(Ending& ending);

  CommandQueue(std::shared_ptr<Context> context, cl_command_queue handle)
      : context_(std::move(context)), handle_(handle) {}

  const std::shared_ptr<Context> context_;
  const cl_command_queue handle_;
};

}  // namespace telegrad::opencl
