// Indexing: value cases, see cases.h. Symbolic positions and assignment in place are in
// symbolic_test.cc.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"
#include "tests/frontend/messages.h"

namespace telegrad::testing {
namespace {

constexpr Ellipsis kRest;
constexpr NewAxis kNew;
constexpr std::nullopt_t kOpen = std::nullopt;

// Nothing is rounded.
constexpr Case Exact(std::string_view method, std::string_view name,
                     Inputs (*run)(Builder&, const Inputs&), bool differentiable = true) {
  return {method, name, run, 0, Case::kElement, differentiable};
}

Inputs AtBasic(Builder&, const Inputs& in) {
  const Tensor &x = in[0], &y = in[1];
  return {x.At({1}),
          x.At({-1, 2}),
          x.At({1, kRest, -2}),
          x.At({Slice(), Slice(1, 4)}),
          x.At({kRest, Slice(kOpen, kOpen, -1)}),
          x.At({Slice(kOpen, kOpen, 2), Slice(kOpen, kOpen, -2), Slice(1, kOpen, 3)}),
          x.At({kNew, Slice(), 2, kNew}),
          x.At({Slice(3, 1)}),
          x.At({Slice(-9, 9), Slice(5, 2, -1)}),
          x.At({Slice(1, -1), Slice(-2, kOpen), Slice(kOpen, -3)}),
          x.At({2, 3, 4}),
          x.At({kRest}),
          x.At({Slice(kOpen, kOpen, -1), Slice(kOpen, kOpen, -1), Slice(kOpen, kOpen, -1)}),
          x.At({Slice(kOpen, kOpen, -3), Slice(4, kOpen, -3)}),
          y.At({Slice(kOpen, kOpen, 3), Slice(7, 0, -2)}),
          x.At({Slice(-100, -50), Slice(100, kOpen)})};
}

Inputs AtTensors(Builder&, const Inputs& in) {
  const Tensor &x = in[0], &i = in[1], &j = in[2], &k = in[3];
  return {x.At({i}),
          x.At({Slice(), j}),
          x.At({i, j}),
          x.At({i, Slice(), k}),
          x.At({Slice(), j, k}),
          x.At({i, kNew, j}),
          x.At({0, Slice(), k}),
          x.At({Slice(), 0, k}),
          x.At({1, j}),
          x.At({i, kRest, 0}),
          x.At({Slice(1, 3), j, Slice(kOpen, kOpen, -2)}),
          x.At({kRest, k}),
          x.At({i, j, k}),
          x.At({Slice(kOpen, kOpen, 2), kNew, j, 1}),
          x.At({i, kRest, j, Slice()}),
          x.At({Slice(), i, kRest, k})};
}

Inputs SetBasic(Builder&, const Inputs& in) {
  const Tensor &x = in[0], &v1 = in[1], &v5 = in[2], &v6 = in[3];
  return {x.Set({1}, v1),
          x.Set({kRest, -1}, v1),
          x.Set({Slice(1, 3)}, v5),
          x.Set({Slice(kOpen, kOpen, -2), Slice(kOpen, kOpen, 2)}, v6),
          x.Set({Slice(), Slice(4, 0, -3), Slice(1, kOpen, 4)}, 7),
          x.Set({2, 3, 4}, v1),
          x.Set({Slice(3, 1)}, v6),
          x.Set({kRest}, v5),
          x.Set({0, kNew, Slice(1, 3)}, v6),
          x.Set({Slice(), 0}, v6.Unsqueeze(0).Unsqueeze(0))};
}

Inputs SetTensors(Builder&, const Inputs& in) {
  const Tensor &x = in[0], &i = in[1], &u = in[2], &v6 = in[3];
  return {x.Set({i}, u),
          x.Set({i}, 1.5),
          x.Set({i, Slice(1, 3)}, v6),
          x.Set({Slice(), i, 2}, 3),
          x.Set({i, Slice(), i}, u.At({kRest, 0})),
          x.Set({Slice(kOpen, kOpen, 2), i, Slice(0, 4)}, u.At({0, 0, Slice(0, 4)}))};
}

Inputs SetMask(Builder&, const Inputs& in) {
  const Tensor &x = in[0], &m1 = in[1], &m2 = in[2], &m3 = in[3], &v6 = in[4];
  return {x.Set({m1}, 2),
          x.Set({m1}, v6),
          x.Set({m2}, v6),
          x.Set({m3}, -1),
          x.Set({m1, Slice(1, 3)}, 4),
          x.Set({m1, kRest, 2}, 9)};
}

template <ScatterKind kKind>
Inputs Scattered(Builder&, const Inputs& in) {
  return {in[0].Scatter(in[1], in[2], kKind)};
}

constexpr Case kCases[] = {
    Exact("At", "at_basic", AtBasic),
    Exact("At", "at_types",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].At({Slice(kOpen, kOpen, 2), Slice(3, 0, -1)}), in[0].At({1})};
          }),
    Exact("At", "at_tensors", AtTensors),
    Exact("At", "at_index_types",
          [](Builder&, const Inputs& in) { return Inputs{in[0].At({in[1]})}; }),
    Exact("At", "at_out_of_range",
          [](Builder&, const Inputs& in) { return Inputs{in[0].At({in[1]})}; }),
    Exact("At", "at_empty",
          [](Builder& b, const Inputs& in) {
            const Tensor &x = in[0], &e = in[1];
            return Inputs{x.At({e}), x.At({Slice(), e}),
                          x.At({Slice(1, 1), b.Zeros({2}, DType::kInt64)}), x.At({e, e})};
          }),
    Exact("Set", "set_basic", SetBasic),
    Exact("Set", "set_types",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Set({Slice(kOpen, kOpen, 2), Slice(1, 4)}, in[1])};
          }),
    Exact("Set", "set_tensors", SetTensors),
    Exact("Set", "set_twice",
          [](Builder&, const Inputs& in) { return Inputs{in[0].Set({in[1]}, in[2])}; }),
    Exact("Set", "set_mask", SetMask),
    Exact("Set", "set_mask_apart",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Set({1, Slice(), in[1]}, in[2]),
                          in[0].Set({Slice(), Slice(), in[1]}, in[2].T())};
          }),
    Exact("Gather", "gather",
          [](Builder&, const Inputs& in) { return Inputs{in[0].Gather(in[1])}; }),
    Exact("Scatter", "scatter_set", Scattered<ScatterKind::kSet>),
    Exact("Scatter", "scatter_add", Scattered<ScatterKind::kAdd>),
    Exact("Scatter", "scatter_mul", Scattered<ScatterKind::kMul>),
    Exact("Scatter", "scatter_min", Scattered<ScatterKind::kMin>),
    Exact("Scatter", "scatter_max", Scattered<ScatterKind::kMax>),
    Exact("IndexSelect", "index_select",
          [](Builder&, const Inputs& in) {
            const Tensor &x = in[0], &i = in[1];
            return Inputs{x.IndexSelect(1, i), x.IndexSelect(0, in[2].At({0})),
                          x.IndexSelect(-1, i.At({1, 2}))};
          }),
    Exact("TakeAlong", "take_along",
          [](Builder&, const Inputs& in) { return Inputs{in[0].TakeAlong(1, in[1])}; }),
    Exact("TakeAlong", "take_along_less",
          [](Builder&, const Inputs& in) { return Inputs{in[0].TakeAlong(-1, in[1])}; }),
    Exact("PutAlong", "put_along",
          [](Builder&, const Inputs& in) {
            const Tensor &x = in[0], &i = in[1], &v = in[2];
            return Inputs{x.PutAlong(1, i, v), x.PutAlong(-1, i, v, ScatterKind::kAdd),
                          x.PutAlong(0, i.FloorMod(4), 0.5, ScatterKind::kMin)};
          }),
    Exact("GatherNd", "gather_nd",
          [](Builder& b, const Inputs& in) {
            return Inputs{in[0].GatherNd(in[1]), in[0].GatherNd(in[2], 1),
                          in[0].GatherNd(b.Zeros({2, 0}, DType::kInt32))};
          }),
    Exact("ScatterNd", "scatter_nd",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].ScatterNd(in[1], in[2]),
                          in[0].ScatterNd(in[1], in[2], ScatterKind::kAdd)};
          }),
    Exact(
        "OneHot", "one_hot", [](Builder&, const Inputs& in) { return Inputs{in[0].OneHot(3)}; },
        false),
    Exact(
        "CountNonzero", "count_nonzero",
        [](Builder&, const Inputs& in) { return Inputs{in[0].CountNonzero()}; }, false),
    Exact(
        "Nonzero", "nonzero",
        [](Builder&, const Inputs& in) { return Inputs{in[0].Nonzero(14), in[0].Nonzero(3)}; },
        false),
    Exact("MaskedSelect", "masked_select",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].MaskedSelect(in[1], 14, 9), in[0].MaskedSelect(in[1], 2)};
          }),
};

TEST(IndexingTest, Values) { CheckValues("indexing", kCases); }
TEST(IndexingTest, Gradients) { CheckGradients("indexing", kCases); }

Tensor Zeros(const Tensor& x, const Dims& shape, DType dtype) {
  return x.builder()->Zeros(shape, dtype);
}

TEST(IndexingTest, EachMistakeHasItsMessage) {
  constexpr Mistake kMistakes[] = {
      {[](const Tensor& x) { x.At({0, 0, 0}); },
       "at: the indices are for 3 axes of [3, 4], which has 2"},
      {[](const Tensor& x) { x.At({kRest, kRest}); }, "at: there are 2 ellipses"},
      {[](const Tensor& x) { x.At({0, -5}); }, "at: position -5 is outside of axis 1 of size 4"},
      {[](const Tensor& x) { x.At({Slice(0, 1, 0)}); }, "at: axis 0 has the step 0"},
      {[](const Tensor& x) { x.At({x}); },
       "at: an index has element type f32, expected integers or bool"},
      {[](const Tensor& x) { x.At({Tensor()}); }, "at: an index is an empty tensor"},
      {[](const Tensor& x) { x.At({x.Gt(0)}); },
       "at: how many elements a mask holds is not known before the run; MaskedSelect takes them, "
       "Set may have one mask and no tensors"},
      {[](const Tensor& x) { x.At({Zeros(x, {2}, DType::kInt32), Zeros(x, {3}, DType::kInt32)}); },
       "at: shapes [2] and [3] do not broadcast: axis 0 has 2 and 3"},
      {[](const Tensor& x) { x.Set({0}, Zeros(x, {3}, DType::kFloat32)); },
       "set: a value of shape [3] does not broadcast to the target's shape [4]"},
      {[](const Tensor& x) { x.Set({Zeros(x, {4}, DType::kBool)}, 1); },
       "set: a mask of shape [4] stands for axes of shape [3]"},
      {[](const Tensor& x) {
         x.Set({Zeros(x, {3}, DType::kBool), Zeros(x, {2}, DType::kInt32)}, 1);
       },
       "set: there are a mask and a tensor of integers, supported is either"},
      {[](const Tensor& x) { x.IndexSelect(0, x); },
       "index_select: the index has element type f32, expected integers"},
      {[](const Tensor& x) { x.TakeAlong(0, Zeros(x, {2, 5}, DType::kInt32)); },
       "take_along: the index of shape [2, 5] does not fit [3, 4]: of each axis but 0 it must have "
       "as many elements, or fewer"},
      {[](const Tensor& x) { x.PutAlong(0, Zeros(x, {2, 4}, DType::kInt32), x.T()); },
       "put_along: the source of shape [4, 3] does not fit the index of [2, 4]"},
      {[](const Tensor& x) { x.GatherNd(Zeros(x, {2, 3}, DType::kInt32)); },
       "gather_nd: the index of shape [2, 3] does not fit [3, 4] with 0 batch axes: these must be "
       "equal, and the last axis a fixed number of positions in the other axes"},
      {[](const Tensor& x) { x.OneHot(3); },
       "one_hot: the index has element type f32, expected integers"},
      {[](const Tensor& x) { x.MaskedSelect(x, 3); },
       "masked_select: the mask is f32, expected bool"},
  };
  CheckMessages(kMistakes);
}

}  // namespace

std::span<const Case> IndexingCases() { return kCases; }

}  // namespace telegrad::testing
