// ai.onnx.ml: encoders, which replace labels by labels or by columns. Strings are always known at
// import, so a look-up of strings is made there.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxTable = int64_t{1} << 26;  // comparisons of one element with all keys

Labels Reversed(Labels labels) {
  std::ranges::reverse(labels.strings);
  if (labels.is_strings) return labels;
  std::string bytes;
  const auto width = static_cast<size_t>(ByteSize(labels.numbers.dtype));
  for (size_t at = labels.numbers.bytes.size(); at != 0; at -= width) {
    bytes.append(labels.numbers.bytes, at - width, width);
  }
  labels.numbers.bytes = std::move(bytes);
  return labels;
}

constexpr int64_t kSorted = 16;  // keys, from which a search is faster than comparisons with all

// The positions of the keys in the order of their values, each value once, without NaN.
std::vector<int64_t> SortedKeys(const HostTensor& keys) {
  std::vector<int64_t> order(static_cast<size_t>(NumElements(keys.shape)));
  std::iota(order.begin(), order.end(), 0);
  const auto sort = [&](const auto& values) {
    std::erase_if(order, [&](int64_t i) { return values[i] != values[i]; });
    const auto value = [&](int64_t i) { return values[i]; };
    std::ranges::stable_sort(order, {}, value);  // the first of those that are the same stays
    const auto again = std::ranges::unique(order, {}, value);
    order.erase(again.begin(), again.end());
  };
  if (keys.dtype == DType::kInt64) {
    sort(keys.Values<int64_t>());
  } else {
    sort(keys.AsDoubles());
  }
  return order;
}

// The same as comparisons with all keys, by bisection.
absl::StatusOr<Tensor> FoundAmongSorted(NodeContext& c, const Tensor& x, const HostTensor& keys) {
  std::vector<int64_t> order = SortedKeys(keys);
  if (order.empty()) order.push_back(0);  // NaN, which is not found here
  const auto all = static_cast<int64_t>(NumElements(keys.shape));
  const auto n = static_cast<int64_t>(order.size());
  const auto width = static_cast<size_t>(ByteSize(keys.dtype));
  HostTensor sorted{keys.dtype, {n}, {}};
  for (const int64_t i : order) {
    sorted.bytes.append(keys.bytes, static_cast<size_t>(i) * width, width);
  }
  TG_ASSIGN_OR_RETURN(const Tensor table, c.Weight(sorted));
  TG_ASSIGN_OR_RETURN(const Tensor place, c.Weight(HostTensor::Of<int64_t>({n}, order)));
  Tensor below = c.builder().Const(DType::kInt64, 0).Expand(x.dims());  // keys less than x
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0;
       step /= 2) {
    const Tensor next = below + step;
    below = next.Le(n).And(table.Gather(next - 1).Lt(x)).Where(next, below);
  }
  const Tensor hit = below.Lt(n).And(table.Gather(below).Eq(x));
  Tensor out = hit.Where(place.Gather(below), all);
  if (!IsFloat(keys.dtype)) return out;
  const std::vector<double> values = keys.AsDoubles();
  const auto nan = std::ranges::find_if(values, [](double v) { return v != v; });  // a key, too
  return nan == values.end() ? out : x.IsNan().Where(nan - values.begin(), out);
}

// The position of the first key that each element of input 0 is, or the number of keys.
absl::StatusOr<ValueRef> PositionsOf(NodeContext& c, const Labels& keys) {
  const int64_t n = keys.size();
  if (keys.is_strings) {
    TG_ASSIGN_OR_RETURN(const StringTensor* x, c.InputStrings(0));
    std::map<std::string_view, int64_t> table;
    for (int64_t i = 0; i < n; ++i) table.emplace(keys.strings[static_cast<size_t>(i)], i);
    std::vector<int64_t> out;
    for (const std::string& s : x->values) {
      const auto it = table.find(s);
      out.push_back(it == table.end() ? n : it->second);
    }
    return c.values().FromKnown(HostTensor::Of<int64_t>(x->shape, out));
  }
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (n >= kSorted && x.dtype() == keys.numbers.dtype) {
    HostTensor row = keys.numbers;
    row.shape = {n};
    TG_ASSIGN_OR_RETURN(const Tensor found, FoundAmongSorted(c, x, row));
    return Values::FromTensor(found);
  }
  if (n < 1 || n > kMaxTable / std::max<int64_t>(1, x.size())) {
    return ResourceExhausted(n, " keys for ", x.size(), " elements");
  }
  TG_ASSIGN_OR_RETURN(const Tensor table, c.Weight(keys.numbers));
  const Tensor element = x.Unsqueeze(-1), key = table.Reshape({n}).Cast(x.dtype());
  Tensor equal = element.Eq(key);
  if (IsFloat(x.dtype())) equal = equal.Or(element.IsNan().And(key.IsNan()));  // NaN is a key too
  const Tensor at = equal.Cast(DType::kInt32).ArgMax(-1).Cast(DType::kInt64);
  return Values::FromTensor(equal.Any({-1}).Where(at, n));
}

// What stands for an element that is no key, as one more value at the end.
absl::Status AppendDefault(NodeContext& c, Labels* values) {
  if (c.HasAttribute("default_tensor")) {
    TG_ASSIGN_OR_RETURN(const Labels given, ReadLabels(c, "default"));
    if (given.size() != 1 || given.is_strings != values->is_strings ||
        given.numbers.dtype != values->numbers.dtype) {
      return InvalidArgument("'default_tensor' is not one element of the values' type");
    }
    values->strings.insert(values->strings.end(), given.strings.begin(), given.strings.end());
    values->numbers.bytes += given.numbers.bytes;
  } else if (values->is_strings) {
    TG_ASSIGN_OR_RETURN(const std::string_view text, c.String("default_string", "_Unused"));
    values->strings.emplace_back(text);
  } else {
    const DType dtype = values->numbers.dtype;
    HostTensor one;
    if (IsFloat(dtype)) {
      TG_ASSIGN_OR_RETURN(const float value, c.Float("default_float", -0.0f));
      one = dtype == DType::kFloat64 ? HostTensor::Of<double>({}, {static_cast<double>(value)})
                                     : HostTensor::Of<float>({}, {value});
    } else {
      TG_ASSIGN_OR_RETURN(const int64_t value, c.Int("default_int64", -1));
      one = HostTensor::Of<int64_t>({}, {value});  // little endian: its first bytes are the number
    }
    values->numbers.bytes.append(one.bytes, 0, static_cast<size_t>(ByteSize(dtype)));
  }
  for (const char* name : {"default_string", "default_float", "default_int64"}) c.Ignore(name);
  if (!values->is_strings) ++values->numbers.shape[0];
  return absl::OkStatus();
}

absl::Status Encode(NodeContext& c, const Labels& keys, Labels values) {
  if (keys.size() != values.size()) {
    return InvalidArgument("has ", keys.size(), " keys and ", values.size(), " values");
  }
  TG_RETURN_IF_ERROR(AppendDefault(c, &values));
  TG_ASSIGN_OR_RETURN(const ValueRef positions, PositionsOf(c, keys));
  return OutputLabels(c, values, positions);
}

Labels Numbered(size_t n) {
  std::vector<int64_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0);
  return {.is_strings = false,
          .numbers = HostTensor::Of<int64_t>({static_cast<int64_t>(n)}, numbers),
          .strings = {}};
}

absl::StatusOr<bool> IsStrings(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const ValueRef x, c.Get(0));
  return x->kind == Value::Kind::kStrings;
}

}  // namespace

// Since opset 4 the last of repeated keys counts; before, the standard does not say, and it is the
// first.
absl::Status MlLabelEncoderOp(NodeContext& c) {
  if (c.HasAttribute("classes_strings")) {  // opset 1: a string and its position in the list
    TG_ASSIGN_OR_RETURN(Labels classes, ReadLabels(c, "classes"));
    Labels numbers = Numbered(classes.strings.size());
    TG_ASSIGN_OR_RETURN(const bool strings, IsStrings(c));
    return strings ? Encode(c, classes, std::move(numbers))
                   : Encode(c, numbers, std::move(classes));
  }
  TG_ASSIGN_OR_RETURN(Labels keys, ReadLabels(c, "keys"));
  TG_ASSIGN_OR_RETURN(Labels values, ReadLabels(c, "values"));
  if (c.opset() >= 4) {
    keys = Reversed(std::move(keys));
    values = Reversed(std::move(values));
  }
  return Encode(c, keys, std::move(values));
}

absl::Status MlCategoryMapperOp(NodeContext& c) {
  Labels strings{.is_strings = true, .numbers = {}, .strings = {}};
  TG_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, c.Strings("cats_strings"));
  strings.strings.assign(texts.begin(), texts.end());
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, c.Ints("cats_int64s", {}));
  Labels numbers{.is_strings = false,
                 .numbers = HostTensor::Of<int64_t>({static_cast<int64_t>(ints.size())}, ints),
                 .strings = {}};
  TG_ASSIGN_OR_RETURN(const bool from_strings, IsStrings(c));
  return from_strings ? Encode(c, strings, std::move(numbers))
                      : Encode(c, numbers, std::move(strings));
}

// A last axis of the categories, 1 at that of the element.
absl::Status MlOneHotEncoderOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t zeros, c.Int("zeros", 1));
  TG_ASSIGN_OR_RETURN(const Labels categories, ReadLabels(c, "cats"));
  const int64_t n = categories.size();
  if (!categories.is_strings) {
    // Whether an unknown number is an error is for a graph that computes it not to say.
    TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
    TG_ASSIGN_OR_RETURN(const Tensor table, c.Weight(categories.numbers));
    const Tensor whole = x.Cast(DType::kInt64).Unsqueeze(-1);
    return c.Output(whole.Eq(table.Reshape({n})).Cast(DType::kFloat32));
  }
  TG_ASSIGN_OR_RETURN(const ValueRef positions, PositionsOf(c, categories));
  const std::vector<int64_t> at = positions->known->Values<int64_t>();
  if (zeros == 0 && std::ranges::find(at, n) != at.end()) {
    return InvalidArgument("an element is none of the categories and 'zeros' is 0");
  }
  TG_ASSIGN_OR_RETURN(const Tensor index, c.values().ToTensor(positions.get()));
  return c.Output(index.OneHot(n).Cast(DType::kFloat32));
}

// A map for each row, of each label its score. Maps are no values here: the result is the tensor of
// the scores, [rows, labels] in the order of the labels, which say how many there must be.
absl::Status MlZipMapOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(c, "classlabels"));
  const Tensor rows = x.rank() == 1 ? x.Unsqueeze(0) : x;
  if (rows.rank() != 2 || rows.dim(1) != labels.size()) {
    return InvalidArgument("scores of shape ", ToString(x.shape()), " for ", labels.size(),
                           " labels");
  }
  return c.Output(rows);
}

}  // namespace telegrad::onnx
