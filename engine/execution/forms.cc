#include "engine/execution/forms.h"

#include <algorithm>
#include <bit>

namespace telegrad {

bool Holds(std::span<const VarRange> ranges, std::span<const VarValue> values) {
  return std::ranges::equal(ranges, values, [](const VarRange& r, const VarValue& v) {
    return r.id == v.id && r.min <= v.value && v.value <= r.max && v.value % r.multiple == 0;
  });
}

Guards Specialized(std::span<const VarValue> values) {
  Guards out;
  for (const VarValue& v : values) out.ranges.push_back({v.id, v.value, v.value, 1});
  return out;
}

Guards Ranged(std::span<const VarRange> declared, std::span<const int64_t> sizes,
              std::span<const VarValue> values) {
  Guards out = Whole(declared);
  for (size_t i = 0; i < declared.size(); ++i) {
    VarRange& range = out.ranges[i];
    if (std::ranges::find(sizes, range.id) == sizes.end()) continue;
    const int64_t least = std::max<int64_t>({values[i].value, range.min, 1});
    if (least >= range.max / 2) continue;
    // A multiple of `multiple` at or above the power of two, for a range ends in one.
    const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least)));
    range.max = std::min(range.max, (power + range.multiple - 1) / range.multiple * range.multiple);
  }
  return out;
}

Guards Whole(std::span<const VarRange> declared) {
  return {{declared.begin(), declared.end()}, /*general=*/true};
}

}  // namespace telegrad
