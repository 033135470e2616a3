// The way of a stranger's graph: bytes, message, graph, kernels, programs. Every other input seeds
// the generator of valid random graphs instead, so that the deeper floors are reached as well. What
// passes the verifier must lower to programs that the program verifier accepts; whatever fails must
// fail with a Status.
#include <cstdlib>
#include <cstring>

#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"
#include "tests/conformance/random_graph.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

Budget SmallBudget() {
  Budget::Limits limits;
  limits.nodes = 200'000;
  limits.rewrites = 500'000;
  limits.kernels = 64;
  limits.time = std::chrono::milliseconds(5'000);
  return Budget(limits);
}

void ScheduleAndLower(UOp sink) {
  Budget budget = SmallBudget();
  const auto schedule = ScheduleGraph(sink, &budget);
  if (!schedule.ok()) return;
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program = Lower(kernel.graph, target, "fuzz", &budget);
    FUZZ_CHECK(program.ok() || !absl::IsInternal(program.status()));
    if (program.ok()) FUZZ_CHECK(Verify(*program).ok());
  }
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;
  if (!data.empty() && data[0] % 2 == 0) {
    uint64_t seed = 0;
    std::memcpy(&seed, data.data(), std::min<size_t>(data.size(), sizeof(seed)));
    std::mt19937_64 rng(seed);
    Graph graph;
    const auto random = testing::MakeRandomGraph(rng, 4 + static_cast<int>(seed >> 8 & 31), &graph);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) return;
    v1::Graph message;
    ToProto(random.sink, &message);
    Budget budget = SmallBudget();
    const auto back = FromProto(message, &budget);
    FUZZ_CHECK(back.ok());
    ScheduleAndLower(back->root());
    return;
  }
  v1::Graph message;
  if (data.empty() || !message.ParseFromArray(data.data() + 1, static_cast<int>(data.size() - 1))) {
    return;
  }
  Budget budget = SmallBudget();
  const auto graph = FromProto(message, &budget);
  if (graph.ok()) ScheduleAndLower(graph->root());
}
