// telegrad check model.onnx: imports a model in this process and prints its contents, or everything
// in it that is not supported. It needs no server.
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "client/cli/command.h"
#include "client/cli/import_options.h"
#include "client/cli/onnx_data.h"
#include "client/terminal/printable.h"
#include "client/terminal/progress.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/external_data.h"
#include "engine/frontend/onnx/import.h"

namespace telegrad::cli {
namespace {

// Named sizes of the model that are not given are taken as 1.
void AssumeDims(const onnx::Model& model, ImportOptions* options) {
  std::set<std::string_view> assumed;
  for (const onnx::ValueInfo& input : CallerInputs(model)) {
    if (options->input_shapes.contains(input.name)) continue;
    for (const onnx::Dimension& dim : input.shape) {
      if (dim.param.empty() || options->dims.contains(dim.param)) continue;
      options->dims.emplace(dim.param, 1);
      assumed.insert(dim.param);
    }
  }
  for (const std::string_view name : assumed) {
    const std::string shown = Printable(name);
    std::printf("assumed: %s = 1 (--dim %s=N)\n", shown.c_str(), shown.c_str());
  }
}

std::string Describe(const OnnxPlan& onnx, const OnnxValue& value) {
  if (value.kind == OnnxValue::Kind::kFixed) return "fixed";
  if (value.kind == OnnxValue::Kind::kSequence) {
    return StrCat("a sequence of ", value.elements.size());
  }
  const Slot& slot = onnx.plan.slots[value.slot];
  return StrCat(Name(slot.dtype), value.shape_slot < 0 ? " " : " at most ", ToString(slot.shape));
}

void Print(const onnx::Model& model, const OnnxPlan& onnx) {
  std::map<std::string, int> operators;
  for (const onnx::Node& node : model.nodes) {
    ++operators[StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type)];
  }
  int64_t bytes = 0;
  for (const OnnxWeight& weight : onnx.weights) bytes += static_cast<int64_t>(weight.bytes.size());
  std::printf("opset %lld, IR version %lld, %zu nodes, %zu functions\n",
              static_cast<long long>(model.opset), static_cast<long long>(model.ir_version),
              model.nodes.size(), model.functions.size());
  for (const auto& [name, count] : operators) {
    std::printf("  %6d  %s\n", count, Printable(name).c_str());
  }
  for (const OnnxValue& value : onnx.inputs) {
    std::printf("input   %s: %s\n", Printable(value.name).c_str(), Describe(onnx, value).c_str());
  }
  for (const OnnxValue& value : onnx.outputs) {
    std::printf("output  %s: %s\n", Printable(value.name).c_str(), Describe(onnx, value).c_str());
  }
  std::printf("weights %zu, %lld bytes\nthe model is supported\n", onnx.weights.size(),
              static_cast<long long>(bytes));
}

}  // namespace

absl::Status Check(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one ONNX file");
  const std::string& path = flags.positional()[0];
  TG_ASSIGN_OR_RETURN(ImportOptions options, ImportOptionsOf(flags));
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  const absl::StatusOr<onnx::Model> model = onnx::ParseModel(file);
  if (!model.ok()) return OfModelFile(path, model.status());
  AssumeDims(*model, &options);
  ExternalFiles external(FolderOf(path));
  options.external = [&](std::string_view location) { return external.Content(location); };
  auto progress = std::make_unique<Progress>(StrCat("importing ", path));
  const absl::StatusOr<OnnxPlan> onnx = ImportOnnx(file, options);
  progress = nullptr;
  if (!onnx.ok()) return OfModelFile(path, onnx.status());
  Print(*model, *onnx);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
