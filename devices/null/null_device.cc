// The runner of a queue signals points without doing anything; memory is a number that is
// counted against the limit.
#include "devices/null/null_device.h"

#include <array>
#include <atomic>
#include <utility>

#include "devices/api/command_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

class NullProgram : public LoadedProgram {
 public:
  using LoadedProgram::LoadedProgram;
};

class NullMemory : public Memory {
 public:
  NullMemory(std::shared_ptr<std::atomic<int64_t>> used, int64_t size)
      : Memory(nullptr, size), used_(std::move(used)) {}
  ~NullMemory() override { used_->fetch_sub(size()); }

 private:
  const std::shared_ptr<std::atomic<int64_t>> used_;
};

struct Counter {
  Mutex mutex;
  NullDevice::Counts counts TG_GUARDED_BY(mutex);
};

class NullRunner : public QueueRunner {
 public:
  explicit NullRunner(Counter* counter) : counter_(counter) {}

  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override {
    const auto* list = dynamic_cast<const CommandList*>(commands);
    if (list == nullptr) return InvalidArgument("the commands were not encoded for a null device");
    return list->Check(bindings);
  }

  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView>,
                   const RunControl& control) override {
    const auto& list = static_cast<const CommandList&>(commands);
    const MutexLock lock(counter_->mutex);
    NullDevice::Counts& counts = counter_->counts;
    return list.RunEach(control, [&](size_t i) {
      counter_->mutex.AssertHeld();  // see above
      const Command& command = list.commands()[i];
      if (command.kind == CommandKind::kCopy) {
        ++counts.copies;
        counts.copied_bytes += command.copy.length;
      } else {
        ++counts.launches;
        counts.flops += command.launch.flops;
        counts.bytes += command.launch.bytes;
      }
      return absl::OkStatus();
    });
  }

 private:
  Counter* const counter_;
};

class NullDeviceImpl : public NullDevice {
 public:
  explicit NullDeviceImpl(const NullOptions& options)
      : name_(StrCat("NULL:", options.index)),
        options_(options),
        queue_({.name = StrCat(name_, " queue"),
                .capacity = options.queue_capacity,
                .wait_limit = options.wait_limit},
               std::make_unique<NullRunner>(&counter_)) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return options_.target; }
  int64_t memory_limit() const override { return options_.memory_limit; }
  int64_t memory_used() const override { return used_->load(); }
  bool host_visible() const override { return false; }
  // Nothing is read or written.
  PeerAccess AccessTo(const Device&) const override {
    return {PeerPath::kDirect, /*atomics=*/true};
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    if (size < 0) return InvalidArgument(name_, ": an allocation of ", size, " bytes");
    int64_t used = used_->load();
    do {
      if (size > options_.memory_limit - used) {
        return ResourceExhausted(name_, ": allocating ", size, " bytes with ", used,
                                 " in use would exceed the memory limit of ", options_.memory_limit,
                                 " bytes");
      }
    } while (!used_->compare_exchange_weak(used, used + size));
    return std::make_shared<NullMemory>(used_, size);
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return std::make_shared<NullProgram>(image.signature);
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return CommandList::Encode(std::move(commands));
  }
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return absl::OkStatus(); }
  Counts counts() const override {
    const MutexLock lock(counter_.mutex);
    return counter_.counts;
  }

 private:
  const std::string name_;
  const NullOptions options_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  mutable Counter counter_;
  HostQueue queue_;  // last: its thread stops first
  const std::array<Queue*, 1> queues_ = {&queue_};
};

}  // namespace

std::unique_ptr<NullDevice> OpenNull(const NullOptions& options) {
  return std::make_unique<NullDeviceImpl>(options);
}

}  // namespace telegrad
