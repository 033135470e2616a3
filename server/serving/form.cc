#include "server/serving/form.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "server/serving/bytes_tensor.h"

namespace telegrad {
namespace {

std::shared_ptr<const std::string> Encoded(const std::vector<std::string>& elements) {
  auto out = std::make_shared<std::string>();
  for (const std::string& element : elements) AppendElement(element, out.get());
  return out;
}

bool HasShape(ShapeView shape, ShapeView spec) {
  return std::ranges::equal(shape, spec, [](int64_t a, int64_t b) { return b < 0 || a == b; });
}

// Where the model's names of `role` are among the slots, and the strings, which have none.
absl::StatusOr<std::vector<Form::Io>> FindSlots(std::string_view what, ImportedSlot::Role role,
                                                const std::vector<TensorSpec>& specs,
                                                const ReadForm& read) {
  const std::vector<ImportedSlot>& slots = read.model.slots;
  std::vector<Form::Io> out;
  for (const TensorSpec& spec : specs) {
    if (role == ImportedSlot::Role::kInput && spec.strings) {
      out.push_back({});
      continue;
    }
    if (const auto fixed = read.strings.find(spec.name); fixed != read.strings.end()) {
      const onnx::StringTensor& strings = fixed->second->strings;
      out.push_back({.shape = strings.shape, .strings = Encoded(strings.values)});
      continue;
    }
    const auto it = std::ranges::find_if(slots, [&](const ImportedSlot& slot) {
      return slot.role == role &&
             std::ranges::find(slot.model_names, spec.name) != slot.model_names.end();
    });
    if (it == slots.end()) return Internal("the model's ", what, " '", spec.name, "' has no slot");
    if (spec.dtype != DType::kVoid && it->dtype != spec.dtype) {
      return InvalidArgument("the model's ", what, " '", spec.name, "' is computed as ",
                             Name(it->dtype), " and declared as ", Name(spec.dtype));
    }
    if (spec.inner && !HasShape(it->shape, *spec.inner)) {
      return InvalidArgument("the model's ", what, " '", spec.name, "' has shape ",
                             ToString(it->shape), ", and its reshape in config.pbtxt is ",
                             ToString(*spec.inner));
    }
    out.push_back({static_cast<int>(it - slots.begin()), it->dtype, it->shape, it->bytes});
  }
  return out;
}

absl::Status FindSequenceSlots(const SequenceBatching& sequences, const ReadForm& imported,
                               Form* form) {
  std::vector<TensorSpec> controls, in, out;
  for (const SequenceControl& control : sequences.controls) controls.push_back(control.spec);
  for (const SequenceState& state : sequences.states) {
    in.push_back(state.in);
    out.push_back(state.out);
  }
  using Role = ImportedSlot::Role;
  TG_ASSIGN_OR_RETURN(form->controls, FindSlots("control_input", Role::kInput, controls, imported));
  TG_ASSIGN_OR_RETURN(form->states_in, FindSlots("state", Role::kInput, in, imported));
  TG_ASSIGN_OR_RETURN(form->states_out, FindSlots("state", Role::kOutput, out, imported));
  for (size_t i = 0; i < form->states_in.size(); ++i) {
    if (form->states_in[i].shape == form->states_out[i].shape) continue;
    return InvalidArgument("state '", in[i].name, "' has shape ",
                           ToString(form->states_in[i].shape), ", and comes back as '", out[i].name,
                           "' of shape ", ToString(form->states_out[i].shape));
  }
  return absl::OkStatus();
}

// The shapes that each run decides.
absl::Status FindShapes(const ModelConfig& config, const ImportedModel& model, Form* form) {
  for (size_t i = 0; i < form->outputs.size(); ++i) {
    const std::string& name = config.outputs[i].name;
    const auto it = std::ranges::find(model.interface.outputs, name, &OnnxValue::name);
    if (it == model.interface.outputs.end() || it->shape_slot < 0) continue;
    if (form->rows > 0) {
      return InvalidArgument("the shape of the model's output '", name,
                             "' depends on values, so that a batch cannot be taken apart again; "
                             "set max_batch_size to 0 in config.pbtxt");
    }
    if (config.outputs[i].inner) {
      return InvalidArgument("the shape of the model's output '", name,
                             "' depends on values; it has no reshape in config.pbtxt");
    }
    const ImportedSlot& slot = model.slots[static_cast<size_t>(it->shape_slot)];
    form->outputs[i].run_shape = static_cast<int>(form->shapes.size());
    form->shapes.push_back({it->shape_slot, slot.dtype, slot.shape, slot.bytes});
  }
  for (const Form::Io& state : form->states_out) {
    const auto of_slot = [&](const OnnxValue& value) { return value.slot == state.slot; };
    const auto it = std::ranges::find_if(model.interface.outputs, of_slot);
    if (it == model.interface.outputs.end() || it->shape_slot < 0) continue;
    return InvalidArgument("the shape of the state '", it->name, "' depends on values");
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const ModelConfig& config, const Form& form) {
  for (size_t i = 0; form.rows > 0 && i < form.outputs.size(); ++i) {
    const Shape& shape = form.outputs[i].shape;
    if (shape.empty() || shape.front() != form.rows) {
      return InvalidArgument("for a batch of ", form.rows, " the model's output '",
                             config.outputs[i].name, "' has shape ", ToString(shape),
                             ", whose first dimension is not the batch's; set max_batch_size to 0 "
                             "in config.pbtxt");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FormMaker::CheckRoom(const ModelConfig& config, int64_t new_weights,
                                  int64_t temporaries) const {
  const Account& account = owner->accounts[Quota::kDeviceMemory];
  const int64_t needed = new_weights + temporaries;
  const int64_t left =
      std::min(account.limit() - account.used(), device->memory_limit() - device->memory_used());
  if (needed <= left) return absl::OkStatus();
  return ResourceExhausted("model '", config.name, "' needs ", needed, " bytes on ", device->name(),
                           " (", new_weights, " of weights, ", temporaries,
                           " of temporaries), and ", std::max<int64_t>(left, 0), " are left of ",
                           std::min(account.limit(), device->memory_limit()),
                           "; unload a model or raise --models-memory");
}

absl::StatusOr<std::shared_ptr<const Form>> FormMaker::Make(FormSource& source,
                                                            const ModelConfig& config,
                                                            const std::vector<Shape>& shapes,
                                                            int64_t rows, const InputValues& values,
                                                            Tenant& payer, FormRoom* room) const {
  const CompileTimer charged(&payer);
  Budget budget(env->limits.job);
  budget.SetShare(payer.share);
  ImportOptions options;
  options.values = values;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!values.contains(config.inputs[i].name))
      options.input_shapes[config.inputs[i].name] = shapes[i];
  }
  if (config.sequences) {
    const auto sized = [&](const TensorSpec& spec) {
      Shape shape = spec.shape;
      if (rows > 0) shape.front() = rows;
      options.input_shapes[spec.name] = std::move(shape);
    };
    for (const SequenceControl& control : config.sequences->controls) sized(control.spec);
    for (const SequenceState& state : config.sequences->states) sized(state.in);
  }
  TG_ASSIGN_OR_RETURN(const ReadForm imported, source.Read(options, &budget));
  const ImportedModel& model = imported.model;

  auto form = std::make_shared<Form>();
  form->device = device;
  form->generation = device->memory_generation();
  form->rows = rows;
  TG_ASSIGN_OR_RETURN(form->inputs,
                      FindSlots("input", ImportedSlot::Role::kInput, config.inputs, imported));
  TG_ASSIGN_OR_RETURN(form->outputs,
                      FindSlots("output", ImportedSlot::Role::kOutput, config.outputs, imported));
  for (const TensorSpec& input : config.inputs) {
    form->guards.push_back(std::ranges::find(imported.guards, input.name) != imported.guards.end());
  }
  if (config.sequences) {
    TG_RETURN_IF_ERROR(FindSequenceSlots(*config.sequences, imported, form.get()));
  }
  TG_RETURN_IF_ERROR(FindShapes(config, model, form.get()));
  TG_RETURN_IF_ERROR(CheckBatch(config, *form));
  for (size_t i = 0; i < model.slots.size(); ++i) {
    const ImportedSlot& slot = model.slots[i];
    const bool shape =
        std::ranges::find(form->shapes, static_cast<int>(i), &Form::Io::slot) != form->shapes.end();
    if (slot.role == ImportedSlot::Role::kOutput && slot.model_names.empty() && !shape) {
      form->hidden.push_back({static_cast<int>(i), slot.dtype, slot.shape, slot.bytes});
    }
  }
  for (const auto* ios : {&form->inputs, &form->outputs}) {
    for (const Form::Io& io : *ios) form->io_bytes += io.bytes;
  }

  Device* const devices[] = {device};
  TG_ASSIGN_OR_RETURN(
      ExecutableCache::Result compiled,
      owner->engine->Get(model.graph.hash, model.graph.graph, devices, &budget, {}));
  payer.compile_time->Correct(0, budget.worked_ns());
  form->executable = std::move(compiled.executable);
  const RunCost cost = form->executable->cost();
  TG_RETURN_IF_ERROR(Admit(cost, env->limits.run));

  std::vector<std::string_view> contents;
  std::vector<size_t> slots;
  for (size_t i = 0; i < model.slots.size(); ++i) {
    if (model.slots[i].role != ImportedSlot::Role::kWeight) continue;
    const std::span<const SlotUse> uses = form->executable->slots();
    if (i < uses.size() && uses[i].written) {
      return FailedPrecondition("a run writes to the weight '", model.slots[i].name,
                                "', which all tenants share; a model that is served has fixed "
                                "weights, so export it for inference");
    }
    if (static_cast<int64_t>(model.contents[i].size()) != model.slots[i].bytes) {
      return Internal("weight '", model.slots[i].name, "' has ", model.contents[i].size(),
                      " bytes, expected ", model.slots[i].bytes);
    }
    contents.push_back(model.contents[i]);
    slots.push_back(i);
    form->weight_bytes += model.slots[i].bytes;
  }
  const WeightStore::Plan plan = weights->MakePlan(std::move(contents));
  absl::Status fits = CheckRoom(config, plan.new_bytes, cost.temporary_bytes);
  while (!fits.ok() && room != nullptr && make_room != nullptr) {
    room->freed = make_room(config.name);
    if (room->freed == nullptr || !room->freed->ended()) break;
    room->freed = nullptr;
    owner->engine->ReleaseMemory();
    // What went may have been what both have in common.
    fits = CheckRoom(config, weights->NewBytes(plan), cost.temporary_bytes);
  }
  TG_RETURN_IF_ERROR(fits);
  TG_ASSIGN_OR_RETURN(std::vector<BufferView> placed, weights->Place(plan, &budget));
  form->weights.resize(model.slots.size());
  for (size_t i = 0; i < slots.size(); ++i) form->weights[slots[i]] = std::move(placed[i]);
  return form;
}

}  // namespace telegrad
