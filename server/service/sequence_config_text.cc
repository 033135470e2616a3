// Checks control inputs, states and times of sequences, and converts them in both directions.
#include "server/service/sequence_config_text.h"

#include <string>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

using In = inference::ModelSequenceBatching;
using Kind = SequenceControl::Kind;

constexpr int kMostControls = 16, kMostStates = 256;
constexpr uint64_t kMostUs = uint64_t{86'400} * 1'000'000;
constexpr int64_t kMostCandidates = 65'536;

constexpr std::pair<inference::DataType, DType> kNumberTypes[] = {
    {inference::TYPE_UINT64, DType::kUInt64},
    {inference::TYPE_INT64, DType::kInt64},
    {inference::TYPE_UINT32, DType::kUInt32},
    {inference::TYPE_INT32, DType::kInt32}};
constexpr std::pair<In::Control::Kind, Kind> kKinds[] = {
    {In::Control::CONTROL_SEQUENCE_START, Kind::kStart},
    {In::Control::CONTROL_SEQUENCE_READY, Kind::kReady},
    {In::Control::CONTROL_SEQUENCE_END, Kind::kEnd},
    {In::Control::CONTROL_SEQUENCE_CORRID, Kind::kId}};

absl::StatusOr<int64_t> CheckedUs(uint64_t us, std::string_view what) {
  if (us <= kMostUs) return static_cast<int64_t>(us);
  return InvalidArgument(what, " is ", us, ", expected at most ", kMostUs, ", a day");
}

template <typename Values>
absl::Status TakeFlag(const Values& values, DType dtype, const std::string& name, int* said,
                      SequenceControl* out) {
  if (values.empty()) return absl::OkStatus();
  ++*said;
  if (values.size() != 2) {
    return InvalidArgument("control_input '", Clip(name, 64), "': expected two values, for false ",
                           "and true, got ", values.size());
  }
  out->spec.dtype = dtype;
  out->if_false = static_cast<double>(values.Get(0));
  out->if_true = static_cast<double>(values.Get(1));
  return absl::OkStatus();
}

absl::StatusOr<SequenceControl> ReadSequenceControl(const In::ControlInput& in) {
  if (in.name().empty() || in.control_size() != 1) {
    return InvalidArgument("a control_input needs a name and one control, '", Clip(in.name(), 64),
                           "' has ", in.control_size());
  }
  const In::Control& control = in.control(0);
  SequenceControl out{.spec = {.name = in.name(), .dtype = DType::kVoid, .shape = {}}};
  bool known = false;
  for (const auto& [wire, kind] : kKinds) {
    if (wire != control.kind()) continue;
    out.kind = kind;
    known = true;
  }
  if (!known) return InvalidArgument("control_input '", Clip(in.name(), 64), "' has no known kind");
  int said = 0;
  TG_RETURN_IF_ERROR(TakeFlag(control.int32_false_true(), DType::kInt32, in.name(), &said, &out));
  TG_RETURN_IF_ERROR(TakeFlag(control.fp32_false_true(), DType::kFloat32, in.name(), &said, &out));
  TG_RETURN_IF_ERROR(TakeFlag(control.bool_false_true(), DType::kBool, in.name(), &said, &out));
  if (out.kind != Kind::kId) {
    if (said == 1) return out;
    return InvalidArgument("control_input '", Clip(in.name(), 64),
                           "': expected one of int32_false_true, fp32_false_true and "
                           "bool_false_true");
  }
  for (const auto& [wire, dtype] : kNumberTypes) {
    if (wire == control.data_type()) out.spec.dtype = dtype;
  }
  if (said == 0 && out.spec.dtype != DType::kVoid) return out;
  return InvalidArgument("control_input '", Clip(in.name(), 64),
                         "': a CORRID has a data_type of TYPE_UINT64, INT64, UINT32 or INT32");
}

absl::StatusOr<SequenceState> ReadSequenceState(const In::State& in) {
  if (in.input_name().empty() || in.output_name().empty()) {
    return InvalidArgument("a state of sequence_batching needs an input_name and an output_name");
  }
  for (const auto& initial : in.initial_state()) {
    if (initial.state_data_case() == In::InitialState::kDataFile) {
      return Unimplemented("state '", Clip(in.input_name(), 64),
                           "': a state begins with zeros, not with a data_file");
    }
  }
  if (in.use_growable_memory()) {
    return Unimplemented("state '", Clip(in.input_name(), 64), "': its size is fixed");
  }
  Shape dims;
  for (const int64_t dim : in.dims()) {
    if (dim < 0) {
      return Unimplemented("state '", Clip(in.input_name(), 64), "' has the dimension ", dim,
                           "; the size of a state is fixed");
    }
    dims.push_back(dim);
  }
  SequenceState out;
  out.in = {.name = in.input_name(), .dtype = DType::kVoid, .shape = dims};
  out.out = {.name = in.output_name(), .dtype = DType::kVoid, .shape = dims};
  return out;
}

}  // namespace

absl::StatusOr<SequenceBatching> ReadSequences(const In& in) {
  SequenceBatching out;
  if (in.control_input_size() > kMostControls || in.state_size() > kMostStates) {
    return ResourceExhausted("sequence_batching has ", in.control_input_size(), " controls and ",
                             in.state_size(), " states; the limits are ", kMostControls, " and ",
                             kMostStates);
  }
  if (in.iterative_sequence()) return Unimplemented("iterative_sequence is not supported");
  if (in.max_sequence_idle_microseconds() > 0) {
    TG_ASSIGN_OR_RETURN(out.idle_us, CheckedUs(in.max_sequence_idle_microseconds(),
                                               "max_sequence_idle_microseconds"));
  }
  if (in.has_oldest()) {
    out.oldest = true;
    out.candidates = in.oldest().max_candidate_sequences();
    if (out.candidates < 0 || out.candidates > kMostCandidates) {
      return InvalidArgument("max_candidate_sequences is ", out.candidates, ", expected 0 to ",
                             kMostCandidates);
    }
    TG_ASSIGN_OR_RETURN(out.delay_us, CheckedUs(in.oldest().max_queue_delay_microseconds(),
                                                "max_queue_delay_microseconds"));
  } else {
    TG_ASSIGN_OR_RETURN(out.delay_us, CheckedUs(in.direct().max_queue_delay_microseconds(),
                                                "max_queue_delay_microseconds"));
  }
  for (const auto& control : in.control_input()) {
    TG_ASSIGN_OR_RETURN(SequenceControl read, ReadSequenceControl(control));
    out.controls.push_back(std::move(read));
  }
  for (const auto& state : in.state()) {
    TG_ASSIGN_OR_RETURN(SequenceState read, ReadSequenceState(state));
    out.states.push_back(std::move(read));
  }
  return out;
}

void WriteSequences(const SequenceBatching& sequences, bool batches, In* out) {
  out->set_max_sequence_idle_microseconds(static_cast<uint64_t>(sequences.idle_us));
  if (sequences.oldest) {
    out->mutable_oldest()->set_max_candidate_sequences(static_cast<int32_t>(sequences.candidates));
    out->mutable_oldest()->set_max_queue_delay_microseconds(
        static_cast<uint64_t>(sequences.delay_us));
  } else {
    out->mutable_direct()->set_max_queue_delay_microseconds(
        static_cast<uint64_t>(sequences.delay_us));
  }
  for (const SequenceControl& control : sequences.controls) {
    auto* input = out->add_control_input();
    input->set_name(control.spec.name);
    auto* to = input->add_control();
    for (const auto& [wire, kind] : kKinds) {
      if (kind == control.kind) to->set_kind(wire);
    }
    for (const auto& [wire, dtype] : kNumberTypes) {
      if (control.kind == Kind::kId && dtype == control.spec.dtype) to->set_data_type(wire);
    }
    if (control.kind == Kind::kId) continue;
    for (const double value : {control.if_false, control.if_true}) {
      if (control.spec.dtype == DType::kInt32) to->add_int32_false_true(static_cast<int>(value));
      if (control.spec.dtype == DType::kFloat32) to->add_fp32_false_true(static_cast<float>(value));
      if (control.spec.dtype == DType::kBool) to->add_bool_false_true(value != 0);
    }
  }
  for (const SequenceState& state : sequences.states) {
    auto* to = out->add_state();
    to->set_input_name(state.in.name);
    to->set_output_name(state.out.name);
    for (size_t i = batches ? 1 : 0; i < state.in.shape.size(); ++i) {
      to->add_dims(state.in.shape[i]);
    }
  }
}

}  // namespace telegrad
