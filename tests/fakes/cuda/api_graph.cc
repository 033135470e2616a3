// Graphs of launches and copies. A launch of a graph is one operation of its stream, whose nodes
// run in a random order that their dependencies allow, with the parameters that they had when the
// launch was submitted.
#include <algorithm>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/work.h"

using fakecuda::Call;
using fakecuda::ExecutableGraph;
using fakecuda::Graph;
using fakecuda::GraphNode;
using fakecuda::Handle;
using fakecuda::Result;

namespace {

Result AddNode(Call& call, Handle* out, Handle graph, const Handle* after, size_t count,
               GraphNode node) {
  const auto it = call.driver().graphs.find(graph);
  if (it == call.driver().graphs.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || (count > 0 && after == nullptr)) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  auto& nodes = it->second.nodes;
  for (size_t i = 0; i < count; ++i) {
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const GraphNode& n) { return n.handle == after[i]; });
    if (found == nodes.end()) return fakecuda::CUDA_ERROR_INVALID_VALUE;
    node.after.push_back(static_cast<size_t>(found - nodes.begin()));
  }
  *out = node.handle = call.driver().NewHandle();
  nodes.push_back(std::move(node));
  return fakecuda::CUDA_SUCCESS;
}

Result PrepareNode(Call& call, const fakecuda::KernelNodeParams* params,
                   fakecuda::PreparedLaunch* launch) {
  if (params == nullptr || params->func == 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  fakecuda::LoadForLaunch(call, params->func);
  return Prepare(call.driver(), call.context(), params->func, params->grid, params->block,
                 params->shared_bytes, params->kernel_params, params->extra, launch);
}

// One side of a copy: an address of device or host memory.
bool ReadSide(Call& call, Handle context, const fakecuda::MemcpySide& side, uint64_t bytes,
              bool* device, uint64_t* address) {
  if (side.reserved != nullptr || side.lod != 0 || side.y != 0 || side.z != 0) return false;
  fakecuda::Driver& driver = call.driver();
  *device = side.type == fakecuda::kDevice;
  *address = (*device ? side.device : reinterpret_cast<uint64_t>(side.host)) + side.x_bytes;
  if (side.type == fakecuda::kHost) {
    return side.host != nullptr && !fakecuda::IsDeviceAddress(*address);
  }
  return *device && driver.Reaches(*driver.FindContext(context), *address, bytes);
}

// Copies of one row, which are all that the fake has.
Result PrepareCopy(Call& call, const fakecuda::MemcpyParams* params, Handle context,
                   fakecuda::PreparedCopy* copy) {
  if (params == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (call.driver().FindContext(context) == nullptr) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  if (params->width_bytes == 0 || params->height != 1 || params->depth != 1) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  copy->bytes = params->width_bytes;
  copy->contexts = {context};
  const bool valid =
      ReadSide(call, context, params->from, copy->bytes, &copy->from_device, &copy->from) &&
      ReadSide(call, context, params->to, copy->bytes, &copy->to_device, &copy->to);
  return valid ? fakecuda::CUDA_SUCCESS : fakecuda::CUDA_ERROR_INVALID_VALUE;
}

GraphNode* FindNode(Call& call, Handle executable, Handle node) {
  const auto it = call.driver().executables.find(executable);
  if (it == call.driver().executables.end()) return nullptr;
  for (GraphNode& n : it->second.nodes) {
    if (n.handle == node) return &n;
  }
  return nullptr;
}

// Some order in which every node comes after those that it depends on.
std::vector<size_t> RandomOrder(const std::vector<GraphNode>& nodes, std::mt19937_64& random) {
  std::vector<size_t> order;
  std::vector<bool> done(nodes.size());
  while (order.size() < nodes.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const bool free = std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                    [&](size_t before) { return done[before]; });
      if (!done[i] && free) ready.push_back(i);
    }
    const size_t next = ready[random() % ready.size()];
    done[next] = true;
    order.push_back(next);
  }
  return order;
}

}  // namespace

FAKE_CUDA_API int cuGraphCreate(Handle* graph, unsigned int flags) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (graph == nullptr || flags != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *graph = call.driver().NewHandle();
  call.driver().graphs[*graph] = {};
  ++call.driver().counters.live_graphs;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuGraphDestroy(Handle graph) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (call.driver().graphs.erase(graph) == 0) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  --call.driver().counters.live_graphs;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuGraphAddKernelNode_v2(Handle* out, Handle graph, const Handle* after,
                                          size_t count, const fakecuda::KernelNodeParams* params) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  GraphNode node;
  const Result result = PrepareNode(call, params, &node.launch);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  return AddNode(call, out, graph, after, count, std::move(node));
}

FAKE_CUDA_API int cuGraphAddMemcpyNode(Handle* out, Handle graph, const Handle* after, size_t count,
                                       const fakecuda::MemcpyParams* params, Handle context) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  GraphNode node;
  node.is_copy = true;
  const Result result = PrepareCopy(call, params, context, &node.copy);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  return AddNode(call, out, graph, after, count, std::move(node));
}

FAKE_CUDA_API int cuGraphInstantiateWithFlags(Handle* executable, Handle graph,
                                              unsigned long long flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  call.driver().done.wait(call.lock(), [&] { return call.driver().knobs.hold_instantiate == 0; });
  const auto it = call.driver().graphs.find(graph);
  if (it == call.driver().graphs.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (executable == nullptr || flags != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *executable = call.driver().NewHandle();
  call.driver().executables[*executable] = {
      .nodes = it->second.nodes, .context = call.context().handle, .last = nullptr};
  ++call.driver().counters.live_graphs;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuGraphExecDestroy(Handle executable) {
  Call call(Call::Needs::kContext);
  FAKE_RETURN_IF_FAILED(call);
  if (call.driver().executables.erase(executable) == 0) {
    return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  }
  --call.driver().counters.live_graphs;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuGraphExecKernelNodeSetParams_v2(Handle executable, Handle node,
                                                    const fakecuda::KernelNodeParams* params) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  GraphNode* found = FindNode(call, executable, node);
  if (found == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (found->is_copy) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  fakecuda::PreparedLaunch launch;
  const Result result = PrepareNode(call, params, &launch);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  found->launch = std::move(launch);
  ++call.driver().counters.node_updates;
  return fakecuda::CUDA_SUCCESS;
}

// CUDA Driver API: what kinds of memory are copied cannot change.
FAKE_CUDA_API int cuGraphExecMemcpyNodeSetParams(Handle executable, Handle node,
                                                 const fakecuda::MemcpyParams* params,
                                                 Handle context) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  GraphNode* found = FindNode(call, executable, node);
  if (found == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (!found->is_copy) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  fakecuda::PreparedCopy copy;
  const Result result = PrepareCopy(call, params, context, &copy);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  if (copy.from_device != found->copy.from_device || copy.to_device != found->copy.to_device ||
      copy.contexts != found->copy.contexts) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  found->copy = copy;
  ++call.driver().counters.node_updates;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuGraphLaunch(Handle executable, Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  fakecuda::Driver& driver = call.driver();
  const auto it = driver.executables.find(executable);
  fakecuda::Stream* stream = call.FindStream(stream_handle);
  if (it == driver.executables.end() || stream == nullptr) {
    return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  }
  ExecutableGraph& graph = it->second;
  const std::vector<size_t> order = RandomOrder(graph.nodes, driver.random);
  std::vector<fakecuda::LaunchFate> fates(graph.nodes.size());
  fakecuda::Operation operation;
  for (const size_t i : order) {
    const GraphNode& node = graph.nodes[i];
    if (node.is_copy) {
      operation.contexts.insert(operation.contexts.end(), node.copy.contexts.begin(),
                                node.copy.contexts.end());
      continue;
    }
    operation.contexts.push_back(node.launch.loaded.context);
    fates[i] = fakecuda::DrawFate(driver);
    operation.hangs |= fates[i].hangs;
  }
  operation.run = [nodes = graph.nodes, order, fates](const fakecuda::MemoryView& memory) {
    fakecuda::Outcome outcome;
    for (const size_t i : order) {
      if (outcome.result != fakecuda::CUDA_SUCCESS) break;
      if (nodes[i].is_copy) {
        RunCopy(nodes[i].copy, memory, &outcome);
      } else {
        RunLaunch(nodes[i].launch, fates[i], memory, &outcome);
      }
    }
    return outcome;
  };
  if (graph.last != nullptr) operation.waits.push_back(graph.last);
  graph.last = Submit(driver, *stream, std::move(operation));
  ++driver.counters.graph_launches;
  return fakecuda::CUDA_SUCCESS;
}
