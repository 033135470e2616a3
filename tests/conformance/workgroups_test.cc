// Random graphs lowered for GPUs: their programs, interpreted with all threads of all workgroups
// and with races detected, agree with the evaluator of tensor graphs.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/compare.h"

namespace telegrad {
namespace {

using testing::Slots;

// Of one processor, so that small kernels are enough for vectors and for several rows of a
// workgroup; and of many, so that a thread gets as little as possible.
class Workgroups : public ::testing::TestWithParam<Target> {};

TEST_P(Workgroups, ProgramsAgreeWithTheTensorEvaluator) {
  EXPECT_EQ("", testing::CompareMany(
                    [](UOp sink, std::span<const VarValue> variables, Slots* slots) {
                      return testing::RunLowered(sink, GetParam(), variables, slots);
                    },
                    300));
}

INSTANTIATE_TEST_SUITE_P(Targets, Workgroups,
                         ::testing::Values(*NvidiaTarget(8, 0, 1, 163840),
                                           *NvidiaTarget(9, 0, 132, 232448),
                                           AmdTarget(*FindAmdProcessor("gfx942"), 1),
                                           AmdTarget(*FindAmdProcessor("gfx1100"), 48),
                                           OpenClTarget(16), OpenClProcessor(1, 64)),
                         [](const auto& info) {
                           const Target& target = info.param;
                           std::string name = target.arch + (target.stages ? "" : "_processor");
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace telegrad
