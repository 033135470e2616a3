// Makes contexts with their default stream, and removes them with their streams, memory and
// modules. What is still in a healthy context when it is destroyed is noted as a problem of the
// program under test.
#include "tests/fakes/cuda/context_life.h"

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/scheduler.h"

namespace fakecuda {
namespace {

template <class Map>
int64_t EraseOf(Map* map, Handle context) {
  return static_cast<int64_t>(
      std::erase_if(*map, [&](const auto& entry) { return entry.second.context == context; }));
}

void AddDefaultStream(Driver& driver, Context& context) {
  auto stream = std::make_shared<Stream>();
  stream->handle = driver.NewHandle();
  stream->context = context.handle;
  stream->is_default = true;
  context.default_stream = stream->handle;
  driver.streams[stream->handle] = std::move(stream);
}

}  // namespace

Context& MakeContext(Driver& driver, int device) {
  const Handle handle = driver.NewHandle();
  Context& context = driver.contexts[handle];
  context.handle = handle;
  context.device = device;
  AddDefaultStream(driver, context);
  ++driver.counters.live_contexts;
  return context;
}

void EmptyContext(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle,
                  bool is_reset) {
  Context& context = driver.contexts.at(handle);
  const bool healthy = context.error == CUDA_SUCCESS;
  std::vector<Handle> streams;
  int64_t open_streams = 0;
  for (const auto& [s, stream] : driver.streams) {
    if (stream->context != handle) continue;
    streams.push_back(s);
    if (!stream->is_default && !stream->destroyed) ++open_streams;
    if (healthy && !stream->operations.empty()) {
      driver.Problem("a context was destroyed while a stream had work");
    }
  }
  for (const Handle stream : streams) DropStream(driver, lock, stream);
  int64_t bytes = 0;
  int64_t allocations = 0;
  for (auto it = driver.allocations.begin(); it != driver.allocations.end();) {
    if (it->second.context != handle) {
      ++it;
      continue;
    }
    if (!it->second.internal) {
      ++allocations;
      bytes += static_cast<int64_t>(it->second.region.bytes);
    }
    const DevicePointer base = it->first;
    ++it;
    FreeDevice(driver, base);
  }
  driver.counters.live_host_allocations -= EraseOf(&driver.host_allocations, handle);
  const int64_t events = EraseOf(&driver.events, handle);
  const int64_t modules = EraseOf(&driver.modules, handle);
  EraseOf(&driver.functions, handle);
  driver.counters.live_graphs -= EraseOf(&driver.executables, handle);
  driver.counters.live_streams -= open_streams;
  driver.counters.live_events -= events;
  driver.counters.live_modules -= modules;
  if (healthy && !is_reset && allocations + open_streams + events + modules > 0) {
    driver.Problem("a context was destroyed with " + std::to_string(allocations) +
                   " allocations (" + std::to_string(bytes) + " bytes), " +
                   std::to_string(open_streams) + " streams, " + std::to_string(events) +
                   " events and " + std::to_string(modules) + " modules in it");
  }
  context.error = CUDA_SUCCESS;
  context.peers.clear();
  AddDefaultStream(driver, context);
}

void RemoveContext(Driver& driver, std::unique_lock<std::mutex>& lock, Handle handle) {
  EmptyContext(driver, lock, handle);
  DropStream(driver, lock, driver.contexts.at(handle).default_stream);
  driver.contexts.erase(handle);
  driver.destroyed_contexts.insert(handle);
  for (auto& [other, context] : driver.contexts) context.peers.erase(handle);
  --driver.counters.live_contexts;
}

}  // namespace fakecuda
