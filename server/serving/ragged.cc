// Finds the dimensions that may differ by their names, computes padded sizes, and copies the
// runs of bytes that both shapes share.
#include "server/serving/ragged.h"

#include <algorithm>

#include "engine/base/status.h"
#include "server/serving/model_config.h"

namespace telegrad {
namespace {

std::string NameOf(const TensorSpec& spec, size_t axis) {
  return axis < spec.names.size() ? spec.names[axis] : "";
}

RaggedSize* Find(std::vector<RaggedSize>* sizes, std::string_view name) {
  const auto it = std::ranges::find(*sizes, name, &RaggedSize::name);
  return name.empty() || it == sizes->end() ? nullptr : &*it;
}

// Whether a dimension of an input, behind the batch's, has that name.
bool IsOfInput(const ModelConfig& config, std::string_view name) {
  return !name.empty() && std::ranges::any_of(config.inputs, [&](const TensorSpec& input) {
    return std::find(input.names.begin() + std::min<size_t>(input.names.size(), 1),
                     input.names.end(), name) != input.names.end();
  });
}

absl::Status AddInput(const TensorSpec& spec, size_t number, std::vector<RaggedSize>* out) {
  if (spec.inner || spec.strings) {
    return Unimplemented("input '", spec.name,
                         "': allow_ragged_batch is not for a reshape and not for strings");
  }
  bool any = false;
  for (size_t axis = 1; axis < spec.shape.size(); ++axis) {
    if (spec.shape[axis] >= 0) continue;
    any = true;
    const std::string name = NameOf(spec, axis);
    RaggedSize* known = Find(out, name);
    if (known == nullptr) known = &out->emplace_back(RaggedSize{.name = name});
    known->inputs.emplace_back(number, axis);
  }
  if (any) return absl::OkStatus();
  return InvalidArgument("input '", spec.name,
                         "' has allow_ragged_batch, and none of its dimensions is of any size");
}

}  // namespace

absl::StatusOr<std::vector<RaggedSize>> FindRagged(const ModelConfig& config) {
  std::vector<RaggedSize> out;
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    if (config.inputs[i].ragged) TG_RETURN_IF_ERROR(AddInput(config.inputs[i], i, &out));
  }
  if (out.empty()) return out;
  if (!config.batching || config.sequences || config.by_value) {
    return InvalidArgument("allow_ragged_batch needs dynamic_batching");
  }
  for (const TensorSpec& spec : config.inputs) {
    for (size_t axis = 1; axis < spec.shape.size() && !spec.ragged; ++axis) {
      if (spec.shape[axis] >= 0 || Find(&out, NameOf(spec, axis)) == nullptr) continue;
      return InvalidArgument("input '", spec.name, "' has the dimension '", NameOf(spec, axis),
                             "' of an input with allow_ragged_batch, and needs it, too");
    }
  }
  for (size_t i = 0; i < config.outputs.size(); ++i) {
    const TensorSpec& spec = config.outputs[i];
    if (DatatypeOf(spec).empty() || spec.strings) {
      return InvalidArgument("allow_ragged_batch: the model does not declare output '", spec.name,
                             "' as a tensor with a shape");
    }
    for (size_t axis = 1; axis < spec.shape.size(); ++axis) {
      if (spec.shape[axis] >= 0) continue;
      const std::string name = NameOf(spec, axis);
      if (RaggedSize* const size = Find(&out, name); size != nullptr) {
        size->outputs.emplace_back(i, axis);
      } else if (!IsOfInput(config, name)) {
        return InvalidArgument("allow_ragged_batch: dimension ", axis, " of output '", spec.name,
                               "' has no name that a dimension of an input has, so that it is not "
                               "known what of it is padding; name it in the model");
      }
    }
  }
  return out;
}

int64_t PaddedSize(int64_t size) {
  int64_t power = 1;
  while (power < size && power <= INT64_MAX / 4) power *= 2;
  const int64_t less = power / 4 * 3;
  return less >= size ? less : std::max(power, size);
}

void ForEachRun(ShapeView box, ShapeView outer, int64_t element_bytes,
                const std::function<void(int64_t offset, int64_t bytes)>& run) {
  if (NumElements(box) == 0) return;
  // Of the axes from the last that differs on, a stretch is one piece.
  size_t split = box.size();
  while (split > 0 && box[split - 1] == outer[split - 1]) --split;
  const size_t first = split == 0 ? 0 : split - 1;
  const int64_t length = NumElements(box.subspan(first)) * element_bytes;
  std::vector<int64_t> at(first, 0);
  while (true) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < first; ++axis) offset = (offset + at[axis]) * outer[axis + 1];
    for (size_t axis = first + 1; axis < outer.size(); ++axis) offset *= outer[axis];
    run(offset * element_bytes, length);
    size_t axis = first;
    while (axis > 0 && ++at[axis - 1] == box[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace telegrad
