#include "tests/conformance/attention_cases.h"

#include <algorithm>
#include <cstring>

#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"

namespace telegrad::testing {

std::vector<uint8_t> Floats(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(static_cast<size_t>(n) * 4);
  for (int64_t i = 0; i < n; ++i) {
    const float x = normal(random);
    std::memcpy(bytes.data() + 4 * i, &x, 4);
  }
  return bytes;
}

Target Cpu(int vector_bytes, int threads) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = threads;
  return target;
}

Cost CostOf(UOp root, const Target& target) {
  Cost cost;
  Budget budget;
  const auto schedule = ScheduleGraph(root, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  cost.launches = schedule->kernels.size();
  cost.arena = schedule->arena_bytes;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) continue;
    int64_t bytes = 0;
    for (uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      if (u.is(Op::kBuffer)) bytes += BytesOf(u.dtype(), u.elements());
      if (u.is(Op::kRange) && !u.src(0).is_const()) ++cost.bounded;
    }
    cost.kept = std::max(cost.kept, bytes);
  }
  return cost;
}

}  // namespace telegrad::testing
