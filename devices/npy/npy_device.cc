#include "devices/npy/npy_device.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "devices/api/command_list.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

class NpyMemory : public Memory {
 public:
  NpyMemory(void* data, int64_t size, bool writable, std::shared_ptr<const void> owner,
            std::shared_ptr<std::atomic<int64_t>> used)
      : Memory(data, size, writable), owner_(std::move(owner)), used_(std::move(used)) {
    used_->fetch_add(size);
  }
  ~NpyMemory() override { used_->fetch_sub(size()); }

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
};

class NpyRunner : public QueueRunner {
 public:
  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override {
    const auto* list = dynamic_cast<const CommandList*>(commands);
    if (list == nullptr) return InvalidArgument("the commands were not encoded for NPY");
    if (list->has_launches()) return InvalidArgument("NPY runs no programs");
    TG_RETURN_IF_ERROR(list->Check(bindings));
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].memory->host() == nullptr) {
        return InvalidArgument("binding ", i, " is no memory that the host can address");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   std::vector<TraceEvent>* events) override {
    const auto& list = static_cast<const CommandList&>(commands);
    const auto at = [&](const Launch::Argument& argument) {
      const BufferView& view = bindings[argument.binding];
      return static_cast<char*>(view.memory->host()) + view.offset + argument.offset;
    };
    return list.RunEach(events, [&](size_t i) {
      const CopyBytes& copy = list.commands()[i].copy;
      if (copy.length > 0) std::memcpy(at(copy.to), at(copy.from), copy.length);
      return absl::OkStatus();
    });
  }
};

class NpyDeviceImpl : public NpyDevice {
 public:
  explicit NpyDeviceImpl(const NpyOptions& options)
      : queue_({.name = name_ + " copy",
                .capacity = options.queue_capacity,
                .wait_limit = options.wait_limit},
               std::make_unique<NpyRunner>()) {
    target_.arch = "none";  // for which nothing compiles
  }

  const std::string& name() const override { return name_; }
  const Target& target() const override { return target_; }
  int64_t memory_limit() const override { return INT64_MAX; }
  int64_t memory_used() const override { return used_->load(); }
  bool host_visible() const override { return true; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t) override {
    return Unimplemented(name_, " has no memory of its own; import the caller's");
  }
  absl::StatusOr<std::shared_ptr<Memory>> Import(void* data, int64_t size,
                                                 std::shared_ptr<const void> owner) override {
    return Wrap(data, size, true, std::move(owner));
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportReadOnly(
      const void* data, int64_t size, std::shared_ptr<const void> owner) override {
    return Wrap(const_cast<void*>(data), size, false, std::move(owner));
  }
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage&) override {
    return Unimplemented(name_, " runs no programs");
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return CommandList::Encode(std::move(commands));
  }
  Queue& queue(QueueKind) override { return queue_; }
  absl::Status Health() const override { return absl::OkStatus(); }

 private:
  absl::StatusOr<std::shared_ptr<Memory>> Wrap(void* data, int64_t size, bool writable,
                                               std::shared_ptr<const void> owner) {
    if (size < 0 || (data == nullptr && size > 0)) {
      return InvalidArgument(name_, ": an import of ", size, " bytes",
                             data == nullptr ? " at a null pointer" : "");
    }
    // An empty array has an address, too: null would say that the host cannot address it.
    static char nothing;
    return std::make_shared<NpyMemory>(data != nullptr ? data : &nothing, size, writable,
                                       std::move(owner), used_);
  }

  const std::string name_ = "NPY:0";
  Target target_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  HostQueue queue_;  // last: its thread stops first
};

}  // namespace

std::unique_ptr<NpyDevice> OpenNpy(const NpyOptions& options) {
  return std::make_unique<NpyDeviceImpl>(options);
}

}  // namespace telegrad
