// Prints one line for each program that this build makes of many graphs: the golden graphs, those
// captured from tinygrad, and the networks of tests/models, for made-up processors and GPUs. A line
// names the graph, the target and the kernel, and has the hash of the program's text. Kernels of
// the golden graphs also have a line for each list of moves next to the one that lowering chooses.
// A change that is said to keep behaviour prints the same lines: see compare.sh.
//
//   program_digests            run in the root of the source tree
//   program_digests --lists    also with the lists next to the chosen ones of captured graphs:
//   minutes program_digests PREFIX     prints the text of the programs whose line begins so instead
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/lowering/choose/candidates.h"
#include "engine/lowering/choose/move_space.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "engine/wire/graph_codec.h"
#include "tests/models/models.h"
#include "tests/tinygrad/captures.h"

namespace telegrad {
namespace {

struct NamedTarget {
  std::string name;
  Target target;
};

std::vector<NamedTarget> Targets() {
  std::vector<NamedTarget> targets;
  for (const int bytes : {4, 16, 32, 64}) {
    Target target;
    target.arch = "x86-64";
    target.vector_bytes = bytes;
    target.vector_registers = bytes == 64 ? 32 : 16;
    target.threads = bytes == 64 ? 2 : 5;
    target.cache_bytes = bytes == 16 ? int64_t{128} << 10 : int64_t{1} << 20;
    if (bytes == 64) target.converts = {DType::kFloat16};
    targets.push_back({StrCat("cpu", bytes), target});
  }
  Target transforms = targets.back().target;
  transforms.vector_bytes = 32;
  transforms.winograd = true;
  targets.push_back({"winograd", transforms});
  Target ordered = transforms;
  ordered.deterministic = true;
  targets.push_back({"ordered", ordered});
  targets.push_back({"sm_80", *NvidiaTarget(8, 0, 108, 163840)});
  targets.push_back({"sm_90a", *NvidiaTarget(9, 0, 132, 232448)});
  targets.push_back({"gfx942", AmdTarget(*FindAmdProcessor("gfx942"), 304)});
  targets.push_back({"gfx1100", AmdTarget(*FindAmdProcessor("gfx1100"), 96)});
  targets.push_back({"opencl", OpenClTarget(20)});
  targets.push_back({"pocl", OpenClProcessor(2, 64)});
  Target unknown = OpenClTarget(5);
  unknown.arch = "unknown";
  unknown.vector_bytes = 8;
  unknown.warp = 48;
  unknown.group_threads = 480;
  unknown.levels = {ParallelLevel::kGroups, ParallelLevel::kThreads, ParallelLevel::kWarps};
  targets.push_back({"unknown", unknown});
  return targets;
}

class Digests {
 public:
  explicit Digests(std::string prefix) : prefix_(std::move(prefix)) {}

  // `nearby`: with other lists of moves, too.
  void Graph(const std::string& name, UOp root, std::span<const VarValue> variables,
             bool nearby = false) {
    for (const NamedTarget& t : Targets()) {
      Budget budget;
      const auto schedule = ScheduleGraph(root, variables, &budget, ScheduleOptions::For(t.target));
      if (!schedule.ok()) {
        Line(StrCat(name, " ", t.name), schedule.status().ToString());
        continue;
      }
      for (size_t i = 0; i < schedule->kernels.size(); ++i) {
        const ScheduledKernel& kernel = schedule->kernels[i];
        Budget own;
        const auto program = Lower(kernel.graph, t.target, "kernel", &own, nullptr,
                                   {.weights = kernel.weights, .results = kernel.results});
        std::string text = program.ok() ? Print(*program) : program.status().ToString();
        for (size_t p = 0; program.ok() && p < program->packings.size(); ++p) {
          StrAppend(&text, "packs\n", Print(program->packings[p].kernel.root()));
        }
        Line(StrCat(name, " ", t.name, " ", i), text);
        if (nearby) Nearby(StrCat(name, " ", t.name, " ", i), kernel, t.target);
      }
    }
  }

 private:
  // The kernel's programs for all lists of moves next to the one that lowering chooses.
  void Nearby(const std::string& what, const ScheduledKernel& kernel, const Target& target) const {
    Budget budget;
    auto space = MoveSpace::Open(kernel.graph, target, kernel.weights, &budget);
    if (!space.ok()) return Line(StrCat(what, " nearby"), space.status().ToString());
    for (const Candidate& first : FirstCandidates(*space, 1)) {
      for (const Candidate& next : Neighbours(*space, first.moves)) {
        Budget own;
        const std::string moves = Print(next.moves);
        const auto program =
            Lower(kernel.graph, target, "kernel", &own, nullptr,
                  {.weights = kernel.weights, .results = kernel.results, .moves = moves});
        Line(StrCat(what, " ", moves),
             program.ok() ? Print(*program) : program.status().ToString());
      }
    }
  }

  void Line(const std::string& what, const std::string& text) const {
    if (prefix_.empty()) {
      std::printf("%s %s\n", what.c_str(), Sha256(text).Hex().substr(0, 16).c_str());
    } else if (what.starts_with(prefix_)) {
      std::printf("%s\n%s\n", what.c_str(), text.c_str());
    }
  }

  const std::string prefix_;
};

absl::Status Golden(Digests* digests) {
  std::vector<std::string> files;
  for (const char* folder : {"tests/golden", "tests/golden/workgroups"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".uop") files.push_back(entry.path().string());
    }
  }
  std::ranges::sort(files);
  for (const std::string& file : files) {
    TG_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    Graph graph;
    TG_ASSIGN_OR_RETURN(const UOp root, Parse(text.substr(0, text.find("--- programs")), &graph));
    digests->Graph(file, root, {}, /*nearby=*/true);
  }
  return absl::OkStatus();
}

absl::Status Captured(Digests* digests, bool nearby) {
  TG_ASSIGN_OR_RETURN(const auto captures, testing::ReadCaptures());
  for (const testing::Capture& capture : captures) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(const FrozenGraph graph, FromProto(capture.graph, &budget));
    digests->Graph(StrCat("captured/", capture.name), graph.root(), capture.VarValues(), nearby);
  }
  return absl::OkStatus();
}

absl::Status Networks(Digests* digests) {
  for (const testing::NamedModel& model : testing::kModels) {
    TG_ASSIGN_OR_RETURN(const Plan plan, model.plan());
    digests->Graph(StrCat("network/", model.name), plan.graph.root(), {});
  }
  TG_ASSIGN_OR_RETURN(const Plan step, testing::Gpt2TrainStep(1, 32));
  digests->Graph("network/gpt2_train", step.graph.root(), {});
  return absl::OkStatus();
}

absl::Status Run(const std::string& argument) {
  const bool lists = argument == "--lists";
  Digests digests(lists ? "" : argument);
  TG_RETURN_IF_ERROR(Golden(&digests));
  TG_RETURN_IF_ERROR(Captured(&digests, lists));
  return Networks(&digests);
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  if (const absl::Status status = telegrad::Run(argc > 1 ? argv[1] : ""); !status.ok()) {
    std::fprintf(stderr, "program_digests: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
