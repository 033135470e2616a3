// Checks commands when they are encoded (sizes, numbers of bindings, copies that overlap) and
// records how many bytes each needs of a binding.
#include "devices/api/command_list.h"

#include <algorithm>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxBindings = 65'536;

// Whether `length` bytes at `a` and at `b` share one. Memories that the host addresses are compared
// by address, for two of them may wrap the same bytes.
bool Overlap(const BufferView& a, int64_t a_offset, const BufferView& b, int64_t b_offset,
             int64_t length) {
  if (a.memory->host() != nullptr && b.memory->host() != nullptr) {
    const char* x = static_cast<char*>(a.memory->host()) + a.offset + a_offset;
    const char* y = static_cast<char*>(b.memory->host()) + b.offset + b_offset;
    return x < y + length && y < x + length;
  }
  const int64_t x = a.offset + a_offset, y = b.offset + b_offset;
  return a.memory == b.memory && x < y + length && y < x + length;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CommandList>> CommandList::Encode(
    std::vector<Command> commands) {
  auto list = std::make_shared<CommandList>();
  TG_RETURN_IF_ERROR(list->Fill(std::move(commands)));
  return list;
}

absl::Status CommandList::Fill(std::vector<Command> commands) {
  commands_ = std::move(commands);
  for (size_t i = 0; i < commands_.size(); ++i) {
    if (commands_[i].kind == CommandKind::kCopy) copies_.push_back(i);
    if (const absl::Status status = Add(commands_[i]); !status.ok()) {
      return InvalidArgument("command ", i, ": ", ToStd(status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CommandList::Add(const Command& command) {
  if (command.kind == CommandKind::kCopy) {
    const CopyBytes& copy = command.copy;
    if (copy.length < 0) return InvalidArgument("a copy of ", copy.length, " bytes");
    TG_RETURN_IF_ERROR(Need(copy.to, copy.length));
    return Need(copy.from, copy.length);
  }
  const Launch& launch = command.launch;
  if (launch.program == nullptr) return InvalidArgument("a launch without a program");
  int64_t end;
  if (launch.begin < 0 || launch.iterations < 0 ||
      !CheckedAdd(launch.begin, launch.iterations, &end)) {
    return InvalidArgument(launch.iterations, " iterations from ", launch.begin);
  }
  for (const Launch::Argument& argument : launch.arguments) {
    TG_RETURN_IF_ERROR(Need(argument, 0));
  }
  return absl::OkStatus();
}

absl::Status CommandList::Need(const Launch::Argument& argument, int64_t length) {
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
  return absl::OkStatus();
}

absl::Status CommandList::Check(std::span<const BufferView> bindings) const {
  if (bindings.size() < needed_.size()) {
    return InvalidArgument(bindings.size(), " buffers are bound, expected ", needed_.size());
  }
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BufferView& view = bindings[i];
    if (view.memory == nullptr) return InvalidArgument("binding ", i, " has no memory");
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
  for (const size_t i : copies_) {
    const auto& [to, from, length] = commands_[i].copy;
    if (!bindings[to.binding].memory->writable()) {
      return InvalidArgument("a copy to binding ", to.binding, ", which is read-only");
    }
    if (length > 0 &&
        Overlap(bindings[to.binding], to.offset, bindings[from.binding], from.offset, length)) {
      return InvalidArgument("a copy of ", length, " bytes overlaps itself");
    }
  }
  return absl::OkStatus();
}

TraceEvent CommandList::Describe(size_t index) const {
  const Command& command = commands_[index];
  TraceEvent event{.kind = command.kind, .name = "copy"};
  if (command.kind == CommandKind::kCopy) {
    event.bytes = static_cast<double>(command.copy.length);
  } else {
    event.name = command.launch.name;
    event.bytes = command.launch.bytes;
    event.flops = command.launch.flops;
  }
  return event;
}

}  // namespace telegrad
