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

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
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

}  // namespace
}  // namespace telegrad
