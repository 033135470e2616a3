// How much the bounds proof proves: every model at hand is scheduled and lowered, and of the
// accesses whose index no data decides at least 99 of 100 must need no gate but those that their
// programs have anyway, for padding and for the last iterations of a vectorized loop.
// TELEGRAD_ONNX names further folders, separated by colons, that are searched for model.onnx.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/frontend/nn/models.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr double kGoal = 0.99;

struct Coverage {
  BoundsStats stats;
  int64_t masked = 0;  // of the proved: those with a gate of their program

  double share() const {
    const int64_t all = stats.proved + stats.gated;
    return all == 0 ? 1.0 : static_cast<double>(stats.proved) / static_cast<double>(all);
  }
};

std::ostream& operator<<(std::ostream& out, const Coverage& c) {
  return out << c.stats.proved << " proved (" << c.masked << " with a gate of the program), "
             << c.stats.gated << " gated, " << c.stats.data_dependent << " by data";
}

Target Wide() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  return target;
}

absl::StatusOr<Coverage> LowerAll(const FrozenGraph& graph,
                                  std::span<const VarValue> variables = {}) {
  Budget budget;
  Coverage out;
  const auto schedule =
      ScheduleGraph(graph.root(), variables, &budget, ScheduleOptions::For(Wide()));
  if (!schedule.ok()) return schedule.status();
  for (const ScheduledKernel& kernel : schedule->kernels) {
    Budget own;
    LoweringReport report;
    const auto program = Lower(kernel.graph, Wide(), "kernel", &own, &report);
    if (!program.ok()) return program.status();
    out.stats += report.bounds;
    for (uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      out.masked += u.is(Op::kIndex) && u.src(0).is(Op::kParam) && u.num_src() == 3;
    }
  }
  out.masked -= out.stats.gated + out.stats.data_dependent;  // those have one as well
  return out;
}

void ExpectProved(std::string_view name, const Coverage& coverage) {
  std::cout << name << ": " << coverage << "\n";
  EXPECT_GE(coverage.share(), kGoal) << name;
}

// The shapes that the model's first data set gives its inputs, which its dynamic dims need.
ImportOptions OptionsFor(const fs::path& model, std::string_view bytes) {
  ImportOptions options;
  const auto parsed = onnx::ParseModel(bytes);
  if (!parsed.ok()) return options;
  int next = 0;
  for (const onnx::ValueInfo& input : parsed->inputs) {
    if (std::ranges::find(parsed->initializers, input.name, &onnx::TensorProto::name) !=
        parsed->initializers.end()) {
      continue;
    }
    const fs::path data =
        model.parent_path() / "test_data_set_0" / ("input_" + std::to_string(next++) + ".pb");
    const auto file = ReadFile(data.string());
    const auto tensor = file.ok() ? onnx::ReadTensorFile(*file) : file.status();
    if (tensor.ok()) options.input_shapes.emplace(input.name, tensor->shape);
  }
  return options;
}

std::vector<fs::path> Models() {
  std::vector<std::string> folders = {"tests/data/onnx"};
  if (const char* more = std::getenv("TELEGRAD_ONNX")) {
    for (const auto& folder : absl::StrSplit(more, ':')) folders.emplace_back(folder);
  }
  std::vector<fs::path> models;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().filename() == "model.onnx") models.push_back(entry.path());
    }
  }
  std::ranges::sort(models);
  return models;
}

TEST(BoundsCoverage, OnnxModels) {
  Coverage all;
  int lowered = 0, refused = 0;
  for (const fs::path& path : Models()) {
    const auto bytes = ReadFile(path.string());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto model = ImportOnnx(*bytes, OptionsFor(path, *bytes));
    if (!model.ok()) {  // an operator that the importer does not have
      ++refused;
      continue;
    }
    const auto coverage = LowerAll(model->plan.graph);
    ASSERT_TRUE(coverage.ok()) << path << ": " << coverage.status();
    all.stats += coverage->stats;
    all.masked += coverage->masked;
    ++lowered;
  }
  std::cout << lowered << " models lowered, " << refused << " not imported\n";
  EXPECT_GE(lowered, 2);
  ExpectProved("ONNX models", all);
}

TEST(BoundsCoverage, GraphsOfTinygrad) {
  Coverage all;
  int lowered = 0;
  testing::ForEachCapture([&](const testing::Capture& capture, const FrozenGraph& graph,
                              std::span<const VarValue> variables) {
    const auto coverage = LowerAll(graph, variables);
    ASSERT_TRUE(coverage.ok()) << capture.name << ": " << coverage.status();
    if (coverage->stats.gated > 0) std::cout << capture.name << ": " << *coverage << "\n";
    all.stats += coverage->stats;
    all.masked += coverage->masked;
    ++lowered;
  });
  std::cout << lowered << " graphs lowered\n";
  ExpectProved("graphs of tinygrad", all);
}

TEST(BoundsCoverage, TheDigitsNetworkInTraining) {
  const auto plan = DigitsCnn{}.TrainStep(64);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto coverage = LowerAll(plan->graph);
  ASSERT_TRUE(coverage.ok()) << coverage.status();
  ExpectProved("digits, a training step", *coverage);
}

TEST(BoundsCoverage, Models) {
  for (const testing::NamedModel& model : testing::kModels) {
    const auto plan = model.plan();
    ASSERT_TRUE(plan.ok()) << model.name << ": " << plan.status();
    const auto coverage = LowerAll(plan->graph);
    ASSERT_TRUE(coverage.ok()) << model.name << ": " << coverage.status();
    ExpectProved(model.name, *coverage);
  }
}

}  // namespace
}  // namespace telegrad
