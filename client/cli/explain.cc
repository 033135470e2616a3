// telegrad explain model.onnx: schedules and lowers a model in this process, for this machine, and
// shows what a run would consist of. It needs no server and runs no kernel.
#include "engine/explain/explain.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/import_options.h"
#include "client/cli/onnx_data.h"
#include "client/terminal/printable.h"
#include "client/terminal/progress.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/external_data.h"
#include "engine/frontend/onnx/import.h"
#include "engine/types/target.h"

namespace telegrad::cli {

absl::Status Explain(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one ONNX file");
  TG_ASSIGN_OR_RETURN(ImportOptions options, ImportOptionsOf(flags));
  const std::string& page = flags.GetString("html");
  if (!page.empty()) TG_RETURN_IF_ERROR(CheckWritable(page));
  const std::string& path = flags.positional()[0];
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  ExternalFiles external(FolderOf(path));
  options.external = [&](std::string_view location) { return external.Content(location); };
  auto progress = std::make_unique<Progress>(StrCat("importing ", path));
  const auto model = ImportOnnx(file, options);
  if (IsOptionsError(model.status())) {
    return InvalidArgument(ToStd(model.status().message()),
                           " (sizes are given with --dim, shapes with --shape)");
  }
  if (!model.ok()) return OfModelFile(path, model.status());
  Budget budget;
  Target shape = HostShape(static_cast<int>(flags.GetInt("threads")));
  shape.deterministic = flags.GetBool("deterministic");
  progress = std::make_unique<Progress>("scheduling");
  const auto lowered = [&](int64_t done, int64_t total) {
    if (done == 0) progress = std::make_unique<Progress>("lowering", total, "kernels");
    progress->Done(done);
  };
  TG_ASSIGN_OR_RETURN(const Explanation explanation,
                      ExplainGraph(model->plan.graph.root(), {}, shape, &budget, lowered));
  progress = nullptr;
  std::vector<std::string> names;
  for (const Slot& slot : model->plan.slots) names.push_back(slot.name);
  if (!page.empty()) {
    const std::string title = std::filesystem::path(path).filename();
    TG_RETURN_IF_ERROR(WriteFile(page, ToHtml(explanation, names, title, shape.threads)));
    std::printf("wrote %s; open it in a browser\n", page.c_str());
    return absl::OkStatus();
  }
  const std::string text = flags.GetBool("json") ? ToJson(explanation, names)
                                                 : PrintableLines(ToText(explanation, names));
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
