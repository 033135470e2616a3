// telegrad models: what a server serves over the Open Inference Protocol.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "client/cc/model_client.h"
#include "client/cli/command.h"
#include "client/terminal/printable.h"
#include "client/terminal/progress.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

constexpr int64_t kMostTried = 1 << 24;  // elements of an input of "try"
constexpr size_t kMostShown = 8;         // values of an output

std::string TensorText(const ModelTensor& tensor) {
  return StrCat(Printable(tensor.name), " ", tensor.datatype, " ", ToString(tensor.shape));
}

absl::Status ListModels(ModelClient& client) {
  TG_ASSIGN_OR_RETURN(const auto rows, client.List());
  for (const ModelRow& row : rows) {
    std::printf("%-30s %-8s %-12s %s\n", row.name.c_str(), row.version.c_str(), row.state.c_str(),
                PrintableLines(row.reason).c_str());
  }
  if (rows.empty()) std::printf("there are no models\n");
  return absl::OkStatus();
}

absl::Status ShowModel(ModelClient& client, const std::string& model) {
  TG_ASSIGN_OR_RETURN(const ModelInfo info, client.Describe(model));
  std::string versions;
  for (const std::string& v : info.versions) StrAppend(&versions, versions.empty() ? "" : ", ", v);
  std::printf("model    %s\nversions %s\n", info.name.c_str(), versions.c_str());
  for (const ModelTensor& t : info.inputs) std::printf("input    %s\n", TensorText(t).c_str());
  for (const ModelTensor& t : info.outputs) std::printf("output   %s\n", TensorText(t).c_str());
  return absl::OkStatus();
}

absl::Status ShowStatistics(ModelClient& client, const std::string& model) {
  TG_ASSIGN_OR_RETURN(const auto rows, client.Statistics(model));
  std::printf("%-30s %-8s %12s %12s %10s %12s %12s %12s %14s\n", "model", "version", "inferences",
              "executions", "failed", "ms", "ms queued", "ms computed", "weights");
  for (const ModelCounts& row : rows) {
    const auto each = [&](uint64_t ns) {
      return row.succeeded == 0
                 ? 0.0
                 : static_cast<double>(ns) / static_cast<double>(row.succeeded) / 1e6;
    };
    std::printf("%-30s %-8s %12llu %12llu %10llu %12.3f %12.3f %12.3f %14llu\n", row.name.c_str(),
                row.version.c_str(), static_cast<unsigned long long>(row.inferences),
                static_cast<unsigned long long>(row.executions),
                static_cast<unsigned long long>(row.failed), each(row.total_ns), each(row.queue_ns),
                each(row.compute_ns), static_cast<unsigned long long>(row.memory));
  }
  return absl::OkStatus();
}

// A request with integers of 1 and floats of 0, every open size 1: whether the model answers, and
// with what.
absl::Status TryModel(ModelClient& client, const std::string& model) {
  TG_ASSIGN_OR_RETURN(const ModelInfo info, client.Describe(model));
  std::vector<NamedTensor> inputs;
  for (const ModelTensor& t : info.inputs) {
    Shape shape = t.shape;
    std::ranges::replace(shape, -1, 1);
    const DType dtype = DTypeOfDatatype(t.datatype);
    if (dtype == DType::kVoid) {
      return Unimplemented("input ", TensorText(t), " cannot be made up: only numbers are");
    }
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(dtype, shape));
    if (NumElements(shape) > kMostTried) {
      return Unimplemented("input ", TensorText(t), " cannot be made up: it is too large");
    }
    HostTensor value{dtype, shape, std::string(static_cast<size_t>(bytes), '\0')};
    // The lowest byte of an integer's 1; floats stay 0.
    for (size_t i = 0; !IsFloat(dtype) && i < value.bytes.size();
         i += static_cast<size_t>(ByteSize(dtype))) {
      value.bytes[i] = 1;
    }
    inputs.push_back({t.name, std::move(value)});
  }
  auto progress = std::make_unique<Progress>(StrCat("running ", model));
  TG_ASSIGN_OR_RETURN(const auto outputs, client.Infer(model, "", inputs));
  progress = nullptr;
  for (const NamedTensor& output : outputs) {
    std::printf("%s %s %s", Printable(output.name).c_str(),
                std::string(Name(output.tensor.dtype)).c_str(),
                ToString(output.tensor.shape).c_str());
    const std::vector<double> values = output.tensor.AsDoubles();
    for (size_t i = 0; i < std::min(values.size(), kMostShown); ++i) std::printf(" %g", values[i]);
    std::printf("%s\n", values.size() > kMostShown ? " ..." : "");
  }
  return absl::OkStatus();
}

}  // namespace

std::string ModelsDetails() {
  return "  list                      lists the models with their states (the default)\n"
         "  load NAME                 loads a model, or loads its folder again\n"
         "  unload NAME               unloads a model\n"
         "  status NAME               shows versions, inputs and outputs of a model\n"
         "  statistics [NAME]         shows requests, runs, failures and times\n"
         "  try NAME                  sends a made-up request and prints the answer\n";
}

absl::Status Models(const Flags& flags) {
  std::vector<std::string> words(flags.positional().begin(), flags.positional().end());
  if (words.empty()) words.push_back("list");
  const std::string& what = words[0];
  const size_t names = words.size() - 1;
  const bool takes_none = what == "list";
  const bool takes_one = what == "load" || what == "unload" || what == "status" || what == "try";
  if (!takes_none && !takes_one && what != "statistics") {
    return InvalidArgument("\"", what,
                           "\" is none of list, load, unload, status, statistics and try");
  }
  if ((takes_one && names != 1) || (takes_none && names != 0) || names > 1) {
    return InvalidArgument("\"", what, "\" takes ", takes_one ? "one model" : "no more words");
  }
  TG_ASSIGN_OR_RETURN(auto connection, Connect(flags));
  ModelClient client(std::move(connection));
  if (takes_none) return ListModels(client);
  if (what == "load" || what == "unload") {
    const Progress progress(StrCat(what, "ing ", words[1]));
    return what == "load" ? client.Load(words[1]) : client.Unload(words[1]);
  }
  if (what == "status") return ShowModel(client, words[1]);
  if (what == "try") return TryModel(client, words[1]);
  return ShowStatistics(client, names == 1 ? words[1] : "");
}

}  // namespace telegrad::cli
