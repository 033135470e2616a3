// Operators on text, which run on the host: strings are always known at import. TfIdfVectorizer
// counts in the graph, on numbers in place of the strings.
#include <algorithm>
#include <map>
#include <set>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

// In ASCII; letters beyond it stay as they are.
std::string ChangeCase(std::string text, std::string_view action) {
  for (char& c : text) {
    if (action == "LOWER" && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (action == "UPPER" && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// At whitespace, runs of which count once and none at the ends; at most `most` times.
std::vector<std::string> SplitBlank(std::string_view text, int64_t most) {
  std::vector<std::string> out;
  size_t at = 0;
  while (true) {
    while (at < text.size() && IsBlank(text[at])) ++at;
    if (at == text.size()) return out;
    size_t end = at;
    if (static_cast<int64_t>(out.size()) == most) {
      end = text.size();
      while (IsBlank(text[end - 1])) --end;
      out.emplace_back(text.substr(at, end - at));
      return out;
    }
    while (end < text.size() && !IsBlank(text[end])) ++end;
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
}

std::vector<std::string> SplitAt(std::string_view text, std::string_view delimiter, int64_t most) {
  std::vector<std::string> out;
  size_t at = 0;
  while (static_cast<int64_t>(out.size()) < most) {
    const size_t end = text.find(delimiter, at);
    if (end == std::string_view::npos) break;
    out.emplace_back(text.substr(at, end - at));
    at = end + delimiter.size();
  }
  out.emplace_back(text.substr(at));
  return out;
}

// The position in a tensor of `shape` that goes with flat position `i` of the shape it broadcasts
// to.
int64_t BroadcastAt(ShapeView shape, ShapeView wide, int64_t i) {
  int64_t out = 0, stride = 1;
  for (size_t back = 1; back <= wide.size(); ++back) {
    const int64_t size = wide[wide.size() - back];
    if (back <= shape.size()) {
      const int64_t own = shape[shape.size() - back];
      if (own != 1) out += i % size * stride;
      stride *= own;
    }
    i /= size;
  }
  return out;
}

// Grams of one length in the pool of a TfIdfVectorizer.
struct Grams {
  int64_t length = 0;
  std::vector<int64_t> tokens;  // one gram after the other
  int64_t first = 0;            // among all grams

  int64_t count() const { return static_cast<int64_t>(tokens.size()) / length; }
};

absl::StatusOr<std::vector<Grams>> ReadGrams(NodeContext& c, const std::vector<int64_t>& pool) {
  TG_ASSIGN_OR_RETURN(const Attribute* starts, c.Required("ngram_counts", AttributeType::kInts));
  TG_ASSIGN_OR_RETURN(const Attribute* least, c.Required("min_gram_length", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const Attribute* most, c.Required("max_gram_length", AttributeType::kInt));
  std::vector<Grams> out;
  int64_t grams = 0;
  for (size_t i = 0; i < starts->ints.size(); ++i) {
    const auto size = static_cast<int64_t>(pool.size());
    const int64_t begin = starts->ints[i];
    const int64_t end = i + 1 < starts->ints.size() ? starts->ints[i + 1] : size;
    const auto length = static_cast<int64_t>(i) + 1;
    if (begin < 0 || end < begin || end > size || (end - begin) % length != 0) {
      return InvalidArgument("'ngram_counts' does not fit a pool of ", size);
    }
    Grams part{length, {pool.begin() + begin, pool.begin() + end}, grams};
    grams += part.count();
    if (length >= least->i && length <= most->i && part.count() > 0) out.push_back(std::move(part));
  }
  return out;
}

// How often each gram is in each row of `x` [rows, n], its tokens `step` apart: [rows, grams] i64.
absl::StatusOr<Tensor> CountGrams(NodeContext& c, const Tensor& x, const Grams& grams,
                                  int64_t step) {
  const int64_t windows = x.dim(1) - (grams.length - 1) * step;
  if (windows <= 0) return c.builder().Zeros({x.dim(0), grams.count()}, DType::kInt64);
  Tensor all;
  for (int64_t k = 0; k < grams.length; ++k) {
    std::vector<int64_t> tokens;
    for (int64_t g = 0; g < grams.count(); ++g)
      tokens.push_back(grams.tokens[g * grams.length + k]);
    TG_ASSIGN_OR_RETURN(const Tensor wanted,
                        c.Weight(HostTensor::Of<int64_t>({grams.count()}, tokens)));
    const Tensor there = x.Slice(1, k * step, k * step + windows).Unsqueeze(2).Eq(wanted);
    all = k == 0 ? there : all.And(there);
  }
  return all.Cast(DType::kInt64).Sum({1});
}

// The pool and the input as numbers: equal strings have equal ones.
absl::StatusOr<Tensor> Tokens(NodeContext& c, std::vector<int64_t>* pool) {
  TG_ASSIGN_OR_RETURN(const ValueRef input, c.Get(0));
  TG_ASSIGN_OR_RETURN(const auto strings, c.Strings("pool_strings"));
  TG_ASSIGN_OR_RETURN(*pool, c.Ints("pool_int64s", {}));
  if (input->kind != Value::Kind::kStrings) {
    if (!strings.empty()) return InvalidArgument("the pool has strings, the input numbers");
    TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
    return x.Cast(DType::kInt64);
  }
  std::map<std::string_view, int64_t> numbers;
  for (const std::string_view s : strings) {
    pool->push_back(numbers.emplace(s, static_cast<int64_t>(numbers.size())).first->second);
  }
  std::vector<int64_t> tokens;
  for (const std::string& s : input->strings->values) {
    const auto it = numbers.find(s);
    tokens.push_back(it == numbers.end() ? -1 : it->second);
  }
  return c.Weight(HostTensor::Of<int64_t>(input->strings->shape, tokens));
}

}  // namespace

// Words of ASCII, in the locale C; 'locale' changes nothing for them.
absl::Status StringNormalizerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const StringTensor* x, c.InputStrings(0));
  TG_ASSIGN_OR_RETURN(const std::string_view action, c.String("case_change_action", "NONE"));
  TG_ASSIGN_OR_RETURN(const int64_t sensitive, c.Int("is_case_sensitive", 0));
  TG_ASSIGN_OR_RETURN(const auto words, c.Strings("stopwords"));
  c.Ignore("locale");
  if (action != "NONE" && action != "LOWER" && action != "UPPER") {
    return InvalidArgument("'case_change_action' is '", action, "'");
  }
  const bool matrix = x->shape.size() == 2;
  if ((!matrix || x->shape[0] != 1) && x->shape.size() != 1) {
    return InvalidArgument("the input has the shape ", ToString(x->shape),
                           ", expected [C] or [1, C]");
  }
  const std::string_view compared = sensitive != 0 ? "NONE" : "LOWER";
  std::set<std::string> stop;
  for (const std::string_view word : words) stop.insert(ChangeCase(std::string(word), compared));
  StringTensor out;
  for (const std::string& word : x->values) {
    if (!stop.contains(ChangeCase(word, compared))) out.values.push_back(ChangeCase(word, action));
  }
  if (out.values.empty()) out.values.emplace_back();
  out.shape = {static_cast<int64_t>(out.values.size())};
  if (matrix) out.shape.insert(out.shape.begin(), 1);
  return c.OutputStrings(std::move(out));
}

absl::Status StringConcatOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const StringTensor* a, c.InputStrings(0));
  TG_ASSIGN_OR_RETURN(const StringTensor* b, c.InputStrings(1));
  TG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes("string_concat", a->shape, b->shape));
  TG_RETURN_IF_ERROR(c.values().budget()->SpendSteps(NumElements(shape)));
  StringTensor out{shape, {}};
  Budget::Held held(c.values().budget());
  for (int64_t i = 0; i < NumElements(shape); ++i) {
    const std::string& left = a->values[BroadcastAt(a->shape, shape, i)];
    const std::string& right = b->values[BroadcastAt(b->shape, shape, i)];
    TG_RETURN_IF_ERROR(
        held.Grow(static_cast<int64_t>(sizeof(std::string) + left.size() + right.size())));
    out.values.push_back(left + right);
  }
  return c.OutputStrings(std::move(out));
}

absl::Status StringSplitOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const StringTensor* x, c.InputStrings(0));
  TG_ASSIGN_OR_RETURN(const std::string_view delimiter, c.String("delimiter", ""));
  TG_ASSIGN_OR_RETURN(const int64_t most, c.Int("maxsplit", INT64_MAX));
  std::vector<std::vector<std::string>> rows;
  std::vector<int64_t> counts;
  size_t width = 0;
  Budget* const budget = c.values().budget();
  Budget::Held held(budget);
  for (const std::string& text : x->values) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(1 + text.size())));
    // Before it is split: as many parts as it could have.
    Budget::Held most_parts(budget);
    TG_RETURN_IF_ERROR(
        most_parts.Grow(static_cast<int64_t>((1 + text.size()) * sizeof(std::string))));
    rows.push_back(delimiter.empty() ? SplitBlank(text, most) : SplitAt(text, delimiter, most));
    counts.push_back(static_cast<int64_t>(rows.back().size()));
    width = std::max(width, rows.back().size());
    TG_RETURN_IF_ERROR(held.Grow(static_cast<int64_t>(sizeof(rows.back()) + text.size() +
                                                      rows.back().size() * sizeof(std::string))));
  }
  StringTensor out{x->shape, {}};
  out.shape.push_back(static_cast<int64_t>(width));
  const auto parts = static_cast<int64_t>(rows.size() * width);
  TG_RETURN_IF_ERROR(budget->SpendSteps(parts));
  TG_RETURN_IF_ERROR(held.Grow(2 * parts * static_cast<int64_t>(sizeof(std::string))));
  for (std::vector<std::string>& row : rows) {
    row.resize(width);
    out.values.insert(out.values.end(), row.begin(), row.end());
  }
  TG_RETURN_IF_ERROR(c.OutputStrings(std::move(out)));
  return c.OutputKnown(HostTensor::Of<int64_t>(x->shape, counts));
}

// Counts of the pool's n-grams, whose tokens lie up to `max_skip_count` others apart.
absl::Status TfIdfVectorizerOp(NodeContext& c) {
  std::vector<int64_t> pool;
  TG_ASSIGN_OR_RETURN(Tensor x, Tokens(c, &pool));
  TG_ASSIGN_OR_RETURN(const std::vector<Grams> grams, ReadGrams(c, pool));
  TG_ASSIGN_OR_RETURN(const Attribute* mode, c.Required("mode", AttributeType::kString));
  TG_ASSIGN_OR_RETURN(const Attribute* places, c.Required("ngram_indexes", AttributeType::kInts));
  TG_ASSIGN_OR_RETURN(const Attribute* skips, c.Required("max_skip_count", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const std::vector<float> weights, c.Floats("weights", {}));
  const bool vector = x.rank() == 1;
  if (vector) x = x.Unsqueeze(0);
  if (x.rank() != 2) return InvalidArgument("the input has the shape ", ToString(x.shape()));
  if (mode->s != "TF" && mode->s != "IDF" && mode->s != "TFIDF") {
    return InvalidArgument("'mode' is '", mode->s, "'");
  }
  const std::vector<int64_t>& at = places->ints;
  const auto count = static_cast<int64_t>(at.size());
  if (at.empty() || *std::ranges::min_element(at) < 0 ||
      *std::ranges::max_element(at) >= kMaxWindowNumber) {
    return InvalidArgument("'ngram_indexes' has no places, or one outside of [0, ",
                           kMaxWindowNumber, ")");
  }
  if (!weights.empty() && weights.size() != at.size()) {
    return InvalidArgument("has ", weights.size(), " weights, expected ", count);
  }
  const int64_t width = *std::ranges::max_element(at) + 1;
  Tensor out = c.builder().Zeros({width, x.dim(0)}, DType::kInt64);
  for (const Grams& part : grams) {
    if (part.first + part.count() > count) return InvalidArgument("'ngram_indexes' is too short");
    const int64_t most = part.length == 1 ? 0 : std::min(skips->i, x.dim(1));
    Tensor sum = c.builder().Zeros({x.dim(0), part.count()}, DType::kInt64);
    for (int64_t skip = 0; skip <= most; ++skip) {
      TG_ASSIGN_OR_RETURN(const Tensor found, CountGrams(c, x, part, skip + 1));
      sum = sum + found;
    }
    const std::vector<int64_t> to(at.begin() + part.first, at.begin() + part.first + part.count());
    TG_ASSIGN_OR_RETURN(const Tensor index, c.Weight(HostTensor::Of<int64_t>({part.count()}, to)));
    out = out.Scatter(index, sum.T(), ScatterKind::kAdd);
  }
  out = out.T();
  if (mode->s == "IDF") out = out.Minimum(out.Like(1));
  out = out.Cast(DType::kFloat32);
  if (mode->s != "TF" && !weights.empty()) {
    std::vector<float> by_place(static_cast<size_t>(width), 1);
    for (size_t i = 0; i < at.size(); ++i) by_place[at[i]] = weights[i];
    TG_ASSIGN_OR_RETURN(const Tensor factors, c.Weight(HostTensor::Of<float>({width}, by_place)));
    out = out * factors;
  }
  return c.Output(vector ? out.Squeeze(0) : out);
}

}  // namespace telegrad::onnx
