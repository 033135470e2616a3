// onnx_conformance: cases of the ONNX project's backend tests on the CPU device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "tests/conformance/run_graph.h"
#include "tests/onnx/case.h"
#include "tests/onnx/sweep.h"

namespace telegrad::testing {
namespace {

constexpr std::string_view kHelp =
    R"(onnx_conformance [--jobs N] [--timeout S] [--list] [--all] [--by-shape] FOLDER [NAME...]

Runs the ONNX cases in FOLDER (CASE/model.onnx with CASE/test_data_set_N/{input,output}_N.pb) on the
CPU device and compares types, shapes and values. FOLDER may also be given by TELEGRAD_ONNX_CASES.
NAME... takes the cases of those operators (as FOLDER/manifest.tsv has them) and those whose names
contain one of them; "=NAME" the case of that name.

  --jobs N     processes at a time (default 2)
  --timeout S  seconds that a case may take (default 60)
  --list       only print the names of the cases
  --all        list the cases that passed as well
  --by-shape   import for the shapes of the inputs, without their values

Prints a table by operator and each failure with its message. Exit code 0: all passed, 1: not all,
2: wrong usage.
)";

struct Settings {
  std::string folder;
  std::vector<std::string> names;
  SweepOptions sweep{.jobs = 2, .timeout_s = 60};
  bool list = false, all = false, help = false, by_shape = false;
};

absl::StatusOr<Settings> ParseArguments(const std::vector<std::string>& arguments) {
  Settings out;
  if (const char* folder = std::getenv("TELEGRAD_ONNX_CASES")) out.folder = folder;
  bool has_folder = !out.folder.empty();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& arg = arguments[i];
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arg == "--help") {
      out.help = true;
    } else if (arg == "--list") {
      out.list = true;
    } else if (arg == "--all") {
      out.all = true;
    } else if (arg == "--by-shape") {
      out.by_shape = true;
    } else if (arg == "--jobs") {
      if (!absl::SimpleAtoi(value, &out.sweep.jobs) || out.sweep.jobs < 1) {
        return InvalidArgument("--jobs: expected a number from 1, got '", value, "'");
      }
      ++i;
    } else if (arg == "--timeout") {
      if (!absl::SimpleAtod(value, &out.sweep.timeout_s) || !(out.sweep.timeout_s > 0)) {
        return InvalidArgument("--timeout: expected seconds, got '", value, "'");
      }
      ++i;
    } else if (arg.starts_with("--")) {
      return InvalidArgument("unknown flag ", arg, "; see --help");
    } else if (!has_folder) {
      out.folder = arg;
      has_folder = true;
    } else {
      out.names.push_back(arg);
    }
  }
  if (!has_folder && !out.help) return InvalidArgument("expected a folder with cases; see --help");
  return out;
}

bool Wanted(const OnnxCase& item, const std::vector<std::string>& names) {
  return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
           if (name.starts_with("=")) return item.name == name.substr(1);
           return item.op == name || item.name.find(name) != std::string::npos;
         });
}

void Print(const std::vector<OnnxCase>& cases, const std::vector<CaseResult>& results, bool all) {
  std::map<std::string, std::pair<int, int>> by_op;  // passed, all
  int passed = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    auto& [op_passed, op_all] = by_op[cases[i].op];
    ++op_all;
    op_passed += results[i].ok;
    passed += results[i].ok;
    if (results[i].ok && all) std::printf("pass %s\n", cases[i].name.c_str());
    if (results[i].ok) continue;
    std::printf("FAIL %s (%s): %s\n", cases[i].name.c_str(), cases[i].op.c_str(),
                results[i].message.c_str());
  }
  std::printf("\n%-32s %6s %6s\n", "operator", "passed", "cases");
  for (const auto& [op, counts] : by_op) {
    std::printf("%-32s %6d %6d%s\n", op.c_str(), counts.first, counts.second,
                counts.first == counts.second ? "" : "  *");
  }
  std::printf("%-32s %6d %6zu\n", "all", passed, cases.size());
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Settings> settings = ParseArguments(arguments);
  if (!settings.ok()) {
    std::fprintf(stderr, "onnx_conformance: %s\n",
                 std::string(ToStd(settings.status().message())).c_str());
    return 2;
  }
  if (settings->help) {
    std::fputs(std::string(kHelp).c_str(), stdout);
    return 0;
  }
  auto cases = FindOnnxCases(settings->folder);
  if (!cases.ok()) {
    std::fprintf(stderr, "onnx_conformance: %s\n",
                 std::string(ToStd(cases.status().message())).c_str());
    return 2;
  }
  std::erase_if(*cases, [&](const OnnxCase& item) { return !Wanted(item, settings->names); });
  for (OnnxCase& item : *cases) item.by_shape = settings->by_shape;
  if (settings->list) {
    for (const OnnxCase& item : *cases) std::printf("%s\n", item.name.c_str());
    return 0;
  }
  std::unique_ptr<CpuRunner> runner;
  const auto opened = [&]() -> std::string {
    auto made = CpuRunner::Open();
    if (!made.ok()) return made.status().ToString();
    runner = *std::move(made);
    return "";
  };
  const auto run_graph = [&](UOp sink, Slots* slots) { return runner->Run(sink, {}, slots); };
  const auto run = [&](size_t i) -> std::string {
    const absl::Status status = RunOnnxCase((*cases)[i], run_graph);
    return status.ok() ? "" : status.ToString();
  };
  const auto results = Sweep(cases->size(), settings->sweep, opened, run);
  Print(*cases, results, settings->all);
  return std::ranges::all_of(results, &CaseResult::ok) ? 0 : 1;
}

}  // namespace
}  // namespace telegrad::testing

int main(int argc, char** argv) {
  return telegrad::testing::Main(std::vector<std::string>(argv + 1, argv + argc));
}
