// Joins arena, loader, worker pool and host queues to a Device. The default of its memory is
// half of what the machine or the control group has.
#include "devices/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "devices/api/host_queue.h"
#include "devices/cpu/arena.h"
#include "devices/cpu/command_buffer.h"
#include "devices/cpu/exported_memory.h"
#include "devices/cpu/loader.h"
#include "devices/cpu/rates.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

class CpuMemory : public Memory {
 public:
  CpuMemory(std::shared_ptr<Arena> arena, void* at, int64_t size, MemoryKind kind)
      : Memory(at, size, /*writable=*/true, kind), arena_(std::move(arena)) {}
  ~CpuMemory() override { arena_->Free(host(), size()); }

 private:
  std::shared_ptr<Arena> arena_;
};

class CpuRunner : public QueueRunner {
 public:
  CpuRunner(int threads, absl::Duration launch_limit)
      : pool_(threads), watch_(&pool_, launch_limit) {}

  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override {
    const auto* encoded = dynamic_cast<const CpuCommandBuffer*>(commands);
    if (encoded == nullptr) return InvalidArgument("the commands were not encoded for a CPU");
    return encoded->Check(bindings);
  }

  bool IsQuick(const CommandBuffer& commands, std::span<const uint64_t> scalars) const override {
    return static_cast<const CpuCommandBuffer&>(commands).quick(scalars);
  }

  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   const RunControl& control) override {
    return static_cast<const CpuCommandBuffer&>(commands).Run(bindings, pool_, watch_, &scratch_,
                                                              control);
  }

 private:
  WorkerPool pool_;
  LaunchWatch watch_;
  CpuCommandBuffer::Scratch scratch_;  // of the thread that runs
};

class CpuDevice : public Device {
 public:
  CpuDevice(const CpuOptions& options, std::shared_ptr<Arena> arena, std::unique_ptr<Loader> loader)
      : name_(StrCat("CPU:", options.index)),
        target_(options.target),
        arena_(std::move(arena)),
        loader_(std::move(loader)),
        threads_(options.threads),
        // Alone on its core, a thread that spins keeps away the one it waits for.
        compute_({.name = StrCat(name_, " compute"),
                  .capacity = options.queue_capacity,
                  .wait_limit = options.wait_limit,
                  .spins = AvailableProcessors() > 1},
                 std::make_unique<CpuRunner>(options.threads, options.launch_limit)),
        copy_({.name = StrCat(name_, " copy"),
               .takes = kCopiesOnly,
               .capacity = options.queue_capacity,
               .wait_limit = options.wait_limit},
              std::make_unique<CpuRunner>(1, absl::InfiniteDuration())) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return target_; }
  int64_t memory_limit() const override { return arena_->limit(); }
  int64_t memory_used() const override { return arena_->used(); }
  Rates rates() const override {
    return {ThreadRates().flops * threads_, ThreadRates().bytes * threads_, threads_};
  }
  int64_t memory_footprint() const override { return arena_->footprint(); }
  bool host_visible() const override { return true; }
  PeerAccess AccessTo(const Device& other) const override {
    if (other.host_visible()) return {PeerPath::kDirect, /*atomics=*/true};
    return Device::AccessTo(other);
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    return AllocOf(MemoryKind::kDevice, size);
  }
  // Its memory is the host's: nothing has to be pinned.
  absl::StatusOr<std::shared_ptr<Memory>> AllocOf(MemoryKind kind, int64_t size) override {
    if (size < 0) return InvalidArgument(name_, ": an allocation of ", size, " bytes");
    if (kind == MemoryKind::kImported) return Device::AllocOf(kind, size);
    if (kind == MemoryKind::kExported) return Named(AllocExported(arena_, size));
    absl::StatusOr<void*> at = arena_->Alloc(size);
    if (!at.ok()) return ResourceExhausted(name_, ": ", ToStd(at.status().message()));
    return std::make_shared<CpuMemory>(arena_, *at, size, kind);
  }
  bool Makes(MemoryKind) const override { return true; }
  absl::StatusOr<std::string> ExportHandle(const Memory& memory) override {
    const std::string handle = HandleOf(memory);
    return handle.empty() ? Device::ExportHandle(memory) : handle;
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportHandle(std::string_view handle,
                                                       int64_t size) override {
    return Named(OpenExported(handle, size));
  }

  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return loader_->Load(image);
  }

  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return CpuCommandBuffer::Encode(std::move(commands), threads_);
  }

  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return absl::OkStatus(); }

 private:
  absl::StatusOr<std::shared_ptr<Memory>> Named(
      absl::StatusOr<std::shared_ptr<Memory>> memory) const {
    if (memory.ok()) return memory;
    return absl::Status(memory.status().code(),
                        StrCat(name_, ": ", ToStd(memory.status().message())));
  }

  const std::string name_;
  const Target target_;
  const std::shared_ptr<Arena> arena_;
  const std::unique_ptr<Loader> loader_;
  const int threads_;
  HostQueue compute_, copy_;  // last: their threads stop first
  const std::array<Queue*, 2> queues_ = {&compute_, &copy_};
};

}  // namespace

int64_t DefaultCpuMemory(const Cgroups& cgroups) {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, CgroupMemoryLimit(cgroups)) / 2;
}

void Complete(CpuOptions* options) {
  if (options->threads < 1) options->threads = AvailableProcessors();
  options->threads = std::clamp(options->threads, 1, WorkerPool::kMaxThreads);
  if (options->memory_limit < 1) options->memory_limit = DefaultCpuMemory();
}

absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const CpuOptions& given) {
  CpuOptions options = given;
  Complete(&options);
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create(options.memory_limit));
  TG_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, Loader::Create());
  return std::make_unique<CpuDevice>(options, std::move(arena), std::move(loader));
}

}  // namespace telegrad
