// How much the bounds proof proves: every model at hand is scheduled and lowered, and of the
// accesses whose index no data decides at least 99 of 100 must need no gate of their own.
// TELEGRAD_ONNX names further folders, separated by colons, that are searched for model.onnx.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_split.h"
#include "engine/frontend/files.h"
#include "engine/frontend/models.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/resnet50.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr double kGoal = 0.99;

double Share(const BoundsStats& stats) {
  const int64_t all = stats.proved + stats.gated;
  return all == 0 ? 1.0 : static_cast<double>(stats.proved) / static_cast<double>(all);
}

Target Wide() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  return target;
}

absl::StatusOr<BoundsStats> LowerAll(const FrozenGraph& graph) {
  Budget budget;
  BoundsStats stats;
  const auto schedule = ScheduleGraph(graph.root(), &budget);
  if (!schedule.ok()) return schedule.status();
  for (const ScheduledKernel& kernel : schedule->kernels) {
    Budget own;
    const auto program = Lower(kernel.graph, Wide(), "kernel", &own, &stats);
    if (!program.ok()) return program.status();
  }
  return stats;
}

void ExpectProved(std::string_view name, const BoundsStats& stats) {
  std::cout << name << ": " << stats.proved << " proved, " << stats.gated << " gated, "
            << stats.data_dependent << " by data\n";
  EXPECT_GE(Share(stats), kGoal) << name;
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
  BoundsStats all;
  int lowered = 0, refused = 0;
  for (const fs::path& path : Models()) {
    const auto bytes = ReadFile(path.string());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto model = ImportOnnx(*bytes, OptionsFor(path, *bytes));
    if (!model.ok()) {  // an operator that the importer does not have
      ++refused;
      continue;
    }
    const auto stats = LowerAll(model->plan.graph);
    ASSERT_TRUE(stats.ok()) << path << ": " << stats.status();
    if (stats->gated > 0) {
      std::cout << path.parent_path().filename().string() << ": " << stats->proved << " proved, "
                << stats->gated << " gated, " << stats->data_dependent << " by data\n";
    }
    all += *stats;
    ++lowered;
  }
  std::cout << lowered << " models lowered, " << refused << " not imported\n";
  EXPECT_GE(lowered, 2);
  ExpectProved("ONNX models", all);
}

TEST(BoundsCoverage, TheDigitsNetworkInTraining) {
  const auto plan = DigitsCnn{}.TrainStep(64);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto stats = LowerAll(plan->graph);
  ASSERT_TRUE(stats.ok()) << stats.status();
  ExpectProved("digits, a training step", *stats);
}

TEST(BoundsCoverage, ResNet50) {
  const auto plan = testing::ResNet50(1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto stats = LowerAll(plan->graph);
  ASSERT_TRUE(stats.ok()) << stats.status();
  ExpectProved("ResNet-50", *stats);
}

}  // namespace
}  // namespace telegrad
