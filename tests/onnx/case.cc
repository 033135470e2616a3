// Tensors are bound to the model's inputs by their position, as some data sets name them otherwise
// than their models do.
#include "tests/onnx/case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/external_data.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::testing {
namespace {

namespace fs = std::filesystem;

// A line of a manifest: cells by the name of their column.
using Row = std::map<std::string, std::string>;

std::map<std::string, Row> ReadManifest(const fs::path& folder) {
  std::map<std::string, Row> out;
  const auto file = ReadFile((folder / "manifest.tsv").string());
  if (!file.ok()) return out;
  std::vector<std::string> columns;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(*file, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    Row& row = out[cells[0]];
    for (size_t i = 0; i < std::min(cells.size(), columns.size()); ++i) row[columns[i]] = cells[i];
  }
  return out;
}

std::string Cell(const Row& row, const std::string& column) {
  const auto it = row.find(column);
  return it == row.end() ? "" : it->second;
}

OnnxCase MakeCase(const fs::path& folder, const Row& row) {
  OnnxCase out{.folder = folder.string(), .name = folder.filename().string(), .op = "?"};
  if (!Cell(row, "op").empty()) out.op = Cell(row, "op");
  out.random = Cell(row, "class") == "random";
  for (const auto& [name, value] : {std::pair("rtol", &out.rtol), {"atol", &out.atol}}) {
    double number = 0;
    if (absl::SimpleAtod(Cell(row, name), &number)) *value = number;
  }
  return out;
}

using onnx::OnnxData;
using Kind = OnnxData::Kind;

// The files `prefix`_0.pb, `prefix`_1.pb, ..., as many as there are types.
absl::StatusOr<std::vector<OnnxData>> ReadSet(const fs::path& folder, std::string_view prefix,
                                              const std::vector<onnx::ValueInfo>& types) {
  std::vector<OnnxData> out;
  while (out.size() < types.size()) {
    const fs::path path = folder / StrCat(prefix, "_", out.size(), ".pb");
    if (!fs::exists(path)) return out;
    TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(path.string()));
    auto data = onnx::ReadDataFile(file, types[out.size()]);
    if (!data.ok()) {
      return absl::Status(data.status().code(),
                          StrCat(path.filename().string(), ": ", ToStd(data.status().message())));
    }
    out.push_back(*std::move(data));
  }
  return out;
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

absl::Status Compare(const OnnxCase& item, const HostTensor& want, const HostTensor& got) {
  if (got.dtype != want.dtype || got.shape != want.shape) {
    return FailedPrecondition("is ", Name(got.dtype), " ", ToString(got.shape), ", expected ",
                              Name(want.dtype), " ", ToString(want.shape));
  }
  if (item.random || got.bytes == want.bytes) return absl::OkStatus();
  const double least = IsHalf(want.dtype) ? 1e-2 : 0;
  const double rtol = std::max(item.rtol, least), atol = std::max(item.atol, least);
  const std::vector<double> a = want.AsDoubles(), b = got.AsDoubles();
  int64_t wrong = 0;
  size_t first = 0;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (IsFloat(want.dtype) && std::abs(a[i] - b[i]) <= atol + rtol * std::abs(a[i])) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0 && IsFloat(want.dtype)) return absl::OkStatus();
  if (wrong == 0) return FailedPrecondition("differs beyond 2^53");
  return FailedPrecondition(wrong, " of ", a.size(), " elements differ: the first, ", first,
                            ", is ", b[first], ", expected ", a[first]);
}

// The inputs that a caller binds: those without an initializer.
std::vector<onnx::ValueInfo> BoundInputs(const onnx::Model& model) {
  std::vector<onnx::ValueInfo> out;
  for (const onnx::ValueInfo& input : model.inputs) {
    const auto same = [&](const onnx::TensorProto& t) { return t.name == input.name; };
    if (std::ranges::none_of(model.initializers, same)) out.push_back(input);
  }
  return out;
}

void Bind(const OnnxValue& input, const OnnxData& data, Slots* slots) {
  if (input.slot >= 0) {
    (*slots)[input.slot].assign(data.tensor.bytes.begin(), data.tensor.bytes.end());
  }
  for (size_t i = 0; i < input.elements.size(); ++i) {
    Bind(input.elements[i], data.elements[i], slots);
  }
}

HostTensor Content(const OnnxPlan& model, int number, const Slots& slots) {
  const Slot& slot = model.plan.slots[number];
  const std::vector<uint8_t>& bytes = slots[number];
  return {slot.dtype, slot.shape, std::string(bytes.begin(), bytes.end())};
}

absl::StatusOr<OnnxData> Result(const OnnxPlan& model, const OnnxValue& output,
                                const Slots& slots) {
  if (output.kind == OnnxValue::Kind::kFixed) return *output.fixed;
  if (output.kind == OnnxValue::Kind::kTensor) {
    OnnxData out{.kind = Kind::kTensor, .tensor = Content(model, output.slot, slots)};
    if (output.shape_slot < 0) return out;
    const auto shape = Content(model, output.shape_slot, slots).Values<int64_t>();
    TG_ASSIGN_OR_RETURN(out.tensor, Cut(out.tensor, shape));
    return out;
  }
  OnnxData out{.kind = Kind::kSequence};
  for (const OnnxValue& element : output.elements) {
    TG_ASSIGN_OR_RETURN(out.elements.emplace_back(), Result(model, element, slots));
  }
  return out;
}

absl::Status Compare(const OnnxCase& item, const OnnxData& want, const OnnxData& got) {
  if (want.kind != got.kind) return FailedPrecondition("is of another kind than expected");
  if (want.kind == Kind::kTensor) return Compare(item, want.tensor, got.tensor);
  if (want.kind == Kind::kStrings && want.strings != got.strings) {
    return FailedPrecondition("has other strings than expected");
  }
  if (want.elements.size() != got.elements.size()) {
    return FailedPrecondition("has ", got.elements.size(), " elements, expected ",
                              want.elements.size());
  }
  for (size_t i = 0; i < want.elements.size(); ++i) {
    TG_RETURN_IF_ERROR(Compare(item, want.elements[i], got.elements[i]));
  }
  return absl::OkStatus();
}

absl::Status RunSet(const OnnxCase& item, const std::string& file, const fs::path& data,
                    const RunOnSlots& run) {
  TG_ASSIGN_OR_RETURN(const onnx::Model parsed, onnx::ParseModel(file));
  const std::vector<onnx::ValueInfo> types = BoundInputs(parsed);
  TG_ASSIGN_OR_RETURN(const std::vector<OnnxData> inputs, ReadSet(data, "input", types));
  TG_ASSIGN_OR_RETURN(const std::vector<OnnxData> want, ReadSet(data, "output", parsed.outputs));
  ImportOptions options;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (item.by_shape && inputs[i].kind == Kind::kTensor) {
      options.input_shapes.emplace(types[i].name, inputs[i].tensor.shape);
      continue;
    }
    options.values.emplace(types[i].name, std::make_shared<const OnnxData>(inputs[i]));
  }
  ExternalFiles files(item.folder);
  options.external = [&](std::string_view location) { return files.Content(location); };
  TG_ASSIGN_OR_RETURN(const OnnxPlan model, ImportOnnx(file, options));
  if (inputs.size() != model.inputs.size()) {
    return FailedPrecondition("has ", model.inputs.size(), " inputs, the data set ", inputs.size());
  }
  Slots slots;
  for (const Slot& slot : model.plan.slots) {
    slots.emplace_back(BytesOf(slot.dtype, NumElements(slot.shape)));
  }
  for (const OnnxWeight& weight : model.weights) {
    slots[weight.slot].assign(weight.bytes.begin(), weight.bytes.end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) Bind(model.inputs[i], inputs[i], &slots);
  TG_RETURN_IF_ERROR(run(model.plan.graph.root(), &slots));
  if (want.size() != model.outputs.size()) {
    return FailedPrecondition("has ", model.outputs.size(), " outputs, expected ", want.size());
  }
  for (size_t i = 0; i < want.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const OnnxData got, Result(model, model.outputs[i], slots));
    const absl::Status s = Compare(item, want[i], got);
    if (!s.ok()) return FailedPrecondition("output ", i, " ", ToStd(s.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<OnnxCase>> FindOnnxCases(const std::string& folder) {
  const auto manifest = ReadManifest(folder);
  std::vector<OnnxCase> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!fs::exists(entry.path() / "model.onnx")) continue;
    const auto row = manifest.find(entry.path().filename().string());
    out.push_back(MakeCase(entry.path(), row == manifest.end() ? Row{} : row->second));
  }
  if (error) return NotFound(folder, ": ", error.message());
  if (out.empty()) return NotFound(folder, ": no folder in it has a model.onnx");
  std::ranges::sort(out, {}, &OnnxCase::name);
  return out;
}

absl::Status RunOnnxCase(const OnnxCase& item, const RunOnSlots& run) {
  const fs::path folder = item.folder;
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile((folder / "model.onnx").string()));
  int sets = 0;
  for (;; ++sets) {
    const fs::path data = folder / StrCat("test_data_set_", sets);
    if (!fs::exists(data)) break;
    TG_RETURN_IF_ERROR(RunSet(item, file, data, run));
  }
  if (sets == 0) return NotFound(item.folder, ": no test_data_set_0");
  return absl::OkStatus();
}

}  // namespace telegrad::testing
