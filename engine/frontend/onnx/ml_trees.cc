// ai.onnx.ml: ensembles of trees. All rows and trees go down one level at a time: a row's place in
// a tree is the number of a node, and what a node is lies in tables.
#include "engine/frontend/onnx/ml_trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxLeafTable = int64_t{1} << 26;
constexpr int64_t kMaxDepth = 256;

// How many steps it takes from a root to the deepest leaf.
absl::StatusOr<int64_t> DepthOf(const Trees& t) {
  std::vector<int64_t> now = t.roots;
  for (int64_t depth = 0; depth <= kMaxDepth; ++depth) {
    std::vector<int64_t> next;
    for (const int64_t i : now) {
      if (t.mode[i] != TreeMode::kLeaf) next.insert(next.end(), {t.yes[i], t.no[i]});
    }
    if (next.empty()) return depth;
    if (next.size() > 2 * t.size()) return InvalidArgument("the nodes are no trees");
    now = std::move(next);
  }
  return Unimplemented("a tree is deeper than ", kMaxDepth);
}

Tensor Compare(TreeMode mode, const Tensor& x, const Tensor& threshold) {
  switch (mode) {
    case TreeMode::kLess:
      return x.Lt(threshold);
    case TreeMode::kGreaterOrEqual:
      return x.Ge(threshold);
    case TreeMode::kGreater:
      return x.Gt(threshold);
    case TreeMode::kEqual:
      return x.Eq(threshold);
    case TreeMode::kNotEqual:
      return x.Ne(threshold);
    default:
      return x.Le(threshold);
  }
}

// The tables of an ensemble as weights of the plan.
struct TreeTables {
  Tensor feature, yes, no, missing, value, mode, set, members;
  std::vector<TreeMode> modes;  // that nodes have
};

// Sets padded with NaN, which equals nothing.
absl::Status AddMembers(NodeContext& c, const Trees& t, TreeTables* out) {
  if (t.sets.empty()) return absl::OkStatus();
  size_t width = 1;
  for (const auto& set : t.sets) width = std::max(width, set.size());
  const auto rows = static_cast<int64_t>(t.sets.size()), columns = static_cast<int64_t>(width);
  if (rows > kMaxLeafTable / columns) return ResourceExhausted("sets of ", width, " members");
  std::vector<double> members(t.sets.size() * width, std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; i < t.sets.size(); ++i) {
    std::ranges::copy(t.sets[i], members.begin() + static_cast<int64_t>(i * width));
  }
  TG_ASSIGN_OR_RETURN(out->members, DoubleWeight(c, {rows, columns}, members));
  TG_ASSIGN_OR_RETURN(out->set, IntWeight(c, t.set));
  return absl::OkStatus();
}

absl::StatusOr<TreeTables> Tables(NodeContext& c, const Trees& t, DType dtype) {
  TreeTables out;
  TG_ASSIGN_OR_RETURN(out.feature, IntWeight(c, t.feature));
  TG_ASSIGN_OR_RETURN(out.yes, IntWeight(c, t.yes));
  TG_ASSIGN_OR_RETURN(out.no, IntWeight(c, t.no));
  TG_ASSIGN_OR_RETURN(out.value, DoubleWeight(c, {static_cast<int64_t>(t.size())}, t.value));
  out.value = out.value.Cast(dtype);
  if (std::ranges::any_of(t.missing, [](int64_t m) { return m != 0; })) {
    TG_ASSIGN_OR_RETURN(out.missing, IntWeight(c, t.missing));
  }
  std::vector<int64_t> numbers;
  for (const TreeMode mode : t.mode) {
    numbers.push_back(static_cast<int64_t>(mode));
    if (mode != TreeMode::kLeaf && std::ranges::find(out.modes, mode) == out.modes.end()) {
      out.modes.push_back(mode);
    }
  }
  if (out.modes.size() > 1) {
    TG_ASSIGN_OR_RETURN(out.mode, IntWeight(c, numbers));
  }
  TG_RETURN_IF_ERROR(AddMembers(c, t, &out));
  return out;
}

// Whether the elements `x` take the true branch of the nodes `at`, of the same shape.
Tensor Taken(const TreeTables& t, const Tensor& at, const Tensor& x) {
  const Tensor threshold = t.value.Gather(at);
  Tensor out;
  for (const TreeMode mode : t.modes) {
    Tensor one =
        mode == TreeMode::kMember
            ? x.Cast(DType::kFloat64).Unsqueeze(-1).Eq(t.members.Gather(t.set.Gather(at))).Any({-1})
            : Compare(mode, x, threshold);
    out = out.valid() ? t.mode.Gather(at).Eq(static_cast<int64_t>(mode)).Where(one, out) : one;
  }
  if (t.missing.valid()) out = out.Or(x.IsNan().And(t.missing.Gather(at).Ne(0)));
  return out;
}

// The leaf that each row reaches in each tree: [rows, trees].
absl::StatusOr<Tensor> LeavesOf(NodeContext& c, const Trees& t, const Tensor& x) {
  const int64_t rows = x.dim(0), features = x.dim(1);
  const int64_t most = *std::ranges::max_element(t.feature);
  if (most >= features) {
    return InvalidArgument("a node reads feature ", most, " of ", features);
  }
  TG_ASSIGN_OR_RETURN(const int64_t depth, DepthOf(t));
  TG_ASSIGN_OR_RETURN(const TreeTables tables, Tables(c, t, x.dtype()));
  TG_ASSIGN_OR_RETURN(const Tensor roots, IntWeight(c, t.roots));
  Tensor at = roots.Unsqueeze(0).Expand({rows, static_cast<int64_t>(t.roots.size())});
  const Tensor row = c.builder().Iota(DType::kInt64, rows).Unsqueeze(1) * features;
  for (int64_t step = 0; step < depth; ++step) {
    const Tensor element = x.Flatten().Gather(row + tables.feature.Gather(at));
    const Tensor taken = Taken(tables, at, element);
    at = taken.Where(tables.yes.Gather(at), tables.no.Gather(at)).Contiguous();
  }
  return at;
}

}  // namespace

absl::StatusOr<Tensor> TreeScores(NodeContext& c, const Trees& t, const Tensor& x, TreeFold fold) {
  const auto n = static_cast<int64_t>(t.size());
  if (t.targets < 1 || n > kMaxLeafTable / t.targets) {
    return ResourceExhausted(n, " nodes of ", t.targets, " targets");
  }
  TG_ASSIGN_OR_RETURN(const Tensor at, LeavesOf(c, t, x));
  const bool extreme = fold == TreeFold::kMin || fold == TreeFold::kMax;
  const double none = fold == TreeFold::kMin   ? std::numeric_limits<double>::infinity()
                      : fold == TreeFold::kMax ? -std::numeric_limits<double>::infinity()
                                               : 0;
  std::vector<double> table(static_cast<size_t>(n * t.targets), none);
  for (const TreeVote& vote : t.votes) {
    double& place = table[static_cast<size_t>(vote.node * t.targets + vote.target)];
    place = fold == TreeFold::kMin   ? std::min(place, vote.weight)
            : fold == TreeFold::kMax ? std::max(place, vote.weight)
                                     : place + vote.weight;
  }
  TG_ASSIGN_OR_RETURN(const Tensor leaves, DoubleWeight(c, {n, t.targets}, table));
  const Tensor weights = leaves.Cast(x.dtype()).Gather(at);
  if (fold == TreeFold::kAverage) return weights.Mean({1});
  if (!extreme) return weights.Sum({1});
  const Tensor out = fold == TreeFold::kMin ? weights.Min({1}) : weights.Max({1});
  return out.Eq(none).Where(0.0, out);  // no tree voted for it
}

}  // namespace telegrad::onnx
