// ai.onnx.ml: linear models and ensembles of trees.
#include <algorithm>
#include <map>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kMaxTreeNodes = size_t{1} << 20;
constexpr int64_t kMaxLeafTable = int64_t{1} << 26;
constexpr int64_t kMaxDepth = 256;

// Scores [rows, targets] as `post_transform` has them.
absl::StatusOr<Tensor> PostTransform(NodeContext& c, const Tensor& scores) {
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("post_transform", "NONE"));
  if (name == "NONE") return scores;
  if (name == "LOGISTIC") return scores.Sigmoid();
  if (name == "SOFTMAX") return scores.Softmax(-1);
  if (name == "SOFTMAX_ZERO") {
    // As SOFTMAX, but a score of 0 stays 0.
    const Tensor kept = scores.Ne(0);
    const Tensor e = kept.Where((scores - scores.Max({-1}, true)).Exp(), 0.0);
    const Tensor sum = e.Sum({-1}, true);
    return e / sum.Eq(0).Where(1, sum);
  }
  return Unimplemented("'post_transform' is '", name, "'");
}

// Features as f32 [rows, n].
absl::StatusOr<Tensor> Features(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (x.rank() != 1 && x.rank() != 2) {
    return InvalidArgument("features of shape ", ToString(x.shape()));
  }
  const Tensor wide = x.Cast(x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  return x.rank() == 1 ? wide.Unsqueeze(0) : wide;
}

absl::StatusOr<Tensor> FloatWeight(NodeContext& c, const Shape& shape,
                                   const std::vector<float>& values) {
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<float>(shape, values)));
  return out.Reshape(shape);
}

absl::StatusOr<Tensor> IntWeight(NodeContext& c, const std::vector<int64_t>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<int64_t>(shape, values)));
  return out.Reshape(shape);
}

// X coefficients' + intercepts.
absl::StatusOr<Tensor> LinearScores(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const auto coefficients, c.Floats("coefficients", {}));
  TG_ASSIGN_OR_RETURN(const auto intercepts, c.Floats("intercepts", {}));
  const auto n = static_cast<int64_t>(coefficients.size());
  if (n == 0 || x.dim(1) == 0 || n % x.dim(1) != 0) {
    return InvalidArgument(n, " coefficients for ", x.dim(1), " features");
  }
  const int64_t targets = n / x.dim(1);
  TG_ASSIGN_OR_RETURN(const Tensor matrix, FloatWeight(c, {targets, x.dim(1)}, coefficients));
  const Tensor out = x.Cast(DType::kFloat32).MatMul(matrix.Transpose());
  if (intercepts.empty()) return out;
  if (static_cast<int64_t>(intercepts.size()) != targets) {
    return InvalidArgument(intercepts.size(), " intercepts for ", targets, " targets");
  }
  TG_ASSIGN_OR_RETURN(const Tensor bias, FloatWeight(c, {targets}, intercepts));
  return out + bias;
}

// Labels of classes that are integers.
absl::StatusOr<std::vector<int64_t>> ClassLabels(NodeContext& c, std::string_view name) {
  if (!c.HasAttribute(name)) return Unimplemented("labels that are strings are not supported");
  return c.Ints(name, {});
}

// One node of a tree, as the attributes' lists have it.
struct TreeNodes {
  std::vector<int64_t> feature, yes, no, missing;
  std::vector<float> value;
  std::vector<std::string_view> mode;
  std::vector<int64_t> roots;
  std::vector<float> leaves;  // [nodes, targets]
  int64_t targets = 0, depth = 0;

  size_t size() const { return feature.size(); }
};

// How many steps it takes from a root to the deepest leaf.
absl::StatusOr<int64_t> DepthOf(const TreeNodes& t) {
  std::vector<int64_t> now = t.roots;
  for (int64_t depth = 0; depth <= kMaxDepth; ++depth) {
    std::vector<int64_t> next;
    for (const int64_t i : now) {
      if (t.mode[i] != "LEAF") next.insert(next.end(), {t.yes[i], t.no[i]});
    }
    if (next.empty()) return depth;
    if (next.size() > t.size()) return InvalidArgument("the nodes are no trees");
    now = std::move(next);
  }
  return Unimplemented("a tree is deeper than ", kMaxDepth);
}

// `prefix` is of the leaves: "target" or "class".
absl::StatusOr<TreeNodes> ReadTrees(NodeContext& c, const std::string& prefix, int64_t targets) {
  TreeNodes t;
  t.targets = targets;
  TG_ASSIGN_OR_RETURN(const auto trees, c.Ints("nodes_treeids", {}));
  TG_ASSIGN_OR_RETURN(const auto ids, c.Ints("nodes_nodeids", {}));
  TG_ASSIGN_OR_RETURN(t.feature, c.Ints("nodes_featureids", {}));
  TG_ASSIGN_OR_RETURN(const auto yes, c.Ints("nodes_truenodeids", {}));
  TG_ASSIGN_OR_RETURN(const auto no, c.Ints("nodes_falsenodeids", {}));
  TG_ASSIGN_OR_RETURN(t.value, c.Floats("nodes_values", {}));
  TG_ASSIGN_OR_RETURN(t.mode, c.Strings("nodes_modes"));
  const size_t n = ids.size();
  TG_ASSIGN_OR_RETURN(t.missing,
                      c.Ints("nodes_missing_value_tracks_true", std::vector<int64_t>(n)));
  c.Ignore("nodes_hitrates");  // how often nodes were reached in training
  if (n == 0 || n > kMaxTreeNodes || trees.size() != n || t.feature.size() != n ||
      yes.size() != n || no.size() != n || t.value.size() != n || t.mode.size() != n ||
      t.missing.size() != n) {
    return InvalidArgument("the lists of nodes have different sizes, or there are more than ",
                           kMaxTreeNodes);
  }
  std::map<std::pair<int64_t, int64_t>, int64_t> places;
  for (size_t i = 0; i < n; ++i) {
    if (!places.emplace(std::pair(trees[i], ids[i]), i).second) {
      return InvalidArgument("node ", ids[i], " of tree ", trees[i], " is there twice");
    }
    if (i == 0 || trees[i] != trees[i - 1]) t.roots.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < n; ++i) {
    const auto child = [&](int64_t id) {
      const auto it = places.find({trees[i], id});
      return it == places.end() ? int64_t{-1} : it->second;
    };
    const bool leaf = t.mode[i] == "LEAF";
    t.yes.push_back(leaf ? static_cast<int64_t>(i) : child(yes[i]));
    t.no.push_back(leaf ? static_cast<int64_t>(i) : child(no[i]));
    if (t.yes[i] < 0 || t.no[i] < 0 || t.feature[i] < 0) {
      return InvalidArgument("node ", ids[i], " of tree ", trees[i],
                             " has no such child or feature");
    }
  }
  TG_ASSIGN_OR_RETURN(const auto leaf_trees, c.Ints(prefix + "_treeids", {}));
  TG_ASSIGN_OR_RETURN(const auto leaf_ids, c.Ints(prefix + "_nodeids", {}));
  TG_ASSIGN_OR_RETURN(const auto leaf_targets, c.Ints(prefix + "_ids", {}));
  TG_ASSIGN_OR_RETURN(const auto weights, c.Floats(prefix + "_weights", {}));
  if (leaf_trees.size() != weights.size() || leaf_ids.size() != weights.size() ||
      leaf_targets.size() != weights.size() || targets < 1 ||
      static_cast<int64_t>(n) * targets > kMaxLeafTable) {
    return InvalidArgument("the lists of leaves have different sizes, or ", targets, " targets");
  }
  t.leaves.assign(n * static_cast<size_t>(targets), 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto it = places.find({leaf_trees[i], leaf_ids[i]});
    if (it == places.end() || leaf_targets[i] < 0 || leaf_targets[i] >= targets) {
      return InvalidArgument("leaf ", leaf_ids[i], " of tree ", leaf_trees[i], " is not there");
    }
    t.leaves[static_cast<size_t>(it->second * targets + leaf_targets[i])] += weights[i];
  }
  TG_ASSIGN_OR_RETURN(t.depth, DepthOf(t));
  return t;
}

// Which child each comparison takes, of values and thresholds of one shape.
absl::StatusOr<Tensor> BranchTaken(NodeContext& c, const TreeNodes& t, const Tensor& at,
                                   const Tensor& x, const Tensor& threshold) {
  constexpr std::string_view kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  std::vector<int64_t> numbers;
  std::vector<bool> used(std::size(kModes), false);
  for (const std::string_view mode : t.mode) {
    if (mode == "LEAF") {
      numbers.push_back(0);
      continue;
    }
    const auto* it = std::ranges::find(kModes, mode);
    if (it == std::end(kModes)) return Unimplemented("a node of mode '", mode, "'");
    numbers.push_back(it - kModes);
    used[it - kModes] = true;
  }
  const auto compare = [&](size_t mode) {
    switch (mode) {
      case 0:
        return x.Le(threshold);
      case 1:
        return x.Lt(threshold);
      case 2:
        return x.Ge(threshold);
      case 3:
        return x.Gt(threshold);
      case 4:
        return x.Eq(threshold);
      default:
        return x.Ne(threshold);
    }
  };
  Tensor table, out;
  for (size_t mode = 0; mode < std::size(kModes); ++mode) {
    if (!used[mode]) continue;
    if (!out.valid()) {
      out = compare(mode);
      continue;
    }
    if (!table.valid()) {
      TG_ASSIGN_OR_RETURN(table, IntWeight(c, numbers));
    }
    out = table.Gather(at).Eq(static_cast<int64_t>(mode)).Where(compare(mode), out);
  }
  return out.valid() ? out : x.Le(threshold);
}

// The leaf that each row reaches in each tree: weights [rows, trees, targets].
absl::StatusOr<Tensor> LeafWeights(NodeContext& c, const TreeNodes& t, const Tensor& x) {
  const int64_t rows = x.dim(0), features = x.dim(1);
  if (*std::ranges::max_element(t.feature) >= features) {
    return InvalidArgument("a node reads feature ", *std::ranges::max_element(t.feature), " of ",
                           features);
  }
  const auto n = static_cast<int64_t>(t.size());
  TG_ASSIGN_OR_RETURN(const Tensor feature, IntWeight(c, t.feature));
  TG_ASSIGN_OR_RETURN(const Tensor yes, IntWeight(c, t.yes));
  TG_ASSIGN_OR_RETURN(const Tensor no, IntWeight(c, t.no));
  TG_ASSIGN_OR_RETURN(const Tensor missing, IntWeight(c, t.missing));
  TG_ASSIGN_OR_RETURN(const Tensor value, FloatWeight(c, {n}, t.value));
  TG_ASSIGN_OR_RETURN(const Tensor leaves, FloatWeight(c, {n, t.targets}, t.leaves));
  TG_ASSIGN_OR_RETURN(const Tensor roots, IntWeight(c, t.roots));
  const auto trees = static_cast<int64_t>(t.roots.size());
  Tensor at = roots.Unsqueeze(0).Expand({rows, trees});
  const Tensor row = c.builder().Iota(DType::kInt64, rows).Unsqueeze(1) * features;
  const bool tracks = std::ranges::any_of(t.missing, [](int64_t m) { return m != 0; });
  for (int64_t step = 0; step < t.depth; ++step) {
    const Tensor element = x.Flatten().Gather(row + feature.Gather(at));
    TG_ASSIGN_OR_RETURN(Tensor taken, BranchTaken(c, t, at, element, value.Gather(at)));
    if (tracks) taken = taken.Or(element.IsNan().And(missing.Gather(at).Ne(0)));
    at = taken.Where(yes.Gather(at), no.Gather(at)).Contiguous();
  }
  return leaves.Gather(at);
}

absl::StatusOr<Tensor> WithBase(NodeContext& c, const Tensor& scores) {
  TG_ASSIGN_OR_RETURN(const auto base, c.Floats("base_values", {}));
  if (base.empty()) return scores;
  const auto n = static_cast<int64_t>(base.size());
  if (n != scores.dim(1) && n != 1) return InvalidArgument(n, " base values");
  TG_ASSIGN_OR_RETURN(const Tensor values, FloatWeight(c, {n}, base));
  return scores + values;
}

}  // namespace

absl::Status MlLinearRegressorOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const Tensor scores, LinearScores(c, x));
  TG_ASSIGN_OR_RETURN(const int64_t targets, c.Int("targets", 1));
  if (targets != scores.dim(1)) return InvalidArgument("'targets' is ", targets);
  TG_ASSIGN_OR_RETURN(const Tensor out, PostTransform(c, scores));
  return c.Output(out);
}

// The label of the largest score; of two labels and one score, the second if it is above 0.
absl::Status MlLinearClassifierOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const auto labels, ClassLabels(c, "classlabels_ints"));
  TG_ASSIGN_OR_RETURN(Tensor scores, LinearScores(c, x));
  c.Ignore("multi_class");
  TG_ASSIGN_OR_RETURN(const Tensor table, IntWeight(c, labels));
  TG_ASSIGN_OR_RETURN(const std::string_view transform, c.String("post_transform", "NONE"));
  const auto n = static_cast<int64_t>(labels.size());
  if (n == 2 && scores.dim(1) == 1) {
    TG_RETURN_IF_ERROR(c.Output(table.Gather(scores.Squeeze(1).Gt(0).Cast(DType::kInt64))));
    TG_ASSIGN_OR_RETURN(const Tensor second, PostTransform(c, scores));
    const Tensor first = transform == "LOGISTIC" ? 1 - second : -second;
    return c.Output(Concat(std::vector<Tensor>{first, second}, 1));
  }
  if (n != scores.dim(1)) return InvalidArgument(n, " labels for ", scores.dim(1), " scores");
  TG_RETURN_IF_ERROR(c.Output(table.Gather(scores.ArgMax(1))));
  TG_ASSIGN_OR_RETURN(scores, PostTransform(c, scores));
  return c.Output(scores);
}

absl::Status MlTreeEnsembleRegressorOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const int64_t targets, c.Int("n_targets", 1));
  TG_ASSIGN_OR_RETURN(const TreeNodes t, ReadTrees(c, "target", targets));
  TG_ASSIGN_OR_RETURN(const Tensor weights, LeafWeights(c, t, x));
  TG_ASSIGN_OR_RETURN(const std::string_view fold, c.String("aggregate_function", "SUM"));
  Tensor scores;
  if (fold == "SUM") {
    scores = weights.Sum({1});
  } else if (fold == "AVERAGE") {
    scores = weights.Mean({1});
  } else if ((fold == "MIN" || fold == "MAX") && targets == 1) {
    scores = fold == "MIN" ? weights.Min({1}) : weights.Max({1});
  } else {
    return Unimplemented("'aggregate_function' is '", fold, "' for ", targets, " targets");
  }
  TG_ASSIGN_OR_RETURN(scores, WithBase(c, scores));
  TG_ASSIGN_OR_RETURN(scores, PostTransform(c, scores));
  return c.Output(scores.Cast(DType::kFloat32));
}

// Two labels whose trees score class 0 alone, which then stands for the second label, are decided
// by the sign of its score, or, if no weight is negative, by whether it is above a half.
absl::Status MlTreeEnsembleClassifierOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const auto labels, ClassLabels(c, "classlabels_int64s"));
  const auto n = static_cast<int64_t>(labels.size());
  TG_ASSIGN_OR_RETURN(const auto classes, c.Ints("class_ids", {}));
  TG_ASSIGN_OR_RETURN(const auto weights, c.Floats("class_weights", {}));
  TG_ASSIGN_OR_RETURN(const TreeNodes t, ReadTrees(c, "class", std::max<int64_t>(n, 1)));
  TG_ASSIGN_OR_RETURN(const Tensor leaves, LeafWeights(c, t, x));
  TG_ASSIGN_OR_RETURN(const Tensor table, IntWeight(c, labels));
  Tensor scores = leaves.Sum({1});
  const bool one = n == 2 && std::ranges::all_of(classes, [](int64_t i) { return i == 0; });
  if (!one) {
    TG_ASSIGN_OR_RETURN(scores, WithBase(c, scores));
    TG_RETURN_IF_ERROR(c.Output(table.Gather(scores.ArgMax(1))));
    TG_ASSIGN_OR_RETURN(scores, PostTransform(c, scores));
    return c.Output(scores);
  }
  TG_ASSIGN_OR_RETURN(const auto base, c.Floats("base_values", {}));
  Tensor score = scores.Slice(1, 0, 1);
  if (!base.empty()) score = score + static_cast<double>(base.back());
  const bool positive = std::ranges::all_of(weights, [](float w) { return w >= 0; });
  const Tensor chosen = score.Squeeze(1).Gt(positive ? 0.5 : 0.0).Cast(DType::kInt64);
  TG_RETURN_IF_ERROR(c.Output(table.Gather(chosen)));
  TG_ASSIGN_OR_RETURN(const std::string_view transform, c.String("post_transform", "NONE"));
  Tensor pair;
  if (positive) {
    pair = Concat(std::vector<Tensor>{1 - score, score}, 1);
  } else {
    pair = Concat(std::vector<Tensor>{-score, score}, 1);
    if (transform == "LOGISTIC") pair = pair.Sigmoid();
  }
  if (transform != "LOGISTIC" && transform != "NONE") {
    return Unimplemented("'post_transform' is '", transform, "' for two classes of one score");
  }
  return c.Output(pair);
}

}  // namespace telegrad::onnx
