// What one tenant has of a device in processes (tenants_device.h): the process that hosts the
// driver for it, which is started when the tenant first uses the device, replaced when it is lost,
// and ended when nobody refers to the slot any more or the tenant has nothing there.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/hosted/hosted_opening.h"
#include "devices/hosted/worker_places.h"
#include "engine/base/mutex.h"

namespace telegrad {

class TenantSlot;

// What is left of a tenant's process that is not used any more.
struct TenantRemains {
  // The last first: the place is taken until the process has ended.
  std::unique_ptr<WorkerPlaces::Place> place;
  std::unique_ptr<Device> device;
  std::vector<std::shared_ptr<LoadedProgram>> programs;
  std::vector<std::shared_ptr<const CommandBuffer>> commands;
};

// Code that any tenant's process of a device may load. Immutable.
class TenantProgram final : public LoadedProgram {
 public:
  TenantProgram(const void* device, ProgramImage image)
      : LoadedProgram(image.signature), device_(device), image_(std::move(image)) {}
  const void* device() const { return device_; }  // whose tenants may
  const ProgramImage& image() const { return image_; }

 private:
  const void* const device_;
  const ProgramImage image_;
};

// Commands for one tenant's process, as they came: they are encoded again for its next one.
class TenantCommands final : public CommandBuffer {
 public:
  // INVALID_ARGUMENT names the command that is malformed or holds a program of another device. The
  // process is asked for them now, or, where they only copy, when they are prepared or submitted.
  static absl::StatusOr<std::shared_ptr<const TenantCommands>> Encode(
      std::shared_ptr<TenantSlot> slot, const void* device, std::vector<Command> commands);
  TenantCommands(std::shared_ptr<TenantSlot> slot, const void* device,
                 std::vector<Command> commands)
      : slot_(std::move(slot)), device_(device), commands_(std::move(commands)) {}
  ~TenantCommands() override;

  TenantSlot& slot() const { return *slot_; }
  const void* device() const { return device_; }
  const std::vector<Command>& commands() const { return commands_; }

 private:
  const std::shared_ptr<TenantSlot> slot_;
  const void* const device_;
  const std::vector<Command> commands_;
};

// The memory that a tenant has in one generation of its process, which is taken from what all
// tenants of the device use, also when the process is lost and with it the memory. Thread-safe.
class TenantBytes {
 public:
  // `used` is the device's; what is added here counts there already.
  TenantBytes(std::shared_ptr<std::atomic<int64_t>> used, uint64_t generation)
      : generation_(generation), used_(std::move(used)) {}
  uint64_t generation() const { return generation_; }
  void Add(int64_t size);
  void Return(int64_t size);
  void Lose();
  bool none() const;

 private:
  const uint64_t generation_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
  mutable Mutex mutex_;
  int64_t bytes_ TG_GUARDED_BY(mutex_) = 0, count_ TG_GUARDED_BY(mutex_) = 0;
  bool lost_ TG_GUARDED_BY(mutex_) = false;
};

// Thread-safe. Not destroyed by a thread of its process: see TenantKeeper.
class TenantSlot {
 public:
  struct Options {
    std::shared_ptr<HostedOpening> opening;
    std::vector<QueueCapability> queues = {};    // of the device
    std::shared_ptr<std::atomic<int64_t>> used;  // bytes, of all its tenants
    int64_t memory_limit = INT64_MAX;            // no process is believed to hold more
    std::function<void()> wake = {};             // see TenantKeeper::Waker
    // A place for a process, see WorkerPlaces::Take; empty: it needs none.
    std::function<absl::StatusOr<std::unique_ptr<WorkerPlaces::Place>>(const TenantSlot&)> take =
        {};
    std::shared_ptr<const void> keeps;  // goes after this
  };
  explicit TenantSlot(Options options) : options_(std::move(options)) {}
  ~TenantSlot();

  // The device in the tenant's process, which stays open for as long as this is there.
  class Use {
   public:
    Use(TenantSlot* slot, Device* device) : slot_(slot), device_(device) {}
    Use(Use&& other) noexcept
        : slot_(std::exchange(other.slot_, nullptr)), device_(other.device_) {}
    Use& operator=(Use&&) = delete;
    ~Use();
    Device* operator->() const { return device_; }
    Device& operator*() const { return *device_; }

   private:
    TenantSlot* slot_;
    Device* const device_;
  };
  // Starts the process if there is none. UNAVAILABLE where none can be started, with nothing that
  // is for the operator only; then it is tried again after a pause. The error of
  // WorkerPlaces::Take. CANCELLED once it is closed.
  absl::StatusOr<Use> Open();
  // Nothing while there is none.
  std::optional<Use> AtHand();

  // OK while there is none, unless none could be started a moment ago.
  absl::Status Health() const;
  uint64_t generation() const;
  absl::Status Recover();
  std::shared_ptr<Sensors> sensors() const { return options_.opening->sensors(); }
  int64_t footprint();

  // Memory of its process, whose `size` bytes count as used already, and no more if this fails.
  static absl::StatusOr<std::shared_ptr<Memory>> Alloc(const std::shared_ptr<TenantSlot>& slot,
                                                       int64_t size);
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(
      Device& device, const std::shared_ptr<const TenantProgram>& program);
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(Device& device,
                                                              const TenantCommands& commands);
  // See PreparingQueue. One thread of the slot prepares, in the order of the calls.
  TimelinePoint Prepare(std::shared_ptr<const TenantCommands> commands);
  void Forget(const TenantCommands& commands);

  // As IdleMemory has it. Where the tenant has no memory there, and has not used the device since
  // the call before, it ends the process, and so is not called by a thread of that.
  absl::StatusOr<int64_t> GiveBack();
  // As IdleMemoryAtOnce has it.
  absl::StatusOr<int64_t> GiveBackAll();

  // The process and what is loaded in it, to be destroyed by a thread that is not the process's.
  // Null where there is none, or where the tenant has memory there or uses it at this moment. Its
  // place is free when that is done.
  std::unique_ptr<TenantRemains> EndIfIdle();
  // When the tenant used it last: SteadyNs.
  int64_t last_use_ns() const;

  // Ends all that was submitted and the process, for good: the device is closed, and nobody begins
  // to use it. Waits for the keeper, which may be bringing it back.
  void Close();

  // By the keeper's thread. Where it is lost, begins to bring it back, on a thread, for that takes
  // as long as a driver does, and others may need the keeper; `wake` is called at the end. When it
  // is to look again, unless it is woken: SteadyNs.
  int64_t Look(const std::function<void()>& wake);

 private:
  absl::StatusOr<std::unique_ptr<Device>> Start(uint64_t generation) const;
  // The bytes that it held; nothing where it is in use.
  std::optional<int64_t> End();
  bool IsIdle() const TG_REQUIRES(mutex_);
  std::unique_ptr<TenantRemains> TakeRemains() TG_REQUIRES(mutex_);
  std::shared_ptr<TenantBytes> BytesIn(Device& device);
  // What a process says, within what is possible.
  int64_t Possible(int64_t bytes) const;
  void PutOff() TG_REQUIRES(mutex_);
  bool HasEncoded(const TenantCommands& commands) const TG_REQUIRES(mutex_);
  void PrepareAll();
  void BringBack();

  const Options options_;
  std::thread recovery_;  // of the keeper's thread
  Mutex starting_;        // before mutex_
  mutable Mutex mutex_;
  std::unique_ptr<Device> device_ TG_GUARDED_BY(mutex_);  // null: there is no process
  int users_ TG_GUARDED_BY(mutex_) = 0;
  ConditionVariable unused_;
  std::unique_ptr<WorkerPlaces::Place> place_ TG_GUARDED_BY(mutex_);
  int64_t last_use_ns_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ TG_GUARDED_BY(mutex_) = 0, uses_seen_ TG_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ TG_GUARDED_BY(mutex_) = 0;  // of the last device
  std::shared_ptr<TenantBytes> bytes_ TG_GUARDED_BY(mutex_);
  // In the device at hand.
  struct Loaded {
    std::weak_ptr<const TenantProgram> of;
    std::shared_ptr<LoadedProgram> program;
  };
  std::unordered_map<const TenantProgram*, Loaded> programs_ TG_GUARDED_BY(mutex_);
  size_t sweep_at_ TG_GUARDED_BY(mutex_) = 64;
  struct Encoded {
    std::shared_ptr<const CommandBuffer> commands;
    uint64_t generation = 0;  // for which it is known to be encoded
  };
  std::unordered_map<const TenantCommands*, Encoded> encoded_ TG_GUARDED_BY(mutex_);
  struct Preparation {
    std::shared_ptr<const TenantCommands> commands;
    std::shared_ptr<Timeline> ended = std::make_shared<Timeline>();  // at 1
  };
  std::deque<Preparation> preparations_ TG_GUARDED_BY(mutex_);
  ConditionVariable wanted_;  // one of these, or an end
  std::thread preparer_;      // null: nothing had to be prepared
  bool closed_ TG_GUARDED_BY(mutex_) = false, recovering_ TG_GUARDED_BY(mutex_) = false;
  absl::Status why_ TG_GUARDED_BY(mutex_);  // none could be started
  int64_t pause_ns_ TG_GUARDED_BY(mutex_) = 0, next_try_ns_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
