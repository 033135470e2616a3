#include "server/serving/classification.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "server/serving/datatype.h"

namespace telegrad {
namespace {

void AppendString(std::string_view text, std::string* out) {
  const auto length = static_cast<uint32_t>(text.size());
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(length >> shift));
  out->append(text);
}

std::string ValueText(DType dtype, double value) {
  if (IsFloat(dtype)) return std::to_string(value);
  return StrCat(static_cast<int64_t>(value));
}

}  // namespace

absl::Status Classify(DType dtype, int64_t classes, bool batched,
                      const std::vector<std::string>& labels, InferOutput* out) {
  if (dtype == DType::kBool) {
    return InvalidArgument("output '", out->name, "' is BOOL, which has no classification");
  }
  const HostTensor values{
      dtype, out->shape,
      std::string(static_cast<const char*>(out->data), static_cast<size_t>(out->bytes))};
  const std::vector<double> scores = values.AsDoubles();
  const int64_t rows = batched ? out->shape.front() : 1;
  const auto each = static_cast<int64_t>(scores.size()) / std::max<int64_t>(rows, 1);
  const int64_t kept = std::min(classes, each);
  auto text = std::make_shared<std::string>();
  for (int64_t row = 0; row < rows; ++row) {
    const double* const first = scores.data() + row * each;
    std::vector<int64_t> order(static_cast<size_t>(each));
    std::iota(order.begin(), order.end(), 0);
    // NaN is below everything; of equal ones the first comes first.
    const auto before = [&](int64_t a, int64_t b) {
      const bool nan_a = std::isnan(first[a]), nan_b = std::isnan(first[b]);
      if (nan_a || nan_b) return nan_a == nan_b ? a < b : nan_b;
      return first[a] != first[b] ? first[a] > first[b] : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
    for (int64_t i = 0; i < kept; ++i) {
      const int64_t index = order[static_cast<size_t>(i)];
      std::string line = StrCat(ValueText(dtype, first[index]), ":", index);
      if (index < static_cast<int64_t>(labels.size())) {
        StrAppend(&line, ":", labels[static_cast<size_t>(index)]);
      }
      AppendString(line, text.get());
    }
  }
  out->datatype = kBytesDatatype;
  out->shape = batched ? Shape{rows, kept} : Shape{kept};
  out->data = text->data();
  out->bytes = static_cast<int64_t>(text->size());
  out->owner = std::move(text);
  return absl::OkStatus();
}

}  // namespace telegrad
