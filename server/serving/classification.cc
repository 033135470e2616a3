// Sorts the highest values by a partial sort, in which NaN is lowest, and writes value, index
// and label of each.
#include "server/serving/classification.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>

#include "engine/base/status.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/datatype.h"

namespace telegrad {
namespace {

// What a whole number is written as: a double has 32 bits of one at most.
template <typename T>
using WholeOf = std::conditional_t<std::is_floating_point_v<T>, int64_t, T>;

// NaN is below everything; of equal ones the first comes first.
template <typename T>
bool Before(const std::vector<T>& values, int64_t a, int64_t b) {
  const T x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
  if constexpr (std::is_floating_point_v<T>) {
    const bool nan_x = std::isnan(x), nan_y = std::isnan(y);
    if (nan_x || nan_y) return nan_x == nan_y ? a < b : nan_y;
  }
  return x != y ? x > y : a < b;
}

// Appends the highest `kept` of the values, each as its line.
template <typename T>
void AppendHighest(const std::vector<T>& values, int64_t kept, bool is_float,
                   const std::vector<std::string>& labels, std::string* out) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](int64_t a, int64_t b) { return Before(values, a, b); });
  for (int64_t i = 0; i < kept; ++i) {
    const auto index = static_cast<size_t>(order[static_cast<size_t>(i)]);
    std::string line =
        is_float ? std::to_string(values[index]) : StrCat(static_cast<WholeOf<T>>(values[index]));
    StrAppend(&line, ":", index);
    if (index < labels.size()) StrAppend(&line, ":", labels[index]);
    AppendElement(line, out);
  }
}

}  // namespace

absl::Status Classify(DType dtype, int64_t classes, bool batched,
                      const std::vector<std::string>& labels,
                      const std::shared_ptr<Account>& account, InferOutput* out) {
  if (dtype == DType::kBool) {
    return InvalidArgument("output '", out->name, "' is BOOL, which has no classification");
  }
  const int64_t rows = batched ? out->shape.front() : 1;
  const int64_t each = NumElements(out->shape) / std::max<int64_t>(rows, 1);
  const int64_t kept = std::min(classes, each);
  struct Kept {
    std::string text;
    Reservation paid;
  };
  auto owner = std::make_shared<Kept>();
  std::string* const text = &owner->text;
  for (int64_t row = 0; row < rows; ++row) {
    const auto bytes = static_cast<size_t>(out->bytes / rows);
    const HostTensor values{
        dtype,
        {each},
        std::string(static_cast<const char*>(out->data) + static_cast<size_t>(row) * bytes, bytes)};
    if (dtype == DType::kInt64) {
      AppendHighest(values.Values<int64_t>(), kept, false, labels, text);
    } else if (dtype == DType::kUInt64) {
      AppendHighest(values.Values<uint64_t>(), kept, false, labels, text);
    } else {
      AppendHighest(values.AsDoubles(), kept, IsFloat(dtype), labels, text);
    }
  }
  TG_ASSIGN_OR_RETURN(owner->paid, Reservation::Take(account, static_cast<int64_t>(text->size())));
  out->datatype = kBytesDatatype;
  out->shape = batched ? Shape{rows, kept} : Shape{kept};
  out->data = text->data();
  out->bytes = static_cast<int64_t>(text->size());
  out->owner = std::move(owner);
  return absl::OkStatus();
}

}  // namespace telegrad
