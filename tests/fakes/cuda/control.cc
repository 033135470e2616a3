// The functions of fake_cuda.h.
#include <algorithm>
#include <cstring>

#include "tests/fakes/cuda/context_life.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/cuda/state.h"
#include "tests/fakes/cuda/virtual_memory.h"

using fakecuda::Call;
using fakecuda::Driver;

FAKE_CUDA_API int fakeCudaSet(const char* knob, int64_t value) {
  Call call(Call::Needs::kNothing);
  int64_t* const found = fakecuda::FindKnob(&call.driver().knobs, knob);
  if (found == nullptr) return -1;
  *found = value;
  if (std::strcmp(knob, "seed") == 0) call.driver().random.seed(static_cast<uint64_t>(value));
  call.driver().work.notify_all();
  call.driver().done.notify_all();
  return 0;
}

FAKE_CUDA_API int64_t fakeCudaGet(const char* knob) {
  Call call(Call::Needs::kNothing);
  const int64_t* const found = fakecuda::FindKnob(&call.driver().knobs, knob);
  return found == nullptr ? -1 : *found;
}

FAKE_CUDA_API int64_t fakeCudaCount(const char* counter) {
  Call call(Call::Needs::kNothing);
  const int64_t* const found = fakecuda::FindCounter(call.driver().counters, counter);
  return found == nullptr ? -1 : *found;
}

FAKE_CUDA_API void fakeCudaRelease() {
  Call call(Call::Needs::kNothing);
  for (auto& [handle, stream] : call.driver().streams) {
    for (auto& operation : stream->operations) operation.hangs = false;
  }
  call.driver().work.notify_all();
}

FAKE_CUDA_API size_t fakeCudaProblems(char* text, size_t size) {
  Call call(Call::Needs::kNothing);
  std::string all;
  for (const std::string& problem : call.driver().problems) all += problem + "\n";
  if (text != nullptr && size > 0) {
    const size_t length = std::min(all.size(), size - 1);
    std::memcpy(text, all.data(), length);
    text[length] = 0;
  }
  return all.size();
}

FAKE_CUDA_API void fakeCudaReset() {
  Call call(Call::Needs::kNothing);
  Driver& driver = call.driver();
  while (!driver.contexts.empty()) {
    fakecuda::RemoveContext(driver, call.lock(), driver.contexts.begin()->first);
  }
  fakecuda::DropVirtualMemory(driver);
  driver.graphs.clear();
  driver.host_allocations.clear();
  driver.destroyed_contexts.clear();
  driver.devices.clear();
  driver.initialized = false;
  driver.knobs = fakecuda::KnobsFromEnvironment();
  driver.counters = {};
  driver.problems.clear();
}
