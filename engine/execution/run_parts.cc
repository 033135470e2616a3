// Varying kernel i takes scalars 2 i, its workgroups, and 2 i + 1, its share. Workgroups are
// rounded up to an eighth of their power of two: those of a graph that a GPU replays are changed at
// a cost, and a value that grows by one changes them seldom.
#include "engine/execution/run_parts.h"

#include <algorithm>
#include <bit>

#include "engine/execution/whole_form.h"
#include "engine/lowering/run_groups.h"

namespace telegrad {
namespace {

constexpr size_t kMostVarying = 1024;  // kernels; what there are more of do not vary

uint64_t RoundedUp(int64_t groups) {
  if (groups <= 0) return 0;
  const uint64_t step = std::max<uint64_t>(std::bit_floor(static_cast<uint64_t>(groups)) / 8, 1);
  return (static_cast<uint64_t>(groups) + step - 1) / step * step;
}

}  // namespace

void RunParts::Mark(size_t kernel, Launch* launch) const {
  const auto own = std::ranges::lower_bound(kernels, kernel, {}, &VaryingKernel::kernel);
  if (own == kernels.end() || own->kernel != kernel) return;
  const auto i = static_cast<size_t>(own - kernels.begin());
  if (i >= kMostVarying) return;
  if (own->groups) launch->groups = static_cast<int32_t>(2 * i);
  launch->share = static_cast<int32_t>(2 * i + 1);
}

std::vector<uint64_t> RunParts::Scalars(std::span<const VarValue> values,
                                        std::span<const int64_t> iterations) const {
  std::vector<int64_t> numbers;
  for (const VarValue& value : values) numbers.push_back(value.value);
  const double part = values.empty() ? 1 : PartOf(variables, values);
  std::vector<uint64_t> out;
  for (size_t i = 0; i < std::min(kernels.size(), kMostVarying); ++i) {
    const VaryingKernel& kernel = kernels[i];
    const auto all = static_cast<uint64_t>(iterations[kernel.kernel]);
    const auto groups =
        values.empty() || !kernel.groups ? std::nullopt : ValueOf(*kernel.groups, numbers);
    out.push_back(groups ? std::min(RoundedUp(*groups), all) : all);
    out.push_back(std::bit_cast<uint64_t>(ShareOfWork(kernel.least_share, part)));
  }
  return out;
}

}  // namespace telegrad
