// A format is a row of kFormats. The graph of a reader passes through FromProto like graphs from
// clients: an imported graph is checked like one that was put, and has the same hash as if the
// client had imported and put it.
#include "server/service/import_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_codec.h"
#include "google/protobuf/arena.h"
#include "server/service/model_value.h"
#include "server/serving/model_format.h"
#include "server/serving/plan_model.h"

namespace telegrad {
namespace {

constexpr size_t kMaxNameBytes = 4 << 20;  // of all slots, in one answer

ImportedSlot ToImported(const Slot& slot) {
  ImportedSlot out{.role = ImportedSlot::Role::kInput,
                   .name = slot.name,
                   .model_names = {},
                   .dtype = slot.dtype,
                   .shape = slot.shape,
                   .bytes = BytesOf(slot.dtype, NumElements(slot.shape))};
  if (slot.role == SlotRole::kOutput) out.role = ImportedSlot::Role::kOutput;
  if (slot.role == SlotRole::kState) {
    out.role = ImportedSlot::Role::kWeight;
    out.model_names.push_back(slot.name);
  }
  return out;
}

absl::Status CheckNames(ImportedModel* model) {
  size_t bytes = 0;
  for (const ImportedSlot& slot : model->slots) {
    bytes += slot.name.size();
    for (const std::string& name : slot.model_names) bytes += name.size();
  }
  for (const auto* values : {&model->interface.inputs, &model->interface.outputs}) {
    for (const OnnxValue& value : *values) {
      bytes += value.name.size() + sizeof(OnnxValue);
      for (const OnnxValue& e : value.elements) bytes += e.name.size() + sizeof(OnnxValue);
      if (value.fixed == nullptr) continue;
      for (const std::string& s : value.fixed->strings.values) bytes += s.size() + sizeof s;
    }
  }
  model->slot_bytes = static_cast<int64_t>(bytes + model->slots.size() * sizeof(ImportedSlot));
  if (bytes <= kMaxNameBytes) return absl::OkStatus();
  return ResourceExhausted("the names of the model's inputs, outputs and weights take ", bytes,
                           " bytes; the limit is ", kMaxNameBytes);
}

absl::Status Admit(UOp root, Budget* budget, ImportedModel* out) {
  google::protobuf::Arena arena;
  auto* graph = google::protobuf::Arena::CreateMessage<v1::Graph>(&arena);
  ToProto(root, graph);
  out->graph_bytes = static_cast<int64_t>(graph->ByteSizeLong());
  TG_ASSIGN_OR_RETURN(out->graph.graph, FromProto(*graph, budget));
  out->graph.hash = ContentHash(out->graph.graph.root());
  return absl::OkStatus();
}

// Contents that are not in the file, with what they take of the budget.
struct OwnContents {
  explicit OwnContents(Budget* budget) : held(budget) {}
  std::vector<OnnxWeight> weights;
  Budget::Held held;
};

absl::StatusOr<ImportedModel> FromPlan(OnnxPlan onnx, Budget* budget) {
  auto own = std::make_shared<OwnContents>(budget);
  ImportedModel out;
  for (const Slot& slot : onnx.plan.slots) out.slots.push_back(ToImported(slot));
  for (const auto* values : {&onnx.inputs, &onnx.outputs}) {
    for (const OnnxValue& value : *values) {
      if (value.slot >= 0) out.slots[value.slot].model_names.push_back(value.name);
    }
  }
  out.interface = {std::move(onnx.inputs), std::move(onnx.outputs), std::move(onnx.guards)};
  TG_RETURN_IF_ERROR(CheckNames(&out));
  out.contents.resize(out.slots.size());
  for (OnnxWeight& weight : onnx.weights) {
    out.contents[weight.slot] = weight.bytes;
    if (weight.value == nullptr) continue;
    TG_RETURN_IF_ERROR(own->held.Grow(static_cast<int64_t>(weight.bytes.size())));
    own->weights.push_back(std::move(weight));
  }
  out.keep = std::move(own);
  TG_RETURN_IF_ERROR(Admit(onnx.plan.graph.root(), budget, &out));
  return out;
}

absl::StatusOr<ImportedModel> FromOnnx(std::string_view file, const ImportOptions& options,
                                       Budget* budget) {
  TG_ASSIGN_OR_RETURN(OnnxPlan onnx, ImportOnnx(file, options, budget));
  return FromPlan(std::move(onnx), budget);
}

// Where its shapes are fixed, options have nothing to say that its caller has not checked.
absl::StatusOr<ReadForm> ReadServedPlan(std::string_view file, const ImportOptions& options,
                                        Budget* budget) {
  if (!options.values.empty()) return InvalidArgument("a plan does not depend on values");
  TG_ASSIGN_OR_RETURN(PlanModel model, ReadPlanModel(file, budget));
  if (!model.plan.variables.empty()) {
    std::vector<Shape> shapes = model.shapes;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto given = options.input_shapes.find(model.plan.slots[i].name);
      if (given != options.input_shapes.end()) shapes[i] = given->second;
    }
    TG_ASSIGN_OR_RETURN(model.plan, PlanForShapes(model.plan, shapes, budget));
  }
  OnnxPlan plan;
  for (size_t i = 0; i < model.plan.slots.size(); ++i) {
    const Slot& slot = model.plan.slots[i];
    const auto number = static_cast<int>(i);
    if (slot.role == SlotRole::kState) {
      plan.weights.push_back({.slot = number, .bytes = model.contents[i]});
    } else {
      (slot.role == SlotRole::kInput ? plan.inputs : plan.outputs)
          .push_back({.name = slot.name, .slot = number});
    }
  }
  plan.plan = std::move(model.plan);
  ReadForm out;
  TG_ASSIGN_OR_RETURN(out.model, FromPlan(std::move(plan), budget));
  return out;
}

struct Format {
  std::string_view name;
  absl::StatusOr<ImportedModel> (*read)(std::string_view file, const ImportOptions& options,
                                        Budget* budget);
};
constexpr Format kFormats[] = {{"onnx", &FromOnnx}};

}  // namespace

absl::StatusOr<ImportedModel> ReadModelFile(const std::string& format, std::string_view file,
                                            const ImportOptions& options, Budget* budget) {
  const auto* row = std::ranges::find(kFormats, format, &Format::name);
  if (row != std::end(kFormats)) return row->read(file, options, budget);
  std::string known;
  for (const Format& f : kFormats) StrAppend(&known, known.empty() ? "" : ", ", f.name);
  return Unimplemented("import: unknown format '", format, "', only ", known);
}

absl::StatusOr<ReadForm> ReadServedModel(std::string_view file, const ImportOptions& options,
                                         Budget* budget) {
  if (FormatOf(file) == ModelFormat::kPlan) return ReadServedPlan(file, options, budget);
  TG_ASSIGN_OR_RETURN(OnnxPlan onnx, ImportOnnx(file, options, budget));
  ReadForm out{.model = {}, .strings = {}, .guards = std::move(onnx.guards)};
  for (const OnnxValue& value : onnx.outputs) {
    if (value.slot >= 0) continue;
    if (value.kind != OnnxValue::Kind::kFixed ||
        value.fixed->kind != onnx::OnnxData::Kind::kStrings) {
      return Unimplemented("output '", Clip(value.name, 256),
                           "' is a sequence or an optional without a value; the outputs of a model "
                           "that is served must be tensors");
    }
    out.strings[value.name] = value.fixed;
  }
  TG_ASSIGN_OR_RETURN(out.model, FromPlan(std::move(onnx), budget));
  return out;
}

namespace {

v1::ImportedSlot::Role ToProto(ImportedSlot::Role role) {
  switch (role) {
    case ImportedSlot::Role::kOutput:
      return v1::ImportedSlot::OUTPUT;
    case ImportedSlot::Role::kWeight:
      return v1::ImportedSlot::WEIGHT;
    case ImportedSlot::Role::kInput:
      break;
  }
  return v1::ImportedSlot::INPUT;
}

}  // namespace

ImportOp ToImport(v1::Import& import, std::unique_ptr<Payload> payload) {
  ImportOptions options;
  for (const auto& [name, shape] : import.input_shapes()) {
    options.input_shapes[name].assign(shape.dims().begin(), shape.dims().end());
  }
  options.dims.insert(import.dims().begin(), import.dims().end());
  absl::Status given;
  for (auto& [name, value] : *import.mutable_values()) {
    auto data = ToOnnxData(value);
    if (data.ok()) {
      options.values[name] = std::make_shared<const onnx::OnnxData>(*std::move(data));
    } else {
      given = absl::Status(data.status().code(), StrCat("import: the value of '", Clip(name, 256),
                                                        "': ", ToStd(data.status().message())));
    }
  }
  ImportOp op;
  op.decode = [format = std::move(*import.mutable_format()), options = std::move(options),
               given = std::move(given)](std::string_view file,
                                         Budget* budget) -> absl::StatusOr<ImportedModel> {
    TG_RETURN_IF_ERROR(given);
    return ReadModelFile(format, file, options, budget);
  };
  op.payload = std::move(payload);
  op.handle = import.handle();
  op.bytes = import.bytes();
  op.first_handle = import.first_handle();
  op.device = std::move(*import.mutable_device());
  op.compile = import.compile();
  return op;
}

void ToProto(const ImportResult& result, v1::ImportResult* out) {
  out->set_hash(result.hash.bytes.data(), result.hash.bytes.size());
  for (const ImportedSlot& slot : *result.slots) {
    v1::ImportedSlot* to = out->add_slots();
    to->set_role(ToProto(slot.role));
    to->set_name(slot.name);
    to->mutable_model_names()->Add(slot.model_names.begin(), slot.model_names.end());
    to->set_dtype(static_cast<uint32_t>(Info(slot.dtype).wire));
    to->mutable_dims()->Add(slot.shape.begin(), slot.shape.end());
    to->set_bytes(static_cast<uint64_t>(slot.bytes));
    to->set_handle(slot.handle);
  }
  for (const OnnxValue& value : result.interface->inputs) ToProto(value, out->add_inputs());
  for (const OnnxValue& value : result.interface->outputs) ToProto(value, out->add_outputs());
  out->mutable_guards()->Add(result.interface->guards.begin(), result.interface->guards.end());
}

}  // namespace telegrad
