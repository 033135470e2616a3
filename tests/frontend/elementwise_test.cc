// Elementwise operations and activations: see cases.h.
#include <gtest/gtest.h>

#include "tests/frontend/cases.h"

namespace telegrad::testing {
namespace {

constexpr Case kCases[] = {
    {"Sqrt", "sqrt", [](Builder&, const Inputs& in) { return Inputs{in[0].Sqrt()}; }, 0,
     Case::kElement, true, 0.1, 2},
    {"Maximum", "maximum", [](Builder&, const Inputs& in) { return Inputs{in[0].Maximum(in[1])}; },
     0, Case::kElement, true},
};

TEST(ElementwiseTest, Values) { CheckValues("elementwise", kCases); }
TEST(ElementwiseTest, Gradients) { CheckGradients("elementwise", kCases); }

}  // namespace

std::span<const Case> ElementwiseCases() { return kCases; }

}  // namespace telegrad::testing
