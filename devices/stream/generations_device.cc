// Everybody who uses the generation at hand holds a lock for reading. Whoever replaces it takes it
// away under the lock and closes it without, for that may wait for the GPU.
#include "devices/stream/generations_device.h"

#include <utility>

#include "devices/stream/generation.h"
#include "devices/stream/memory.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

class GenerationsDevice;

class GenerationsQueue final : public Queue {
 public:
  GenerationsQueue(GenerationsDevice& device, QueueKind kind) : device_(device), kind_(kind) {}
  TimelinePoint last() const override;

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override;

  GenerationsDevice& device_;
  const QueueKind kind_;
};

class GenerationsDevice final : public Device {
 public:
  using Opener = std::function<absl::StatusOr<std::unique_ptr<StreamDevice>>(uint64_t number)>;

  GenerationsDevice(std::unique_ptr<StreamDevice> first, Opener open)
      : open_(std::move(open)),
        name_(first->name()),
        target_(first->target()),
        rates_(first->rates()),
        memory_limit_(first->memory_limit()),
        driver_(&first->context().driver()),
        now_(std::make_shared<Generation>(1, std::move(first))) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return target_; }
  int64_t memory_limit() const override { return memory_limit_; }
  int64_t memory_used() const override {
    const SharedLock lock(mutex_);
    return now_ == nullptr ? 0 : now_->device().memory_used();
  }
  Rates rates() const override { return rates_; }
  int64_t memory_footprint() const override {
    const SharedLock lock(mutex_);
    return now_ == nullptr ? 0 : now_->device().memory_footprint();
  }
  bool host_visible() const override { return false; }
  // Of the GPUs of other drivers it reaches none. (A driver of one device is another with each
  // generation; the first is as good to tell them apart.)
  bool Reaches(const Device& other) const override {
    if (&other == this || other.host_visible()) return true;
    const auto* gpu = dynamic_cast<const GenerationsDevice*>(&other);
    return gpu != nullptr && gpu->driver_ == driver_;
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    return now->device().Alloc(size);
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportHandle(std::string_view handle,
                                                       int64_t size) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    return now->device().ImportHandle(handle, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    auto program = std::make_shared<GenerationsProgram>(this, image);
    TG_RETURN_IF_ERROR(program->In(*now).status());
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    auto out = std::make_shared<GenerationsCommands>(this, std::move(commands));
    TG_RETURN_IF_ERROR(out->Prepare(*now));
    return out;
  }
  Queue& queue(QueueKind kind) override { return kind == QueueKind::kCopy ? copy_ : compute_; }
  absl::Status Health() const override {
    const SharedLock lock(mutex_);
    return now_ == nullptr ? why_ : now_->device().Health();
  }

  uint64_t generation() const override {
    const SharedLock lock(mutex_);
    return number_;
  }

  absl::Status Recover() override {
    const MutexLock one(recovering_);
    if (Health().ok()) return FailedPrecondition(name_, " is healthy");
    {
      // So that whoever waits for it with the lock held goes on.
      const SharedLock lock(mutex_);
      if (now_ != nullptr) now_->context().driver().Lose(now_->device().Health());
    }
    std::shared_ptr<Generation> old;
    {
      const ExclusiveLock lock(mutex_);
      if (now_ != nullptr) why_ = now_->device().Health();
      old = std::move(now_);
      now_ = nullptr;
    }
    if (old != nullptr) closed_ = old->Close();
    TG_RETURN_IF_ERROR(closed_);
    auto next = open_(generation() + 1);
    if (!next.ok()) {
      return absl::UnavailableError(
          StrCat(name_, " could not be brought back: ", ToStd(next.status().message())));
    }
    const ExclusiveLock lock(mutex_);
    ++number_;
    now_ = std::make_shared<Generation>(number_, *std::move(next));
    return absl::OkStatus();
  }

 private:
  friend class GenerationsQueue;

  absl::StatusOr<Generation*> NowLocked() const TG_REQUIRES_SHARED(mutex_) {
    if (now_ == nullptr) return why_;
    return now_.get();
  }

  const Opener open_;
  const std::string name_;
  const Target target_;
  const Rates rates_;
  const int64_t memory_limit_;
  const Driver* const driver_;  // of the first generation
  GenerationsQueue compute_{*this, QueueKind::kCompute}, copy_{*this, QueueKind::kCopy};

  Mutex recovering_;                                // before mutex_
  absl::Status closed_ TG_GUARDED_BY(recovering_);  // how the last generation ended
  mutable SharedMutex mutex_;
  // Null: it is lost, and why_ says why.
  std::shared_ptr<Generation> now_ TG_GUARDED_BY(mutex_);
  absl::Status why_ TG_GUARDED_BY(mutex_);
  uint64_t number_ TG_GUARDED_BY(mutex_) = 1;
};

TimelinePoint GenerationsQueue::last() const {
  const SharedLock lock(device_.mutex_);
  return device_.now_ == nullptr ? TimelinePoint{} : device_.now_->device().queue(kind_).last();
}

absl::StatusOr<TimelinePoint> GenerationsQueue::Enqueue(QueueWork work,
                                                        std::span<const TimelinePoint> waits) {
  const auto* const own = dynamic_cast<const GenerationsCommands*>(work.commands.get());
  if (own == nullptr || own->device() != &device_) {
    return InvalidArgument("the commands were not encoded for ", device_.name());
  }
  const SharedLock lock(device_.mutex_);
  TG_ASSIGN_OR_RETURN(Generation * now, device_.NowLocked());
  for (const BufferView& view : work.bindings) {
    const auto* memory = dynamic_cast<const StreamMemory*>(view.memory.get());
    if (memory == nullptr) continue;
    const Context& context = memory->owner().context();
    if (!context.discarded()) continue;
    return absl::UnavailableError(StrCat("memory of ", context.name(), " is of generation ",
                                         context.generation(),
                                         ", which was lost: ", ToStd(context.health().message())));
  }
  TG_ASSIGN_OR_RETURN(work.commands, own->In(*now));
  return now->device().queue(kind_).Submit(std::move(work), waits);
}

}  // namespace

std::unique_ptr<Device> MakeGenerationsDevice(
    std::unique_ptr<StreamDevice> first,
    std::function<absl::StatusOr<std::unique_ptr<StreamDevice>>(uint64_t number)> open) {
  return std::make_unique<GenerationsDevice>(std::move(first), std::move(open));
}

}  // namespace telegrad::stream
