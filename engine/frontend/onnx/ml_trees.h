// Ensembles of trees, whatever attributes they come from.
#pragma once

#include <vector>

#include "engine/frontend/onnx/node_context.h"

namespace telegrad::onnx {

// In the order of TreeEnsemble's `nodes_modes`.
enum class TreeMode : uint8_t {
  kLessOrEqual,
  kLess,
  kGreaterOrEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kMember,
  kLeaf,
};

// A leaf's weight for a target.
struct TreeVote {
  int64_t node = 0, target = 0;
  double weight = 0;
};

// Lists with an element for each node. A leaf is its own child.
struct Trees {
  std::vector<int64_t> feature, yes, no, missing;
  std::vector<double> value;
  std::vector<TreeMode> mode;
  std::vector<int64_t> set;               // of a node kMember, in `sets`; empty without such nodes
  std::vector<std::vector<double>> sets;  // what a node kMember compares with
  std::vector<int64_t> roots;
  std::vector<TreeVote> votes;
  int64_t targets = 0;

  size_t size() const { return feature.size(); }
};

inline constexpr size_t kMaxTreeNodes = size_t{1} << 20;

enum class TreeFold : uint8_t { kAverage, kSum, kMin, kMax };

// The votes of the leaves that rows [rows, features] reach, folded over the trees: [rows, targets]
// of the features' type. A target that no leaf votes for has 0.
absl::StatusOr<Tensor> TreeScores(NodeContext& c, const Trees& t, const Tensor& x, TreeFold fold);

}  // namespace telegrad::onnx
