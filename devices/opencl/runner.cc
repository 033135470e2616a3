// Puts commands in batches on the driver's queue: small ones where a run can be cancelled, so
// that a cancellation is noticed between them.
#include "devices/opencl/runner.h"

#include <cstring>
#include <utility>
#include <vector>

#include "devices/opencl/program.h"
#include "engine/base/status.h"

namespace telegrad::opencl {
namespace {

// So many commands are on the driver's queue at a time of what can be cancelled, and else.
constexpr int kCancellableBatch = 8;
constexpr int kBatch = 256;

}  // namespace

const OpenClMemory* Runner::Own(const BufferView& view) const {
  const auto* memory = dynamic_cast<const OpenClMemory*>(view.memory.get());
  return memory != nullptr && &memory->context() == context_.get() ? memory : nullptr;
}

absl::Status Runner::Check(const CommandBuffer* commands,
                           std::span<const BufferView> bindings) const {
  const auto* list = dynamic_cast<const CommandList*>(commands);
  if (list == nullptr) {
    return InvalidArgument("the commands were not encoded for ", context_->name());
  }
  TG_RETURN_IF_ERROR(list->Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (Own(bindings[i]) == nullptr && bindings[i].memory->host() == nullptr) {
      return InvalidArgument("binding ", i, " is memory that ", context_->name(), " cannot reach");
    }
  }
  for (const Command& command : list->commands()) {
    if (command.kind == CommandKind::kCopy) continue;
    const auto* program = dynamic_cast<const OpenClProgram*>(command.launch.program.get());
    if (program == nullptr || &program->context() != context_.get()) {
      return InvalidArgument("a launch of a program that ", context_->name(), " has not loaded");
    }
    for (const Launch::Argument& argument : command.launch.arguments) {
      if (!argument.is_buffer()) continue;
      const int32_t binding = argument.part().binding;
      if (Own(bindings[binding]) != nullptr) continue;
      return InvalidArgument("a launch on binding ", binding, ", which is not memory of ",
                             context_->name());
    }
  }
  return context_->health();
}

absl::Status Runner::Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                         const RunControl& control) {
  const auto& list = static_cast<const CommandList&>(commands);
  const int batch = control.events != nullptr         ? 1
                    : control.cancellation != nullptr ? kCancellableBatch
                                                      : kBatch;
  const absl::Status status = list.RunEach(control, [&](size_t i) {
    TG_RETURN_IF_ERROR(context_->health());
    TG_RETURN_IF_ERROR(Put(list.commands()[i], bindings, control.scalars));
    return waiting_ >= batch ? Await() : absl::OkStatus();
  });
  // Also what was put there before an error must have ended: its memory may be freed next.
  const absl::Status ended = Await();
  // A device that is stuck may still read and write what it was given, the host's memory, too.
  if (context_->stuck()) {
    context_->Keep(std::make_shared<std::vector<BufferView>>(bindings.begin(), bindings.end()));
  }
  return status.ok() ? ended : status;
}

absl::Status Runner::Await() {
  if (std::exchange(waiting_, 0) == 0) return absl::OkStatus();
  return queue_->Await();
}

absl::Status Runner::Put(const Command& command, std::span<const BufferView> bindings,
                         std::span<const uint64_t> scalars) {
  return command.kind == CommandKind::kCopy ? PutCopy(command.copy, bindings)
                                            : PutLaunch(command.launch, bindings, scalars);
}

absl::Status Runner::PutLaunch(const Launch& launch, std::span<const BufferView> bindings,
                               std::span<const uint64_t> scalars) {
  std::vector<OpenClProgram::Word> words;
  for (const Launch::Argument& argument : launch.arguments) {
    if (!argument.is_buffer()) {
      words.push_back({.bits = argument.bits(scalars)});
      continue;
    }
    const auto [binding, offset] = argument.part();
    const BufferView& view = bindings[binding];
    words.push_back({Own(view)->handle(), static_cast<uint64_t>(view.offset + offset)});
  }
  ++waiting_;
  auto& program = static_cast<OpenClProgram&>(*launch.program);
  return program.Enqueue(launch, words, queue_->handle());
}

absl::Status Runner::PutCopy(const CopyBytes& copy, std::span<const BufferView> bindings) {
  if (copy.length == 0) return absl::OkStatus();
  const BufferView &to = bindings[copy.to.binding], &from = bindings[copy.from.binding];
  const auto length = static_cast<size_t>(copy.length);
  const auto to_at = static_cast<size_t>(to.offset + copy.to.offset);
  const auto from_at = static_cast<size_t>(from.offset + copy.from.offset);
  const OpenClMemory *own_to = Own(to), *own_from = Own(from);
  const auto host = [](const BufferView& view, size_t at) {
    return static_cast<char*>(view.memory->host()) + at;
  };
  if (own_to == nullptr && own_from == nullptr) {  // in order with what the driver does
    TG_RETURN_IF_ERROR(Await());
    std::memcpy(host(to, to_at), host(from, from_at), length);
    return absl::OkStatus();
  }
  ++waiting_;
  const cl_command_queue queue = queue_->handle();
  if (own_to == nullptr) {
    return TG_CL_IN(*context_, clEnqueueReadBuffer, queue, own_from->handle(), CL_FALSE, from_at,
                    length, host(to, to_at), 0, nullptr, nullptr);
  }
  if (own_from == nullptr) {
    return TG_CL_IN(*context_, clEnqueueWriteBuffer, queue, own_to->handle(), CL_FALSE, to_at,
                    length, host(from, from_at), 0, nullptr, nullptr);
  }
  return TG_CL_IN(*context_, clEnqueueCopyBuffer, queue, own_from->handle(), own_to->handle(),
                  from_at, to_at, length, 0, nullptr, nullptr);
}

}  // namespace telegrad::opencl
