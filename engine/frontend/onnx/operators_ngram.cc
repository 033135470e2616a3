// Counts of n-grams.
#include <algorithm>
#include <map>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxGramLength = 64;
constexpr int64_t kMaxSkips = 64;

// The tokens of the input and of the pool as numbers.
struct Tokens {
  Tensor input;  // i64 [rows, columns]
  bool row = false;
  std::vector<int64_t> pool;
};

absl::StatusOr<Tokens> ReadTokens(NodeContext& c) {
  Tokens out;
  Shape shape;
  if (c.HasAttribute("pool_strings")) {
    TG_ASSIGN_OR_RETURN(const auto strings, c.Strings("pool_strings"));
    TG_ASSIGN_OR_RETURN(const StringTensor* given, c.InputStrings(0));
    std::map<std::string_view, int64_t> numbers;
    for (const std::string_view s : strings) {
      out.pool.push_back(numbers.emplace(s, static_cast<int64_t>(numbers.size())).first->second);
    }
    std::vector<int64_t> input;
    for (const std::string& s : given->values) {
      const auto it = numbers.find(s);
      input.push_back(it == numbers.end() ? -1 : it->second);
    }
    shape = given->shape;
    TG_ASSIGN_OR_RETURN(out.input, c.Weight(HostTensor::Of<int64_t>(shape, input)));
  } else {
    TG_ASSIGN_OR_RETURN(out.pool, c.Ints("pool_int64s", {}));
    TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
    if (!IsInt(x.dtype())) return InvalidArgument("tokens of type ", Name(x.dtype()));
    out.input = x.Cast(DType::kInt64);
    shape = ToShape(x.shape());
  }
  if (shape.empty() || shape.size() > 2) {
    return InvalidArgument("the input has shape ", ToString(shape), ", expected one or two axes");
  }
  out.row = shape.size() == 1;
  out.input = out.input.Reshape({out.row ? 1 : shape[0], shape.back()});
  return out;
}

// How often each of `grams` [count, length] occurs in each row, `step` tokens apart: i64.
Tensor Occurrences(const Tensor& input, const Tensor& grams, int64_t step) {
  const int64_t length = grams.dim(1), places = input.dim(1) - (length - 1) * step;
  Tensor found;
  for (int64_t k = 0; k < length; ++k) {
    const Tensor at = input.Slice(1, k * step, k * step + places).Unsqueeze(2);
    const Tensor equal = at.Eq(grams.Slice(1, k, k + 1).Squeeze(1));
    found = found.valid() ? found.And(equal) : equal;
  }
  return found.Cast(DType::kInt64).Sum({1});
}

}  // namespace

absl::Status TfIdfVectorizerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(c));
  TG_ASSIGN_OR_RETURN(const Attribute* mode, c.Required("mode", AttributeType::kString));
  TG_ASSIGN_OR_RETURN(const auto starts, c.Ints("ngram_counts", {}));
  TG_ASSIGN_OR_RETURN(const auto indexes, c.Ints("ngram_indexes", {}));
  TG_ASSIGN_OR_RETURN(const int64_t shortest, c.Int("min_gram_length", 1));
  TG_ASSIGN_OR_RETURN(const int64_t longest, c.Int("max_gram_length", 1));
  TG_ASSIGN_OR_RETURN(const int64_t skips, c.Int("max_skip_count", 0));
  TG_ASSIGN_OR_RETURN(std::vector<float> weights, c.Floats("weights", {}));
  if (mode->s != "TF" && mode->s != "IDF" && mode->s != "TFIDF") {
    return InvalidArgument("'mode' is '", mode->s, "', expected TF, IDF or TFIDF");
  }
  if (shortest < 1 || longest < shortest || longest > kMaxGramLength || skips < 0 ||
      skips > kMaxSkips || indexes.empty() ||
      static_cast<int64_t>(starts.size()) > kMaxGramLength) {
    return InvalidArgument("n-grams of ", shortest, " to ", longest, " tokens with up to ", skips,
                           " skips; supported are ", kMaxGramLength, " and ", kMaxSkips);
  }
  std::vector<Tensor> counts;
  const auto pool = static_cast<int64_t>(tokens.pool.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<int64_t>(i) + 1;
    const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : pool;
    if (begin < 0 || end < begin || end > pool || (end - begin) % length != 0) {
      return InvalidArgument("'ngram_counts' has ", begin, " to ", end, " of ", pool, " tokens");
    }
    const int64_t grams = (end - begin) / length;
    if (grams == 0) continue;
    Tensor sum = c.builder().Zeros({tokens.input.dim(0), grams}, DType::kInt64);
    if (length >= shortest && length <= longest) {
      const Shape shape{grams, length};
      const auto part = std::span(tokens.pool).subspan(begin, end - begin);
      TG_ASSIGN_OR_RETURN(const Tensor table, c.Weight(HostTensor::Of<int64_t>(shape, part)));
      // Skips do not concern single tokens.
      for (int64_t step = 1; step <= (length == 1 ? 1 : skips + 1); ++step) {
        if (tokens.input.dim(1) <= (length - 1) * step) break;
        sum = sum + Occurrences(tokens.input, table.Reshape(shape), step);
      }
    }
    counts.push_back(sum);
  }
  const int64_t grams = static_cast<int64_t>(indexes.size());
  int64_t found = 0;
  for (const Tensor& t : counts) found += t.dim(1);
  if (found != grams || (!weights.empty() && weights.size() != indexes.size())) {
    return InvalidArgument(grams, " indexes and ", weights.size(), " weights for ", found,
                           " n-grams");
  }
  Tensor out = Concat(counts, 1).Cast(DType::kFloat32);
  if (mode->s == "IDF") out = out.Minimum(1);
  if (mode->s != "TF" && !weights.empty()) {
    TG_ASSIGN_OR_RETURN(const Tensor scale, c.Weight(HostTensor::Of<float>({grams}, weights)));
    out = out * scale.Reshape({grams});
  }
  const int64_t size = *std::ranges::max_element(indexes) + 1;
  if (*std::ranges::min_element(indexes) < 0 || size > (int64_t{1} << 32)) {
    return InvalidArgument("'ngram_indexes' has a number outside of its range");
  }
  TG_ASSIGN_OR_RETURN(const Tensor places, c.Weight(HostTensor::Of<int64_t>({grams}, indexes)));
  const Tensor zeros = c.builder().Zeros({size, tokens.input.dim(0)});
  const Tensor placed =
      zeros.Scatter(places.Reshape({grams}), out.Transpose(), ScatterKind::kSet).Transpose();
  return c.Output(tokens.row ? placed.Squeeze(0) : placed);
}

}  // namespace telegrad::onnx
