#include "tests/bench/gpu_profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "devices/api/trace.h"
#include "engine/base/status.h"
#include "tests/models/models.h"

namespace telegrad::bench {
namespace {

using testing::NamedModel;

constexpr NamedModel kFull[] = {
    {"resnet50", [] { return testing::ResNet50(1); }},
    {"gpt2", [] { return testing::Gpt2(1, 128); }},
    {"bert", [] { return testing::Bert(1, 128); }},
};
constexpr NamedModel kSmoke[] = {
    {"layernorm", [] { return testing::LayerNorm(4, 32); }},
    {"sums", [] { return testing::Sums(256); }},
};

// Of all launches of a kernel in one run.
struct Kernel {
  int launches = 0;
  double us = 0, predicted_us = 0, flops = 0, bytes = 0;
};

void Print(const std::string& name, double us, double predicted_us, const std::string& of) {
  std::printf("%s\t%.4g\tus\t%.3f\t%s\n", name.c_str(), us, predicted_us / us, of.c_str());
}

absl::Status Profile(GpuRunner& runner, std::string_view network, const Plan& plan, int runs) {
  TG_ASSIGN_OR_RETURN(const auto executable, runner.Compile(plan, runner.gpu()));
  TG_ASSIGN_OR_RETURN(const auto buffers, runner.Bind(plan, runner.gpu(), [](int64_t i) {
    return static_cast<float>(i % 5 - 2) / 64;
  }));
  std::map<std::string, Kernel> kernels;
  double total = 1e30;
  for (int run = 0; run <= runs; ++run) {  // the first warms up
    const auto trace = std::make_shared<RunTrace>();
    TG_ASSIGN_OR_RETURN(const TimelinePoint done, executable->Submit(buffers, {}, trace));
    TG_RETURN_IF_ERROR(done.Wait());
    if (run == 0) continue;
    std::map<std::string, double> us;
    double sum = 0;
    for (const TraceEvent& event : trace->events()) {
      const double took = std::max<double>(static_cast<double>(event.end_ns - event.begin_ns), 1);
      us[event.name] += took / 1e3;
      sum += took / 1e3;
    }
    total = std::min(total, sum);
    for (const auto& [name, took] : us) {
      Kernel& kernel = kernels[name];
      kernel.us = kernel.us == 0 ? took : std::min(kernel.us, took);
    }
  }
  double predicted = 0;
  for (const KernelInfo& info : executable->kernels()) {
    Kernel& kernel = kernels[info.name];
    ++kernel.launches;
    kernel.predicted_us += info.seconds * 1e6;
    kernel.flops += info.flops;
    kernel.bytes += info.bytes;
    predicted += info.seconds * 1e6;
  }
  Print(StrCat(network, ": all kernels"), total, predicted, "the cost model's time");
  std::vector<std::pair<std::string, Kernel>> rows(kernels.begin(), kernels.end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  for (const auto& [name, kernel] : rows) {
    if (kernel.us == 0) return Internal(network, ": kernel ", name, " has no time in the trace");
    Print(StrCat(network, ": ", name), kernel.us, kernel.predicted_us,
          StrCat("the cost model's time; ", kernel.launches, " launches, ",
                 static_cast<int64_t>(kernel.flops), " flops, ", static_cast<int64_t>(kernel.bytes),
                 " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProfileNetworks(GpuRunner& runner, bool smoke) {
  for (const NamedModel& model : smoke ? std::span<const NamedModel>(kSmoke) : kFull) {
    TG_ASSIGN_OR_RETURN(const Plan plan, model.plan());
    TG_RETURN_IF_ERROR(Profile(runner, model.name, plan, smoke ? 1 : 5));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::bench
