// Kernels with indices of 64 and of 32 bits on tests/fakes/amd: equal results, and fewer
// instructions with 32.
#include <cstring>

#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/amdgpu/run_on_machine.h"
#include "tests/nvptx/ptx_kernels.h"

namespace telegrad::testing {
namespace {

struct Outcome {
  std::vector<std::vector<uint8_t>> memory;
  int64_t instructions = 0;
};

Outcome RunWithIndices(int bits, const char* processor, const UOp& sink) {
  Target target = AmdTarget(*FindAmdProcessor(processor), 8);
  target.index_bits = bits;
  Outcome out;
  Budget budget;
  const auto schedule = ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return out;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return out;
    const auto image = CompileKernel(*program, target);
    EXPECT_TRUE(image.ok()) << image.status();
    if (!image.ok()) return out;
    std::vector<std::vector<uint8_t>> memory;
    for (const Program::Argument& a : program->arguments) {
      const auto size = static_cast<size_t>(ByteSize(a.dtype));
      std::vector<uint8_t> bytes(static_cast<size_t>(a.elements) * size);
      for (int64_t i = 0; a.read && i < a.elements; ++i) {
        const auto value = static_cast<double>((i * 7919 + i / 5) % 9 - 4);
        const int64_t word = ScalarToMemory(a.dtype, ScalarFromDouble(a.dtype, value));
        std::memcpy(&bytes[static_cast<size_t>(i) * size], &word, size);
      }
      memory.push_back(std::move(bytes));
    }
    fakeamd::Counts counts;
    RunOnMachine(*image, target, 0, program->iterations, &memory, &counts);
    out.instructions += static_cast<int64_t>(counts.instructions);
    out.memory.insert(out.memory.end(), memory.begin(), memory.end());
  }
  return out;
}

class IndexWidthOnAmd : public ::testing::TestWithParam<const char*> {};

TEST_P(IndexWidthOnAmd, Takes32BitsWhereTheySuffice) {
  Builder b;
  const auto param = [&](const Shape& shape) {
    return b.Param(DType::kFloat32, shape, "in" + std::to_string(b.slots().size()));
  };
  const Tensor values[] = {
      param({100, 101}) + param({101}),                        // rounded up: with gates
      param({96, 128}).Transpose() + param({96}),              // strided loads
      param({2, 12, 12}).Pad({0, 0, 1, 2, 2, 1}),              // indices below 0 under gates
      param({1, 4, 16, 33}).MaxPool({3, 3}, {.stride = {2}}),  // windows
  };
  for (size_t i = 0; i < std::size(values); ++i) b.Output(values[i], "out" + std::to_string(i));
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Outcome wide = RunWithIndices(64, GetParam(), plan->graph.root());
  const Outcome narrow = RunWithIndices(32, GetParam(), plan->graph.root());
  EXPECT_EQ(wide.memory, narrow.memory);
  std::printf("%s: %lld instructions, with indices of 64 bits %lld\n", GetParam(),
              static_cast<long long>(narrow.instructions),
              static_cast<long long>(wide.instructions));
  EXPECT_LT(narrow.instructions, wide.instructions);
}

INSTANTIATE_TEST_SUITE_P(Processors, IndexWidthOnAmd,
                         ::testing::Values("gfx90a", "gfx942", "gfx1100", "gfx1201"));

}  // namespace
}  // namespace telegrad::testing
