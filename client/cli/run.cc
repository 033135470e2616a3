// telegrad run model.onnx -i x.npy -o y.npy: runs an ONNX model on the server.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "client/cc/remote_import.h"
#include "client/cc/remote_plan.h"
#include "client/cli/command.h"
#include "client/cli/progress.h"
#include "client/cli/timeline.h"
#include "engine/base/status.h"
#include "engine/frontend/files.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/state/byte_sink.h"
#include "engine/frontend/state/npy.h"
#include "engine/frontend/state/tensor_file.h"

namespace telegrad::cli {
namespace {

bool EndsWith(const std::string& s, std::string_view suffix) {
  return s.size() >= suffix.size() &&
         s.compare(s.size() - suffix.size(), suffix.size(), suffix) == 0;
}

absl::StatusOr<HostTensor> ReadTensor(const std::string& path) {
  if (!EndsWith(path, ".pb")) {
    TG_ASSIGN_OR_RETURN(const auto file, OpenTensorFile(path));
    if (file->tensors().size() != 1) {
      return InvalidArgument(path, " holds ", file->tensors().size(), " tensors, expected one");
    }
    return file->Load(file->tensors()[0]);
  }
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  absl::StatusOr<HostTensor> tensor = onnx::ReadTensorFile(file);
  if (!tensor.ok()) {
    return absl::Status(tensor.status().code(),
                        StrCat(path, ": ", ToStd(tensor.status().message())));
  }
  return tensor;
}

absl::Status WriteTensor(const std::string& path, const HostTensor& tensor, std::string_view name) {
  if (!EndsWith(path, ".pb")) {
    return SaveFile(path, [&](ByteSink* sink) { return WriteNpy(tensor, sink); });
  }
  TG_ASSIGN_OR_RETURN(const std::string file, onnx::WriteTensorFile(tensor, name));
  return WriteFile(path, file);
}

// The inputs that a caller provides: those without an initializer of the same name.
std::vector<std::string> InputNames(const onnx::Model& model) {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& input : model.inputs) {
    if (std::ranges::find(model.initializers, input.name, &onnx::TensorProto::name) ==
        model.initializers.end()) {
      names.emplace_back(input.name);
    }
  }
  return names;
}

absl::StatusOr<double> Tolerance(const Flags& flags, std::string_view name) {
  const std::string& text = flags.GetString(name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0)) {
    return InvalidArgument("--", name, ": expected a number from 0, got ", text);
  }
  return value;
}

// The largest excess over the tolerance, as numpy.allclose counts it; an error if types or shapes
// differ.
absl::Status Compare(const std::string& path, const HostTensor& want, const HostTensor& got,
                     double rtol, double atol) {
  if (want.dtype != got.dtype || want.shape != got.shape) {
    return FailedPrecondition(path, ": expected ", Name(want.dtype), " ", ToString(want.shape),
                              ", got ", Name(got.dtype), " ", ToString(got.shape));
  }
  const std::vector<double> a = want.AsDoubles(), b = got.AsDoubles();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::abs(a[i] - b[i]);
    if (!(error <= atol + rtol * std::abs(a[i]))) {
      return FailedPrecondition(path, ": element ", i, " is ", b[i], ", expected ", a[i],
                                " within rtol ", rtol, " and atol ", atol);
    }
    worst = std::max(worst, error);
  }
  std::printf("%s: matches, largest error %.3g\n", path.c_str(), worst);
  return absl::OkStatus();
}

struct Settings {
  std::string path, timeline;
  std::vector<std::string> inputs, outputs, expected;
  double rtol = 0, atol = 0;
  bool server_import = false;
};

absl::StatusOr<Settings> ParseSettings(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one ONNX file");
  Settings s{flags.positional()[0], flags.GetString("timeline"), flags.GetList("input"),
             flags.GetList("output"), flags.GetList("expect")};
  TG_ASSIGN_OR_RETURN(s.rtol, Tolerance(flags, "rtol"));
  TG_ASSIGN_OR_RETURN(s.atol, Tolerance(flags, "atol"));
  s.server_import = flags.GetBool("server-import");
  for (const std::string& out : s.outputs) {
    if (!EndsWith(out, ".npy") && !EndsWith(out, ".pb")) {
      return InvalidArgument(out, ": expected .npy or .pb");
    }
  }
  return s;
}

// A model with what is bound to its inputs.
struct Bound {
  std::shared_ptr<const std::string> file;  // in which the model's weights lie
  std::optional<OnnxPlan> model;            // unless the server imports it
  ImportOptions options;
  std::vector<HostTensor> inputs;
  std::vector<std::string> outputs;  // their names
};

absl::StatusOr<Bound> ReadModel(const Settings& settings, Timeline* timeline) {
  timeline->Begin("read files");
  Bound out;
  TG_ASSIGN_OR_RETURN(std::string file, ReadFile(settings.path));
  out.file = std::make_shared<const std::string>(std::move(file));
  TG_ASSIGN_OR_RETURN(const onnx::Model parsed, onnx::ParseModel(*out.file));
  const std::vector<std::string> names = InputNames(parsed);
  if (settings.inputs.size() != names.size()) {
    return InvalidArgument("the model has ", names.size(), " inputs (", absl::StrJoin(names, ", "),
                           "), ", settings.inputs.size(), " were given with -i");
  }
  for (const onnx::ValueInfo& output : parsed.outputs) out.outputs.emplace_back(output.name);
  const size_t outputs = out.outputs.size();
  if (settings.outputs.size() > outputs || settings.expected.size() > outputs) {
    return InvalidArgument("the model has ", outputs, " outputs");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    TG_ASSIGN_OR_RETURN(HostTensor value, ReadTensor(settings.inputs[i]));
    out.options.input_shapes.emplace(names[i], value.shape);
    out.inputs.push_back(std::move(value));
  }
  if (settings.server_import) return out;
  timeline->Begin("import");
  TG_ASSIGN_OR_RETURN(out.model, ImportOnnx(*out.file, out.options));
  return out;
}

absl::StatusOr<std::unique_ptr<RemotePlan>> SendModel(RemoteSession* session, const Bound& bound) {
  if (!bound.model) {
    const std::string& file = *bound.file;
    const Future<RemoteModel> model = session->Import(
        std::as_bytes(std::span(file.data(), file.size())), {.model = bound.options}, bound.file);
    if (!model.Get().ok()) return model.Get().status();
    return RemotePlan::Create(session, *model.Get());
  }
  RemoteState state(session);
  std::map<std::string, HostTensor> weights;
  for (const OnnxWeight& w : bound.model->weights) {
    weights.emplace(bound.model->plan.slots[w.slot].name, bound.model->Value(w));
  }
  state.Preset(std::move(weights));
  return RemotePlan::Create(session, &state, bound.model->plan);
}

// The names of a plan's slots of that role, in the model's order.
std::vector<std::string> SlotNames(const RemotePlan& plan, SlotRole role) {
  std::vector<std::string> out;
  for (const Slot& slot : plan.slots()) {
    if (slot.role == role) out.push_back(slot.name);
  }
  return out;
}

// Sends the model and its inputs.
absl::StatusOr<std::unique_ptr<RemotePlan>> Send(RemoteSession* session, const Bound& bound) {
  TG_ASSIGN_OR_RETURN(auto plan, SendModel(session, bound));
  const std::vector<std::string> names = SlotNames(*plan, SlotRole::kInput);
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    TG_RETURN_IF_ERROR(plan->Set(names[i], bound.inputs[i]));
  }
  return plan;
}

absl::StatusOr<RunInfo> RunOnce(const Settings& settings, RemoteSession* session, RemotePlan* plan,
                                Timeline* timeline) {
  const bool traced = !settings.timeline.empty();
  if (traced) {  // so that the run begins when it is asked for
    const Future<Done> sent = session->Sync();
    if (!sent.Get().ok()) return sent.Get().status();
  }
  timeline->Begin("run");
  const Future<RunInfo> future = traced ? plan->RunTraced() : plan->RunTimed();
  const absl::StatusOr<RunInfo>& run = future.Get();
  if (run.ok()) timeline->AddRun(*run);
  return run;
}

absl::Status ReadResults(const Settings& settings, const Bound& bound, RemotePlan* plan) {
  const std::vector<std::string> names = SlotNames(*plan, SlotRole::kOutput);
  for (size_t i = 0; i < names.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const HostTensor got, plan->Read(names[i]));
    if (i < settings.outputs.size()) {
      TG_RETURN_IF_ERROR(WriteTensor(settings.outputs[i], got, bound.outputs[i]));
    }
    if (i < settings.expected.size()) {
      TG_ASSIGN_OR_RETURN(const HostTensor want, ReadTensor(settings.expected[i]));
      TG_RETURN_IF_ERROR(Compare(settings.expected[i], want, got, settings.rtol, settings.atol));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const Flags& flags) {
  TG_ASSIGN_OR_RETURN(const Settings settings, ParseSettings(flags));
  Timeline timeline;
  TG_ASSIGN_OR_RETURN(const Bound bound, ReadModel(settings, &timeline));
  timeline.Begin("connect");
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  Progress progress("sending the model");
  timeline.Begin("send model and inputs");
  TG_ASSIGN_OR_RETURN(const auto plan, Send(session.get(), bound));
  progress.Say("compiling and running");
  TG_ASSIGN_OR_RETURN(const RunInfo run, RunOnce(settings, session.get(), plan.get(), &timeline));
  progress.Say("reading results");
  progress.Clear();
  std::printf("%s: %d kernels, %s, %.3f ms on the device\n", settings.path.c_str(), run.kernels,
              run.cached ? "compiled before"
                         : StrCat("compiled in ", run.compile_ns / 1'000'000, " ms").c_str(),
              static_cast<double>(run.device_ns) * 1e-6);
  timeline.Begin("read results");
  TG_RETURN_IF_ERROR(ReadResults(settings, bound, plan.get()));
  timeline.End();
  if (settings.timeline.empty()) return absl::OkStatus();
  return WriteFile(settings.timeline, timeline.ToJson());
}

}  // namespace telegrad::cli
