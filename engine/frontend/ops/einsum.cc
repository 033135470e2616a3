// Einsum: every operand becomes a term whose axes have distinct labels; axes that nothing else
// needs are summed at once; then two terms at a time become one, by a broadcast product and a sum
// over what only they had. Which two is greedy: those whose product leaves the least memory in use,
// then those with the fewest products (the order of Daniel Smith and Johnnie Gray's opt_einsum).
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// A letter, or the number of an axis of the ellipsis, counted from its end and negative.
using Labels = std::vector<int>;
using LabelSizes = std::map<int, Dim>;

constexpr int kEllipsis = 0;  // in a formula, before its axes are known

struct Formula {
  std::vector<Labels> in;
  std::optional<Labels> out;
};

struct Term {
  Tensor tensor;
  Labels labels;
};

bool Has(const Labels& labels, int label) {
  return std::ranges::find(labels, label) != labels.end();
}

absl::StatusOr<Labels> ParseLabels(std::string_view text, std::string_view formula) {
  Labels out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (text.substr(i).starts_with("...") && !Has(out, kEllipsis)) {
      out.push_back(kEllipsis);
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      out.push_back(c);
    } else {
      return InvalidArgument("einsum: '", formula, "' has '", std::string(1, c),
                             "', expected letters, at most one ellipsis a term, commas and '->'");
    }
  }
  return out;
}

absl::StatusOr<Formula> ParseFormula(std::string_view formula) {
  Formula out;
  const size_t arrow = formula.find("->");
  const std::string_view left = formula.substr(0, arrow);
  for (const absl::string_view term : absl::StrSplit(ToAbsl(left), ',')) {
    TG_ASSIGN_OR_RETURN(Labels labels, ParseLabels(ToStd(term), formula));
    out.in.push_back(std::move(labels));
  }
  if (arrow == std::string_view::npos) return out;
  TG_ASSIGN_OR_RETURN(out.out, ParseLabels(formula.substr(arrow + 2), formula));
  Labels sorted = *out.out;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return InvalidArgument("einsum: '", formula, "' has '",
                           std::string(1, static_cast<char>(*twice)), "' twice in the output");
  }
  return out;
}

// `labels` with the axes that the ellipsis stands for.
Labels Spell(const Labels& labels, int ellipsis) {
  Labels out;
  for (int label : labels) {
    if (label != kEllipsis) out.push_back(label);
    for (int i = label == kEllipsis ? ellipsis : 0; i > 0; --i) out.push_back(-i);
  }
  return out;
}

// Each label once: of axes that share one, the diagonal, which becomes the last axis.
Term Diagonals(Term t) {
  for (size_t i = 0; i < t.labels.size();) {
    const int label = t.labels[i];
    const auto first = t.labels.begin() + static_cast<int64_t>(i);
    const auto again = std::find(first + 1, t.labels.end(), label);
    if (again == t.labels.end()) {
      ++i;
      continue;
    }
    t.tensor = t.tensor.Diagonal(0, static_cast<int64_t>(i), again - t.labels.begin());
    t.labels.erase(again);
    t.labels.erase(t.labels.begin() + static_cast<int64_t>(i));
    t.labels.push_back(label);
  }
  return t;
}

double SizeOf(const Labels& labels, const LabelSizes& sizes) {
  double size = 1;
  for (int label : labels) size *= static_cast<double>(sizes.at(label).size());
  return size;
}

// What becomes of two terms.
struct Contraction {
  Labels kept, summed;
};

Contraction Contract(const std::vector<Term>& terms, size_t a, size_t b, const Labels& out) {
  Contraction c;
  for (size_t of : {a, b}) {
    for (int label : terms[of].labels) {
      if (Has(c.kept, label) || Has(c.summed, label)) continue;
      bool keep = Has(out, label);
      for (size_t i = 0; i < terms.size() && !keep; ++i) {
        keep = i != a && i != b && Has(terms[i].labels, label);
      }
      (keep ? c.kept : c.summed).push_back(label);
    }
  }
  return c;
}

// The axes of `t` in the order of `labels`, of size 1 where it has none.
Tensor Aligned(const Term& t, const Labels& labels) {
  if (!t.tensor.valid()) return t.tensor;
  const Dims dims = t.tensor.dims();
  Axes order;
  Dims shape;
  for (int label : labels) {
    const auto at = std::ranges::find(t.labels, label);
    const bool here = at != t.labels.end();
    if (here) order.push_back(at - t.labels.begin());
    shape.push_back(here ? dims[order.back()] : Dim(1));
  }
  return t.tensor.Permute(order).Reshape(shape);
}

Term Multiply(const Term& a, const Term& b, const Contraction& c, DType type) {
  Labels all = c.kept;
  all.insert(all.end(), c.summed.begin(), c.summed.end());
  Tensor t = Aligned(a, all).Mul(Aligned(b, all));
  Axes over;
  for (size_t i = 0; i < c.summed.size(); ++i) over.push_back(-1 - static_cast<int64_t>(i));
  t = t.Sum(over, true).Cast(type);
  for (size_t i = 0; i < over.size(); ++i) t = t.Squeeze(-1);
  return {t, c.kept};
}

// Without the labels that only this term has and the result has not.
Term SumAlone(const std::vector<Term>& terms, size_t at, const Labels& out) {
  Axes over;
  Labels kept;
  const Term& t = terms[at];
  for (size_t axis = 0; axis < t.labels.size(); ++axis) {
    bool keep = Has(out, t.labels[axis]);
    for (size_t i = 0; i < terms.size() && !keep; ++i) {
      keep = i != at && Has(terms[i].labels, t.labels[axis]);
    }
    if (keep) {
      kept.push_back(t.labels[axis]);
    } else {
      over.push_back(static_cast<int64_t>(axis));
    }
  }
  Tensor sum = t.tensor.Sum(over, true).Cast(t.tensor.dtype());
  for (size_t i = over.size(); i-- > 0;) sum = sum.Squeeze(over[i]);
  return {sum, kept};
}

// The terms, the sizes of their labels, and the labels of the result.
absl::Status Prepare(std::string_view text, std::span<const Tensor> operands,
                     std::vector<Term>* terms, LabelSizes* sizes, Labels* out) {
  TG_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(text));
  if (formula.in.size() != operands.size()) {
    return InvalidArgument("einsum: '", text, "' has ", formula.in.size(), " terms for ",
                           operands.size(), " operands");
  }
  int widest = 0;
  std::map<int, int> count;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Dims dims = operands[i].dims();
    const bool ellipsis = Has(formula.in[i], kEllipsis);
    const int others = static_cast<int>(dims.size() + ellipsis - formula.in[i].size());
    if (ellipsis ? others < 0 : others != 0) {
      return InvalidArgument("einsum: term ", i, " of '", text, "' has ",
                             formula.in[i].size() - ellipsis, " letters for operand ",
                             ToString(dims));
    }
    widest = std::max(widest, others);
    const Labels labels = Spell(formula.in[i], others);
    LabelSizes own;
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      const int label = labels[axis];
      const auto [here, fresh] = own.emplace(label, dims[axis]);
      const auto [all, first] = sizes->emplace(label, dims[axis]);
      if ((!fresh && (here->second != dims[axis] || !dims[axis].is_static())) ||
          (all->second != dims[axis] && all->second != Dim(1) && dims[axis] != Dim(1))) {
        return InvalidArgument("einsum: '", text, "': axis ", axis, " of operand ", i, " ",
                               ToString(dims), " has ", dims[axis].size(), ", '",
                               label > 0 ? std::string(1, static_cast<char>(label)) : "...",
                               "' has ", (fresh ? all : here)->second.size());
      }
      if (all->second == Dim(1)) all->second = dims[axis];
      ++count[label];
    }
    terms->push_back({operands[i], labels});
  }
  if (formula.out) {
    *out = Spell(*formula.out, widest);
    for (int label : *out) {
      if (label > 0 && !count.contains(label)) {
        return InvalidArgument("einsum: '", text, "': the output has '",
                               std::string(1, static_cast<char>(label)), "', no term has");
      }
    }
    return absl::OkStatus();
  }
  for (int i = widest; i > 0; --i) out->push_back(-i);
  for (const auto& [label, times] : count) {
    if (label > 0 && times == 1) out->push_back(label);
  }
  return absl::OkStatus();
}

}  // namespace

Tensor Einsum(std::string_view formula, std::span<const Tensor> operands) {
  Builder* builder = operands.empty() ? nullptr : operands[0].builder();
  if (builder == nullptr) return {};
  DType type = operands[0].dtype();
  for (const Tensor& t : operands) {
    const DType both = t.dtype() == type ? type : PromoteTypes(type, t.dtype());
    if (!t.valid() || both == DType::kVoid) {
      return builder->Fail(
          !t.valid() ? InvalidArgument("einsum: '", formula, "': an operand is an empty tensor")
                     : InvalidArgument("einsum: '", formula, "': element types ", Name(type),
                                       " and ", Name(t.dtype()), " have no common type"));
    }
    type = both;
  }
  std::vector<Term> terms;
  LabelSizes sizes;
  Labels out;
  if (absl::Status s = Prepare(formula, operands, &terms, &sizes, &out); !s.ok()) {
    return builder->Fail(s);
  }
  const DType wide = FactorType(type);
  for (Term& t : terms) {
    t.tensor = t.tensor.Cast(type).Cast(wide);
    t = Diagonals(t);
  }
  for (size_t i = 0; i < terms.size(); ++i) terms[i] = SumAlone(terms, i, out);
  while (terms.size() > 1) {
    size_t best_a = 0, best_b = 1;
    std::pair<double, double> best;
    Contraction contraction;
    for (size_t a = 0; a < terms.size(); ++a) {
      for (size_t b = a + 1; b < terms.size(); ++b) {
        Contraction c = Contract(terms, a, b, out);
        const double kept = SizeOf(c.kept, sizes);
        const std::pair cost = {
            kept - SizeOf(terms[a].labels, sizes) - SizeOf(terms[b].labels, sizes),
            kept * SizeOf(c.summed, sizes)};
        if (a + b > 1 && cost >= best) continue;
        best = cost;
        best_a = a;
        best_b = b;
        contraction = std::move(c);
      }
    }
    Term product = Multiply(terms[best_a], terms[best_b], contraction, wide);
    // A count of products that hold, as a truth value again.
    if (IsBool(type)) product.tensor = product.tensor.Cast(type).Cast(wide);
    terms.erase(terms.begin() + static_cast<int64_t>(best_b));
    terms[best_a] = std::move(product);
  }
  // An axis of the ellipsis that no operand has is not there.
  return Aligned(terms[0], out).Cast(type);
}

}  // namespace telegrad
