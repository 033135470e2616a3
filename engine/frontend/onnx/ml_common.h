// What the operators of ai.onnx.ml share: features, weights, labels and the transforms of scores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/frontend/onnx/common.h"

namespace telegrad::onnx {

// Input 0 as f32, or as f64 where it is that: [rows, n].
absl::StatusOr<Tensor> Features(NodeContext& c);

// Lists as weights of the plan.
absl::StatusOr<Tensor> FloatWeight(NodeContext& c, const Shape& shape,
                                   const std::vector<float>& values);
absl::StatusOr<Tensor> DoubleWeight(NodeContext& c, const Shape& shape,
                                    const std::vector<double>& values);
absl::StatusOr<Tensor> IntWeight(NodeContext& c, const std::vector<int64_t>& values);

// Floats of the attribute `name`, or of the tensor `name`_as_tensor, whose elements may be f64.
absl::StatusOr<std::vector<double>> FloatsOrTensor(NodeContext& c, const std::string& name);

// Scores [rows, targets] after the transform of that name, as `post_transform` names it.
absl::StatusOr<Tensor> PostTransform(std::string_view name, const Tensor& scores);
absl::StatusOr<Tensor> PostTransform(NodeContext& c, const Tensor& scores);

// A list of labels or keys: integers, floats or strings. Strings exist on the host alone.
struct Labels {
  bool is_strings = false;
  HostTensor numbers;  // [n], unless they are strings
  std::vector<std::string> strings;

  int64_t size() const {
    return is_strings ? static_cast<int64_t>(strings.size()) : NumElements(numbers.shape);
  }
};

// Of the first attribute that the node has: `prefix`_int64s, _ints, _floats, _strings or _tensor.
// INVALID_ARGUMENT if it has none of them, or two.
absl::StatusOr<Labels> ReadLabels(NodeContext& c, const std::string& prefix);

// The next result: the label at each position, which lies in [0, n). Labels that are strings need
// positions that can be computed at import.
absl::Status OutputLabels(NodeContext& c, const Labels& labels, const ValueRef& positions);

}  // namespace telegrad::onnx
