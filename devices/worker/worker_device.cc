// One pair of queues for all tenants of a device, in front of their workers: so the pool's fair
// queue is in front of all of them too, and one worker computes at a time. Copies that only read
// and write memory of the daemon are done on its own threads.
#include "devices/worker/worker_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/host_queue.h"
#include "devices/cpu/rates.h"
#include "devices/worker/supervisor.h"
#include "devices/worker/worker_commands.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

class RingRunner final : public QueueRunner {
 public:
  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override {
    const auto* list = dynamic_cast<const WorkerCommands*>(commands);
    if (list == nullptr) return InvalidArgument("the commands were not encoded for a worker");
    return list->Check(bindings);
  }
  bool IsQuick(const CommandBuffer& commands, std::span<const uint64_t> scalars) const override {
    return static_cast<const WorkerCommands&>(commands).quick(scalars);
  }
  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   const RunControl& control) override {
    return static_cast<const WorkerCommands&>(commands).Run(bindings, control);
  }
};

// What is the same for a device and all its tenants.
class Core {
 public:
  Core(const WorkerDeviceOptions& options, std::unique_ptr<Supervisor> supervisor)
      : options(options),
        name(StrCat("CPU:", options.cpu.index)),
        supervisor_(std::move(supervisor)),
        // Alone on its core, a thread that spins keeps away the one it waits for.
        compute({.name = StrCat(name, " compute"),
                 .capacity = options.cpu.queue_capacity,
                 .wait_limit = options.cpu.wait_limit,
                 .spins = AvailableProcessors() > 1},
                std::make_unique<RingRunner>()),
        copy({.name = StrCat(name, " copy"),
              .takes = kCopiesOnly,
              .capacity = options.cpu.queue_capacity,
              .wait_limit = options.cpu.wait_limit},
             std::make_unique<RingRunner>()) {}

  // For a tenant; "": for all.
  absl::StatusOr<std::shared_ptr<WorkerSlot>> NewSlot(std::string_view tenant) {
    const int64_t limit = options.cpu.memory_limit;
    const int64_t capacity = Arena::CapacityFor(limit);
    if (capacity < 0) return InvalidArgument("a memory limit of ", limit, " bytes");
    TG_ASSIGN_OR_RETURN(UniqueFd file, CreateSharedFile("telegrad-memory", capacity));
    TG_ASSIGN_OR_RETURN(auto arena, Arena::CreateIn(std::move(file), limit));
    DeviceWorker::Options worker{.executable = options.executable,
                                 .whose = StrCat(name, "'s worker"),
                                 .memory = arena->descriptor(),
                                 .setup = {.threads = options.cpu.threads,
                                           .launch_limit_ns = LaunchLimit(),
                                           .memory_bytes = capacity},
                                 .hang_limit = options.hang_limit,
                                 .short_life = options.short_life};
    if (!tenant.empty()) StrAppend(&worker.whose, " of tenant ", tenant);
    auto slot = std::make_shared<WorkerSlot>(worker, std::move(arena),
                                             [wake = supervisor_.get()] { wake->Wake(); });
    supervisor_->Add(slot);
    const MutexLock lock(mutex_);
    std::erase_if(slots_, [](const auto& known) { return known.expired(); });
    slots_.push_back(slot);
    return slot;
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(WorkerSlot& slot, int64_t size) {
    if (size < 0) return InvalidArgument(name, ": an allocation of ", size, " bytes");
    int64_t before = used->load();
    do {
      if (size > options.cpu.memory_limit - before) {
        return ResourceExhausted(name, ": allocating ", size, " bytes with ", before,
                                 " in use would exceed the memory limit of ",
                                 options.cpu.memory_limit, " bytes");
      }
    } while (!used->compare_exchange_weak(before, before + size));
    if (options.by_tenant && footprint() > options.cpu.memory_limit - size) GiveBack();
    absl::StatusOr<void*> at = slot.arena().Alloc(size);
    if (!at.ok()) {
      used->fetch_sub(size);
      return ResourceExhausted(name, ": ", ToStd(at.status().message()));
    }
    return std::make_shared<WorkerMemory>(slot.shared_arena(), used, *at, size);
  }

  int64_t footprint() const {
    int64_t sum = 0;
    for (const auto& slot : Slots()) sum += slot->arena().footprint();
    return sum;
  }

  const WorkerDeviceOptions options;
  const std::string name;
  const std::shared_ptr<std::atomic<int64_t>> used = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<uint64_t> programs{0};  // so far

 private:
  std::unique_ptr<Supervisor> supervisor_;

 public:
  HostQueue compute, copy;  // their threads stop before the workers do
  const std::array<Queue*, 2> queues = {&compute, &copy};

 private:
  int64_t LaunchLimit() const {
    const absl::Duration limit = options.cpu.launch_limit;
    return limit == absl::InfiniteDuration() ? 0 : absl::ToInt64Nanoseconds(limit);
  }
  std::vector<std::shared_ptr<WorkerSlot>> Slots() const {
    std::vector<std::shared_ptr<WorkerSlot>> out;
    const MutexLock lock(mutex_);
    for (const auto& known : slots_) {
      if (auto slot = known.lock()) out.push_back(std::move(slot));
    }
    return out;
  }
  // What tenants have freed is kept for them until somebody else needs it.
  void GiveBack() {
    for (const auto& slot : Slots()) slot->arena().GiveBack();
  }

  mutable Mutex mutex_;
  std::vector<std::weak_ptr<WorkerSlot>> slots_ TG_GUARDED_BY(mutex_);
};

class WorkerDevice final : public Device {
 public:
  WorkerDevice(std::shared_ptr<Core> core, std::shared_ptr<WorkerSlot> slot)
      : core_(std::move(core)), slot_(std::move(slot)) {}

  const std::string& name() const override { return core_->name; }
  const Target& target() const override { return core_->options.cpu.target; }
  int64_t memory_limit() const override { return core_->options.cpu.memory_limit; }
  int64_t memory_used() const override { return core_->used->load(); }
  Rates rates() const override {
    const int threads = core_->options.cpu.threads;
    return {ThreadRates().flops * threads, ThreadRates().bytes * threads, threads};
  }
  int64_t memory_footprint() const override { return core_->footprint(); }
  bool host_visible() const override { return true; }

  std::shared_ptr<Device> ForTenant(std::string_view tenant) override {
    if (!core_->options.by_tenant) return nullptr;
    auto slot = core_->NewSlot(tenant);
    // Without memory of its own a tenant has none: not that of others.
    return std::make_shared<WorkerDevice>(core_, slot.ok() ? *slot : nullptr);
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    if (slot_ == nullptr) return NoSlot();
    return core_->Alloc(*slot_, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    if (slot_ == nullptr) return NoSlot();
    auto program = std::make_shared<WorkerProgram>(core_.get(), ++core_->programs, image);
    TG_ASSIGN_OR_RETURN(const auto worker, slot_->AwaitReady());
    TG_RETURN_IF_ERROR(slot_->LoadInto(*worker, program));
    return program;
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    if (slot_ == nullptr) return NoSlot();
    TG_ASSIGN_OR_RETURN(auto encoded,
                        WorkerCommands::Encode(slot_, core_.get(), core_->options.cpu.threads,
                                               std::move(commands)));
    // Others may have loaded the programs, for other workers. Better now than when it is its turn
    // on the queue.
    if (encoded->needs().compute) {
      TG_ASSIGN_OR_RETURN(const auto worker, slot_->AwaitReady());
      TG_RETURN_IF_ERROR(encoded->LoadInto(*worker));
    }
    return encoded;
  }
  std::span<Queue* const> queues() override { return core_->queues; }
  absl::Status Health() const override { return slot_ == nullptr ? NoSlot() : slot_->Health(); }
  // A worker that has ended is replaced without this, too, if later; its memory is the daemon's.
  uint64_t generation() const override { return slot_ == nullptr ? 1 : slot_->generation(); }
  uint64_t memory_generation() const override { return 1; }
  absl::Status Recover() override { return slot_ == nullptr ? NoSlot() : slot_->Recover(); }

 private:
  absl::Status NoSlot() const {
    return ResourceExhausted(name(), ": the system has no addresses for a worker's memory");
  }

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<WorkerSlot> slot_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenWorkerDevice(const WorkerDeviceOptions& given) {
  WorkerDeviceOptions options = given;
  Complete(&options.cpu);
  if (options.executable.empty()) {
    TG_ASSIGN_OR_RETURN(options.executable,
                        FindBeside("telegrad-device-worker", "the device worker"));
  }
  TG_ASSIGN_OR_RETURN(auto supervisor, Supervisor::Start(options.on_event));
  const auto core = std::make_shared<Core>(options, std::move(supervisor));
  TG_ASSIGN_OR_RETURN(auto slot, core->NewSlot(""));
  // One that does not start is better known now.
  if (!options.by_tenant) {
    const absl::Status ready = slot->AwaitReady().status();
    const absl::Status why = slot->StartError();
    if (!ready.ok()) return why.ok() ? ready : why;
  }
  return std::make_unique<WorkerDevice>(core, std::move(slot));
}

}  // namespace telegrad
