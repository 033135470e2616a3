// ai.onnx.ml: the operators of tree ensembles, which differ in how they write trees down.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/ml_trees.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

absl::StatusOr<TreeMode> ModeOf(std::string_view name) {
  constexpr std::string_view kNames[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                         "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
  const auto* it = std::ranges::find(kNames, name);
  if (it == std::end(kNames)) return InvalidArgument("'nodes_modes' has '", name, "'");
  return static_cast<TreeMode>(it - kNames);
}

absl::Status CheckSizes(size_t n, std::initializer_list<size_t> sizes) {
  const auto other = [n](size_t size) { return size != n; };
  if (n != 0 && n <= kMaxTreeNodes && std::ranges::none_of(sizes, other)) return absl::OkStatus();
  return InvalidArgument("the lists of nodes are empty, differ in size or have more than ",
                         kMaxTreeNodes, " elements");
}

// Trees and nodes by the numbers that the attributes give them.
using NodePlaces = std::map<std::pair<int64_t, int64_t>, int64_t>;

absl::Status ReadVotes(NodeContext& c, const std::string& prefix, const NodePlaces& places,
                       Trees* t) {
  TG_ASSIGN_OR_RETURN(const auto trees, c.Ints(prefix + "_treeids", {}));
  TG_ASSIGN_OR_RETURN(const auto ids, c.Ints(prefix + "_nodeids", {}));
  TG_ASSIGN_OR_RETURN(const auto targets, c.Ints(prefix + "_ids", {}));
  TG_ASSIGN_OR_RETURN(const auto weights, FloatsOrTensor(c, prefix + "_weights"));
  TG_RETURN_IF_ERROR(CheckSizes(weights.size(), {trees.size(), ids.size(), targets.size()}));
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto it = places.find({trees[i], ids[i]});
    if (it == places.end() || targets[i] < 0 || targets[i] >= t->targets) {
      return InvalidArgument("leaf ", ids[i], " of tree ", trees[i], " with target ", targets[i],
                             " of ", t->targets, " is not there");
    }
    t->votes.push_back({it->second, targets[i], weights[i]});
  }
  return absl::OkStatus();
}

// Leaves are nodes among the others; `prefix` is of their votes: "target" or "class".
absl::StatusOr<Trees> ReadTrees(NodeContext& c, const std::string& prefix, int64_t targets) {
  Trees t;
  t.targets = targets;
  TG_ASSIGN_OR_RETURN(const auto trees, c.Ints("nodes_treeids", {}));
  TG_ASSIGN_OR_RETURN(const auto ids, c.Ints("nodes_nodeids", {}));
  TG_ASSIGN_OR_RETURN(t.feature, c.Ints("nodes_featureids", {}));
  TG_ASSIGN_OR_RETURN(const auto yes, c.Ints("nodes_truenodeids", {}));
  TG_ASSIGN_OR_RETURN(const auto no, c.Ints("nodes_falsenodeids", {}));
  TG_ASSIGN_OR_RETURN(t.value, FloatsOrTensor(c, "nodes_values"));
  TG_ASSIGN_OR_RETURN(const auto modes, c.Strings("nodes_modes"));
  const size_t n = ids.size();
  TG_ASSIGN_OR_RETURN(t.missing,
                      c.Ints("nodes_missing_value_tracks_true", std::vector<int64_t>(n)));
  c.Ignore("nodes_hitrates");  // how often nodes were reached in training
  c.Ignore("nodes_hitrates_as_tensor");
  TG_RETURN_IF_ERROR(CheckSizes(n, {trees.size(), t.feature.size(), yes.size(), no.size(),
                                    t.value.size(), modes.size(), t.missing.size()}));
  NodePlaces places;
  for (size_t i = 0; i < n; ++i) {
    if (!places.emplace(std::pair(trees[i], ids[i]), i).second) {
      return InvalidArgument("node ", ids[i], " of tree ", trees[i], " is there twice");
    }
    if (i == 0 || trees[i] != trees[i - 1]) t.roots.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < n; ++i) {
    TG_ASSIGN_OR_RETURN(const TreeMode mode, ModeOf(modes[i]));
    t.mode.push_back(mode);
    const auto child = [&](int64_t id) {
      if (mode == TreeMode::kLeaf) return static_cast<int64_t>(i);
      const auto it = places.find({trees[i], id});
      return it == places.end() ? int64_t{-1} : it->second;
    };
    t.yes.push_back(child(yes[i]));
    t.no.push_back(child(no[i]));
    if (t.yes[i] < 0 || t.no[i] < 0 || t.feature[i] < 0 || mode == TreeMode::kMember) {
      return InvalidArgument("node ", ids[i], " of tree ", trees[i],
                             " has no such child, feature or mode");
    }
  }
  TG_RETURN_IF_ERROR(ReadVotes(c, prefix, places, &t));
  return t;
}

absl::StatusOr<Tensor> WithBase(NodeContext& c, const Tensor& scores) {
  TG_ASSIGN_OR_RETURN(const auto base, FloatsOrTensor(c, "base_values"));
  if (base.empty()) return scores;
  const auto n = static_cast<int64_t>(base.size());
  if (n != scores.dim(1) && n != 1) return InvalidArgument(n, " base values");
  TG_ASSIGN_OR_RETURN(const Tensor values, DoubleWeight(c, {n}, base));
  return scores + values.Cast(scores.dtype());
}

// The tensor of an attribute that must be there.
absl::StatusOr<HostTensor> TensorAttribute(NodeContext& c, std::string_view name) {
  TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required(name, AttributeType::kTensor));
  return ToHostTensor(*a->t);
}

// Sets of members, each ended by a NaN, go with the nodes of that mode in their order.
absl::Status ReadMembers(NodeContext& c, Trees* t) {
  const auto members = std::ranges::count(t->mode, TreeMode::kMember);
  if (members == 0) {
    c.Ignore("membership_values");
    return absl::OkStatus();
  }
  TG_ASSIGN_OR_RETURN(const HostTensor values, TensorAttribute(c, "membership_values"));
  t->sets.emplace_back();
  for (const double value : values.AsDoubles()) {
    if (std::isnan(value)) {
      t->sets.emplace_back();
    } else {
      t->sets.back().push_back(value);
    }
  }
  if (static_cast<int64_t>(t->sets.size()) != members + 1 || !t->sets.back().empty()) {
    return InvalidArgument("'membership_values' has ", t->sets.size() - 1, " sets ended by NaN, ",
                           members, " nodes are BRANCH_MEMBER");
  }
  int64_t next = 0;
  for (const TreeMode mode : t->mode) t->set.push_back(mode == TreeMode::kMember ? next++ : 0);
  return absl::OkStatus();
}

// Inner nodes come first, then the leaves.
absl::StatusOr<Trees> ReadSplitTrees(NodeContext& c) {
  Trees t;
  TG_ASSIGN_OR_RETURN(t.targets, c.Int("n_targets", 1));
  TG_ASSIGN_OR_RETURN(t.roots, c.Ints("tree_roots", {}));
  TG_ASSIGN_OR_RETURN(t.feature, c.Ints("nodes_featureids", {}));
  TG_ASSIGN_OR_RETURN(t.yes, c.Ints("nodes_truenodeids", {}));
  TG_ASSIGN_OR_RETURN(t.no, c.Ints("nodes_falsenodeids", {}));
  TG_ASSIGN_OR_RETURN(const auto yes_leaf, c.Ints("nodes_trueleafs", {}));
  TG_ASSIGN_OR_RETURN(const auto no_leaf, c.Ints("nodes_falseleafs", {}));
  TG_ASSIGN_OR_RETURN(const HostTensor splits, TensorAttribute(c, "nodes_splits"));
  TG_ASSIGN_OR_RETURN(const HostTensor modes, TensorAttribute(c, "nodes_modes"));
  TG_ASSIGN_OR_RETURN(const HostTensor weights, TensorAttribute(c, "leaf_weights"));
  TG_ASSIGN_OR_RETURN(const auto targets, c.Ints("leaf_targetids", {}));
  const size_t n = t.feature.size(), leaves = targets.size();
  TG_ASSIGN_OR_RETURN(t.missing,
                      c.Ints("nodes_missing_value_tracks_true", std::vector<int64_t>(n)));
  c.Ignore("nodes_hitrates");
  t.value = splits.AsDoubles();
  const std::vector<double> numbers = modes.AsDoubles(), weight = weights.AsDoubles();
  TG_RETURN_IF_ERROR(CheckSizes(n, {t.yes.size(), t.no.size(), yes_leaf.size(), no_leaf.size(),
                                    t.value.size(), numbers.size(), t.missing.size()}));
  TG_RETURN_IF_ERROR(CheckSizes(leaves, {weight.size()}));
  const auto child = [&](int64_t at, int64_t is_leaf) {
    const size_t size = is_leaf != 0 ? leaves : n;
    if (at < 0 || at >= static_cast<int64_t>(size)) return int64_t{-1};
    return is_leaf != 0 ? at + static_cast<int64_t>(n) : at;
  };
  for (size_t i = 0; i < n; ++i) {
    t.yes[i] = child(t.yes[i], yes_leaf[i]);
    t.no[i] = child(t.no[i], no_leaf[i]);
    if (t.yes[i] < 0 || t.no[i] < 0 || t.feature[i] < 0 || !(numbers[i] >= 0 && numbers[i] <= 6)) {
      return InvalidArgument("node ", i, " has no such child, feature or mode");
    }
    t.mode.push_back(static_cast<TreeMode>(static_cast<int>(numbers[i])));
  }
  TG_RETURN_IF_ERROR(ReadMembers(c, &t));
  for (size_t i = 0; i < leaves; ++i) {
    const auto self = static_cast<int64_t>(n + i);
    for (auto* list : {&t.yes, &t.no}) list->push_back(self);
    for (auto* list : {&t.feature, &t.missing}) list->push_back(0);
    if (!t.set.empty()) t.set.push_back(0);
    t.value.push_back(0);
    t.mode.push_back(TreeMode::kLeaf);
    if (targets[i] < 0 || targets[i] >= t.targets) {
      return InvalidArgument("leaf ", i, " has target ", targets[i], " of ", t.targets);
    }
    t.votes.push_back({self, targets[i], weight[i]});
  }
  const auto outside = [n](int64_t root) { return root < 0 || root >= static_cast<int64_t>(n); };
  if (t.roots.empty() || std::ranges::any_of(t.roots, outside)) {
    return InvalidArgument("'tree_roots' is empty or has a root outside of [0, ", n, ")");
  }
  return t;
}

}  // namespace

absl::Status MlTreeEnsembleOp(NodeContext& c) {
  constexpr std::string_view kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO",
                                              "PROBIT"};
  TG_ASSIGN_OR_RETURN(const Tensor given, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const Trees t, ReadSplitTrees(c));
  TG_ASSIGN_OR_RETURN(const int64_t fold, c.Int("aggregate_function", 1));
  TG_ASSIGN_OR_RETURN(const int64_t transform, c.Int("post_transform", 0));
  if (fold < 0 || fold > 3 || transform < 0 || transform > 4) {
    return InvalidArgument("'aggregate_function' is ", fold, " and 'post_transform' ", transform);
  }
  TG_ASSIGN_OR_RETURN(Tensor scores, TreeScores(c, t, x, static_cast<TreeFold>(fold)));
  TG_ASSIGN_OR_RETURN(scores, PostTransform(kTransforms[transform], scores));
  return c.Output(scores.Cast(given.dtype()));
}

absl::Status MlTreeEnsembleRegressorOp(NodeContext& c) {
  constexpr std::string_view kFolds[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const int64_t targets, c.Int("n_targets", 1));
  TG_ASSIGN_OR_RETURN(const Trees t, ReadTrees(c, "target", targets));
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("aggregate_function", "SUM"));
  const auto* fold = std::ranges::find(kFolds, name);
  if (fold == std::end(kFolds)) return InvalidArgument("'aggregate_function' is '", name, "'");
  TG_ASSIGN_OR_RETURN(Tensor scores, TreeScores(c, t, x, static_cast<TreeFold>(fold - kFolds)));
  TG_ASSIGN_OR_RETURN(scores, WithBase(c, scores));
  TG_ASSIGN_OR_RETURN(scores, PostTransform(c, scores));
  return c.Output(scores.Cast(DType::kFloat32));
}

// Two labels whose trees score class 0 alone, which then stands for the second label, are decided
// by the sign of its score, or, if no weight is negative, by whether it is above a half.
absl::Status MlTreeEnsembleClassifierOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(c, "classlabels"));
  const int64_t n = labels.size();
  TG_ASSIGN_OR_RETURN(const Trees t, ReadTrees(c, "class", std::max<int64_t>(n, 1)));
  TG_ASSIGN_OR_RETURN(Tensor scores, TreeScores(c, t, x, TreeFold::kSum));
  const bool one =
      n == 2 && std::ranges::all_of(t.votes, [](const TreeVote& v) { return v.target == 0; });
  if (!one) {
    TG_ASSIGN_OR_RETURN(scores, WithBase(c, scores));
    const Tensor chosen = scores.ArgMax(1).Cast(DType::kInt64);
    TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
    TG_ASSIGN_OR_RETURN(scores, PostTransform(c, scores));
    return c.Output(scores.Cast(DType::kFloat32));
  }
  TG_ASSIGN_OR_RETURN(const auto base, FloatsOrTensor(c, "base_values"));
  Tensor score = scores.Slice(1, 0, 1);
  if (!base.empty()) score = score + base.back();
  const bool positive =
      std::ranges::all_of(t.votes, [](const TreeVote& v) { return v.weight >= 0; });
  const Tensor chosen = score.Squeeze(1).Gt(positive ? 0.5 : 0.0).Cast(DType::kInt64);
  TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
  TG_ASSIGN_OR_RETURN(const std::string_view transform, c.String("post_transform", "NONE"));
  const Tensor first = positive ? 1 - score : -score;
  Tensor pair = Concat(std::vector<Tensor>{first, score}, 1);
  if (!positive) {
    TG_ASSIGN_OR_RETURN(pair, PostTransform(transform, pair));
  } else if (transform == "PROBIT") {
    return Unimplemented("'post_transform' is 'PROBIT' for two classes of one score");
  }
  return c.Output(pair.Cast(DType::kFloat32));
}

}  // namespace telegrad::onnx
