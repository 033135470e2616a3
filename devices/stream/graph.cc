// Builds a node for each command. An update compares addresses with those of the last run and
// changes the nodes in which they differ, with the tensor maps in them.
#include "devices/stream/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "devices/stream/program.h"
#include "engine/base/status.h"

namespace telegrad::stream {

size_t WordsOf(const Command& command) {
  if (command.kind == CommandKind::kCopy) return 2;
  return command.launch.arguments.size() + (command.launch.groups >= 0 ? 1 : 0);
}

KernelCall::KernelCall(const Launch& launch, std::span<const Address> words)
    : launch_(launch), words_(words.begin(), words.end()), grid_(launch.grid) {
  if (launch.groups >= 0) {
    grid_.x = static_cast<int64_t>(words_.back());
    words_.pop_back();
  }
  words_.push_back(static_cast<Address>(launch.begin));
}

// A scalar of 32 bits is at the beginning of its word, for hosts are little-endian.
absl::StatusOr<KernelLaunch> KernelCall::Node(Context& context) {
  const auto& parameters = launch_.program->signature()->parameters;
  const auto maps = std::ranges::count(parameters, ParameterKind::kTensorMap);
  maps_.assign(static_cast<size_t>(maps), {});
  pointers_.clear();
  auto map = maps_.begin();
  size_t next = 0;
  for (const ParameterKind kind : parameters) {
    if (kind == ParameterKind::kBegin) {
      pointers_.push_back(&words_.back());
      continue;
    }
    const LaunchArgument& argument = launch_.arguments[next];
    Address& word = words_[next++];
    if (argument.map() == nullptr) {
      pointers_.push_back(&word);
      continue;
    }
    TG_RETURN_IF_ERROR(context.driver().EncodeTensorMap(context, *argument.map(), word, &*map));
    pointers_.push_back(&*map++);
  }
  const auto size = [](const GridSize& of) {
    return std::array{static_cast<unsigned int>(of.x), static_cast<unsigned int>(of.y),
                      static_cast<unsigned int>(of.z)};
  };
  return KernelLaunch{static_cast<const StreamProgram&>(*launch_.program).function(), size(grid_),
                      size(launch_.group), static_cast<unsigned int>(launch_.local_bytes),
                      pointers_.data()};
}

absl::Status KernelCall::Enqueue(Context& context, StreamHandle stream) {
  TG_ASSIGN_OR_RETURN(const KernelLaunch launch, Node(context));
  const auto& [function, grid, group, local_bytes, parameters] = launch;
  return TG_STREAM(context, launch_kernel, function, grid[0], grid[1], grid[2], group[0], group[1],
                   group[2], local_bytes, stream, parameters, nullptr);
}

absl::StatusOr<std::unique_ptr<Graph>> Graph::Create(std::shared_ptr<Context> context,
                                                     std::span<const Command* const> commands,
                                                     std::span<const Address> addresses) {
  std::unique_ptr<Graph> out(new Graph(std::move(context), commands, addresses));
  TG_RETURN_IF_ERROR(out->Build());
  return out;
}

absl::Status Graph::Build() {
  TG_RETURN_IF_ERROR(TG_STREAM(*context_, graph_create, &graph_, 0));
  std::span<const Address> rest = addresses_;
  for (const Command* command : commands_) {
    const size_t count = WordsOf(*command);
    TG_RETURN_IF_ERROR(AddNode(*command, rest.first(count)));
    rest = rest.subspan(count);
  }
  return TG_STREAM(*context_, graph_instantiate, &exec_, graph_, 0);
}

absl::Status Graph::AddNode(const Command& command, std::span<const Address> addresses) {
  const Driver& driver = context_->driver();
  const auto before = std::span<const NodeHandle>(nodes_).last(nodes_.empty() ? 0 : 1);
  NodeHandle node = nullptr;
  if (command.kind == CommandKind::kCopy) {
    TG_RETURN_IF_ERROR(
        context_->Check(driver.AddCopy(&node, graph_, before, context_->handle(), addresses[0],
                                       addresses[1], static_cast<size_t>(command.copy.length))));
  } else {
    KernelCall call(command.launch, addresses);
    TG_ASSIGN_OR_RETURN(const KernelLaunch launch, call.Node(*context_));
    TG_RETURN_IF_ERROR(context_->Check(driver.AddKernel(&node, graph_, before, launch)));
  }
  nodes_.push_back(node);
  return absl::OkStatus();
}

absl::Status Graph::UpdateNode(size_t index, std::span<const Address> addresses) {
  const Driver& driver = context_->driver();
  const Command& command = *commands_[index];
  if (command.kind == CommandKind::kCopy) {
    return context_->Check(driver.SetCopy(exec_, nodes_[index], context_->handle(), addresses[0],
                                          addresses[1], static_cast<size_t>(command.copy.length)));
  }
  KernelCall call(command.launch, addresses);
  TG_ASSIGN_OR_RETURN(const KernelLaunch launch, call.Node(*context_));
  return context_->Check(driver.SetKernel(exec_, nodes_[index], launch));
}

absl::Status Graph::Update(std::span<const Address> addresses) {
  size_t at = 0;
  for (size_t i = 0; i < commands_.size(); ++i) {
    const size_t count = WordsOf(*commands_[i]);
    const auto now = addresses.subspan(at, count);
    const auto before = std::span(addresses_).subspan(at, count);
    at += count;
    if (std::ranges::equal(now, before)) continue;
    TG_RETURN_IF_ERROR(UpdateNode(i, now));
    std::ranges::copy(now, before.begin());
  }
  return absl::OkStatus();
}

absl::Status Graph::Launch(StreamHandle stream) {
  return TG_STREAM(*context_, graph_launch, exec_, stream);
}

Graph::~Graph() {
  context_->ReleaseUnlocked([&] {
    if (exec_ != nullptr) context_->calls().exec_destroy(exec_);
    if (graph_ != nullptr) context_->calls().graph_destroy(graph_);
  });
}

}  // namespace telegrad::stream
