// Divides commands into batches by predicted time and number, checks launches against the GPU,
// and submits a batch as a graph where all of its buffers are on the GPU, else command by
// command.
#include "devices/stream/command_buffer.h"

#include <algorithm>
#include <utility>

#include "devices/stream/memory.h"
#include "devices/stream/program.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

// A batch ends when it is predicted to take so long, or has so many commands.
constexpr double kBatchSeconds = 10e-3;
constexpr size_t kBatchCommands = 1024;
// The library's limit for the length of a row, of which a node copies one.
constexpr int64_t kNodeBytes = int64_t{1} << 30;
// So many runs with other buffers can be on their way at once.
constexpr size_t kInstances = 4;

double Seconds(const Command& command, const Rates& rates) {
  const bool copies = command.kind == CommandKind::kCopy;
  const double bytes =
      copies ? 2.0 * static_cast<double>(command.copy.length) : command.launch.bytes;
  const double seconds = rates.bytes > 0 ? bytes / rates.bytes : 0;
  if (copies || rates.launch_flops() <= 0) return seconds;
  return std::max(seconds, command.launch.flops / rates.launch_flops());
}

bool DoesSomething(const Command& command) {
  if (command.kind == CommandKind::kCopy) return command.copy.length > 0;
  const GridSize& grid = command.launch.grid;
  return grid.x > 0 && grid.y > 0 && grid.z > 0;
}

absl::Status CheckLaunch(const Launch& launch, const Context& context) {
  const auto* program = dynamic_cast<const StreamProgram*>(launch.program.get());
  if (program == nullptr || &program->context() != &context) {
    return InvalidArgument("the program was not loaded on ", context.name());
  }
  const int64_t most = context.driver().MostGroups(launch.group.x);
  if (launch.grid.x > most) {
    return InvalidArgument(launch.grid.x, " workgroups in one launch; expected at most ", most);
  }
  const int64_t across = std::max(launch.grid.y, launch.grid.z);
  if (across > Driver::kMostGroupsAcross) {
    return InvalidArgument(across, " workgroups in y or z; expected at most ",
                           Driver::kMostGroupsAcross);
  }
  if (launch.begin != 0 && !program->signature()->Takes(ParameterKind::kBegin)) {
    return InvalidArgument("a launch from workgroup ", launch.begin,
                           " of a program that is not told where a launch begins");
  }
  return absl::OkStatus();
}

Address AddressOf(const BoundPart& part, std::span<const BufferView> bindings) {
  const BufferView& view = bindings[static_cast<size_t>(part.binding)];
  const auto* memory = dynamic_cast<const StreamMemory*>(view.memory.get());
  if (memory == nullptr) return 0;
  return memory->address() + static_cast<Address>(view.offset + part.offset);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StreamCommandBuffer>> StreamCommandBuffer::Encode(
    std::vector<Command> commands, std::shared_ptr<Context> context, const Rates& rates) {
  auto out = std::make_shared<StreamCommandBuffer>();
  out->context_ = std::move(context);
  TG_RETURN_IF_ERROR(out->Fill(std::move(commands)));
  TG_RETURN_IF_ERROR(out->Prepare(rates));
  return out;
}

absl::Status StreamCommandBuffer::Prepare(const Rates& rates) {
  double seconds = 0;
  size_t arguments = 0, working = 0;
  bool too_long = false;
  for (size_t i = 0; i < commands().size(); ++i) {
    const Command& command = commands()[i];
    if (command.kind == CommandKind::kLaunch) {
      if (const absl::Status status = CheckLaunch(command.launch, *context_); !status.ok()) {
        return InvalidArgument("command ", i, ": ", ToStd(status.message()));
      }
      for (const Launch::Argument& argument : command.launch.arguments) {
        if (!argument.is_bound()) continue;
        const auto binding = static_cast<size_t>(argument.part().binding);
        if (binding >= launched_.size()) launched_.resize(binding + 1);
        launched_[binding] = true;
      }
    }
    if (batches_.empty() || seconds >= kBatchSeconds ||
        i - batches_.back().begin >= kBatchCommands) {
      Batch& next = batches_.emplace_back();
      next.begin = i;
      next.arguments = arguments;
      seconds = 0;
    }
    Batch& batch = batches_.back();
    batch.end = i + 1;
    if (DoesSomething(command)) {
      ++working;
      seconds += Seconds(command, rates);
      batch.working.push_back(&command);
      const bool copies = command.kind == CommandKind::kCopy;
      arguments += WordsOf(command);
      too_long |= copies && command.copy.length > kNodeBytes;
      if (copies) copies_.push_back(&command.copy);
    }
    batch.arguments_end = arguments;
  }
  graphable_ = working > 1 && !too_long;
  return absl::OkStatus();
}

absl::Status StreamCommandBuffer::Check(std::span<const BufferView> bindings) const {
  TG_RETURN_IF_ERROR(CommandList::Check(bindings));
  enum class Where { kOwn, kOtherGpu, kHost, kNowhere };
  const auto where = [&](int64_t binding) {
    const Memory& memory = *bindings[static_cast<size_t>(binding)].memory;
    if (const auto* gpu = dynamic_cast<const StreamMemory*>(&memory)) {
      const Context& other = gpu->owner().context();
      if (&other == context_.get()) return Where::kOwn;
      return &other.driver() == &context_->driver() ? Where::kOtherGpu : Where::kNowhere;
    }
    return memory.host() != nullptr ? Where::kHost : Where::kNowhere;
  };
  for (size_t i = 0; i < launched_.size(); ++i) {
    if (launched_[i] && where(static_cast<int64_t>(i)) != Where::kOwn) {
      return InvalidArgument("binding ", i, " is not memory of ", context_->name(),
                             ", which alone its programs reach");
    }
  }
  for (const CopyBytes* copy : copies_) {
    const Where to = where(copy->to.binding), from = where(copy->from.binding);
    const bool both =
        (to == Where::kOwn || to == Where::kHost) && (from == Where::kOwn || from == Where::kHost);
    const bool across = (to == Where::kOwn && from == Where::kOtherGpu) ||
                        (to == Where::kOtherGpu && from == Where::kOwn);
    if (both || across) continue;
    return InvalidArgument("a copy from binding ", copy->from.binding, " to ", copy->to.binding,
                           " between memories that ", context_->name(), " cannot reach");
  }
  return absl::OkStatus();
}

std::vector<Address> StreamCommandBuffer::Words(std::span<const BufferView> bindings,
                                                std::span<const uint64_t> scalars) const {
  std::vector<Address> out;
  if (!batches_.empty()) out.reserve(batches_.back().arguments_end);
  for (const Batch& batch : batches_) {
    for (const Command* command : batch.working) {
      if (command->kind == CommandKind::kCopy) {
        out.push_back(AddressOf(command->copy.to, bindings));
        out.push_back(AddressOf(command->copy.from, bindings));
        continue;
      }
      for (const Launch::Argument& argument : command->launch.arguments) {
        out.push_back(argument.is_bound() ? AddressOf(argument.part(), bindings)
                                          : argument.bits(scalars));
      }
      if (command->launch.groups >= 0) {
        out.push_back(static_cast<Address>(command->launch.GroupsOf(scalars)));
      }
    }
  }
  return out;
}

absl::StatusOr<StreamCommandBuffer::Instance*> StreamCommandBuffer::Take(
    size_t queue, std::span<const Address> addresses, bool may_build) const {
  const MutexLock lock(mutex_);
  if (queue >= instances_.size()) instances_.resize(queue + 1);
  auto& instances = instances_[queue];
  const auto take = [](const std::unique_ptr<Instance>& instance) {
    ++instance->flights;
    return instance.get();
  };
  const auto same = std::ranges::find_if(instances, [&](const auto& instance) {
    return std::ranges::equal(instance->addresses, addresses);
  });
  if (same != instances.end()) return take(*same);
  const auto part = [&](const Batch& batch) {
    return addresses.subspan(batch.arguments, batch.arguments_end - batch.arguments);
  };
  const auto free =
      std::ranges::find_if(instances, [](const auto& instance) { return instance->flights == 0; });
  if (free != instances.end()) {
    Instance& instance = **free;
    instance.addresses.clear();  // until all of them are told
    for (size_t b = 0; b < batches_.size(); ++b) {
      if (instance.graphs[b] == nullptr) continue;
      TG_RETURN_IF_ERROR(instance.graphs[b]->Update(part(batches_[b])));
    }
    instance.addresses.assign(addresses.begin(), addresses.end());
    return take(*free);
  }
  if (!may_build || instances.size() == kInstances) return nullptr;
  auto made = std::make_unique<Instance>();
  for (const Batch& batch : batches_) {
    std::unique_ptr<Graph>& graph = made->graphs.emplace_back();
    if (batch.working.empty()) continue;
    TG_ASSIGN_OR_RETURN(graph, Graph::Create(context_, batch.working, part(batch)));
  }
  made->addresses.assign(addresses.begin(), addresses.end());
  instances.push_back(std::move(made));
  return take(instances.back());
}

void StreamCommandBuffer::Return(Instance* instance) const {
  const MutexLock lock(mutex_);
  --instance->flights;
}

}  // namespace telegrad::stream
