// A graph is compiled for one CPU device through the cache of executables, and its slots are
// copied to buffers of the device and back.
#include "tests/conformance/run_graph.h"

#include <algorithm>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/ir/content_hash.h"

namespace telegrad::testing {

absl::StatusOr<std::unique_ptr<CpuRunner>> CpuRunner::Open(ExecutableCache::Limits limits,
                                                           const Target& target) {
  CpuOptions options;
  options.target = target;
  options.threads = target.threads;
  TG_ASSIGN_OR_RETURN(auto device, OpenCpu(options));
  return std::unique_ptr<CpuRunner>(new CpuRunner(std::move(device), limits));
}

absl::Status CpuRunner::Run(UOp sink, std::span<const VarValue> variables, Slots* slots) {
  Budget budget;
  TG_ASSIGN_OR_RETURN(const auto built,
                      cache_.Get(ContentHash(sink), Freeze(sink), *device_, &budget, variables));
  std::vector<BufferView> bindings;
  for (const std::vector<uint8_t>& bytes : *slots) {
    const auto size = static_cast<int64_t>(bytes.size());
    TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(size, 1)));
    std::ranges::copy(bytes, static_cast<uint8_t*>(memory->host()));
    bindings.push_back({std::move(memory), 0, size});
  }
  TG_ASSIGN_OR_RETURN(TimelinePoint point, built.executable->Submit(bindings, {}));
  TG_RETURN_IF_ERROR(point.Wait(absl::Seconds(60)));
  for (size_t i = 0; i < slots->size(); ++i) {
    std::vector<uint8_t>& slot = (*slots)[i];
    std::copy_n(static_cast<const uint8_t*>(bindings[i].memory->host()), slot.size(), slot.begin());
  }
  return absl::OkStatus();
}

}  // namespace telegrad::testing
