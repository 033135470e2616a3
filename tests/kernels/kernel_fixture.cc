// One CPU device for all tests of the process, its targets (this machine's, the baseline and
// AVX2), and the way from a program to a loaded kernel.
#include "tests/kernels/kernel_fixture.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/emulation.h"

namespace telegrad {

UOp ProgramBuilder::Lowered(const Target& target, Op op, DType dtype, std::span<const UOp> src,
                            int* nodes) {
  Budget budget;
  std::vector<const RuleTable*> tables = EmulationTables(target);
  tables.insert(tables.end(), {&DecompositionsFor(target), &kAlgebra, &kDivMod});
  const UOp result = Rewriter(graph_.get(), tables, &budget).Make(op, dtype, src);
  EXPECT_TRUE(result.valid()) << graph_->status();
  if (!result.valid()) return result;
  for (uint32_t id : PostOrder(result)) {
    if (std::ranges::find(program_.order, id) != program_.order.end()) continue;
    program_.order.push_back(id);
    if (nodes != nullptr) ++*nodes;
  }
  return result;
}

Device& TestDevice() {
  static Device* const device = [] {
    CpuOptions options;
    options.threads = 2;
    options.memory_limit = int64_t{1} << 30;
    options.target = HostTarget(2);
    auto opened = OpenCpu(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened->release();
  }();
  return *device;
}

std::vector<std::pair<std::string, Target>> TestTargets() {
  const Target host = HostTarget(2);
  std::vector<std::pair<std::string, Target>> targets = {{"host", host}};
  Target baseline;
  baseline.arch = "x86-64";
  targets.emplace_back("baseline", baseline);
  if (host.vector_bytes >= 32) {
    Target avx2 = baseline;
    avx2.features = "+avx2,+fma";
    avx2.vector_bytes = 32;
    targets.emplace_back("avx2", avx2);
  }
  return targets;
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> CompileAndLoad(const Program& program,
                                                              const Target& target) {
  TG_ASSIGN_OR_RETURN(const std::string text, RenderLlvm(program, target));
  TG_ASSIGN_OR_RETURN(const ProgramImage image, Compile(text, program.name, target));
  return TestDevice().Load(image);
}

absl::Status RunOnce(const Program& program, const std::vector<std::shared_ptr<Memory>>& memories,
                     const Target& target) {
  TG_ASSIGN_OR_RETURN(auto loaded, CompileAndLoad(program, target));
  Command command;
  command.launch.program = loaded;
  command.launch.grid.x = program.iterations;
  command.launch.flops = 1e9;  // worth splitting
  std::vector<BufferView> bindings;
  for (const auto& memory : memories) {
    command.launch.arguments.push_back({static_cast<int32_t>(bindings.size()), 0});
    bindings.push_back({memory, 0, memory->size()});
  }
  TG_ASSIGN_OR_RETURN(auto commands, TestDevice().Encode({command}));
  TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                      TestDevice().queue().Submit(commands, bindings, {}));
  return point.Wait();
}

}  // namespace telegrad
