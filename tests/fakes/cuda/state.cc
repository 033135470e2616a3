// The one driver of the process, the current context of each thread, and the search for objects
// and memory by handle and address.
#include "tests/fakes/cuda/state.h"

#include <algorithm>
#include <cstdio>

#include "tests/fakes/cuda/mig_units.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/virtual_memory.h"

namespace fakecuda {

// Never destroyed: the scheduler's thread lives as long as the process.
Driver& Driver::Get() {
  static Driver* const driver = new Driver;
  return *driver;
}

Handle& CurrentContext() {
  thread_local Handle current = 0;
  return current;
}

void Driver::Problem(const std::string& text) {
  problems.push_back(text);
  if (knobs.verbose != 0) std::fprintf(stderr, "fake CUDA: %s\n", text.c_str());
}

int64_t Driver::MemoryOf(const Device& device) const {
  return device.instance == kWhole ? knobs.memory : knobs.memory / kInstanceParts;
}

Context* Driver::FindContext(Handle handle) {
  const auto it = contexts.find(handle);
  return it == contexts.end() ? nullptr : &it->second;
}

namespace {

Allocation* Find(std::map<uint64_t, Allocation>& in, uint64_t address, uint64_t bytes) {
  auto it = in.upper_bound(address);
  if (it == in.begin()) return nullptr;
  --it;
  const Region& region = it->second.region;
  const uint64_t offset = address - region.base;
  return offset < region.bytes && bytes <= region.bytes - offset ? &it->second : nullptr;
}

}  // namespace

Allocation* Driver::FindDevice(DevicePointer address, uint64_t bytes) {
  return Find(allocations, address, bytes);
}
Allocation* Driver::FindPinned(uint64_t address, uint64_t bytes) {
  return Find(host_allocations, address, bytes);
}

Allocation* Driver::FindMapped(DevicePointer address, uint64_t bytes) {
  for (auto& [host, allocation] : host_allocations) {
    const uint64_t offset = address - allocation.mapped;
    const uint64_t size = allocation.region.bytes;
    if (allocation.mapped != 0 && offset < size && bytes <= size - offset) return &allocation;
  }
  return nullptr;
}

bool Driver::Reaches(const Context& context, DevicePointer address, uint64_t bytes) {
  if (const Allocation* const found = FindDevice(address, bytes); found != nullptr) {
    return found->context == context.handle || context.peers.contains(found->context);
  }
  return IsMapped(*this, address, bytes, {context.device});
}

MemoryView Driver::View(const std::vector<Handle>& of) {
  std::set<Handle> visible(of.begin(), of.end());
  std::set<int> devices;
  for (const Handle handle : of) {
    const Context* context = FindContext(handle);
    if (context == nullptr) continue;
    visible.insert(context->peers.begin(), context->peers.end());
    devices.insert(context->device);
  }
  MemoryView view;
  AddMapped(*this, devices, &view);
  for (const auto& [base, allocation] : allocations) {
    if (visible.contains(allocation.context)) view.push_back(allocation.region);
  }
  for (const auto& [base, allocation] : host_allocations) {
    view.push_back(allocation.region);
    if (allocation.mapped == 0) continue;
    view.push_back(allocation.region);
    view.back().base = allocation.mapped;
  }
  std::sort(view.begin(), view.end(),
            [](const Region& a, const Region& b) { return a.base < b.base; });
  return view;
}

Call::Call(Needs needs) : driver_(Driver::Get()), lock_(driver_.mutex) {
  if (needs == Needs::kNothing) return;
  if (InHostFunction()) {
    driver_.Problem("a host function called the driver");
    result_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (!driver_.initialized) {
    result_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  if (needs == Needs::kDriver) return;
  context_ = driver_.FindContext(CurrentContext());
  if (context_ == nullptr) {
    result_ = driver_.destroyed_contexts.contains(CurrentContext())
                  ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                  : CUDA_ERROR_INVALID_CONTEXT;
    return;
  }
  if (needs == Needs::kHealthyContext) result_ = context_->error;
}

Stream* Call::FindStream(Handle handle) {
  if (handle == 0) handle = context_->default_stream;
  const auto it = driver_.streams.find(handle);
  if (it == driver_.streams.end() || it->second->destroyed) return nullptr;
  return it->second.get();
}

}  // namespace fakecuda
