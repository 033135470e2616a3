// Everybody who uses the generation at hand holds a lock for reading. Whoever replaces it takes it
// away under the lock and closes it without, for that may wait for the hardware. Programs and
// commands are kept in the form in which they came.
#include "devices/api/generations_device.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/locks_host_memory.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// A generation and its number.
struct Opened {
  uint64_t number = 0;
  std::unique_ptr<Generation> generation;

  Device& device() const { return generation->device(); }
};

// Thread-safe.
class KeptProgram final : public LoadedProgram {
 public:
  KeptProgram(const void* device, ProgramImage image)
      : LoadedProgram(image.signature), device_(device), image_(std::move(image)) {}
  const void* device() const { return device_; }

  absl::StatusOr<std::shared_ptr<LoadedProgram>> In(const Opened& now) {
    const MutexLock lock(mutex_);
    if (number_ != now.number) {
      TG_ASSIGN_OR_RETURN(loaded_, now.device().Load(image_));
      number_ = now.number;
    }
    return loaded_;
  }

 private:
  const void* const device_;
  const ProgramImage image_;
  Mutex mutex_;
  uint64_t number_ TG_GUARDED_BY(mutex_) = 0;  // the generation that it is loaded in
  std::shared_ptr<LoadedProgram> loaded_ TG_GUARDED_BY(mutex_);
};

// Thread-safe.
class KeptCommands final : public CommandBuffer {
 public:
  KeptCommands(const void* device, std::vector<Command> commands)
      : device_(device), commands_(std::move(commands)) {}
  const void* device() const { return device_; }

  absl::StatusOr<std::shared_ptr<const CommandBuffer>> In(const Opened& now) const {
    const MutexLock lock(mutex_);
    if (number_ == now.number) return encoded_;
    std::vector<Command> commands = commands_;
    for (size_t i = 0; i < commands.size(); ++i) {
      std::shared_ptr<LoadedProgram>& given = commands[i].launch.program;
      if (commands[i].kind != CommandKind::kLaunch || given == nullptr) continue;
      auto* const program = dynamic_cast<KeptProgram*>(given.get());
      if (program == nullptr || program->device() != device_) {
        return InvalidArgument("command ", i, ": the program was not loaded on ",
                               now.device().name());
      }
      TG_ASSIGN_OR_RETURN(given, program->In(now));
    }
    TG_ASSIGN_OR_RETURN(encoded_, now.device().Encode(std::move(commands)));
    number_ = now.number;
    return encoded_;
  }

  // First of all: In, and what the commands say of themselves.
  absl::Status Prepare(const Opened& now) {
    TG_ASSIGN_OR_RETURN(const auto encoded, In(now));
    scalars_ = encoded->scalars();
    needs_ = encoded->needs();
    return absl::OkStatus();
  }

 private:
  const void* const device_;
  const std::vector<Command> commands_;
  mutable Mutex mutex_;
  mutable uint64_t number_ TG_GUARDED_BY(mutex_) = 0;
  mutable std::shared_ptr<const CommandBuffer> encoded_ TG_GUARDED_BY(mutex_);
};

class GenerationsDevice;

class GenerationsQueue final : public Queue {
 public:
  // As number `index` of the device's queues is in each generation.
  GenerationsQueue(GenerationsDevice& device, size_t index, const Queue& first)
      : Queue(first.name(), first.takes()), device_(device), index_(index) {}
  TimelinePoint last() const override;

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override;

  GenerationsDevice& device_;
  const size_t index_;
};

class GenerationsDevice final : public Device, public LocksHostMemory {
 public:
  GenerationsDevice(std::unique_ptr<Generation> first, GenerationOpener open,
                    std::shared_ptr<Sensors> sensors, uint64_t number)
      : open_(std::move(open)),
        sensors_(std::move(sensors)),
        name_(first->device().name()),
        target_(first->device().target()),
        rates_(first->device().rates()),
        memory_limit_(first->device().memory_limit()),
        peers_(first->peers()),
        kinds_(KindsOf(first->device())),
        now_{number, std::move(first)} {
    for (const Queue* const queue : now_.device().queues()) {
      owned_.push_back(std::make_unique<GenerationsQueue>(*this, queues_.size(), *queue));
      queues_.push_back(owned_.back().get());
    }
  }

  const std::string& name() const override { return name_; }
  const Target& target() const override { return target_; }
  int64_t memory_limit() const override { return memory_limit_; }
  int64_t memory_used() const override {
    const SharedLock lock(mutex_);
    return now_.generation == nullptr ? 0 : now_.device().memory_used();
  }
  Rates rates() const override { return rates_; }
  int64_t memory_footprint() const override {
    const SharedLock lock(mutex_);
    return now_.generation == nullptr ? 0 : now_.device().memory_footprint();
  }
  std::shared_ptr<Sensors> sensors() override { return sensors_; }
  std::shared_ptr<IdleMemory> idle_memory() override {
    const SharedLock lock(mutex_);
    return now_.generation == nullptr ? nullptr : now_.device().idle_memory();
  }
  bool host_visible() const override { return false; }
  PeerAccess AccessTo(const Device& other) const override {
    const auto* peer = dynamic_cast<const GenerationsDevice*>(&other);
    return peer == nullptr || peer == this ? Device::AccessTo(other)
                                           : peers_.AccessTo(peer->peers_);
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    return now_.device().Alloc(size);
  }
  absl::StatusOr<std::shared_ptr<Memory>> AllocOf(MemoryKind kind, int64_t size) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    return now_.device().AllocOf(kind, size);
  }
  std::shared_ptr<Memory> LendPinned(int64_t size) override {
    const SharedLock lock(mutex_);
    return now_.generation == nullptr ? nullptr : now_.device().LendPinned(size);
  }
  absl::StatusOr<std::shared_ptr<Memory>> LockHost(std::shared_ptr<void> pages,
                                                   int64_t size) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    auto* const locks = dynamic_cast<LocksHostMemory*>(&now_.device());
    if (locks == nullptr) return Unimplemented(name_, " locks no memory of the host");
    return locks->LockHost(std::move(pages), size);
  }
  bool Makes(MemoryKind kind) const override { return kinds_[static_cast<size_t>(kind)]; }
  absl::StatusOr<std::string> ExportHandle(const Memory& memory) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    TG_RETURN_IF_ERROR(memory.Health());
    return now_.device().ExportHandle(memory);
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportHandle(std::string_view handle,
                                                       int64_t size) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    return now_.device().ImportHandle(handle, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    auto program = std::make_shared<KeptProgram>(this, image);
    TG_RETURN_IF_ERROR(program->In(now_).status());
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    const SharedLock lock(mutex_);
    TG_RETURN_IF_ERROR(NoneLocked());
    auto out = std::make_shared<KeptCommands>(this, std::move(commands));
    TG_RETURN_IF_ERROR(out->Prepare(now_));
    return out;
  }
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override {
    const SharedLock lock(mutex_);
    return now_.generation == nullptr ? why_ : now_.device().Health();
  }
  uint64_t generation() const override {
    const SharedLock lock(mutex_);
    return now_.number;
  }

  absl::Status Recover() override {
    const MutexLock one(recovering_);
    if (Health().ok()) return FailedPrecondition(name_, " is healthy");
    {
      // So that whoever waits for it with the lock held goes on.
      const SharedLock lock(mutex_);
      if (now_.generation != nullptr) now_.generation->Interrupt();
    }
    {
      const ExclusiveLock lock(mutex_);
      if (now_.generation != nullptr) {
        why_ = now_.device().Health();
        closing_ = std::move(now_.generation);
      }
    }
    if (closing_ != nullptr) TG_RETURN_IF_ERROR(closing_->Close());
    closing_ = nullptr;
    auto next = open_(generation() + 1);
    if (!next.ok()) {
      return absl::UnavailableError(
          StrCat(name_, " could not be brought back: ", ToStd(next.status().message())));
    }
    if (!HasSameQueues((*next)->device())) {
      TG_RETURN_IF_ERROR((*next)->Close());
      return absl::UnavailableError(StrCat(name_, " came back with other queues than it had"));
    }
    const ExclusiveLock lock(mutex_);
    now_ = {now_.number + 1, *std::move(next)};
    return absl::OkStatus();
  }

 private:
  friend class GenerationsQueue;

  static std::array<bool, 4> KindsOf(const Device& device) {
    using enum MemoryKind;
    return {device.Makes(kDevice), device.Makes(kPinnedHost), device.Makes(kExported),
            device.Makes(kImported)};
  }
  bool HasSameQueues(Device& device) const {
    return std::ranges::equal(device.queues(), queues_, {}, &Queue::takes, &Queue::takes);
  }
  // Why there is none at hand; OK: there is.
  absl::Status NoneLocked() const TG_REQUIRES_SHARED(mutex_) {
    return now_.generation == nullptr ? why_ : absl::OkStatus();
  }

  const GenerationOpener open_;
  const std::shared_ptr<Sensors> sensors_;
  const std::string name_;
  const Target target_;
  const Rates rates_;
  const int64_t memory_limit_;
  const PeerPlace peers_;
  const std::array<bool, 4> kinds_;
  std::vector<std::unique_ptr<GenerationsQueue>> owned_;
  std::vector<Queue*> queues_;  // these

  Mutex recovering_;                                                // before mutex_
  std::unique_ptr<Generation> closing_ TG_GUARDED_BY(recovering_);  // that is not closed yet
  mutable SharedMutex mutex_;
  // Without a generation, it is lost, and why_ says why.
  Opened now_ TG_GUARDED_BY(mutex_);
  absl::Status why_ TG_GUARDED_BY(mutex_);
};

TimelinePoint GenerationsQueue::last() const {
  const SharedLock lock(device_.mutex_);
  if (device_.now_.generation == nullptr) return {};
  return device_.now_.device().queues()[index_]->last();
}

absl::StatusOr<TimelinePoint> GenerationsQueue::Enqueue(QueueWork work,
                                                        std::span<const TimelinePoint> waits) {
  const auto* const own = dynamic_cast<const KeptCommands*>(work.commands.get());
  if (own == nullptr || own->device() != &device_) {
    return InvalidArgument("the commands were not encoded for ", device_.name());
  }
  const SharedLock lock(device_.mutex_);
  TG_RETURN_IF_ERROR(device_.NoneLocked());
  for (const BufferView& view : work.bindings) {
    if (view.memory != nullptr) TG_RETURN_IF_ERROR(view.memory->Health());
  }
  TG_ASSIGN_OR_RETURN(work.commands, own->In(device_.now_));
  return device_.now_.device().queues()[index_]->Submit(std::move(work), waits);
}

}  // namespace

std::unique_ptr<Device> MakeGenerationsDevice(std::unique_ptr<Generation> first,
                                              GenerationOpener open,
                                              std::shared_ptr<Sensors> sensors, uint64_t number) {
  return std::make_unique<GenerationsDevice>(std::move(first), std::move(open), std::move(sensors),
                                             number);
}

}  // namespace telegrad
