// What is checked of a request before it waits in a queue, and the values that it has for a model
// whose form depends on them.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/datatype.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

constexpr int64_t kMostClasses = 1 << 16;

bool Matches(ShapeView shape, ShapeView spec) {
  if (shape.size() != spec.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (spec[i] >= 0 && shape[i] != spec[i]) return false;
  }
  return true;
}

}  // namespace

absl::Status ServedModel::CheckInput(const InferInput& input, const TensorSpec& spec) const {
  const auto where = [&] {
    return StrCat("model '", config_.name, "', input '", spec.name, "': ");
  };
  if (!IsDatatype(input.datatype)) {
    return InvalidArgument(where(), "there is no datatype '", Clip(input.datatype, 64), "'");
  }
  if (input.datatype != DatatypeOf(spec)) {
    return InvalidArgument(where(), "has datatype ", input.datatype, ", expected ",
                           DatatypeOf(spec));
  }
  if (input.shape.size() > static_cast<size_t>(kMaxRank) || !Matches(input.shape, spec.shape)) {
    const ShapeView shown =
        ShapeView(input.shape).first(std::min(input.shape.size(), static_cast<size_t>(kMaxRank)));
    return InvalidArgument(where(), "has shape ", ToString(shown),
                           shown.size() < input.shape.size() ? " and more" : "", ", expected ",
                           ToString(spec.shape), ", where -1 is any size");
  }
  const auto bytes = CheckedByteSize(spec.strings ? DType::kUInt8 : spec.dtype, input.shape);
  if (!bytes.ok()) return InvalidArgument(where(), ToStd(bytes.status().message()));
  if (spec.strings) {
    const absl::Status elements = CheckElements(input.pieces, *bytes);
    if (!elements.ok()) return InvalidArgument(where(), ToStd(elements.message()));
  } else if (*bytes != input.bytes) {
    return InvalidArgument(where(), "has ", input.bytes, " bytes, expected ", *bytes, " for ",
                           input.datatype, " of shape ", ToString(input.shape));
  }
  if (config_.max_batch > 0 && (input.shape[0] < 1 || input.shape[0] > config_.max_batch)) {
    return InvalidArgument(where(), "has a batch of ", input.shape[0], ", expected 1 to ",
                           config_.max_batch, ", the model's max_batch_size");
  }
  return absl::OkStatus();
}

absl::StatusOr<Waiting> ServedModel::Admitted(InferRequest request) const {
  Waiting out;
  out.inputs.assign(config_.inputs.size(), SIZE_MAX);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InferInput& input = request.inputs[i];
    const auto spec = std::ranges::find(config_.inputs, input.name, &TensorSpec::name);
    if (spec == config_.inputs.end()) {
      return InvalidArgument("model '", config_.name, "' has no input '", Clip(input.name, 256),
                             "'");
    }
    size_t& given = out.inputs[static_cast<size_t>(spec - config_.inputs.begin())];
    if (given != SIZE_MAX) {
      return InvalidArgument("model '", config_.name, "': input '", spec->name, "' is given twice");
    }
    given = i;
    TG_RETURN_IF_ERROR(CheckInput(input, *spec));
  }
  for (size_t i = 0; i < out.inputs.size(); ++i) {
    if (out.inputs[i] == SIZE_MAX) {
      return InvalidArgument("model '", config_.name, "' got ", request.inputs.size(),
                             " inputs, expected ", config_.inputs.size(), ": '",
                             config_.inputs[i].name, "' is missing");
    }
    Shape shape = config_.inputs[i].InModel(request.inputs[out.inputs[i]].shape);
    if (config_.max_batch > 0) {
      if (out.rows != 0 && shape[0] != out.rows) {
        return InvalidArgument("model '", config_.name, "': input '", config_.inputs[i].name,
                               "' has a batch of ", shape[0], ", another input one of ", out.rows);
      }
      out.rows = shape[0];
      shape.erase(shape.begin());
    }
    out.tails.push_back(std::move(shape));
  }
  for (const RaggedSize& ragged : config_.ragged) {
    std::optional<int64_t> size;
    for (const auto& [input, axis] : ragged.inputs) {
      const int64_t here = std::exchange(out.tails[input][axis - 1], -1);
      if (size.value_or(here) != here) {
        return InvalidArgument("model '", config_.name, "', input '", config_.inputs[input].name,
                               "': its dimension ", axis, " is ", here, ", and the same size '",
                               ragged.name, "' is ", *size, " in another input");
      }
      size = here;
    }
    out.sizes.push_back(*size);
  }
  if (config_.by_value) {
    out.rows = 0;
    for (size_t i = 0; i < out.inputs.size(); ++i) {
      out.tails[i] = config_.inputs[i].InModel(request.inputs[out.inputs[i]].shape);
    }
  }
  const SequenceMark& mark = request.sequence;
  if (config_.sequences && mark.id.empty()) {
    return InvalidArgument("model '", config_.name,
                           "' keeps a state: requests need a sequence_id that is not 0 or empty");
  }
  if (!config_.sequences && !mark.id.empty()) {
    return Unimplemented("model '", config_.name,
                         "' keeps no state between requests, and the "
                         "request has a sequence_id; sequence_batching in config.pbtxt makes it");
  }
  if (config_.sequences && out.rows > 1) {
    return InvalidArgument("model '", config_.name, "': a request of a sequence has a batch of ",
                           out.rows, ", expected 1");
  }
  for (const WantedOutput& wanted : request.outputs) {
    const auto spec = std::ranges::find(config_.outputs, wanted.name, &TensorSpec::name);
    if (spec == config_.outputs.end()) {
      return InvalidArgument("model '", config_.name, "' has no output '", Clip(wanted.name, 256),
                             "'");
    }
    const auto index = static_cast<size_t>(spec - config_.outputs.begin());
    if (std::ranges::find(out.outputs, index) != out.outputs.end()) {
      return InvalidArgument("model '", config_.name, "': output '", spec->name,
                             "' is asked for twice");
    }
    if (wanted.classes < 0 || wanted.classes > kMostClasses) {
      return InvalidArgument("model '", config_.name, "': output '", spec->name,
                             "': ", wanted.classes, " classes, expected 1 to ", kMostClasses);
    }
    out.outputs.push_back(index);
  }
  if (config_.batching && config_.batching->levels > 0) {
    out.level = request.priority == 0 ? config_.batching->default_level : request.priority;
    if (out.level > config_.batching->levels) {
      return InvalidArgument("model '", config_.name, "': priority ", out.level, ", expected 1 to ",
                             config_.batching->levels);
    }
  }
  out.request = std::move(request);
  return out;
}

absl::StatusOr<InputValues> ServedModel::ValuesOf(const Waiting& waiting, Tenant& tenant) const {
  int64_t bytes = 0;
  for (const size_t i : waiting.inputs) {
    const InferInput& input = waiting.request.inputs[i];
    bytes += input.bytes;
    if (input.datatype != kBytesDatatype) continue;
    bytes += NumElements(input.shape) * static_cast<int64_t>(sizeof(std::string));
  }
  TG_ASSIGN_OR_RETURN(auto taken,
                      Reservation::Take(tenant.accounts.shared(Quota::kHostStaging), bytes));
  const auto paid = std::make_shared<const Reservation>(std::move(taken));
  struct Paid {
    onnx::OnnxData data;
    std::shared_ptr<const Reservation> paid;
  };
  InputValues out;
  for (size_t i = 0; i < config_.inputs.size(); ++i) {
    const TensorSpec& spec = config_.inputs[i];
    const InferInput& input = waiting.request.inputs[waiting.inputs[i]];
    auto value = std::make_shared<Paid>();
    value->paid = paid;
    if (spec.strings) {
      value->data.kind = onnx::OnnxData::Kind::kStrings;
      value->data.strings.shape = waiting.tails[i];
      TG_ASSIGN_OR_RETURN(value->data.strings.values,
                          ReadElements(input.pieces, NumElements(input.shape)));
    } else {
      value->data.kind = onnx::OnnxData::Kind::kTensor;
      value->data.tensor = {spec.dtype, waiting.tails[i], {}};
      for (const auto& piece : input.pieces) {
        value->data.tensor.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
    }
    out[spec.name] = std::shared_ptr<const onnx::OnnxData>(value, &value->data);
  }
  return out;
}

}  // namespace telegrad
