// Scans and orders: value cases, see cases.h.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

#define ONE(expression) [](Builder&, const Inputs& in) { return Inputs{expression}; }
#define TWO(expression)                      \
  [](Builder&, const Inputs& in) {           \
    const auto [first, second] = expression; \
    return Inputs{first, second};            \
  }

constexpr Case kCases[] = {
    {"CumSum", "cumsum", ONE(in[0].CumSum(1)), 4, Case::kLargest, true},
    {"CumSum", "cumsum_first", ONE(in[0].CumSum(0)), 4, Case::kLargest, true},
    {"CumProd", "cumprod", ONE(in[0].CumProd(-1)), 8, Case::kElement, true, 0.5, 2},
    {"CumMax", "cummax", TWO(in[0].CumMax(1)), 0, Case::kElement, true},
    {"CumMin", "cummin", TWO(in[0].CumMin(-2)), 0, Case::kElement, true},
    {"LogCumSumExp", "logcumsumexp", ONE(in[0].LogCumSumExp(1)), 8, Case::kLargest, true},
    {"Sort", "sort", TWO(in[0].Sort()), 0, Case::kElement, true},
    {"Sort", "sort_down", TWO(in[0].Sort(0, true)), 0, Case::kElement, true},
    {"ArgSort", "argsort", ONE(in[0].ArgSort(1)), 0},
    {"TopK", "topk", TWO(in[0].TopK(3)), 0, Case::kElement, true},
    {"TopK", "topk_least", TWO(in[0].TopK(2, -2, false)), 0, Case::kElement, true},
};

#undef ONE
#undef TWO

TEST(ScanTest, Values) { CheckValues("scan", kCases); }
TEST(ScanTest, Gradients) { CheckGradients("scan", kCases); }

}  // namespace
}  // namespace telegrad::testing
