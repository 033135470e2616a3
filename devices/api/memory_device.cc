// Copies run on a host queue. A subclass gives memory its meaning, such as the files of a disk.
#include "devices/api/memory_device.h"

#include <cstring>

#include "devices/api/command_list.h"
#include "engine/base/status.h"

namespace telegrad {

absl::Status CopyRunner::Check(const CommandBuffer* commands,
                               std::span<const BufferView> bindings) const {
  const auto* list = dynamic_cast<const CommandList*>(commands);
  if (list == nullptr) return InvalidArgument("the commands were not encoded for ", device_);
  TG_RETURN_IF_ERROR(list->Check(bindings));
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (!Reaches(*bindings[i].memory)) {
      return InvalidArgument("binding ", i, " is memory that ", device_, " cannot reach");
    }
  }
  return absl::OkStatus();
}

absl::Status CopyRunner::Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                             const RunControl& control) {
  const auto& list = static_cast<const CommandList&>(commands);
  const auto end = [&](const BoundPart& part) {
    const BufferView& view = bindings[part.binding];
    return CopyEnd{view.memory.get(), view.offset + part.offset};
  };
  return list.RunEach(control, [&](size_t i) {
    const CopyBytes& copy = list.commands()[i].copy;
    return Copy(end(copy.to), end(copy.from), copy.length);
  });
}

absl::Status CopyRunner::Copy(const CopyEnd& to, const CopyEnd& from, int64_t length) {
  if (length > 0) std::memcpy(to.host(), from.host(), length);
  return absl::OkStatus();
}

MemoryDevice::MemoryDevice(std::string name, int queue_capacity, absl::Duration wait_limit,
                           std::unique_ptr<CopyRunner> runner)
    : name_(std::move(name)),
      queue_({.name = StrCat(name_, " copy"),
              .takes = kCopiesOnly,
              .capacity = queue_capacity,
              .wait_limit = wait_limit},
             std::move(runner)) {
  target_.arch = "none";  // for which nothing compiles
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> MemoryDevice::Load(const ProgramImage&) {
  return Unimplemented(name_, " runs no programs; run them on a device that computes, and copy");
}

absl::StatusOr<std::shared_ptr<const CommandBuffer>> MemoryDevice::Encode(
    std::vector<Command> commands) {
  return CommandList::Encode(std::move(commands));
}

}  // namespace telegrad
