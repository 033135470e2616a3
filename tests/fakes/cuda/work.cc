// Checks parameters, addresses and sizes when work is submitted, and carries out copies, memsets
// and launches when a stream runs them, with the failures that the knobs ask for.
#include "tests/fakes/cuda/work.h"

#include <cstdlib>
#include <cstring>

#include "tests/fakes/cuda/device_facts.h"
#include "tests/fakes/cuda/device_memory.h"

namespace fakecuda {
namespace {

// The host bytes of device memory; null, with the outcome failed, if it is no longer there.
uint8_t* Find(const MemoryView& memory, DevicePointer address, uint64_t bytes, const char* what,
              Outcome* outcome) {
  const int at = FindRegion(memory, address, bytes);
  if (at >= 0) {
    const Region& region = memory[static_cast<size_t>(at)];
    return region.host + (address - region.base);
  }
  outcome->result = CUDA_ERROR_ILLEGAL_ADDRESS;
  outcome->message = std::string(what) + " of memory that was freed before it ran";
  return nullptr;
}

// `extra`: pairs of key and value up to the end key.
Result ReadExtra(void** extra, const DeviceKernel& kernel, std::vector<uint8_t>* parameters) {
  const void* buffer = nullptr;
  size_t size = 0;
  for (size_t i = 0; reinterpret_cast<uintptr_t>(extra[i]) != kLaunchParamEnd; i += 2) {
    const auto key = reinterpret_cast<uintptr_t>(extra[i]);
    if (key == kLaunchParamBuffer) {
      buffer = extra[i + 1];
    } else if (key == kLaunchParamBufferSize && extra[i + 1] != nullptr) {
      size = *static_cast<const size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || size != kernel.parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(parameters->data(), buffer, size);
  return CUDA_SUCCESS;
}

Result ReadParameters(const DeviceKernel& kernel, void** parameters, void** extra,
                      std::vector<uint8_t>* out) {
  out->assign(kernel.parameter_bytes, 0xcd);
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return ReadExtra(extra, kernel, out);
  if (kernel.parameters.empty()) return CUDA_SUCCESS;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const DeviceKernel::Parameter& p = kernel.parameters[i];
    std::memcpy(out->data() + p.offset, parameters[i], p.bytes);
  }
  return CUDA_SUCCESS;
}

}  // namespace

void RunCopy(const PreparedCopy& copy, const MemoryView& memory, Outcome* outcome) {
  const uint8_t* from = reinterpret_cast<const uint8_t*>(copy.from);
  auto* to = reinterpret_cast<uint8_t*>(copy.to);
  if (copy.from_device) from = Find(memory, copy.from, copy.bytes, "a copy", outcome);
  if (copy.to_device) to = Find(memory, copy.to, copy.bytes, "a copy", outcome);
  if (outcome->result != CUDA_SUCCESS) return;
  std::memmove(to, from, copy.bytes);
  if (copy.corrupts) to[copy.bytes / 2] ^= 1;
  ++outcome->counted.copies;
  outcome->counted.copied_bytes += static_cast<int64_t>(copy.bytes);
}

void RunMemset(DevicePointer to, uint8_t value, uint64_t bytes, const MemoryView& memory,
               Outcome* outcome) {
  uint8_t* at = Find(memory, to, bytes, "a memset", outcome);
  if (at == nullptr) return;
  std::memset(at, value, bytes);
  ++outcome->counted.memsets;
}

// The host may be looking.
void RunWord(DevicePointer to, uint64_t value, const MemoryView& memory, Outcome* outcome) {
  uint8_t* at = Find(memory, to, sizeof(value), "a word", outcome);
  if (at == nullptr) return;
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  ++outcome->counted.words;
}

void AwaitRunning(Call& call) {
  Driver& driver = call.driver();
  driver.done.wait(call.lock(), [&] {
    return std::none_of(driver.streams.begin(), driver.streams.end(),
                        [](const auto& entry) { return entry.second->running; });
  });
}

void LoadForLaunch(Call& call, Handle function) {
  Driver& driver = call.driver();
  const auto it = driver.functions.find(function);
  if (driver.knobs.lazy_load == 0 || driver.eager || it == driver.functions.end()) return;
  if (it->second.loaded_lazily) return;
  it->second.loaded_lazily = true;
  ++driver.counters.lazy_loads;
  AwaitRunning(call);
}

Result Prepare(Driver& driver, const Context& context, Handle function, const uint32_t grid[3],
               const uint32_t block[3], uint64_t shared_bytes, void** parameters, void** extra,
               PreparedLaunch* launch) {
  const auto it = driver.functions.find(function);
  if (it == driver.functions.end()) return CUDA_ERROR_INVALID_HANDLE;
  const LoadedFunction& loaded = it->second;
  if (loaded.context != context.handle) return CUDA_ERROR_INVALID_CONTEXT;
  const DeviceKernel& kernel = *loaded.kernel;
  static constexpr uint32_t kGrid[3] = {0x7fffffff, 65535, 65535};
  static constexpr uint32_t kBlock[3] = {1024, 1024, 64};
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || grid[i] > kGrid[i] || block[i] == 0 || block[i] > kBlock[i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= block[i];
    const auto& required = kernel.required_threads;
    if (required[0] != 0 && required[static_cast<size_t>(i)] != block[i]) {
      driver.Problem("kernel " + kernel.name + " was launched with other threads than .reqntid");
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (threads > 1024 || threads > kernel.maximal_threads) return CUDA_ERROR_INVALID_VALUE;
  if (shared_bytes > loaded.dynamic_shared) return CUDA_ERROR_INVALID_VALUE;
  launch->function = function;
  launch->loaded = loaded;
  launch->run.grid = {grid[0], grid[1], grid[2]};
  launch->run.block = {block[0], block[1], block[2]};
  launch->run.dynamic_shared = shared_bytes;
  return ReadParameters(kernel, parameters, extra, &launch->parameters);
}

LaunchFate DrawFate(Driver& driver) {
  LaunchFate fate;
  fate.budget = static_cast<uint64_t>(driver.knobs.budget);
  if (Now(&driver.knobs.abort_launch)) std::abort();
  fate.hangs = Now(&driver.knobs.hang_launch);
  if (Now(&driver.knobs.fault_launch)) fate.fault = static_cast<Result>(driver.knobs.fault_code);
  return fate;
}

namespace {

void AddCounts(const LaunchCounts& counts, Counters* to) {
#define KIND(name, meaning) \
  to->name += static_cast<int64_t>(counts.instructions[static_cast<size_t>(InstructionKind::name)]);
#include "tests/fakes/cuda/ptx/kinds.def"
#undef KIND
  to->load_conflicts += static_cast<int64_t>(counts.load_conflicts);
  to->store_conflicts += static_cast<int64_t>(counts.store_conflicts);
  to->global_bytes += static_cast<int64_t>(counts.global_bytes);
  to->global_sectors += static_cast<int64_t>(counts.global_sectors);
}

}  // namespace

void RunLaunch(const PreparedLaunch& prepared, const LaunchFate& fate, const MemoryView& memory,
               Outcome* outcome) {
  KernelRun run = prepared.run;
  run.parameters = &prepared.parameters;
  run.memory = &memory;
  run.budget = fate.budget;
  const DeviceKernel& kernel = *prepared.loaded.kernel;
  const KernelEnd end = kernel.Run(run);
  ++outcome->counted.launches;
  outcome->counted.workgroups += int64_t{run.grid[0]} * run.grid[1] * run.grid[2];
  outcome->counted.instructions += static_cast<int64_t>(end.instructions);
  AddCounts(end.counts, &outcome->counted);
  if (end.result != CUDA_SUCCESS) {
    outcome->result = end.result;
    outcome->message = end.message;
  } else if (fate.fault != CUDA_SUCCESS) {
    outcome->result = fate.fault;
    outcome->message = "kernel " + kernel.name + ": a fault that the test asked for";
  }
}

}  // namespace fakecuda
