#include "devices/cpu/command_buffer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "devices/cpu/loader.h"
#include "devices/cpu/rates.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxBindings = 65'536;

// In microseconds. Waking a thread takes some 25. Below the first it is not worth it; each helper gets at least
// the second.
constexpr double kWorthSplitting = 20;
constexpr double kWorthAThread = 10;

int HelpersWorthWaking(const Launch& launch, int threads) {
  const double time =
      1e6 * std::max(launch.flops / kThreadRates.flops, launch.bytes / kThreadRates.bytes);
  if (!(time >= kWorthSplitting)) return 0;
  const double most = static_cast<double>(std::min<int64_t>(threads, launch.iterations));
  return std::max(0, static_cast<int>(std::min(most, std::floor(time / kWorthAThread))) - 1);
}

bool Overlap(const char* a, const char* b, int64_t length) {
  return a < b + length && b < a + length;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CpuCommandBuffer>> CpuCommandBuffer::Encode(
    std::vector<Command> commands, int threads) {
  auto buffer = std::make_shared<CpuCommandBuffer>();
  for (size_t i = 0; i < commands.size(); ++i) {
    const absl::Status status = commands[i].kind == Command::Kind::kLaunch
                                    ? buffer->Add(commands[i].launch, threads)
                                    : buffer->Add(commands[i].copy);
    if (!status.ok()) return InvalidArgument("command ", i, ": ", ToStd(status.message()));
  }
  return buffer;
}

absl::Status CpuCommandBuffer::AddArgument(const Launch::Argument& argument, int64_t length) {
  int64_t end;
  if (argument.binding < 0 || argument.binding >= kMaxBindings || argument.offset < 0 ||
      !CheckedAdd(argument.offset, length, &end)) {
    return InvalidArgument("an argument at byte ", argument.offset, " of binding ",
                           argument.binding);
  }
  if (argument.binding >= static_cast<int64_t>(needed_.size())) {
    needed_.resize(argument.binding + 1);
  }
  needed_[argument.binding] = std::max(needed_[argument.binding], end);
  arguments_.push_back(argument);
  return absl::OkStatus();
}

absl::Status CpuCommandBuffer::Add(const Launch& launch, int threads) {
  const auto* program = dynamic_cast<const CpuProgram*>(launch.program.get());
  if (program == nullptr) return InvalidArgument("the program was not loaded on a CPU");
  int64_t end;
  if (launch.begin < 0 || launch.iterations < 0 ||
      !CheckedAdd(launch.begin, launch.iterations, &end)) {
    return InvalidArgument(launch.iterations, " iterations from ", launch.begin);
  }
  Step step{program->entry(), static_cast<int64_t>(arguments_.size()),
            static_cast<int64_t>(launch.arguments.size()), launch.iterations,
            launch.begin, HelpersWorthWaking(launch, threads)};
  for (const Launch::Argument& argument : launch.arguments) {
    TG_RETURN_IF_ERROR(AddArgument(argument, 0));
  }
  steps_.push_back(step);
  programs_.push_back(launch.program);
  return absl::OkStatus();
}

absl::Status CpuCommandBuffer::Add(const CopyBytes& copy) {
  if (copy.length < 0) return InvalidArgument("a copy of ", copy.length, " bytes");
  steps_.push_back({nullptr, static_cast<int64_t>(arguments_.size()), 2, copy.length});
  TG_RETURN_IF_ERROR(AddArgument(copy.to, copy.length));
  return AddArgument(copy.from, copy.length);
}

void* CpuCommandBuffer::Resolve(const Launch::Argument& argument,
                                std::span<const BufferView> bindings) {
  const BufferView& view = bindings[argument.binding];
  return static_cast<char*>(view.memory->host()) + view.offset + argument.offset;
}

absl::Status CpuCommandBuffer::Check(std::span<const BufferView> bindings) const {
  if (bindings.size() < needed_.size()) {
    return InvalidArgument(bindings.size(), " buffers are bound, expected ", needed_.size());
  }
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BufferView& view = bindings[i];
    if (view.memory == nullptr || view.memory->host() == nullptr) {
      return InvalidArgument("binding ", i, " is no memory that the CPU can address");
    }
    int64_t end;
    if (view.offset < 0 || view.length < 0 || !CheckedAdd(view.offset, view.length, &end) ||
        end > view.memory->size()) {
      return InvalidArgument("binding ", i, ": ", view.length, " bytes at ", view.offset,
                             " are not inside of the ", view.memory->size(), " of its memory");
    }
    if (i < needed_.size() && needed_[i] > view.length) {
      return InvalidArgument("binding ", i, " has ", view.length, " bytes, expected at least ",
                             needed_[i]);
    }
  }
  for (const Step& step : steps_) {
    if (step.entry != nullptr || step.amount == 0) continue;
    if (Overlap(static_cast<char*>(Resolve(arguments_[step.first], bindings)),
                static_cast<char*>(Resolve(arguments_[step.first + 1], bindings)), step.amount)) {
      return InvalidArgument("a copy of ", step.amount, " bytes overlaps itself");
    }
  }
  return absl::OkStatus();
}

void CpuCommandBuffer::Run(std::span<const BufferView> bindings, WorkerPool& pool,
                           std::vector<void*>* scratch) const {
  for (const Step& step : steps_) {
    scratch->clear();
    for (int64_t i = 0; i < step.arguments; ++i) {
      scratch->push_back(Resolve(arguments_[step.first + i], bindings));
    }
    void* const* arguments = scratch->data();
    if (step.entry != nullptr) {
      pool.Run(step.entry, arguments, step.begin, step.begin + step.amount, step.helpers);
    } else if (step.amount > 0) {
      std::memcpy(arguments[0], arguments[1], step.amount);
    }
  }
}

}  // namespace telegrad
