// Checks commands when they are encoded (sizes, numbers of bindings, arguments against signatures)
// and records how many bytes each needs of a binding.
#include "devices/api/command_list.h"

#include <algorithm>
#include <utility>

#include "devices/api/check_tensor_map.h"
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

std::string SizeText(const GridSize& size) { return StrCat(size.x, " x ", size.y, " x ", size.z); }

absl::Status CheckGrid(const Launch& launch) {
  const GridSize& grid = launch.grid;
  int64_t end;
  if (launch.begin < 0 || grid.x < 0 || grid.y < 0 || grid.z < 0 ||
      !CheckedAdd(launch.begin, grid.x, &end)) {
    return InvalidArgument("a grid of ", SizeText(grid), " workgroups from ", launch.begin);
  }
  return absl::OkStatus();
}

std::string NameOf(ParameterKind kind) { return ParametersText({&kind, 1}); }

absl::Status CheckSignature(const Launch& launch, const ProgramSignature& signature) {
  if (launch.group != signature.group) {
    return InvalidArgument("workgroups of ", SizeText(launch.group), " threads for a program of ",
                           SizeText(signature.group));
  }
  if (launch.local_bytes != signature.local_bytes) {
    return InvalidArgument(launch.local_bytes, " bytes of local memory for a program of ",
                           signature.local_bytes);
  }
  size_t next = 0;
  for (const ParameterKind kind : signature.parameters) {
    if (kind == ParameterKind::kBegin) continue;
    if (next < launch.arguments.size() && launch.arguments[next].kind() != kind) {
      return InvalidArgument("argument ", next, " is a ", NameOf(launch.arguments[next].kind()),
                             ", the program takes a ", NameOf(kind));
    }
    ++next;
  }
  if (next == launch.arguments.size()) return absl::OkStatus();
  return InvalidArgument(launch.arguments.size(), " arguments for a program of ", next);
}

// Of a tensor graph: buffers, then a scalar for each variable.
absl::Status CheckVariables(const Launch& launch) {
  const auto first = std::ranges::find_if_not(launch.arguments, &LaunchArgument::is_buffer);
  const std::span scalars(first, launch.arguments.end());
  const auto is_64 = [](const LaunchArgument& argument) {
    return argument.kind() == ParameterKind::kScalar64;
  };
  if (scalars.size() == launch.variables.size() && std::ranges::all_of(scalars, is_64)) {
    return absl::OkStatus();
  }
  return InvalidArgument(scalars.size(), " arguments from the first scalar on for the ",
                         launch.variables.size(), " variables of a graph, each of 64 bits");
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
    const bool is_copy = commands_[i].kind == CommandKind::kCopy;
    (is_copy ? needs_.copy : needs_.compute) = true;
    if (is_copy) copies_.push_back(i);
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
  TG_RETURN_IF_ERROR(CheckGrid(launch));
  if (const ProgramSignature* signature = launch.program->signature()) {
    TG_RETURN_IF_ERROR(CheckSignature(launch, *signature));
  } else {
    TG_RETURN_IF_ERROR(CheckVariables(launch));
  }
  for (const int32_t part : {launch.groups, launch.share}) {
    if (part != -1) TG_RETURN_IF_ERROR(AddScalar(part));
  }
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    if (const absl::Status status = AddArgument(launch.arguments[i]); !status.ok()) {
      return InvalidArgument("argument ", i, ": ", ToStd(status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CommandList::AddScalar(int32_t index) {
  if (index < 0 || index >= kMaxBindings)
    return InvalidArgument("scalar ", index, " of a submission");
  scalars_ = std::max(scalars_, static_cast<size_t>(index) + 1);
  return absl::OkStatus();
}

absl::Status CommandList::AddArgument(const LaunchArgument& argument) {
  if (!argument.is_bound()) {
    return argument.is_constant() ? absl::OkStatus() : AddScalar(argument.scalar());
  }
  TG_RETURN_IF_ERROR(argument.map() != nullptr ? AddMap(argument) : Need(argument.part(), 0));
  if (argument.writes()) written_[argument.part().binding] = true;
  return absl::OkStatus();
}

absl::Status CommandList::AddMap(const LaunchArgument& argument) {
  const TensorMap& map = *argument.map();
  TG_RETURN_IF_ERROR(CheckTensorMap(map));
  TG_ASSIGN_OR_RETURN(const int64_t bytes, TensorMapBytes(map));
  TG_RETURN_IF_ERROR(Need(argument.part(), bytes));
  aligned_.emplace_back(argument.part(), map.alignment());
  return absl::OkStatus();
}

absl::Status CommandList::Need(const BoundPart& part, int64_t length) {
  int64_t end;
  if (part.binding < 0 || part.binding >= kMaxBindings || part.offset < 0 ||
      !CheckedAdd(part.offset, length, &end)) {
    return InvalidArgument(length, " bytes from byte ", part.offset, " of binding ", part.binding);
  }
  if (part.binding >= static_cast<int64_t>(needed_.size())) {
    needed_.resize(part.binding + 1);
    written_.resize(part.binding + 1);
  }
  needed_[part.binding] = std::max(needed_[part.binding], end);
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
    if (i < written_.size() && written_[i] && !view.memory->writable()) {
      return InvalidArgument("a launch that writes binding ", i, ", which is read-only");
    }
  }
  for (const auto& [part, multiple] : aligned_) {
    const BufferView& view = bindings[part.binding];
    const auto address = reinterpret_cast<uint64_t>(view.memory->host()) +
                         static_cast<uint64_t>(view.offset + part.offset);
    if (address % static_cast<uint64_t>(multiple) == 0) continue;
    return InvalidArgument("a tensor map at byte ", part.offset, " of binding ", part.binding,
                           ", whose address there is no multiple of ", multiple);
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
