// The device is a generation that can be replaced. Everybody who uses the one at hand holds a lock
// for reading; whoever replaces it first has all its calls fail, so that they let go.
#include "devices/nv/nv_device.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "devices/nv/generation.h"
#include "devices/stream/bell.h"
#include "devices/stream/memory.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

constexpr absl::Duration kLongestPause = absl::Minutes(1);

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

class GenerationsDevice final : public NvDevice {
 public:
  GenerationsDevice(int gpu, std::string name, NvOptions options, std::shared_ptr<Generation> first)
      : gpu_(gpu),
        name_(std::move(name)),
        options_(std::move(options)),
        target_(first->device().target()),
        rates_(first->device().rates()),
        memory_limit_(first->device().memory_limit()),
        now_(std::move(first)) {
    now_->device().context().AddBell(bell_);
    supervisor_ = std::thread([this] { Supervise(); });  // which may replace it
  }

  ~GenerationsDevice() override {
    stop_ = true;
    bell_->Ring();
    supervisor_.join();
  }

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

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    return now->device().Alloc(size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    auto program = std::make_shared<Program>(this, image);
    TG_RETURN_IF_ERROR(program->In(*now).status());
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    const SharedLock lock(mutex_);
    TG_ASSIGN_OR_RETURN(Generation * now, NowLocked());
    auto out = std::make_shared<Commands>(this, std::move(commands));
    TG_RETURN_IF_ERROR(out->Prepare(*now));
    return out;
  }
  Queue& queue(QueueKind kind) override { return kind == QueueKind::kCopy ? copy_ : compute_; }
  absl::Status Health() const override {
    const SharedLock lock(mutex_);
    return now_ == nullptr ? why_ : now_->device().Health();
  }

  absl::Status Recover() override {
    const MutexLock one(recovering_);
    if (Health().ok()) return FailedPrecondition(name_, " is healthy");
    uint64_t number;
    {
      // So that whoever waits for it with the lock held goes on.
      const SharedLock lock(mutex_);
      if (now_ != nullptr) now_->driver().gpu().Lose(now_->device().Health());
    }
    const ExclusiveLock lock(mutex_);
    if (now_ != nullptr) {
      why_ = now_->device().Health();
      now_->Close();
      now_ = nullptr;
    }
    number = ++number_;
    auto next = Generation::Open(number, gpu_, name_, options_);
    if (!next.ok()) {
      return absl::UnavailableError(
          StrCat(name_, " could not be brought back: ", ToStd(next.status().message())));
    }
    now_ = *std::move(next);
    now_->device().context().AddBell(bell_);
    return absl::OkStatus();
  }
  uint64_t generation() const override {
    const SharedLock lock(mutex_);
    return number_;
  }

 private:
  friend class GenerationsQueue;

  absl::StatusOr<Generation*> NowLocked() const TG_REQUIRES_SHARED(mutex_) {
    if (now_ == nullptr) return why_;
    return now_.get();
  }

  void Supervise() {
    absl::Duration pause = options_.recover_after;
    while (!stop_) {
      if (options_.recover_after == absl::InfiniteDuration() || Health().ok()) {
        bell_->Await();
        pause = options_.recover_after;
        continue;
      }
      // Rings end the pause early where the device is closed; another one does no harm.
      bell_->Await(absl::ToChronoNanoseconds(pause));
      pause = std::min(2 * pause, kLongestPause);
      if (!stop_) Recover().IgnoreError();
    }
  }

  const int gpu_;
  const std::string name_;
  const NvOptions options_;
  const Target target_;
  const Rates rates_;
  const int64_t memory_limit_;
  GenerationsQueue compute_{*this, QueueKind::kCompute}, copy_{*this, QueueKind::kCopy};
  const std::shared_ptr<stream::Bell> bell_ = std::make_shared<stream::Bell>();
  std::atomic<bool> stop_{false};

  Mutex recovering_;  // before mutex_
  mutable SharedMutex mutex_;
  // Null: it is lost, and why_ says why.
  std::shared_ptr<Generation> now_ TG_GUARDED_BY(mutex_);
  absl::Status why_ TG_GUARDED_BY(mutex_);
  uint64_t number_ TG_GUARDED_BY(mutex_) = 1;
  std::thread supervisor_;
};

TimelinePoint GenerationsQueue::last() const {
  const SharedLock lock(device_.mutex_);
  return device_.now_ == nullptr ? TimelinePoint{} : device_.now_->device().queue(kind_).last();
}

absl::StatusOr<TimelinePoint> GenerationsQueue::Enqueue(QueueWork work,
                                                        std::span<const TimelinePoint> waits) {
  const auto* const own = dynamic_cast<const Commands*>(work.commands.get());
  if (own == nullptr || own->device() != &device_) {
    return InvalidArgument("the commands were not encoded for ", device_.name());
  }
  const SharedLock lock(device_.mutex_);
  TG_ASSIGN_OR_RETURN(Generation * now, device_.NowLocked());
  for (const BufferView& view : work.bindings) {
    const auto* memory = dynamic_cast<const stream::StreamMemory*>(view.memory.get());
    if (memory == nullptr) continue;
    const stream::Context& context = memory->owner().context();
    if (&context != &now->context() && context.name() == device_.name()) {
      return absl::UnavailableError(
          StrCat("memory of ", device_.name(), " was lost: ", ToStd(context.health().message())));
    }
  }
  TG_ASSIGN_OR_RETURN(work.commands, own->In(*now));
  return now->device().queue(kind_).Submit(std::move(work), waits);
}

}  // namespace
}  // namespace telegrad::nv

namespace telegrad {

std::vector<std::unique_ptr<NvDevice>> OpenNvs(const NvOptions& options,
                                               std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<NvDevice>> out;
  const auto note = [&](const std::string& text) {
    if (notes != nullptr) notes->push_back(text);
  };
  if (options.devices == 0) return out;
  if (!options.assembler.ok()) {
    note(StrCat("NV: no assembler for its code: ", ToStd(options.assembler.status().message()),
                " (--ptxas)"));
    return out;
  }
  for (int i = 0; i < options.devices; ++i) {
    const std::string name = StrCat("NV:", i);
    auto first = nv::Generation::Open(1, i, name, options);
    if (!first.ok()) {
      note(StrCat(name, " is left out: ", ToStd(first.status().message())));
      continue;
    }
    out.push_back(std::make_unique<nv::GenerationsDevice>(i, name, options, *std::move(first)));
  }
  return out;
}

}  // namespace telegrad
