// Whole ONNX models on the CPU device against the outputs that came with them: those of tests/data,
// and those of the folders, separated by colons, that TELEGRAD_ONNX names: MODEL/model.onnx and
// MODEL/test_data_set_N/{input,output}_N.pb, with tolerances in a manifest.tsv where there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/test_model.h"
#include "engine/frontend/onnx/test_node.h"
#include "engine/ir/content_hash.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

struct Tolerance {
  double relative = 1e-3, absolute = 1e-5;
};

// By the name of the model.
std::map<std::string, Tolerance> ReadManifest(const fs::path& folder) {
  std::map<std::string, Tolerance> out;
  const auto file = ReadFile((folder / "manifest.tsv").string());
  if (!file.ok()) return out;
  std::map<std::string, size_t> column;
  for (const auto& line : absl::StrSplit(*file, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (column.empty()) {
      for (size_t i = 0; i < cells.size(); ++i) column[cells[i]] = i;
      continue;
    }
    Tolerance t;
    for (const auto& [name, value] : {std::pair("rtol", &t.relative), {"atol", &t.absolute}}) {
      const auto it = column.find(name);
      if (it != column.end() && it->second < cells.size()) {
        EXPECT_TRUE(absl::SimpleAtod(cells[it->second], value)) << line;
      }
    }
    out[cells[0]] = t;
  }
  return out;
}

// The tensors `prefix`_0.pb, `prefix`_1.pb, ...
std::vector<HostTensor> ReadSet(const fs::path& folder, const std::string& prefix) {
  std::vector<HostTensor> out;
  while (true) {
    const fs::path path = folder / (prefix + "_" + std::to_string(out.size()) + ".pb");
    if (!fs::exists(path)) return out;
    const auto file = ReadFile(path.string());
    const auto tensor = file.ok() ? onnx::ReadTensorFile(*file) : file.status();
    EXPECT_TRUE(tensor.ok()) << path << ": " << tensor.status();
    if (!tensor.ok()) return out;
    out.push_back(*tensor);
  }
}

ImportOptions OptionsFor(std::string_view bytes, const std::vector<HostTensor>& inputs) {
  ImportOptions options;
  const auto parsed = onnx::ParseModel(bytes);
  if (!parsed.ok()) return options;
  size_t next = 0;
  for (const onnx::ValueInfo& input : parsed->inputs) {
    const bool has_default =
        std::ranges::find(parsed->initializers, input.name, &onnx::TensorProto::name) !=
        parsed->initializers.end();
    if (has_default || next == inputs.size()) continue;
    const HostTensor& given = inputs[next++];
    options.input_shapes.emplace(input.name, given.shape);
    if (IsFloat(given.dtype)) continue;  // others may decide shapes
    options.values[std::string(input.name)] = std::make_shared<const onnx::OnnxData>(
        onnx::OnnxData{.kind = onnx::OnnxData::Kind::kTensor, .tensor = given});
  }
  return options;
}

class OnnxModels : public ::testing::Test {
 protected:
  void SetUp() override {
    auto runner = testing::CpuRunner::Open();
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  void CheckSet(const OnnxPlan& model, const std::vector<HostTensor>& inputs,
                const std::vector<HostTensor>& want, const Tolerance& tolerance) {
    testing::Slots slots;
    for (const Slot& slot : model.plan.slots) {
      slots.emplace_back(BytesOf(slot.dtype, NumElements(slot.shape)));
    }
    const auto bind = [&](int slot, const HostTensor& value) {
      slots[slot].assign(value.bytes.begin(), value.bytes.end());
    };
    for (const OnnxWeight& weight : model.weights) bind(weight.slot, model.Value(weight));
    for (size_t i = 0; i < inputs.size(); ++i) bind(model.inputs[i].slot, inputs[i]);
    const absl::Status status = runner_->Run(model.plan.graph.root(), {}, &slots);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < want.size(); ++i) {
      const OnnxValue& output = model.outputs[i];
      const auto content = [&](int number) {
        const Slot& slot = model.plan.slots[number];
        return HostTensor{slot.dtype, slot.shape,
                          std::string(slots[number].begin(), slots[number].end())};
      };
      absl::StatusOr<HostTensor> got = content(output.slot);
      if (output.shape_slot >= 0) {
        got = Cut(*got, content(output.shape_slot).Values<int64_t>());
      }
      ASSERT_TRUE(got.ok()) << got.status();
      Compare(want[i], *got, tolerance, output.name);
    }
  }

  static void Compare(const HostTensor& want, const HostTensor& got, const Tolerance& tolerance,
                      const std::string& name) {
    ASSERT_EQ(got.dtype, want.dtype) << name;
    ASSERT_EQ(got.shape, want.shape) << name;
    const std::vector<double> a = want.AsDoubles(), b = got.AsDoubles();
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      ASSERT_NEAR(a[i], b[i], tolerance.absolute + tolerance.relative * std::abs(a[i]))
          << name << " element " << i;
    }
  }

  // How many of the folder's models ran.
  int CheckFolder(const fs::path& folder) {
    const auto manifest = ReadManifest(folder);
    int ran = 0, refused = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto file = ReadFile((entry.path() / "model.onnx").string());
      if (!file.ok()) continue;
      const std::string name = entry.path().filename().string();
      SCOPED_TRACE(name);
      const auto it = manifest.find(name);
      bool all = true;
      for (int set = 0; all; ++set) {
        const fs::path data = entry.path() / ("test_data_set_" + std::to_string(set));
        if (!fs::exists(data)) break;
        const std::vector<HostTensor> inputs = ReadSet(data, "input");
        const auto model = ImportOnnx(*file, OptionsFor(*file, inputs));
        all = model.ok();
        if (absl::IsUnimplemented(model.status())) {
          std::cout << "not imported: " << name << ": " << model.status().ToString().substr(0, 160)
                    << "\n";
          continue;
        }
        EXPECT_TRUE(model.ok()) << model.status();
        if (!model.ok()) continue;
        SCOPED_TRACE(set);
        CheckSet(*model, inputs, ReadSet(data, "output"),
                 it == manifest.end() ? Tolerance{} : it->second);
      }
      ++(all ? ran : refused);
    }
    std::cout << folder << ": " << ran << " models ran, " << refused << " not imported\n";
    return ran;
  }

  std::unique_ptr<testing::CpuRunner> runner_;
};

TEST_F(OnnxModels, OfTheRepository) { EXPECT_EQ(CheckFolder("tests/data/onnx"), 2); }

TEST_F(OnnxModels, OperatorsOfTheOnnxProject) {
  const auto cases = std::distance(fs::directory_iterator("tests/data/onnx_nodes"), {});
  EXPECT_EQ(CheckFolder("tests/data/onnx_nodes"), cases - 1);  // beside the NOTICE
}

TEST_F(OnnxModels, OfOtherFolders) {
  const char* folders = std::getenv("TELEGRAD_ONNX");
  if (folders == nullptr)
    GTEST_SKIP() << "set TELEGRAD_ONNX to folders with models and their data, separated by colons";
  for (const auto& folder : absl::StrSplit(folders, ':')) {
    EXPECT_GT(CheckFolder(std::string(folder)), 0) << folder;
  }
}

// What a model computes of inputs on the CPU device, against the reference evaluator.
void ExpectSameOnTheDevice(const std::string& file, const std::vector<HostTensor>& inputs) {
  const auto model = ImportOnnx(file);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto want = onnx::test::Run(*model, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  auto runner = testing::CpuRunner::Open();
  ASSERT_TRUE(runner.ok()) << runner.status();
  testing::Slots slots;
  for (const Slot& slot : model->plan.slots) {
    slots.emplace_back(BytesOf(slot.dtype, NumElements(slot.shape)));
  }
  const auto bind = [&](int slot, const HostTensor& value) {
    slots[slot].assign(value.bytes.begin(), value.bytes.end());
  };
  for (const OnnxWeight& weight : model->weights) bind(weight.slot, model->Value(weight));
  for (size_t i = 0; i < inputs.size(); ++i) bind(model->inputs[i].slot, inputs[i]);
  const absl::Status status = (*runner)->Run(model->plan.graph.root(), {}, &slots);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < want->size(); ++i) {
    const std::vector<float> expected = (*want)[i].Values<float>();
    std::vector<float> got(expected.size());
    const auto& bytes = slots[model->outputs[i].slot];
    ASSERT_EQ(bytes.size(), got.size() * sizeof(float));
    std::memcpy(got.data(), bytes.data(), bytes.size());
    for (size_t k = 0; k < got.size(); ++k) {
      ASSERT_NEAR(got[k], expected[k], 1e-4 * (1 + std::abs(expected[k]))) << "element " << k;
    }
  }
}

// The channels of an image lie in several buffers: each part is a sum of its own.
TEST(OnnxKernels, WindowsOverConcatenatedChannels) {
  std::mt19937_64 random(3);
  for (const int64_t side : {8, 9}) {
    SCOPED_TRACE(side);
    const std::string file =
        onnx::test::ModelWriter()
            .Input("x", DType::kFloat32, {1, 20, side, side})
            .Input("y", DType::kFloat32, {1, 12, side, side})
            .Input("z", DType::kFloat32, {1, 3, side, side})
            .Initializer("w", onnx::test::Random({24, 35, 3, 3}, &random))
            .Node("Concat", {"x", "y", "z"}, {"all"}, {{"axis", int64_t{1}}})
            .Node("Conv", {"all", "w"}, {"out"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}})
            .Output("out")
            .File(13);
    ExpectSameOnTheDevice(file, {onnx::test::Random({1, 20, side, side}, &random),
                                 onnx::test::Random({1, 12, side, side}, &random),
                                 onnx::test::Random({1, 3, side, side}, &random)});
  }
}

// What a product is added to is read no more, and has a prime number of rows.
TEST(OnnxKernels, ProductsAddedToWhatDies) {
  std::mt19937_64 random(5);
  for (const int64_t rows : {37, 48}) {
    SCOPED_TRACE(rows);
    const std::string file = onnx::test::ModelWriter()
                                 .Input("x", DType::kFloat32, {rows, 64})
                                 .Initializer("v", onnx::test::Random({64, 64}, &random))
                                 .Initializer("w", onnx::test::Random({64, 64}, &random))
                                 .Node("MatMul", {"x", "v"}, {"first"})
                                 .Node("Softmax", {"first"}, {"soft"})
                                 .Node("MatMul", {"soft", "w"}, {"second"})
                                 .Node("Add", {"second", "first"}, {"sum"})
                                 .Node("Softmax", {"sum"}, {"out"})
                                 .Output("out")
                                 .File(13);
    ExpectSameOnTheDevice(file, {onnx::test::Random({rows, 64}, &random)});
  }
}

// Distinct kernels of NonMaxSuppression among `boxes` boxes.
size_t KernelsOfSuppression(int64_t boxes) {
  const auto model = ImportOnnx(onnx::test::ModelWriter()
                                    .Input("boxes", DType::kFloat32, {1, boxes, 4})
                                    .Input("scores", DType::kFloat32, {1, 2, boxes})
                                    .Input("most", DType::kInt64, {1})
                                    .Node("NonMaxSuppression", {"boxes", "scores", "most"}, {"y"})
                                    .Output("y")
                                    .File(13));
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return 0;
  Budget budget;
  const auto schedule = ScheduleGraph(model->plan.graph.root(), &budget);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (!schedule.ok()) return 0;
  std::set<Digest> kernels;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    kernels.insert(ContentHash(kernel.graph.root()));
  }
  return kernels.size();
}

// Blocks of 64 boxes share their kernels. Twice as many are sorted in more steps, and go on once
// more without half of the blocks.
TEST(OnnxKernels, OfSuppressionDoNotGrowWithTheBoxes) {
  const size_t few = KernelsOfSuppression(2048), many = KernelsOfSuppression(4096);
  EXPECT_GT(few, 0u);
  EXPECT_LE(many, few + 12);
}

}  // namespace
}  // namespace telegrad
