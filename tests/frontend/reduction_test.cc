// Reductions: value cases, see cases.h.
#include <gtest/gtest.h>

#include <limits>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

#define ONE(expression) [](Builder&, const Inputs& in) { return Inputs{expression}; }
#define TWO(expression)                      \
  [](Builder&, const Inputs& in) {           \
    const auto [first, second] = expression; \
    return Inputs{first, second};            \
  }

constexpr Case kCases[] = {
    {"Sum", "sum", ONE(in[0].Sum({1})), 2, Case::kLargest, true},
    {"Sum", "sum_keep", ONE(in[0].Sum({0, -1}, true)), 2, Case::kLargest, true},
    {"Sum", "sum_all", ONE(in[0].Sum()), 2, Case::kLargest, true},
    {"Sum", "sum_none", ONE(in[0].Sum({})), 0, Case::kElement, true},
    {"Prod", "prod", ONE(in[0].Prod({-1})), 4, Case::kElement, true, 0.5, 2},
    {"Prod", "prod_all", ONE(in[0].Prod()), 4, Case::kElement, true, 0.5, 2},
    {"Max", "max", ONE(in[0].Max({1})), 0, Case::kElement, true},
    {"Max", "max_keep", ONE(in[0].Max({-1, 0}, true)), 0, Case::kElement, true},
    {"Max", "max_all", ONE(in[0].Max()), 0, Case::kElement, true},
    {"Min", "min", ONE(in[0].Min({1})), 0, Case::kElement, true},
    {"Min", "min_all", ONE(in[0].Min()), 0, Case::kElement, true},
    {"Mean", "mean", ONE(in[0].Mean({1})), 2, Case::kLargest, true},
    {"Mean", "mean_all", ONE(in[0].Mean()), 2, Case::kLargest, true},
    {"Var", "var", ONE(in[0].Var({-1})), 16, Case::kElement, true},
    {"Var", "var_population", ONE(in[0].Var({0, 1}, 0, true)), 4, Case::kElement, true},
    {"Var", "var_all", ONE(in[0].Var()), 4, Case::kElement, true},
    {"Std", "std", ONE(in[0].Std({1})), 4, Case::kElement, true},
    {"Std", "std_all", ONE(in[0].Std()), 4, Case::kElement, true},
    {"VarMean", "var_mean", TWO(in[0].VarMean({1}, 0)), 4, Case::kLargest, true},
    {"StdMean", "std_mean", TWO(in[0].StdMean({-1}, 1, true)), 4, Case::kLargest, true},
    {"Any", "any", ONE(in[0].Any({1})), 0},
    {"Any", "any_all", ONE(in[0].Any()), 0},
    {"All", "all", ONE(in[0].All({1})), 0},
    {"All", "all_all", ONE(in[0].All()), 0},
    {"LogSumExp", "logsumexp", ONE(in[0].LogSumExp({-1})), 4, Case::kLargest, true},
    {"LogSumExp", "logsumexp_keep", ONE(in[0].LogSumExp({0, 1}, true)), 4, Case::kLargest, true},
    {"Norm", "norm2", ONE(in[0].Norm({1})), 4, Case::kElement, true},
    {"Norm", "norm0", ONE(in[0].Norm({1}, 0)), 0},
    {"Norm", "norm1", ONE(in[0].Norm({-1}, 1, true)), 4, Case::kElement, true},
    {"Norm", "norm3", ONE(in[0].Norm({0, 1}, 3)), 4, Case::kElement, true},
    {"Norm", "norm_half", ONE(in[0].Norm({1}, 0.5)), 16, Case::kElement, true},
    {"Norm", "norm_minus1", ONE(in[0].Norm({1}, -1)), 16, Case::kElement, true, 0.5, 2},
    {"Norm", "norm_inf", ONE(in[0].Norm({1}, kInfinity)), 0, Case::kElement, true},
    {"Norm", "norm_minus_inf", ONE(in[0].Norm({1}, -kInfinity)), 0, Case::kElement, true},
    {"ArgMax", "argmax", ONE(in[0].ArgMax(1)), 0},
    {"ArgMax", "argmax_keep", ONE(in[0].ArgMax(-2, true)), 0},
    {"ArgMax", "argmax_all", ONE(in[0].ArgMax()), 0},
    {"ArgMin", "argmin", ONE(in[0].ArgMin(1)), 0},
    {"ArgMin", "argmin_all", ONE(in[0].ArgMin()), 0},
    {"AllClose", "all_close", ONE(in[0].AllClose(in[1], 1e-3, 1e-6)), 0},
    {"Softmax", "softmax", ONE(in[0].Softmax()), 4, Case::kLargest, true},
    {"Softmax", "softmax_first", ONE(in[0].Softmax(0)), 4, Case::kLargest, true},
    {"LogSoftmax", "log_softmax", ONE(in[0].LogSoftmax()), 4, Case::kLargest, true},
    {"Softmin", "softmin", ONE(in[0].Softmin(0)), 4, Case::kLargest, true},
    {"Normalize", "normalize", ONE(in[0].Normalize()), 4, Case::kElement, true},
    {"Normalize", "normalize1", ONE(in[0].Normalize(1, -1, 1e-3)), 4, Case::kElement, true},
    {"Standardize", "standardize", ONE(in[0].Standardize({-1}, 1e-5)), 8, Case::kLargest, true},
};

#undef ONE
#undef TWO

TEST(ReductionTest, Values) { CheckValues("reduction", kCases); }
TEST(ReductionTest, Gradients) { CheckGradients("reduction", kCases); }

}  // namespace

std::span<const Case> ReductionCases() { return kCases; }

}  // namespace telegrad::testing
