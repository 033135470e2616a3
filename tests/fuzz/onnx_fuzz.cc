// ONNX models. The corpus has models of the ONNX project's own backend tests (Apache-2.0), one of
// each of many operators, so that mutants reach the operators' functions; models of shapes and
// weights are in the corpus of files_fuzz. Each is imported without values, and with values for all
// inputs that have a shape, so that what depends on them is computed.
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/wire/graph_codec.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

constexpr int64_t kMostBytes = 4096;  // of an input's value

// Limits that keep one input short.
Budget::Limits Small() {
  Budget::Limits limits;
  limits.steps = 500'000;
  limits.nodes = 100'000;
  limits.bytes = int64_t{256} << 20;
  return limits;
}

// Values that begin with small numbers, for inputs with a shape that is known and small.
ImportOptions WithValues(const onnx::Model& model) {
  ImportOptions out;
  out.dims["N"] = 2;
  for (const onnx::ValueInfo& input : model.inputs) {
    if (!input.has_shape || input.other || !input.wrappers.empty()) continue;
    onnx::OnnxData data{.kind = onnx::OnnxData::Kind::kTensor};
    for (const onnx::Dimension& dim : input.shape) {
      data.tensor.shape.push_back(dim.value < 0 ? 2 : dim.value);
    }
    if (input.elem_type == onnx::kStringType) {
      data = {.kind = onnx::OnnxData::Kind::kStrings, .strings = {{2}, {"a b", ""}}};
    } else {
      const auto dtype = input.elem_type > 0 && input.elem_type < 64
                             ? DTypeFromOnnx(static_cast<int>(input.elem_type))
                             : std::nullopt;
      if (!dtype) continue;
      data.tensor.dtype = *dtype;
      const auto bytes = CheckedByteSize(*dtype, data.tensor.shape);
      if (!bytes.ok() || *bytes > kMostBytes) continue;
      for (int64_t i = 0; i < *bytes; ++i) data.tensor.bytes.push_back(i % 4 == 0 ? '\1' : '\0');
    }
    out.values.emplace(input.name, std::make_shared<const onnx::OnnxData>(std::move(data)));
  }
  return out;
}

// What an import makes is what a server admits, and every weight has its content.
void Check(const OnnxPlan& onnx) {
  int64_t weights = 0;
  for (const Slot& slot : onnx.plan.slots) weights += slot.role == SlotRole::kState;
  FUZZ_CHECK(weights == static_cast<int64_t>(onnx.weights.size()));
  for (const OnnxWeight& weight : onnx.weights) {
    const Slot& slot = onnx.plan.slots[weight.slot];
    FUZZ_CHECK(slot.role == SlotRole::kState);
    FUZZ_CHECK(static_cast<int64_t>(weight.bytes.size()) ==
               *CheckedByteSize(slot.dtype, slot.shape));
  }
  v1::Graph graph;
  ToProto(onnx.plan.graph.root(), &graph);
  Budget budget;  // the import may have spent all of its own
  FUZZ_CHECK(FromProto(graph, &budget).ok());
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;
  const std::string_view file(reinterpret_cast<const char*>(data.data()), data.size());
  const auto model = onnx::ParseModel(file);
  for (const bool values : {false, true}) {
    if (values && !model.ok()) return;
    Budget budget(Small());
    {
      const auto onnx = ImportOnnx(file, values ? WithValues(*model) : ImportOptions(), &budget);
      if (onnx.ok()) Check(*onnx);
    }
    FUZZ_CHECK(budget.bytes_held() == 0);
  }
}
