// Windows over the last axes of a tensor, for convolutions and pools: their geometry, and the
// linear map to all windows with its transpose.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// One axis. Element k of window o is element o stride + k dilation - before; what lies outside of
// the axis is padding.
struct AxisWindow {
  int64_t in;                        // the axis
  int64_t before, after;             // padding
  int64_t kernel, stride, dilation;  // a dilation of 0 where the kernel is 1
  int64_t out;                       // windows
  int64_t cut;                       // padding after `after` that ceil_mode adds

  int64_t padded() const { return before + in + after + cut; }
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};
using AxisWindows = std::vector<AxisWindow>;

// Of the last axes of `x`, one for each number of `kernel`. The error names `op`.
absl::StatusOr<AxisWindows> ResolveWindows(std::string_view op, const Tensor& x,
                                           const std::vector<int64_t>& kernel,
                                           const Window& window);
// One number for each of `n` axes from a list of one or n, within [low, 2^20].
absl::StatusOr<std::vector<int64_t>> OnePerAxis(std::string_view op, std::string_view what,
                                                const std::vector<int64_t>& list, size_t n,
                                                int64_t low);

// [.., in..] -> [.., out.., kernel..]
Tensor MakeWindows(const Tensor& x, const AxisWindows& axes, double fill = 0);
// [.., out.., kernel..] -> [.., in..]: each element the sum of those that MakeWindows makes of it.
Tensor SumWindows(const Tensor& windows, const AxisWindows& axes);

// `n` axes from `first` on: first, first + 1, ...
Axes AxesFrom(int64_t first, size_t n);
// The last `n` axes, from the end.
inline Axes LastAxes(size_t n) { return AxesFrom(-static_cast<int64_t>(n), n); }
// (before, after) added to each of the last axes, or taken off where negative.
Tensor PadOrCrop(const Tensor& x, const std::vector<int64_t>& pairs, double fill = 0);

}  // namespace telegrad
