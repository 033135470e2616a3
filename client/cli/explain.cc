// telegrad explain model.onnx: schedules and lowers a model in this process, for this machine, and
// shows what a run would consist of. No server is asked and nothing runs.
#include "engine/explain/explain.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "engine/base/status.h"
#include "engine/frontend/files.h"
#include "engine/frontend/onnx/import.h"
#include "engine/types/target.h"

namespace telegrad::cli {
namespace {

// NAME=VALUE; a name may hold "=", a value may not.
absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(std::string_view flag,
                                                                 const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) {
    return InvalidArgument("--", flag, " ", text, ": expected NAME=VALUE");
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

absl::StatusOr<int64_t> ParseSize(std::string_view flag, const std::string& text,
                                  std::string_view number) {
  int64_t size = 0;
  if (!absl::SimpleAtoi(ToAbsl(number), &size) || size < 0) {
    return InvalidArgument("--", flag, " ", text, ": \"", number, "\" is no size");
  }
  return size;
}

absl::StatusOr<ImportOptions> ExplainOptionsOf(const Flags& flags) {
  ImportOptions options;
  for (const std::string& text : flags.GetList("shape")) {
    TG_ASSIGN_OR_RETURN(const auto pair, NameAndValue("shape", text));
    Shape shape;
    if (!pair.second.empty()) {
      for (const absl::string_view part : absl::StrSplit(pair.second, 'x')) {
        TG_ASSIGN_OR_RETURN(const int64_t size, ParseSize("shape", text, ToStd(part)));
        shape.push_back(size);
      }
    }
    options.input_shapes[pair.first] = std::move(shape);
  }
  for (const std::string& text : flags.GetList("dim")) {
    TG_ASSIGN_OR_RETURN(const auto pair, NameAndValue("dim", text));
    TG_ASSIGN_OR_RETURN(options.dims[pair.first], ParseSize("dim", text, pair.second));
  }
  return options;
}

}  // namespace

absl::Status Explain(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one ONNX file");
  TG_ASSIGN_OR_RETURN(const ImportOptions options, ExplainOptionsOf(flags));
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(flags.positional()[0]));
  const auto model = ImportOnnx(file, options);
  if (absl::IsInvalidArgument(model.status())) {
    return InvalidArgument(ToStd(model.status().message()),
                           " (sizes are given with --dim, shapes with --shape)");
  }
  TG_RETURN_IF_ERROR(model.status());
  Budget budget;
  const Target shape = HostShape(static_cast<int>(flags.GetInt("threads")));
  TG_ASSIGN_OR_RETURN(const Explanation explanation,
                      ExplainGraph(model->plan.graph.root(), {}, shape, &budget));
  std::vector<std::string> names;
  for (const Slot& slot : model->plan.slots) names.push_back(slot.name);
  if (const std::string& page = flags.GetString("html"); !page.empty()) {
    const std::string title = std::filesystem::path(flags.positional()[0]).filename();
    TG_RETURN_IF_ERROR(WriteFile(page, ToHtml(explanation, names, title, shape.threads)));
    std::printf("wrote %s; open it in a browser\n", page.c_str());
    return absl::OkStatus();
  }
  const std::string text =
      flags.GetBool("json") ? ToJson(explanation, names) : ToText(explanation, names);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
