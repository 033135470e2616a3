// The runner of a queue signals points without doing anything; memory is a number that is
// counted against the limit.
#include "devices/null/null_device.h"

#include <atomic>
#include <utility>
#include <vector>

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
      : name_(StrCat("NULL:", options.index)), options_(options) {
    AddQueue("queue", kComputesAndCopies);
    for (int i = 0; i < options.copy_queues; ++i) AddQueue(StrCat("copy ", i + 1), kCopiesOnly);
  }

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
  void AddQueue(const std::string& own_name, QueueCapability takes) {
    owned_.push_back(
        std::make_unique<HostQueue>(HostQueueOptions{.name = StrCat(name_, " ", own_name),
                                                     .takes = takes,
                                                     .capacity = options_.queue_capacity,
                                                     .wait_limit = options_.wait_limit},
                                    std::make_unique<NullRunner>(&counter_)));
    queues_.push_back(owned_.back().get());
  }

  const std::string name_;
  const NullOptions options_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  mutable Counter counter_;
  std::vector<Queue*> queues_;                     // the next
  std::vector<std::unique_ptr<HostQueue>> owned_;  // last: their threads stop first
};

}  // namespace

std::unique_ptr<NullDevice> OpenNull(const NullOptions& options) {
  return std::make_unique<NullDeviceImpl>(options);
}

}  // namespace telegrad
