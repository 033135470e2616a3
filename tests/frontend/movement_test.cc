// Movement: value cases, see cases.h. Symbolic sizes are in symbolic_test.cc.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"
#include "tests/frontend/messages.h"

namespace telegrad::testing {
namespace {

// Movement rounds nothing and is linear.
constexpr Case Exact(std::string_view method, std::string_view name,
                     Inputs (*run)(Builder&, const Inputs&)) {
  return {method, name, run, 0, Case::kElement, true};
}

constexpr Case kCases[] = {
    Exact("Reshape", "reshape",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].size() == 0 ? in[0].Reshape({0, 2}) : in[0].View({4, -1})};
          }),
    Exact("Expand", "expand",
          [](Builder&, const Inputs& in) { return Inputs{in[0].Expand({2, -1, 4})}; }),
    Exact("Permute", "permute",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Permute({-1, 0, 1}), in[0].T(), in[0].MoveAxis(0, -1),
                          in[0].Transpose()};
          }),
    Exact("Flip", "flip", [](Builder&, const Inputs& in) { return Inputs{in[0].Flip({0, -1})}; }),
    Exact("Pad", "pad",
          [](Builder&, const Inputs& in) { return Inputs{in[0].Pad({2, 1, 0, 3}, 7)}; }),
    Exact("Pad", "pad_reflect",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Pad({2, 1, 0, 3}, PadMode::kReflect)};
          }),
    Exact("Pad", "pad_replicate",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Pad({2, 1, 0, 3}, PadMode::kReplicate)};
          }),
    Exact("Pad", "pad_circular",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Pad({2, 1, 0, 3}, PadMode::kCircular)};
          }),
    Exact("Pad", "pad_crop",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Pad({-1, 2, 0, -2}, PadMode::kReflect), in[0].Pad({-1, 2, 0, -2})};
          }),
    Exact("PadTo", "pad_to",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].PadTo({6, -1}, -1), in[0].ShrinkTo({2, -1})};
          }),
    Exact("Shrink", "shrink",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Shrink({1, 3, 0, 2}), in[0].Shrink({0, 4, 1, 4})};
          }),
    Exact("Slice", "slice",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Slice(1, 1, -1), in[0].Slice(0, -2, 4)};
          }),
    Exact("Narrow", "narrow",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Narrow(-1, 2, 3), in[0].Narrow(0, 1, 0)};
          }),
    Exact(
        "Stride", "stride",
        [](Builder&, const Inputs& in) { return Inputs{in[0].Stride(1, 3), in[0].Stride(-1, 9)}; }),
    Exact("Squeeze", "squeeze",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Squeeze(0), in[0].Squeeze(-2), in[0].Squeeze(),
                          in[0].Unsqueeze(-1)};
          }),
    Exact("Flatten", "flatten",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Flatten(), in[0].Flatten(1), in[0].Flatten(0, 1)};
          }),
    Exact("Unflatten", "unflatten",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Unflatten(-1, {3, -1, 2}), in[0].Unflatten(0, {1, 2})};
          }),
    Exact("Rearrange", "rearrange",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Rearrange("b (h h2) w c -> b (c h) h2 w", {{"h", 3}}),
                          in[0].Rearrange("b ... c -> b c ..."),
                          in[0].Rearrange("... c->1 c (...)"),
                          in[0].Rearrange("b (h p) w c -> p b (h w c)", {{"p", 2}})};
          }),
    Exact("Split", "split",
          [](Builder&, const Inputs& in) { return Inputs{in[0].Split({2, 0, 5}, -1)}; }),
    Exact("Split", "split_size", [](Builder&, const Inputs& in) { return Inputs{in[0].Split(2)}; }),
    Exact("Chunk", "chunk", [](Builder&, const Inputs& in) { return Inputs{in[0].Chunk(3, 1)}; }),
    Exact("Unbind", "unbind", [](Builder&, const Inputs& in) { return Inputs{in[0].Unbind()}; }),
    Exact("Repeat", "repeat",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Repeat({2, 3}), in[0].Repeat({2, 1, 2}), in[0].Repeat({2}),
                          in[0].Repeat({0, 1})};
          }),
    Exact("RepeatInterleave", "repeat_interleave",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].RepeatInterleave(3, 0), in[0].RepeatInterleave(2, -1)};
          }),
    Exact("Roll", "roll",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Roll({2}, {0}), in[0].Roll({-1, 7}, {0, 1}), in[0].Roll({5}, {-1})};
          }),
    Exact("Diag", "diag",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Diag(), in[0].Diag(2), in[0].Diag(-1)};
          }),
    Exact("Diag", "diag_of",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Diag(), in[0].Diag(2), in[0].Diag(-1), in[0].Diag(7)};
          }),
    Exact("Diagonal", "diagonal",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Diagonal(), in[0].Diagonal(1, 2, 1), in[0].Diagonal(-1, -1, 0)};
          }),
    Exact("Unfold", "unfold",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Unfold(1, 3, 2), in[0].Unfold(0, 2, 1), in[0].Unfold(-1, 4, 4)};
          }),
    Exact("Tril", "tril",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Tril(), in[0].Tril(1), in[0].Tril(-2)};
          }),
    Exact("Triu", "triu",
          [](Builder&, const Inputs& in) {
            return Inputs{in[0].Triu(), in[0].Triu(1), in[0].Triu(-2)};
          }),
    Exact("Concat", "concat", [](Builder&, const Inputs& in) { return Inputs{Concat(in, -1)}; }),
    Exact("Concat", "concat_promotes",
          [](Builder&, const Inputs& in) { return Inputs{Concat(in, 0)}; }),
    Exact(
        "Stack", "stack",
        [](Builder&, const Inputs& in) { return Inputs{Stack(in), Stack(in, -1), Stack(in, 1)}; }),
    Exact("MeshGrid", "mesh_grid",
          [](Builder&, const Inputs& in) {
            Inputs out = MeshGrid(in);
            for (const Tensor& t : MeshGrid(in, true)) out.push_back(t);
            return out;
          }),
};

TEST(MovementTest, Values) { CheckValues("movement", kCases); }
TEST(MovementTest, Gradients) { CheckGradients("movement", kCases); }

TEST(MovementTest, EachMistakeHasItsMessage) {
  constexpr Mistake kMistakes[] = {
      {[](const Tensor& x) { x.Pad({1, 1}); },
       "pad: 2 numbers for [3, 4], expected a pair for each of 2 axes"},
      {[](const Tensor& x) { x.Pad({0, 3, 0, 0}, PadMode::kReflect); },
       "pad: axis 0 of [3, 4] has too few elements for (0, 3) more made of its own"},
      {[](const Tensor& x) { x.Pad({-2, -2, 0, 0}); },
       "pad: axis 0 of [3, 4] has the padding (-2, -2), which leaves less than nothing"},
      {[](const Tensor& x) { x.PadTo({3, 2}); }, "pad_to: [3, 4] cannot grow to [3, 2]"},
      {[](const Tensor& x) { x.ShrinkTo({3, 5}); }, "shrink_to: [3, 4] cannot shrink to [3, 5]"},
      {[](const Tensor& x) { x.Slice(1, 1, 9); }, "slice: axis 1 of size 4 has no part [1, 9)"},
      {[](const Tensor& x) { x.Narrow(1, 3, 2); },
       "narrow: axis 1 of size 4 has no 2 elements from 3 on"},
      {[](const Tensor& x) { x.Stride(0, 0); }, "stride: the step 0 is below 1"},
      {[](const Tensor& x) { x.MoveAxis(0, 2); }, "move_axis: axis 2 is outside of rank 2"},
      {[](const Tensor& x) { x.Unflatten(1, {3, -1}); },
       "unflatten: axis 1 of [3, 4] is not made of axes of sizes [3, -1]"},
      {[](const Tensor& x) { x.Rearrange("a b c -> a b c"); },
       "rearrange: 'a b c -> a b c' of [3, 4]: the left side has 3 axes"},
      {[](const Tensor& x) { x.Rearrange("a b -> a"); },
       "rearrange: 'a b -> a' of [3, 4]: 'b' is not on the right side"},
      {[](const Tensor& x) { x.Rearrange("a b -> b a b"); },
       "rearrange: 'a b -> b a b' of [3, 4]: 'b' is there twice"},
      {[](const Tensor& x) { x.Rearrange("a (b c) -> a b c"); },
       "rearrange: 'a (b c) -> a b c' of [3, 4]: the sizes of 'b' and 'c' are not known"},
      {[](const Tensor& x) { x.Rearrange("a (b c) -> a b c", {{"c", 3}}); },
       "rearrange: 'a (b c) -> a b c' of [3, 4]: axis 1 of size 4 has no part 'c' of size 3"},
      {[](const Tensor& x) { x.Rearrange("a b -> a (b"); },
       "rearrange: 'a b -> a (b' of [3, 4]: a parenthesis is not closed"},
      {[](const Tensor& x) { x.Rearrange("a ? -> a"); },
       "rearrange: 'a ? -> a' of [3, 4]: '?' at column 2"},
      {[](const Tensor& x) { x.Split({1, 1}, 0); },
       "split: axis 0 of [3, 4] is not made of parts of [1, 1]"},
      {[](const Tensor& x) { x.Split(0, 0); }, "split: axis 0 of [3, 4] is not made of parts of 0"},
      {[](const Tensor& x) { x.Chunk(0); }, "chunk: 0 chunks, expected at least 1"},
      {[](const Tensor& x) { x.Repeat({-1, 1}); }, "repeat: [3, 4] cannot repeat [-1, 1]"},
      {[](const Tensor& x) { x.Roll({1, 2}, {0}); }, "roll: 2 shifts for 1 axes"},
      {[](const Tensor& x) { x.Diagonal(0, 1, 1); }, "diagonal: axis 1 appears twice"},
      {[](const Tensor& x) { x.Unsqueeze(0).Diag(); },
       "diag: [1, 3, 4] is not a vector or matrix of fixed size"},
      {[](const Tensor& x) { x.Unfold(1, 5, 1); },
       "unfold: axis 1 of [3, 4] has no windows of 5 with step 1"},
      {[](const Tensor& x) { x.Flatten().Tril(); }, "tril: [12] is no matrix"},
      {[](const Tensor& x) { Concat(std::vector{x, x.Flatten()}, 0); },
       "concat: along axis 0, shape [12] does not match [3, 4]"},
      {[](const Tensor& x) { Stack(std::vector{x, x.T()}); },
       "stack: shape [4, 3] does not match [3, 4]"},
      {[](const Tensor& x) { MeshGrid(std::vector{x}); },
       "mesh_grid: part 0 has shape [3, 4], expected a vector"},
  };
  CheckMessages(kMistakes);
}

}  // namespace

std::span<const Case> MovementCases() { return kCases; }

}  // namespace telegrad::testing
