// A graph from an untrusted client on its way to the renderer: bytes, message, graph, kernels,
// programs with their bounds proof. What passes the verifier must lower to programs that the
// program verifier accepts and that compute what the tensor evaluator does; whatever fails must
// fail with a Status that blames the graph or a budget.
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/oracle.h"
#include "tests/fuzz/wire_mutator.h"

const int telegrad::fuzz::kDamageOneIn = 16;

namespace telegrad {
namespace {

Budget SmallBudget() {
  Budget::Limits limits;
  limits.nodes = 60'000;
  limits.rewrites = 150'000;
  limits.kernels = 48;
  limits.time = std::chrono::seconds(10);
  return Budget(limits);
}

// Different inputs are compiled for different machines.
Target TargetFor(std::span<const uint8_t> data) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = data.size() % 2 == 0 ? 64 : 16;
  target.vector_registers = data.size() % 2 == 0 ? 32 : 16;
  target.threads = data.size() % 3 == 0 ? 1 : 2;
  return target;
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;
  static fuzz::Count admitted("admitted"), lowered("lowered"), compared("compared");
  admitted.Input();
  v1::Graph message;
  if (!message.ParseFromArray(data.data(), static_cast<int>(data.size()))) return;
  Budget budget = SmallBudget();
  const auto graph = FromProto(message, &budget);
  if (!graph.ok()) return;
  admitted.Passed();
  lowered.Input();
  const auto schedule = ScheduleGraph(graph->root(), &budget);
  FUZZ_CHECK(schedule.ok() || !absl::IsInternal(schedule.status()));
  if (!schedule.ok()) return;
  const Target target = TargetFor(data);
  std::vector<Program> programs;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    FUZZ_CHECK(Verify(kernel.graph.root(), kKernelLevel).ok());
    auto program = Lower(kernel.graph, target, "fuzz", &budget);
    FUZZ_CHECK(program.ok() || !absl::IsInternal(program.status()));
    if (!program.ok()) return;
    FUZZ_CHECK(Verify(*program).ok());
    programs.push_back(*std::move(program));
  }
  lowered.Passed();
  compared.Input();
  if (fuzz::CompareWithReference(graph->root(), *schedule, programs)) compared.Passed();
}
