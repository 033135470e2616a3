// The captured graphs through the engine: scheduled, lowered and interpreted, and compiled and run
// on the CPU device.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <span>

#include "engine/wire/graph_codec.h"
#include "tests/conformance/run_graph.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad {
namespace {

using ::telegrad::testing::Capture;
using ::telegrad::testing::CpuRunner;
using ::telegrad::testing::Difference;
using ::telegrad::testing::RunLowered;
using ::telegrad::testing::Slots;

// Graphs that do not run yet, by name. One that does fails the test, so that no row outlives its
// reason.
struct Exception {
  std::string_view name;
  std::string_view why;
};
constexpr std::span<const Exception> kExceptions;

bool IsException(const Capture& capture) {
  return std::ranges::any_of(kExceptions,
                             [&](const Exception& e) { return e.name == capture.name; });
}

// Calls run(root, variables, &slots) for each graph and compares what it left with tinygrad's.
template <typename Run>
void ExpectAgreement(const Run& run, bool only_with_variables = false) {
  int agreed = 0, all = 0;
  testing::ForEachCapture(
      [&](const Capture& capture, const FrozenGraph& graph, std::span<const VarValue> variables) {
        ++all;
        if (only_with_variables && variables.empty()) return;
        Slots slots = capture.SlotsBefore();
        const absl::Status status = run(graph.root(), variables, &slots);
        const std::string difference =
            status.ok() ? Difference(capture, graph.root(), slots, /*slack=*/4) : status.ToString();
        agreed += difference.empty();
        if (IsException(capture)) {
          EXPECT_NE(difference, "") << capture.name << " runs; expected no exception for it";
        } else {
          EXPECT_EQ(difference, "") << capture.name;
        }
      });
  std::cout << agreed << " of " << all << " graphs agree\n";
}

TEST(Execute, LoweredProgramsAgree) {
  ExpectAgreement([](UOp root, std::span<const VarValue> variables, Slots* slots) {
    return RunLowered(root, 32, variables, slots);
  });
}

TEST(Execute, CpuDeviceAgrees) {
  auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ExpectAgreement([&](UOp root, std::span<const VarValue> variables, Slots* slots) {
    return (*cpu)->Run(root, variables, slots);
  });
}

TEST(Execute, GeneralFormsAgree) {
  auto cpu = CpuRunner::Open({.specializations = 0});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ExpectAgreement([&](UOp root, std::span<const VarValue> variables,
                      Slots* slots) { return (*cpu)->Run(root, variables, slots); },
                  /*only_with_variables=*/true);
  EXPECT_GT((*cpu)->stats().general_forms, 0u);
}

}  // namespace
}  // namespace telegrad
