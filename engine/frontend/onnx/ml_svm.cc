// ai.onnx.ml: support vector machines. What the standard does not say (which score a pair of
// classes has, how scores of pairs become probabilities) is as in the project's reference
// implementation, which follows libsvm.
#include <algorithm>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxProbabilityClasses = 16;

// K(x, v) of each row of `x` [rows, n] and of `vectors` [m, n]: [rows, m].
absl::StatusOr<Tensor> Kernel(NodeContext& c, const Tensor& x, const Tensor& vectors) {
  TG_ASSIGN_OR_RETURN(const std::string_view kind, c.String("kernel_type", "LINEAR"));
  TG_ASSIGN_OR_RETURN(const auto given, c.Floats("kernel_params", {0, 0, 0}));
  if (given.size() != 3) return InvalidArgument("'kernel_params' has ", given.size(), " numbers");
  const double gamma = given[0], shift = given[1], degree = given[2];
  if (kind == "RBF") {
    const Tensor difference = x.Unsqueeze(1) - vectors.Unsqueeze(0);
    return ((difference * difference).Sum({2}) * -gamma).Exp();
  }
  const Tensor product = x.MatMul(vectors.Transpose());
  if (kind == "LINEAR") return product;
  if (kind == "SIGMOID") return (product * gamma + shift).Tanh();
  if (kind == "POLY") return (product * gamma + shift).Pow(degree);
  return InvalidArgument("'kernel_type' is '", kind, "', expected LINEAR, POLY, RBF or SIGMOID");
}

// `name` as [rows, columns] with that many rows.
absl::StatusOr<Tensor> Matrix(NodeContext& c, std::string_view name, int64_t rows,
                              int64_t columns) {
  TG_ASSIGN_OR_RETURN(const auto values, c.Floats(name, {}));
  const auto n = static_cast<int64_t>(values.size());
  if (rows < 1 || columns < 1 || rows > n || rows * columns != n) {
    return InvalidArgument("'", name, "' has ", n, " numbers, expected ", rows, " x ", columns);
  }
  return FloatWeight(c, {rows, columns}, values);
}

// Of vectors of all classes, one after the other, those of each class.
struct Parts {
  std::vector<int64_t> start, count;
  int64_t vectors = 0;
};

absl::StatusOr<Parts> ReadParts(NodeContext& c, int64_t classes) {
  constexpr int64_t kMostVectors = int64_t{1} << 24;
  Parts out;
  TG_ASSIGN_OR_RETURN(out.count, c.Ints("vectors_per_class", {}));
  for (const int64_t n : out.count) {
    if (n < 0 || n > kMostVectors - out.vectors) {
      return InvalidArgument("'vectors_per_class' has ", n);
    }
    out.start.push_back(out.vectors);
    out.vectors += n;
  }
  if (out.vectors != 0 && static_cast<int64_t>(out.count.size()) != classes) {
    return InvalidArgument("'vectors_per_class' has ", out.count.size(), " numbers for ", classes,
                           " classes");
  }
  return out;
}

// The score of each pair of classes i < j, above 0 for i: [rows, pairs].
absl::StatusOr<Tensor> PairScores(NodeContext& c, const Tensor& x, const Parts& parts,
                                  const std::vector<float>& rho) {
  const auto classes = static_cast<int64_t>(parts.count.size());
  TG_ASSIGN_OR_RETURN(const Tensor vectors, Matrix(c, "support_vectors", parts.vectors, x.dim(1)));
  TG_ASSIGN_OR_RETURN(const Tensor weights, Matrix(c, "coefficients", classes - 1, parts.vectors));
  TG_ASSIGN_OR_RETURN(const Tensor kernel, Kernel(c, x, vectors));
  const auto part = [&](int64_t row, int64_t of) {
    const int64_t begin = parts.start[of], end = begin + parts.count[of];
    const Tensor weight = weights.Slice(0, row, row + 1).Slice(1, begin, end);
    return (kernel.Slice(1, begin, end) * weight).Sum({1});
  };
  std::vector<Tensor> out;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j) {
      const size_t pair = out.size();
      if (pair >= rho.size()) return InvalidArgument("'rho' has only ", rho.size(), " numbers");
      out.push_back(part(j - 1, i) + part(i, j) + static_cast<double>(rho[pair]));
    }
  }
  return Stack(out, 1);
}

// How many pairs each class has won: [rows, classes].
Tensor Votes(const Tensor& scores, int64_t classes) {
  std::vector<Tensor> votes(static_cast<size_t>(classes));
  const auto add = [&](int64_t of, const Tensor& won) {
    Tensor& sum = votes[static_cast<size_t>(of)];
    const Tensor one = won.Cast(DType::kInt32);
    sum = sum.valid() ? sum + one : one;
  };
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      const Tensor won = scores.Slice(1, pair, pair + 1).Squeeze(1).Gt(0.0);
      add(i, won);
      add(j, won.Not());
    }
  }
  return Stack(votes, 1);
}

// Probabilities of classes from those of pairs, by the second method of Wu, Lin and Weng
// ("Probability estimates for multi-class classification by pairwise coupling", 2004): the p with
// sum 1 for which p' Q p is least. It is improved class by class; rows that are near enough to the
// minimum stay as they are, as in libsvm.
Tensor Coupled(const std::vector<Tensor>& pairs, int64_t classes) {
  constexpr int kSweeps = 24;
  const double near = 0.005 / static_cast<double>(classes);
  const auto r = [&](int64_t i, int64_t j) -> const Tensor& { return pairs[i * classes + j]; };
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < classes; ++t) {
    std::vector<Tensor> row;
    for (int64_t j = 0; j < classes; ++j) {
      Tensor q;
      for (int64_t i = 0; j == t && i < classes; ++i) {
        if (i != t) q = q.valid() ? q + r(i, t) * r(i, t) : r(i, t) * r(i, t);
      }
      row.push_back(j == t ? q : -(r(j, t) * r(t, j)));
    }
    rows.push_back(Stack(row, 1).Contiguous());  // [rows, classes]
  }
  Tensor p = rows[0].FullLike(1.0 / static_cast<double>(classes));
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    std::vector<Tensor> products;
    for (const Tensor& row : rows) products.push_back((row * p).Sum({1}));
    Tensor qp = Stack(products, 1).Contiguous();
    Tensor pqp = (p * qp).Sum({1}, true);
    const Tensor done = (qp - pqp).Abs().Max({1}, true).Lt(near);
    Tensor next = p;
    for (int64_t t = 0; t < classes; ++t) {
      const Tensor diagonal = rows[t].Slice(1, t, t + 1), at = qp.Slice(1, t, t + 1);
      const Tensor step = (pqp - at) / diagonal, scale = step + 1.0;
      const Tensor here = p.builder()->Iota(DType::kInt64, classes).Eq(t);
      pqp = (pqp + step * (step * diagonal + at * 2.0)) / (scale * scale);
      next = here.Where(next + step, next) / scale;
      qp = ((qp + step * rows[t]) / scale).Contiguous();
    }
    p = done.Where(p, next).Contiguous();
  }
  return p;
}

absl::StatusOr<Tensor> Probabilities(NodeContext& c, const Tensor& scores, int64_t classes) {
  TG_ASSIGN_OR_RETURN(const auto a, c.Floats("prob_a", {}));
  TG_ASSIGN_OR_RETURN(const auto b, c.Floats("prob_b", {}));
  const int64_t n = scores.dim(1);
  if (static_cast<int64_t>(a.size()) != n || a.size() != b.size()) {
    return InvalidArgument("'prob_a' and 'prob_b' have ", a.size(), " and ", b.size(),
                           " numbers, expected ", n);
  }
  if (classes > kMaxProbabilityClasses) {
    return Unimplemented("probabilities of ", classes, " classes; the limit is ",
                         kMaxProbabilityClasses);
  }
  std::vector<Tensor> pairs(static_cast<size_t>(classes * classes));
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      const Tensor score = scores.Slice(1, pair, pair + 1).Squeeze(1);
      const Tensor x = score * static_cast<double>(a[pair]) + static_cast<double>(b[pair]);
      const Tensor p = (-x).Sigmoid().Clamp(1e-7, 1 - 1e-7).Contiguous();
      pairs[i * classes + j] = p;
      pairs[j * classes + i] = 1.0 - p;
    }
  }
  return Coupled(pairs, classes);
}

}  // namespace

// Without support vectors the coefficients are those of a linear function.
absl::Status MlSvmRegressorOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const int64_t supports, c.Int("n_supports", 0));
  TG_ASSIGN_OR_RETURN(const auto rho, c.Floats("rho", {}));
  TG_ASSIGN_OR_RETURN(const int64_t one_class, c.Int("one_class", 0));
  if (rho.empty()) return InvalidArgument("'rho' is empty");
  const Tensor wide = x.Cast(DType::kFloat32);
  Tensor scores;
  if (supports > 0) {
    TG_ASSIGN_OR_RETURN(const Tensor vectors, Matrix(c, "support_vectors", supports, x.dim(1)));
    TG_ASSIGN_OR_RETURN(const Tensor weights, Matrix(c, "coefficients", 1, supports));
    TG_ASSIGN_OR_RETURN(const Tensor kernel, Kernel(c, wide, vectors));
    scores = kernel.MatMul(weights.Transpose());
  } else {
    for (const char* name : {"kernel_type", "kernel_params", "support_vectors"}) c.Ignore(name);
    TG_ASSIGN_OR_RETURN(const Tensor weights, Matrix(c, "coefficients", 1, x.dim(1)));
    scores = wide.MatMul(weights.Transpose());
  }
  scores = scores + static_cast<double>(rho[0]);
  if (one_class != 0) scores = scores.Gt(0.0).Where(1.0, scores.FullLike(-1));
  TG_ASSIGN_OR_RETURN(const Tensor out, PostTransform(c, scores));
  return c.Output(out);
}

// The label of the class that wins most pairs. Its scores are the probabilities if there are
// coefficients for them; else those of the pairs, of two classes with the negative one before it.
absl::Status MlSvmClassifierOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor given, Features(c));
  TG_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(c, "classlabels"));
  TG_ASSIGN_OR_RETURN(const auto rho, c.Floats("rho", {}));
  TG_ASSIGN_OR_RETURN(const std::string_view transform, c.String("post_transform", "NONE"));
  const int64_t classes = labels.size();
  const Tensor x = given.Cast(DType::kFloat32);
  TG_ASSIGN_OR_RETURN(const Parts parts, ReadParts(c, classes));
  if (classes < 2 || rho.empty()) {
    return InvalidArgument(classes, " labels and ", rho.size(), " numbers in 'rho'");
  }
  if (parts.vectors == 0) {  // linear functions, one of each class
    for (const char* name : {"kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"})
      c.Ignore(name);
    TG_ASSIGN_OR_RETURN(const Tensor weights, Matrix(c, "coefficients", classes, x.dim(1)));
    const Tensor scores = x.MatMul(weights.Transpose()) + static_cast<double>(rho[0]);
    const Tensor chosen = scores.ArgMax(1).Cast(DType::kInt64);
    TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
    TG_ASSIGN_OR_RETURN(const Tensor out, PostTransform(transform, scores));
    return c.Output(out);
  }
  TG_ASSIGN_OR_RETURN(Tensor scores, PairScores(c, x, parts, rho));
  scores = scores.Contiguous();
  const Tensor chosen = Votes(scores, classes).ArgMax(1).Cast(DType::kInt64);
  TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
  if (c.HasAttribute("prob_a")) {
    TG_ASSIGN_OR_RETURN(scores, Probabilities(c, scores, classes));
  } else if (classes == 2) {
    scores = Concat(std::vector<Tensor>{-scores, scores}, 1);
  }
  TG_ASSIGN_OR_RETURN(scores, PostTransform(transform, scores));
  return c.Output(scores);
}

}  // namespace telegrad::onnx
