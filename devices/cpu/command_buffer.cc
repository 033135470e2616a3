// Launches become steps of a function, its range of iterations and its arguments. Addresses are
// patched for each run, those of tensors before the maps that have them; a step is then divided
// among the workers.
#include "devices/cpu/command_buffer.h"

#include <cstring>
#include <utility>

#include "devices/cpu/launch_cost.h"
#include "devices/cpu/loader.h"
#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const CpuCommandBuffer>> CpuCommandBuffer::Encode(
    std::vector<Command> commands, int threads) {
  auto buffer = std::make_shared<CpuCommandBuffer>();
  buffer->threads_ = threads;
  TG_RETURN_IF_ERROR(buffer->Fill(std::move(commands)));
  for (size_t i = 0; i < buffer->commands().size(); ++i) {
    const absl::Status status = buffer->AddStep(buffer->commands()[i]);
    if (!status.ok()) return InvalidArgument("command ", i, ": ", ToStd(status.message()));
  }
  return buffer;
}

CpuCommandBuffer::Patch CpuCommandBuffer::PatchOf(const BoundPart& part) const {
  return {static_cast<uint32_t>(1 + scalars() + static_cast<size_t>(part.binding)),
          static_cast<uint64_t>(part.offset)};
}

CpuCommandBuffer::Patch CpuCommandBuffer::PatchOf(const LaunchArgument& argument) const {
  if (argument.is_bound()) return PatchOf(argument.part());
  if (argument.is_constant()) return {0, argument.constant()};
  return {1 + static_cast<uint32_t>(argument.scalar()), 0};
}

absl::Status CpuCommandBuffer::AddStep(const Command& command) {
  Step step{.first = static_cast<int64_t>(patches_.size())};
  if (command.kind == CommandKind::kCopy) {
    step.amount = command.copy.length;
    patches_.insert(patches_.end(), {PatchOf(command.copy.to), PatchOf(command.copy.from)});
  } else {
    const Launch& launch = command.launch;
    const auto* program = dynamic_cast<const CpuProgram*>(launch.program.get());
    if (program == nullptr) return InvalidArgument("the program was not loaded on a CPU");
    TG_RETURN_IF_ERROR(CheckHostGrid(launch));
    step.entry = program->entry();
    step.begin = launch.begin;
    step.amount = launch.grid.x;
    for (const Launch::Argument& argument : launch.arguments) {
      if (argument.map() != nullptr) maps_.push_back({patches_.size(), argument.map()});
      patches_.push_back(PatchOf(argument));
    }
  }
  times_.Add(command);
  steps_.push_back(step);
  return absl::OkStatus();
}

absl::Status CpuCommandBuffer::Check(std::span<const BufferView> bindings) const {
  TG_RETURN_IF_ERROR(CommandList::Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i].memory->host() == nullptr) {
      return InvalidArgument("binding ", i, " is not memory that the CPU can address");
    }
  }
  return absl::OkStatus();
}

// False if it was ended before its end.
bool CpuCommandBuffer::RunStep(const Step& step, const uint64_t* words, int helpers,
                               WorkerPool& pool) {
  if (step.entry != nullptr) {
    return pool.Run(step.entry, words, step.begin, step.begin + step.amount, helpers);
  }
  if (step.amount > 0) {
    std::memcpy(reinterpret_cast<void*>(words[0]), reinterpret_cast<const void*>(words[1]),
                step.amount);
  }
  return true;
}

absl::Status CpuCommandBuffer::Run(std::span<const BufferView> bindings, WorkerPool& pool,
                                   LaunchWatch& watch, Scratch* scratch,
                                   const RunControl& control) const {
  scratch->bases.assign(1, 0);
  scratch->bases.insert(scratch->bases.end(), control.scalars.begin(), control.scalars.end());
  for (const BufferView& view : bindings) {
    scratch->bases.push_back(reinterpret_cast<uint64_t>(view.memory->host()) +
                             static_cast<uint64_t>(view.offset));
  }
  scratch->words.resize(patches_.size());
  for (size_t i = 0; i < patches_.size(); ++i) {
    scratch->words[i] = scratch->bases[patches_[i].base] + patches_[i].add;
  }
  scratch->maps.resize(maps_.size());
  for (size_t i = 0; i < maps_.size(); ++i) {
    uint64_t& word = scratch->words[maps_[i].word];
    scratch->maps[i] = {word, *maps_[i].map};
    word = reinterpret_cast<uint64_t>(&scratch->maps[i]);
  }
  const uint64_t* const words = scratch->words.data();
  watch.Begin(control.cancellation);
  const absl::Status status = RunEach(control, [&](size_t i) {
    const int helpers = times_.helpers(i, control.scalars, threads_);
    const bool whole = RunStep(steps_[i], words + steps_[i].first, helpers, pool);
    return whole ? absl::OkStatus() : watch.why();
  });
  watch.End();
  return status;
}

}  // namespace telegrad
