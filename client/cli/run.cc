// telegrad run model.onnx -i x.npy -o y.npy: runs an ONNX model, or a plan, on the server.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/import_options.h"
#include "client/cli/model_session.h"
#include "client/cli/timeline.h"
#include "client/terminal/progress.h"
#include "engine/base/files.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

using onnx::OnnxData;

absl::StatusOr<double> ParseTolerance(const Flags& flags, std::string_view name) {
  const std::string& text = flags.GetString(name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0)) {
    return InvalidArgument("--", name, ": expected a number from 0, got ", text);
  }
  return value;
}

struct Settings {
  std::string path, timeline, verify;
  std::vector<std::string> inputs, outputs, expected;
  Tolerance tolerance;
  ModelOptions model;
};

absl::StatusOr<Settings> ParseSettings(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one ONNX file or plan");
  Settings s{flags.positional()[0],
             flags.GetString("timeline"),
             flags.GetString("verify"),
             flags.GetList("input"),
             flags.GetList("output"),
             flags.GetList("expect"),
             {},
             {flags.GetBool("server-import"), {}}};
  TG_ASSIGN_OR_RETURN(s.model.ranges, DimRangesOf(flags));
  TG_ASSIGN_OR_RETURN(s.tolerance.rtol, ParseTolerance(flags, "rtol"));
  TG_ASSIGN_OR_RETURN(s.tolerance.atol, ParseTolerance(flags, "atol"));
  for (const std::string& out : s.outputs) {
    if (!IsWritable(out)) return InvalidArgument(out, ": expected .npy or .pb");
    TG_RETURN_IF_ERROR(CheckReplaceable(out));
  }
  if (!s.timeline.empty()) TG_RETURN_IF_ERROR(CheckWritable(s.timeline));
  if (!s.verify.empty() && !(s.inputs.empty() && s.outputs.empty() && s.expected.empty())) {
    return InvalidArgument(
        "--verify uses the inputs and outputs of its folder; omit -i, -o and -x");
  }
  return s;
}

absl::StatusOr<std::vector<OnnxData>> ReadAll(const std::vector<std::string>& paths,
                                              const std::vector<onnx::ValueInfo>& types) {
  std::vector<OnnxData> out;
  for (size_t i = 0; i < paths.size(); ++i) {
    const onnx::ValueInfo type = i < types.size() ? types[i] : onnx::ValueInfo();
    TG_ASSIGN_OR_RETURN(out.emplace_back(), ReadOnnxData(paths[i], type));
  }
  return out;
}

// False also where a path is too long or leads through a folder that may not be read.
bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// FOLDER/PREFIX_0.pb, FOLDER/PREFIX_1.pb, ...
std::vector<std::string> Numbered(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> out;
  while (true) {
    std::string path = StrCat(folder, "/", prefix, "_", out.size(), ".pb");
    if (!Exists(path)) return out;
    out.push_back(std::move(path));
  }
}

absl::Status CompareAll(const Settings& settings, const std::vector<std::string>& paths,
                        const ModelSession& model, const std::vector<OnnxData>& got) {
  TG_ASSIGN_OR_RETURN(const std::vector<OnnxData> want, ReadAll(paths, model.outputs()));
  for (size_t i = 0; i < want.size(); ++i) {
    const absl::StatusOr<double> worst = LargestError(want[i], got[i], settings.tolerance);
    if (!worst.ok()) {
      return absl::Status(worst.status().code(),
                          StrCat(paths[i], ": ", ToStd(worst.status().message())));
    }
    std::printf("%s: matches, largest error %.3g\n", paths[i].c_str(), *worst);
  }
  return absl::OkStatus();
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

// A connection that is made when it is first needed.
struct Server {
  const Flags& flags;
  std::shared_ptr<Connection> connection = nullptr;
  std::unique_ptr<RemoteSession> session = nullptr;

  absl::StatusOr<RemoteSession*> Open(Timeline* timeline) {
    if (session != nullptr) return session.get();
    timeline->Begin("connect");
    TG_ASSIGN_OR_RETURN(connection, Connect(flags));
    TG_ASSIGN_OR_RETURN(session, connection->OpenSession());
    return session.get();
  }
};

// Runs the model on these inputs.
absl::StatusOr<std::vector<OnnxData>> RunInputs(const Settings& settings, ModelSession* model,
                                                std::vector<OnnxData> inputs, Server* server,
                                                Timeline* timeline) {
  timeline->Begin("import");
  {
    const Progress progress(StrCat("importing ", settings.path));
    TG_RETURN_IF_ERROR(model->Import(std::move(inputs)));
  }
  TG_ASSIGN_OR_RETURN(RemoteSession * session, server->Open(timeline));
  absl::StatusOr<RunInfo> run;
  {
    // What is sent goes on while the server compiles.
    const Progress progress(SessionLine(
        *session, "sending the model",
        settings.model.server_import ? "importing on the server" : "compiling and running"));
    timeline->Begin("send model and inputs");
    TG_RETURN_IF_ERROR(model->Send(session));
    run = RunOnce(settings, session, model->plan(), timeline);
  }
  if (!run.ok()) return run.status();
  std::printf("%s: %d kernels, %s, %.3f ms on the device\n", settings.path.c_str(), run->kernels,
              run->cached ? "compiled before"
                          : StrCat("compiled in ", run->compile_ns / 1'000'000, " ms").c_str(),
              static_cast<double>(run->device_ns) * 1e-6);
  timeline->Begin("read results");
  const Progress progress(SessionLine(*session, "reading results", "reading results"));
  return model->Results();
}

absl::Status RunGiven(const Settings& settings, ModelSession* model, Server* server,
                      Timeline* timeline) {
  const size_t outputs = model->outputs().size();
  if (settings.outputs.size() > outputs || settings.expected.size() > outputs) {
    return InvalidArgument("the model has ", outputs, " outputs");
  }
  TG_ASSIGN_OR_RETURN(std::vector<OnnxData> inputs, ReadAll(settings.inputs, model->inputs()));
  TG_ASSIGN_OR_RETURN(const std::vector<OnnxData> got,
                      RunInputs(settings, model, std::move(inputs), server, timeline));
  for (size_t i = 0; i < settings.outputs.size(); ++i) {
    TG_RETURN_IF_ERROR(WriteOnnxData(settings.outputs[i], got[i], model->outputs()[i].name));
  }
  return CompareAll(settings, settings.expected, *model, got);
}

// Every set is run, whatever the ones before gave.
absl::Status Verify(const Settings& settings, ModelSession* model, Server* server,
                    Timeline* timeline) {
  int sets = 0, failed = 0;
  for (;; ++sets) {
    const std::string folder = StrCat(settings.verify, "/test_data_set_", sets);
    if (!Exists(folder)) break;
    const std::vector<std::string> expected = Numbered(folder, "output");
    if (expected.empty() || expected.size() > model->outputs().size()) {
      return InvalidArgument(folder, " has ", expected.size(), " outputs, the model ",
                             model->outputs().size());
    }
    TG_ASSIGN_OR_RETURN(std::vector<OnnxData> inputs,
                        ReadAll(Numbered(folder, "input"), model->inputs()));
    TG_ASSIGN_OR_RETURN(const std::vector<OnnxData> got,
                        RunInputs(settings, model, std::move(inputs), server, timeline));
    const absl::Status status = CompareAll(settings, expected, *model, got);
    if (status.ok()) continue;
    ++failed;
    std::printf("%s\n", std::string(status.message()).c_str());
  }
  if (sets == 0) return InvalidArgument(settings.verify, " has no test_data_set_0");
  if (failed > 0) return FailedPrecondition(failed, " of ", sets, " data sets differ");
  std::printf("%s: %d data sets match, %d imports\n", settings.path.c_str(), sets,
              model->imports());
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const Flags& flags) {
  TG_ASSIGN_OR_RETURN(const Settings settings, ParseSettings(flags));
  Timeline timeline;
  timeline.Begin("read files");
  TG_ASSIGN_OR_RETURN(const auto model, OpenModel(settings.path, settings.model));
  Server server{flags};
  TG_RETURN_IF_ERROR(settings.verify.empty() ? RunGiven(settings, model.get(), &server, &timeline)
                                             : Verify(settings, model.get(), &server, &timeline));
  timeline.End();
  if (settings.timeline.empty()) return absl::OkStatus();
  return WriteFile(settings.timeline, timeline.ToJson());
}

}  // namespace telegrad::cli
