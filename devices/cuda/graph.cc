#include "devices/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "devices/cuda/program.h"
#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

size_t ArgumentsOf(const Command& command) {
  return command.kind == CommandKind::kCopy ? 2 : command.launch.arguments.size();
}

CUDA_MEMCPY3D_v2 CopyNode(const CopyBytes& copy, std::span<const CUdeviceptr> addresses) {
  const auto bytes = static_cast<size_t>(copy.length);
  CUDA_MEMCPY3D_v2 out{};
  out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = addresses[0];
  out.srcDevice = addresses[1];
  out.srcPitch = out.dstPitch = out.WidthInBytes = bytes;
  out.srcHeight = out.dstHeight = out.Height = out.Depth = 1;
  return out;
}

}  // namespace

KernelCall::KernelCall(const Launch& launch, std::span<const CUdeviceptr> buffers)
    : program_(static_cast<const CudaProgram&>(*launch.program)),
      groups_(static_cast<unsigned int>(launch.iterations)),
      values_(buffers.begin(), buffers.end()) {
  values_.push_back(static_cast<CUdeviceptr>(launch.begin));
  for (CUdeviceptr& value : values_) pointers_.push_back(&value);
}

CUDA_KERNEL_NODE_PARAMS_v2 KernelCall::Node() {
  CUDA_KERNEL_NODE_PARAMS_v2 out{};
  out.func = program_.function();
  out.gridDimX = groups_;
  out.gridDimY = out.gridDimZ = 1;
  out.blockDimX = program_.group_threads();
  out.blockDimY = out.blockDimZ = 1;
  out.sharedMemBytes = program_.local_bytes();
  out.kernelParams = pointers_.data();
  return out;
}

absl::Status KernelCall::Enqueue(Context& context, CUstream stream) {
  return TG_CUDA(context, cuLaunchKernel, program_.function(), groups_, 1, 1,
                 program_.group_threads(), 1, 1, program_.local_bytes(), stream, pointers_.data(),
                 nullptr);
}

absl::StatusOr<std::unique_ptr<Graph>> Graph::Create(std::shared_ptr<Context> context,
                                                     std::span<const Command* const> commands,
                                                     std::span<const CUdeviceptr> addresses) {
  std::unique_ptr<Graph> out(new Graph(std::move(context), commands, addresses));
  TG_RETURN_IF_ERROR(out->Build());
  return out;
}

absl::Status Graph::Build() {
  TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuGraphCreate, &graph_, 0));
  std::span<const CUdeviceptr> rest = addresses_;
  for (const Command* command : commands_) {
    const size_t count = ArgumentsOf(*command);
    TG_RETURN_IF_ERROR(AddNode(*command, rest.first(count)));
    rest = rest.subspan(count);
  }
  return TG_CUDA(*context_, cuGraphInstantiateWithFlags, &exec_, graph_, 0);
}

absl::Status Graph::AddNode(const Command& command, std::span<const CUdeviceptr> addresses) {
  const CUgraphNode* const before = nodes_.empty() ? nullptr : &nodes_.back();
  const size_t edges = nodes_.empty() ? 0 : 1;
  CUgraphNode node = nullptr;
  if (command.kind == CommandKind::kCopy) {
    const CUDA_MEMCPY3D_v2 copy = CopyNode(command.copy, addresses);
    TG_RETURN_IF_ERROR(TG_CUDA(*context_, cuGraphAddMemcpyNode, &node, graph_, before, edges, &copy,
                               context_->handle()));
  } else {
    KernelCall call(command.launch, addresses);
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = call.Node();
    TG_RETURN_IF_ERROR(
        TG_CUDA(*context_, cuGraphAddKernelNode_v2, &node, graph_, before, edges, &kernel));
  }
  nodes_.push_back(node);
  return absl::OkStatus();
}

absl::Status Graph::UpdateNode(size_t index, std::span<const CUdeviceptr> addresses) {
  const Command& command = *commands_[index];
  if (command.kind == CommandKind::kCopy) {
    const CUDA_MEMCPY3D_v2 copy = CopyNode(command.copy, addresses);
    return TG_CUDA(*context_, cuGraphExecMemcpyNodeSetParams, exec_, nodes_[index], &copy,
                   context_->handle());
  }
  KernelCall call(command.launch, addresses);
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = call.Node();
  return TG_CUDA(*context_, cuGraphExecKernelNodeSetParams_v2, exec_, nodes_[index], &kernel);
}

absl::Status Graph::Update(std::span<const CUdeviceptr> addresses) {
  size_t at = 0;
  for (size_t i = 0; i < commands_.size(); ++i) {
    const size_t count = ArgumentsOf(*commands_[i]);
    const auto now = addresses.subspan(at, count);
    const auto before = std::span(addresses_).subspan(at, count);
    at += count;
    if (std::ranges::equal(now, before)) continue;
    TG_RETURN_IF_ERROR(UpdateNode(i, now));
    std::ranges::copy(now, before.begin());
  }
  return absl::OkStatus();
}

absl::Status Graph::Launch(CUstream stream) {
  return TG_CUDA(*context_, cuGraphLaunch, exec_, stream);
}

Graph::~Graph() {
  if (context_->stuck()) return;
  context_->EnterToRelease();
  if (exec_ != nullptr) context_->api().cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) context_->api().cuGraphDestroy(graph_);
}

}  // namespace telegrad::cuda
