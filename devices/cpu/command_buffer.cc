// Launches become steps of a function, its range of iterations and its arguments. Addresses are
// patched for each run, also those of tensor maps, which lie beside them; a step is then divided
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
  TG_RETURN_IF_ERROR(buffer->Fill(std::move(commands)));
  for (const Command& command : buffer->commands()) {
    for (const LaunchArgument& argument : command.launch.arguments) {
      if (argument.map() != nullptr) buffer->maps_.push_back(&argument);
    }
  }
  for (size_t i = 0; i < buffer->commands().size(); ++i) {
    const absl::Status status = buffer->AddStep(buffer->commands()[i], threads);
    if (!status.ok()) return InvalidArgument("command ", i, ": ", ToStd(status.message()));
  }
  return buffer;
}

CpuCommandBuffer::Patch CpuCommandBuffer::PatchOf(const BoundPart& part) const {
  return {static_cast<uint32_t>(1 + scalars() + maps_.size() + static_cast<size_t>(part.binding)),
          static_cast<uint64_t>(part.offset)};
}

CpuCommandBuffer::Patch CpuCommandBuffer::PatchOf(const LaunchArgument& argument) {
  if (argument.is_buffer()) return PatchOf(argument.part());
  if (argument.map() != nullptr) {
    return {static_cast<uint32_t>(1 + scalars() + patched_maps_++), 0};
  }
  if (argument.is_constant()) return {0, argument.constant()};
  return {1 + static_cast<uint32_t>(argument.scalar()), 0};
}

absl::Status CpuCommandBuffer::AddStep(const Command& command, int threads) {
  Step step{.first = static_cast<int64_t>(patches_.size())};
  if (command.kind == CommandKind::kCopy) {
    step.amount = command.copy.length;
    micros_ += PredictedMicros(0, 2.0 * static_cast<double>(step.amount));
    patches_.insert(patches_.end(), {PatchOf(command.copy.to), PatchOf(command.copy.from)});
  } else {
    const Launch& launch = command.launch;
    const auto* program = dynamic_cast<const CpuProgram*>(launch.program.get());
    if (program == nullptr) return InvalidArgument("the program was not loaded on a CPU");
    TG_RETURN_IF_ERROR(CheckHostGrid(launch));
    step.entry = program->entry();
    step.begin = launch.begin;
    step.amount = launch.grid.x;
    step.helpers = HelpersWorthWaking(launch, threads);
    micros_ += PredictedMicros(launch.flops, launch.bytes);
    for (const Launch::Argument& argument : launch.arguments) {
      patches_.push_back(PatchOf(argument));
    }
  }
  micros_ += kStepMicros;
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
bool CpuCommandBuffer::RunStep(const Step& step, const uint64_t* words, WorkerPool& pool) {
  if (step.entry != nullptr) {
    return pool.Run(step.entry, words, step.begin, step.begin + step.amount, step.helpers);
  }
  if (step.amount > 0) {
    std::memcpy(reinterpret_cast<void*>(words[0]), reinterpret_cast<const void*>(words[1]),
                step.amount);
  }
  return true;
}

void CpuCommandBuffer::FillBases(std::span<const BufferView> bindings,
                                 std::span<const uint64_t> scalars, Scratch* scratch) const {
  const auto address = [&](const BufferView& view, int64_t offset) {
    return reinterpret_cast<uint64_t>(view.memory->host()) +
           static_cast<uint64_t>(view.offset + offset);
  };
  std::vector<uint64_t>& bases = scratch->bases;
  bases.assign(1, 0);
  bases.insert(bases.end(), scalars.begin(), scalars.end());
  scratch->maps.resize(maps_.size());
  for (size_t i = 0; i < maps_.size(); ++i) {
    const auto [binding, offset] = maps_[i]->part();
    HostTensorMap& map = scratch->maps[i];
    map = {address(bindings[static_cast<size_t>(binding)], offset), *maps_[i]->map()};
    bases.push_back(reinterpret_cast<uint64_t>(&map));
  }
  for (const BufferView& view : bindings) bases.push_back(address(view, 0));
}

absl::Status CpuCommandBuffer::Run(std::span<const BufferView> bindings, WorkerPool& pool,
                                   LaunchWatch& watch, Scratch* scratch,
                                   const RunControl& control) const {
  FillBases(bindings, control.scalars, scratch);
  scratch->words.resize(patches_.size());
  for (size_t i = 0; i < patches_.size(); ++i) {
    scratch->words[i] = scratch->bases[patches_[i].base] + patches_[i].add;
  }
  const uint64_t* const words = scratch->words.data();
  watch.Begin(control.cancellation);
  const absl::Status status = RunEach(control, [&](size_t i) {
    const bool whole = RunStep(steps_[i], words + steps_[i].first, pool);
    return whole ? absl::OkStatus() : watch.why();
  });
  watch.End();
  return status;
}

}  // namespace telegrad
