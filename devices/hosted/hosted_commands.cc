// Each is made here first, so that it has a number, and asked for there by that number.
#include "devices/hosted/hosted_commands.h"

#include <algorithm>
#include <string_view>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<Memory>> HostedMemory::Alloc(std::shared_ptr<DriverProcess> process,
                                                            int64_t size) {
  // Counted before it is there, and not when it is not: see the destructor.
  process->used()->fetch_add(size);
  auto memory = std::make_shared<HostedMemory>(process, size);
  TG_RETURN_IF_ERROR(process
                         ->Ask(HostedOrder::kAlloc,
                               [&](ByteWriter* out) {
                                 out->Word(memory->id());
                                 out->Word(size);
                               })
                         .status());
  return memory;
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> HostedProgram::Load(
    std::shared_ptr<DriverProcess> process, const ProgramImage& image) {
  auto program = std::make_shared<HostedProgram>(process, image.signature);
  TG_RETURN_IF_ERROR(process
                         ->Ask(HostedOrder::kLoad,
                               [&](ByteWriter* out) {
                                 out->Word(program->id());
                                 WriteImage(image, out);
                               })
                         .status());
  return program;
}

absl::StatusOr<std::shared_ptr<const HostedCommands>> HostedCommands::Encode(
    std::shared_ptr<DriverProcess> process, std::vector<Command> commands) {
  auto out = std::make_shared<HostedCommands>(process);
  TG_RETURN_IF_ERROR(out->Fill(std::move(commands)));
  for (size_t i = 0; i < out->commands().size(); ++i) {
    const Command& command = out->commands()[i];
    if (command.kind == CommandKind::kCopy) continue;
    const auto* program = dynamic_cast<const HostedProgram*>(command.launch.program.get());
    if (program == nullptr || program->process() != process.get()) {
      return InvalidArgument("command ", i, ": the program was not loaded on this device");
    }
  }
  const auto id = [](const LoadedProgram& program) {
    return static_cast<const HostedProgram&>(program).id();
  };
  TG_RETURN_IF_ERROR(process
                         ->Ask(HostedOrder::kEncode,
                               [&](ByteWriter* order) {
                                 order->Word(out->id());
                                 WriteCommands(out->commands(), id, order);
                               })
                         .status());
  return out;
}

const HostedMemory* HostedCommands::Own(const BufferView& view) const {
  const auto* memory = dynamic_cast<const HostedMemory*>(view.memory.get());
  return memory != nullptr && memory->process() == process() ? memory : nullptr;
}

absl::Status HostedCommands::CheckReach(std::span<const BufferView> bindings,
                                        std::string_view device) const {
  TG_RETURN_IF_ERROR(Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (Own(bindings[i]) == nullptr && bindings[i].memory->host() == nullptr) {
      return InvalidArgument("binding ", i, " is memory that ", device, " cannot reach");
    }
  }
  for (const Command& command : commands()) {
    if (command.kind == CommandKind::kCopy) continue;
    for (const LaunchArgument& argument : command.launch.arguments) {
      if (!argument.is_bound()) continue;
      const int32_t binding = argument.part().binding;
      if (Own(bindings[binding]) != nullptr) continue;
      return InvalidArgument("a launch: binding ", binding, " is not memory of ", device);
    }
  }
  return process()->Over();
}

bool HostedCommands::TouchesHost(size_t command, std::span<const BufferView> bindings) const {
  const Command& one = commands()[command];
  return one.kind == CommandKind::kCopy && (Own(bindings[one.copy.to.binding]) == nullptr ||
                                            Own(bindings[one.copy.from.binding]) == nullptr);
}

bool HostedCommands::TouchesHost(std::span<const BufferView> bindings) const {
  if (!needs().copy) return false;
  for (size_t i = 0; i < commands().size(); ++i) {
    if (TouchesHost(i, bindings)) return true;
  }
  return false;
}

absl::StatusOr<HostedCommands::Piece> HostedCommands::PieceOf(size_t first, size_t end) const {
  const MutexLock lock(mutex_);
  Piece& piece = pieces_[{first, end}];
  if (piece.commands != nullptr) return piece;
  std::vector<int32_t> bindings;
  const auto here = [&](const BoundPart& part) {
    const auto it = std::ranges::find(bindings, part.binding);
    const auto at = static_cast<int32_t>(it - bindings.begin());
    if (it == bindings.end()) bindings.push_back(part.binding);
    return BoundPart{at, part.offset};
  };
  std::vector<Command> some(commands().begin() + static_cast<int64_t>(first),
                            commands().begin() + static_cast<int64_t>(end));
  for (Command& command : some) {
    if (command.kind == CommandKind::kCopy) {
      command.copy.to = here(command.copy.to);
      command.copy.from = here(command.copy.from);
      continue;
    }
    for (LaunchArgument& argument : command.launch.arguments) {
      if (!argument.is_bound()) continue;
      const auto [binding, offset] = here(argument.part());
      argument = argument.map() == nullptr
                     ? LaunchArgument(binding, offset, argument.access())
                     : LaunchArgument::Map(*argument.map(), binding, offset, argument.access());
    }
  }
  TG_ASSIGN_OR_RETURN(piece.commands, Encode(id_.process(), std::move(some)));
  piece.bindings = std::move(bindings);
  return piece;
}

}  // namespace telegrad
