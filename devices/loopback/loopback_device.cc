// A submission becomes submissions to the inner device, one for each command, chained by their
// points: so a failure ends the chain. The point of the chain's end, once it is reached, is passed on
// to the timeline of this device.
#include "devices/loopback/loopback_device.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/command_list.h"
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
    TG_ASSIGN_OR_RETURN(out->nothing_, inner.Encode({}));
    return out;
  }

  // As the inner device encodes it; null for a launch.
  const std::shared_ptr<const CommandBuffer>& copy(size_t i) const { return copies_[i]; }
  const std::shared_ptr<const CommandBuffer>& nothing() const { return nothing_; }

 private:
  std::vector<std::shared_ptr<const CommandBuffer>> copies_;
  std::shared_ptr<const CommandBuffer> nothing_;
};

class LoopbackQueue : public Queue {
 public:
  explicit LoopbackQueue(Queue* inner) : inner_(*inner) {}

  TimelinePoint last() const override {
    const std::lock_guard lock(mutex_);
    return {timeline_, submitted_};
  }

 private:
  struct Run {
    const LoopbackCommands& commands;
    const std::vector<BufferView>& bindings;
    const std::shared_ptr<RunTrace>& trace;
    const std::shared_ptr<const Cancellation>& cancellation;
  };

  absl::StatusOr<TimelinePoint> Enqueue(std::shared_ptr<const CommandBuffer> commands,
                                        std::vector<BufferView> bindings,
                                        std::span<const TimelinePoint> waits,
                                        std::shared_ptr<RunTrace> trace,
                                        std::shared_ptr<const Cancellation> cancellation) override {
    const auto* encoded = dynamic_cast<const LoopbackCommands*>(commands.get());
    if (encoded == nullptr) {
      return InvalidArgument("the commands were not encoded for a loopback device");
    }
    TG_RETURN_IF_ERROR(encoded->Check(bindings));
    TG_RETURN_IF_ERROR(Cross(&bindings));
    const Run run{*encoded, bindings, trace, cancellation};
    const std::lock_guard lock(mutex_);
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == timeline_ && wait.value > submitted_) {
        return InvalidArgument("a wait for point ", wait.value, " of a queue that is at ",
                               submitted_);
      }
    }
    // The inner queue runs in order, so the points below are reached in order too.
    TimelinePoint point;
    const size_t n = encoded->commands().size();
    absl::Status status = Step(run, 0, waits, &point);
    if (!status.ok()) return status;
    for (size_t i = 1; i < n && status.ok(); ++i) {
      const TimelinePoint before = point;
      status = Step(run, i, {&before, 1}, &point);
    }
    const uint64_t value = ++submitted_;
    point.timeline->OnReached(
        point.value, [timeline = timeline_, value, status](const absl::Status& ended) {
          timeline->Signal(value, ended.ok() ? status : ended);
        });
    return TimelinePoint{timeline_, value};
  }

  // What of the bindings lies beyond becomes what it is there; the rest has to be host memory.
  static absl::Status Cross(std::vector<BufferView>* bindings) {
    for (size_t i = 0; i < bindings->size(); ++i) {
      std::shared_ptr<Memory>& memory = (*bindings)[i].memory;
      if (const auto* beyond = dynamic_cast<const LoopbackMemory*>(memory.get())) {
        memory = beyond->inner();
      } else if (memory->host() == nullptr) {
        return InvalidArgument("binding ", i, " is memory that a loopback device cannot reach");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Step(const Run& run, size_t i, std::span<const TimelinePoint> waits,
                    TimelinePoint* point) {
    const bool copies = i >= run.commands.commands().size() || run.commands.copy(i) != nullptr;
    if (copies) {
      const auto& encoded =
          i < run.commands.commands().size() ? run.commands.copy(i) : run.commands.nothing();
      TG_ASSIGN_OR_RETURN(*point, inner_.Submit(encoded, run.bindings, waits, run.trace,
                                                run.cancellation));
      return absl::OkStatus();
    }
    const Launch& launch = run.commands.commands()[i].launch;
    std::vector<BufferView> slots;
    for (const Launch::Argument& argument : launch.arguments) {
      BufferView view = run.bindings[argument.binding];
      view.offset += argument.offset;
      view.length -= argument.offset;
      slots.push_back(std::move(view));
    }
    const auto& program = static_cast<const LoopbackProgram&>(*launch.program);
    TG_ASSIGN_OR_RETURN(*point,
                        program.graph().Submit(slots, waits, run.trace, run.cancellation));
    return absl::OkStatus();
  }

  Queue& inner_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  mutable std::mutex mutex_;
  uint64_t submitted_ = 0;
};

class LoopbackDevice : public Device {
 public:
  explicit LoopbackDevice(LoopbackOptions options)
      : name_(StrCat("LOOPBACK:", options.index)),
        inner_(std::move(options.inner)),
        load_(std::move(options.load)),
        queue_(&inner_->queue()) {}

  const std::string& name() const override { return name_; }
  const Target& target() const override { return inner_->target(); }
  int64_t memory_limit() const override { return inner_->memory_limit(); }
  int64_t memory_used() const override { return inner_->memory_used(); }
  int64_t memory_footprint() const override { return inner_->memory_footprint(); }
  Rates rates() const override { return inner_->rates(); }
  bool host_visible() const override { return false; }
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

  Queue& queue(QueueKind) override { return queue_; }
  absl::Status Health() const override { return inner_->Health(); }

 private:
  absl::Status Mine(const absl::Status& error) const {
    return absl::Status(error.code(), StrCat(name_, ": ", ToStd(error.message())));
  }

  const std::string name_;
  const std::unique_ptr<Device> inner_;
  const GraphLoader load_;
  LoopbackQueue queue_;
};

}  // namespace

std::unique_ptr<Device> OpenLoopback(LoopbackOptions options) {
  return std::make_unique<LoopbackDevice>(std::move(options));
}

}  // namespace telegrad
