// The device's queues have threads of their own, which submit each command to the inner device and
// wait for it there.
#include "tests/fakes/loopback/loopback_device.h"

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/command_list.h"
#include "devices/api/host_queue.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

class LoopbackMemory : public Memory {
 public:
  explicit LoopbackMemory(std::shared_ptr<Memory> inner)
      : Memory(nullptr, inner->size(), inner->writable()), inner_(std::move(inner)) {}
  const std::shared_ptr<Memory>& inner() const { return inner_; }

 private:
  const std::shared_ptr<Memory> inner_;
};

class LoopbackProgram : public LoadedProgram {
 public:
  explicit LoopbackProgram(std::shared_ptr<const GraphProgram> graph) : graph_(std::move(graph)) {}
  const GraphProgram& graph() const { return *graph_; }

 private:
  const std::shared_ptr<const GraphProgram> graph_;
};

class LoopbackCommands : public CommandList {
 public:
  static absl::StatusOr<std::shared_ptr<const LoopbackCommands>> Encode(
      std::vector<Command> commands, Device& inner) {
    auto out = std::make_shared<LoopbackCommands>();
    for (const Command& command : commands) {
      if (command.kind == CommandKind::kCopy) {
        TG_ASSIGN_OR_RETURN(out->copies_.emplace_back(), inner.Encode({command}));
        continue;
      }
      if (dynamic_cast<const LoopbackProgram*>(command.launch.program.get()) == nullptr) {
        return InvalidArgument("command ", out->copies_.size(),
                               ": the program was not loaded on a loopback device");
      }
      out->copies_.push_back(nullptr);
    }
    TG_RETURN_IF_ERROR(out->Fill(std::move(commands)));
    return out;
  }

  // As the inner device encodes it; null for a launch.
  const std::shared_ptr<const CommandBuffer>& copy(size_t i) const { return copies_[i]; }

 private:
  std::vector<std::shared_ptr<const CommandBuffer>> copies_;
};

// The other side. It is in order and waits for each command, as a channel's far end would.
class LoopbackRunner : public QueueRunner {
 public:
  explicit LoopbackRunner(Queue* inner) : inner_(*inner) {}

  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override {
    const auto* encoded = dynamic_cast<const LoopbackCommands*>(commands);
    if (encoded == nullptr) {
      return InvalidArgument("the commands were not encoded for a loopback device");
    }
    TG_RETURN_IF_ERROR(encoded->Check(bindings));
    for (size_t i = 0; i < bindings.size(); ++i) {
      const Memory* memory = bindings[i].memory.get();
      if (memory->host() == nullptr && dynamic_cast<const LoopbackMemory*>(memory) == nullptr) {
        return InvalidArgument("binding ", i, " is memory that a loopback device cannot reach");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   const RunControl& control) override {
    const auto& encoded = static_cast<const LoopbackCommands&>(commands);
    // What of the bindings lies beyond becomes what it is there.
    std::vector<BufferView> there(bindings.begin(), bindings.end());
    for (BufferView& view : there) {
      const auto* beyond = dynamic_cast<const LoopbackMemory*>(view.memory.get());
      if (beyond != nullptr) view.memory = beyond->inner();
    }
    return encoded.RunEach(control, [&](size_t i) -> absl::Status {
      if (encoded.copy(i) != nullptr) {
        TG_ASSIGN_OR_RETURN(const TimelinePoint copied, inner_.Submit(encoded.copy(i), there, {}));
        return copied.Wait();
      }
      const Launch& launch = encoded.commands()[i].launch;
      std::vector<BufferView> slots;
      std::vector<VarValue> variables;
      for (const Launch::Argument& argument : launch.arguments) {
        if (!argument.is_buffer()) {
          variables.push_back({launch.variables[variables.size()],
                               static_cast<int64_t>(argument.bits(control.scalars))});
          continue;
        }
        const auto [binding, offset] = argument.part();
        BufferView view = there[binding];
        view.offset += offset;
        view.length -= offset;
        slots.push_back(std::move(view));
      }
      const auto& program = static_cast<const LoopbackProgram&>(*launch.program);
      TG_ASSIGN_OR_RETURN(const TimelinePoint ran, program.graph().Submit(slots, variables));
      return ran.Wait();
    });
  }

 private:
  Queue& inner_;
};

class LoopbackDevice : public Device {
 public:
  explicit LoopbackDevice(LoopbackOptions options)
      : name_(StrCat("LOOPBACK:", options.index)),
        inner_(std::move(options.inner)),
        load_(std::move(options.load)),
        compute_({.name = StrCat(name_, " compute")},
                 std::make_unique<LoopbackRunner>(&inner_->queue(QueueKind::kCompute))),
        copy_({.name = StrCat(name_, " copy"), .takes = kCopiesOnly},
              std::make_unique<LoopbackRunner>(&inner_->queue(QueueKind::kCopy))) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return inner_->target(); }
  int64_t memory_limit() const override { return inner_->memory_limit(); }
  int64_t memory_used() const override { return inner_->memory_used(); }
  int64_t memory_footprint() const override { return inner_->memory_footprint(); }
  Rates rates() const override { return inner_->rates(); }
  bool host_visible() const override { return false; }
  PeerAccess AccessTo(const Device& other) const override {
    if (&other != this && dynamic_cast<const LoopbackDevice*>(&other) != nullptr) {
      return {PeerPath::kDirect};
    }
    return Device::AccessTo(other);
  }
  ProgramLevel accepts() const override { return ProgramLevel::kTensorGraph; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    auto memory = inner_->Alloc(size);
    if (!memory.ok()) return Mine(memory.status());
    return std::make_shared<LoopbackMemory>(*std::move(memory));
  }

  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    auto graph = load_(image.binary, *inner_);
    if (!graph.ok()) return Mine(graph.status());
    return std::make_shared<LoopbackProgram>(*std::move(graph));
  }

  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return LoopbackCommands::Encode(std::move(commands), *inner_);
  }

  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override { return inner_->Health(); }

 private:
  absl::Status Mine(const absl::Status& error) const {
    return absl::Status(error.code(), StrCat(name_, ": ", ToStd(error.message())));
  }

  const std::string name_;
  const std::unique_ptr<Device> inner_;
  const GraphLoader load_;
  HostQueue compute_, copy_;  // last: their threads stop first
  const std::array<Queue*, 2> queues_ = {&compute_, &copy_};
};

}  // namespace

std::unique_ptr<Device> OpenLoopback(LoopbackOptions options) {
  return std::make_unique<LoopbackDevice>(std::move(options));
}

}  // namespace telegrad
