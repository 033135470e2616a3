// Tensor graphs through the whole engine onto a device: schedule, lower, render, compile, load,
// submit.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/content_hash.h"
#include "tests/conformance/run_graph.h"
#include "tests/devices/fixture.h"

namespace telegrad {

class DeviceGraphRunner {
 public:
  explicit DeviceGraphRunner(std::unique_ptr<Device> device, KernelServices services = {})
      : device_(std::move(device)), cache_(ExecutableCache::Limits{}, std::move(services)) {}

  // Binds the slots to buffers of the device, runs the graph `runs` times, and reads them back.
  absl::Status Run(UOp sink, std::span<const VarValue> variables, testing::Slots* slots,
                   int runs = 1) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto built,
                        cache_.Get(ContentHash(sink), Freeze(sink), *device_, &budget, variables));
    std::vector<BufferView> staged, bound;
    for (const auto& bytes : *slots) {
      const auto length = static_cast<int64_t>(bytes.size());
      const std::string content = length == 0 ? "-" : std::string(bytes.begin(), bytes.end());
      staged.push_back(HostBuffer(*host_, content));
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(length, 1)));
      bound.push_back({std::move(memory), 0, length});
      if (length == 0) continue;
      TG_ASSIGN_OR_RETURN(const auto copied, Copy(*device_, bound.back(), staged.back()));
      TG_RETURN_IF_ERROR(copied.Wait());
    }
    for (int run = 0; run < runs; ++run) {
      TG_ASSIGN_OR_RETURN(const auto done, built.executable->Submit(bound, {}));
      TG_RETURN_IF_ERROR(done.Wait());
    }
    for (size_t i = 0; i < slots->size(); ++i) {
      if (bound[i].length == 0) continue;
      TG_ASSIGN_OR_RETURN(const auto copied, Copy(*device_, staged[i], bound[i]));
      TG_RETURN_IF_ERROR(copied.Wait());
      const std::string bytes = Bytes(staged[i]);
      (*slots)[i].assign(bytes.begin(), bytes.end());
    }
    return absl::OkStatus();
  }

  Device& device() { return *device_; }
  ExecutableCache::Stats stats() const { return cache_.stats(); }

 private:
  const std::unique_ptr<Device> host_ = OpenHost({.index = 7, .memory_limit = int64_t{4} << 30});
  const std::unique_ptr<Device> device_;
  ExecutableCache cache_;
};

}  // namespace telegrad
