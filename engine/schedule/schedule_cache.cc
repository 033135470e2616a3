#include "engine/schedule/schedule_cache.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

std::string ScheduleKey(const Digest& hash, std::span<const VarValue> variables,
                        const ScheduleOptions& options) {
  std::string key(hash.view());
  StrAppend(&key, " ", static_cast<int>(options.machine->row), " ", options.private_bytes, " ",
            options.row_blocks, " ", options.row_bytes, " ", options.row_groups, " ",
            options.row_warp, " ", options.multiply_adds, " ", options.transformed_bytes,
            options.dots ? " dots" : "", options.fixed_sums ? " fixed" : "");
  if (options.product_target) StrAppend(&key, " products ", options.product_target->Key());
  std::vector<VarValue> sorted(variables.begin(), variables.end());
  std::ranges::sort(sorted);
  for (const VarValue& v : sorted) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

int64_t BytesOfSchedule(const Schedule& schedule) {
  auto bytes =
      static_cast<int64_t>(sizeof(Schedule) + schedule.temporaries.size() * sizeof(Temporary));
  for (const ScheduledKernel& kernel : schedule.kernels) {
    bytes += kernel.graph.graph->bytes() + static_cast<int64_t>(sizeof(ScheduledKernel)) +
             static_cast<int64_t>(kernel.arguments.size() * sizeof(BufferRef));
    for (const std::string& reason : kernel.reasons) bytes += static_cast<int64_t>(reason.size());
  }
  return bytes;
}

}  // namespace

ScheduleCache::ScheduleCache(int64_t max_bytes)
    : cache_({.max_bytes = max_bytes, .fair = true}, BytesOfSchedule) {}

absl::StatusOr<std::shared_ptr<const Schedule>> ScheduleCache::Get(
    const Digest& hash, UOp sink, std::span<const VarValue> variables, Budget* budget,
    const ScheduleOptions& options) {
  using SchedulePtr = std::shared_ptr<const Schedule>;
  const auto make = [&]() -> absl::StatusOr<SchedulePtr> {
    TG_ASSIGN_OR_RETURN(Schedule made, ScheduleGraph(sink, variables, budget, options));
    return std::make_shared<const Schedule>(std::move(made));
  };
  TG_ASSIGN_OR_RETURN(auto got, cache_.Get(ScheduleKey(hash, variables, options), budget, make));
  return std::move(got.value);
}

}  // namespace telegrad
