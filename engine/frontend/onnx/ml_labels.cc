// ai.onnx.ml: encoders, which replace labels by labels or by columns. Strings are always known at
// import, so a look-up of strings is made there.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/ir/scalar.h"

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

constexpr int64_t kHashed = 16;  // keys, from which a table is faster than comparisons with all

// What keys are hashed by: -0 and 0 are the same key.
std::vector<uint64_t> KeyWords(const HostTensor& keys) {
  std::vector<uint64_t> out;
  if (IsFloat(keys.dtype)) {
    for (const double v : keys.AsDoubles())
      out.push_back(std::bit_cast<uint64_t>(v == 0 ? 0.0 : v));
    return out;
  }
  const auto width = static_cast<size_t>(ByteSize(keys.dtype));
  for (size_t at = 0; at < keys.bytes.size(); at += width) {
    int64_t raw = 0;
    std::memcpy(&raw, keys.bytes.data() + at, width);
    out.push_back(static_cast<uint64_t>(ScalarFromMemory(keys.dtype, raw)));
  }
  return out;
}

Tensor KeyWords(const Tensor& x) {
  if (!IsFloat(x.dtype())) return x.Cast(DType::kInt64);
  const Tensor wide = x.Cast(DType::kFloat64);
  return wide.Eq(0).Where(0.0, wide).Bitcast(DType::kInt64);
}

// A perfect hash. The upper bits of `first` times the word are a bucket, and the upper bits of the
// bucket's number times the word a place that no other key has.
struct KeyTable {
  uint64_t first = 0;
  int bucket_bits = 0, place_bits = 0;
  std::vector<uint64_t> numbers;  // of buckets
  std::vector<int64_t> keys;      // of places: the position of its key, -1 if it has none
};

constexpr int kTables = 8;              // that are tried
constexpr uint64_t kNumbers = 1 << 12;  // for each bucket

// An odd number for each `i`: SplitMix64.
uint64_t Multiplier(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return (z ^ (z >> 31)) | 1;
}

// Of the words at `positions`, which are all different. The largest buckets are placed first.
bool PlaceKeys(const std::vector<uint64_t>& words, const std::vector<int64_t>& positions,
               KeyTable* table) {
  std::vector<std::vector<int64_t>> buckets(size_t{1} << table->bucket_bits);
  for (const int64_t i : positions) {
    buckets[(table->first * words[i]) >> (64 - table->bucket_bits)].push_back(i);
  }
  std::vector<size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return buckets[i].size(); });
  table->numbers.assign(buckets.size(), 1);
  table->keys.assign(size_t{1} << table->place_bits, -1);
  for (const size_t bucket : order) {
    bool placed = false;
    for (uint64_t n = 0; n < kNumbers && !placed; ++n) {
      const uint64_t number = table->numbers[bucket] = Multiplier(n);
      std::vector<uint64_t> places;
      for (const int64_t i : buckets[bucket]) {
        const uint64_t place = (number * words[i]) >> (64 - table->place_bits);
        if (table->keys[place] >= 0) break;
        table->keys[place] = i;
        places.push_back(place);
      }
      placed = places.size() == buckets[bucket].size();
      if (placed) continue;
      for (const uint64_t place : places) table->keys[place] = -1;
    }
    if (!placed) return false;
  }
  return true;
}

// The same as comparisons with all keys, by a hash.
absl::StatusOr<Tensor> FoundInTable(NodeContext& c, const Tensor& x, const HostTensor& keys) {
  const auto all = static_cast<int64_t>(NumElements(keys.shape));
  const std::vector<uint64_t> words = KeyWords(keys);
  const std::vector<double> values = IsFloat(keys.dtype) ? keys.AsDoubles() : std::vector<double>();
  std::vector<int64_t> positions;  // of each key the first, without NaN
  std::unordered_set<uint64_t> seen;
  int64_t nan = -1;
  for (int64_t i = 0; i < all; ++i) {
    if (!values.empty() && values[i] != values[i]) {
      if (nan < 0) nan = i;
    } else if (seen.insert(words[i]).second) {
      positions.push_back(i);
    }
  }
  KeyTable table;
  table.place_bits = std::bit_width(static_cast<uint64_t>(all)) + 1;
  table.bucket_bits = table.place_bits - 3;
  bool placed = false;
  for (int i = 0; i < kTables && !placed; ++i) {
    TG_RETURN_IF_ERROR(c.values().budget()->SpendSteps(int64_t{1} << table.place_bits));
    table.first = Multiplier(kNumbers + static_cast<uint64_t>(i));
    placed = PlaceKeys(words, positions, &table);
  }
  if (!placed) return ResourceExhausted("no table for its ", all, " keys was found");
  // A place without a key has any: elements that are this key look elsewhere.
  const int64_t any = positions.empty() ? 0 : positions[0];
  HostTensor of_places{keys.dtype, {std::ssize(table.keys)}, {}};
  const auto width = static_cast<size_t>(ByteSize(keys.dtype));
  for (int64_t& i : table.keys) {
    i = std::max(i, any);
    of_places.bytes.append(keys.bytes, static_cast<size_t>(i) * width, width);
  }
  const std::vector<int64_t> signed_numbers(table.numbers.begin(), table.numbers.end());
  TG_ASSIGN_OR_RETURN(const Tensor numbers, c.Weight(HostTensor::Of<int64_t>(
                                                {std::ssize(table.numbers)}, signed_numbers)));
  TG_ASSIGN_OR_RETURN(const Tensor key, c.Weight(of_places));
  TG_ASSIGN_OR_RETURN(const Tensor position,
                      c.Weight(HostTensor::Of<int64_t>(of_places.shape, table.keys)));
  const Tensor word = KeyWords(x);
  const auto upper = [](const Tensor& product, int bits) {
    return product.ShiftRight(64 - bits).And((int64_t{1} << bits) - 1);
  };
  const Tensor bucket = upper(word * static_cast<int64_t>(table.first), table.bucket_bits);
  const Tensor place = upper(word * numbers.Gather(bucket), table.place_bits);
  const Tensor out = key.Gather(place).Eq(x).Where(position.Gather(place), all);
  return nan < 0 ? out : x.IsNan().Where(nan, out);
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
  if (n >= kHashed && x.dtype() == keys.numbers.dtype) {
    HostTensor row = keys.numbers;
    row.shape = {n};
    TG_ASSIGN_OR_RETURN(const Tensor found, FoundInTable(c, x, row));
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
