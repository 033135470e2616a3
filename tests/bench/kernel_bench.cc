// Times the kernels of a graph one by one on the CPU, best of COUNT.
//
//   kernel_bench MODEL COUNT        a row of kModels
//   kernel_bench FILE.uop COUNT     a tensor graph, or one kernel, in its text form
//   kernel_bench FILE.onnx COUNT    a model whose shapes are fixed, with its weights in the file
//   kernel_bench MODEL COUNT NAME   one of its kernels, whose text form and moves are printed first
//   kernel_bench MODEL COUNT NAME MOVES   the same with these moves in place of the heuristic's
//
// One line for each unique kernel, the slowest first: how often the graph launches it, how long all
// its launches take together and their share, their mean processor time (twice the time where two
// threads really run at once), what it does in that time, and how long lowering it and compiling it
// took. A kernel runs with warm caches here, and again and again on the same buffers. A row "pack"
// is a kernel that brings a weight into the order in which the one before it reads it, which runs
// once for many runs: it does not count in the sum.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/frontend/onnx/import.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/render/llvm.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

double ProcessorMilliseconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

struct Row {
  std::string name;
  FrozenGraph kernel;
  int launches = 0;  // 0: packs a weight
  std::vector<int32_t> weights = {}, results = {};
  double flops = 0, bytes = 0;
  double run = 0, processor = 0, lower = 0, compile = 0;  // milliseconds
};

class Bench {
 public:
  Bench(Device* device, int count, std::string only, std::optional<std::string> moves)
      : device_(*device), count_(count), only_(std::move(only)), moves_(std::move(moves)) {}

  absl::Status Graph(const FrozenGraph& graph) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(
        const Schedule schedule,
        ScheduleGraph(graph.root(), &budget, ScheduleOptions::For(device_.target())));
    std::vector<std::pair<std::string, size_t>> known;
    for (size_t i = 0; i < schedule.kernels.size(); ++i) {
      const std::string hash = ContentHash(schedule.kernels[i].graph.root()).Hex();
      const auto at = std::ranges::find(known, hash, &std::pair<std::string, size_t>::first);
      if (at == known.end()) {
        known.emplace_back(hash, rows_.size());
        rows_.push_back({StrCat("kernel", i), schedule.kernels[i].graph, 1,
                         schedule.kernels[i].weights, schedule.kernels[i].results});
      } else {
        ++rows_[at->second].launches;
      }
    }
    return Kernels();
  }

  absl::Status Kernel(const FrozenGraph& kernel) {
    rows_.push_back({"kernel0", kernel, 1});
    return Kernels();
  }

 private:
  absl::Status Kernels() {
    if (!only_.empty()) {
      std::erase_if(rows_, [&](const Row& row) { return row.name != only_; });
      for (const Row& row : rows_) std::printf("%s\n", Print(row.kernel.root()).c_str());
    }
    for (size_t i = 0; i < rows_.size(); ++i) {  // Measure adds rows
      Row row = rows_[i];
      TG_RETURN_IF_ERROR(Measure(&row));
      rows_[i] = std::move(row);
    }
    std::ranges::stable_sort(rows_, std::greater<>{},
                             [](const Row& r) { return r.run * r.launches; });
    Row sum;
    for (const Row& row : rows_) {
      sum.launches += row.launches;
      sum.run += row.run * row.launches;
      sum.processor += row.processor * row.launches;
      sum.flops += row.flops * row.launches;
      sum.bytes += row.bytes * row.launches;
      sum.lower += row.lower;
      sum.compile += row.compile;
    }
    std::printf(
        "kernel         times        ms  share    cpu ms  GFLOP/s     GB/s  lower ms  compile "
        "ms\n");
    for (const Row& row : rows_) {
      const int times = std::max(row.launches, 1);
      const double ms = row.run * times, work = times / ms / 1e6;
      std::printf("%-12s %7d %9.3f %5.1f%% %9.3f %8.1f %8.1f %9.2f %11.1f\n", row.name.c_str(),
                  row.launches, ms, 100 * row.run * row.launches / sum.run, row.processor * times,
                  row.flops * work, row.bytes * work, row.lower, row.compile);
    }
    std::printf("%-12s %7d %9.3f %5.1f%% %9.3f %8.1f %8.1f %9.2f %11.1f\n", "all", sum.launches,
                sum.run, 100.0, sum.processor, sum.flops / sum.run / 1e6, sum.bytes / sum.run / 1e6,
                sum.lower, sum.compile);
    return absl::OkStatus();
  }

  absl::Status Measure(Row* row) {
    Budget budget;
    const auto lowering = Clock::now();
    const bool packs = row->launches == 0;
    TG_ASSIGN_OR_RETURN(const Program program,
                        Lower(row->kernel, device_.target(), row->name, &budget, nullptr,
                              {.weights = row->weights,
                               .results = row->results,
                               .moves = packs ? std::nullopt : moves_}));
    if (!only_.empty()) std::printf("moves of %s: %s\n", row->name.c_str(), program.moves.c_str());
    for (const Program::Packing& packing : program.packings) {
      rows_.push_back({StrCat("pack", row->name.substr(6), "_", packing.source), packing.kernel});
    }
    TG_ASSIGN_OR_RETURN(const std::string source, RenderLlvm(program, device_.target()));
    row->lower = Milliseconds(lowering);
    const auto compiling = Clock::now();
    TG_ASSIGN_OR_RETURN(const ProgramImage image, Compile(source, row->name, device_.target()));
    row->compile = Milliseconds(compiling);
    Launch launch;
    TG_ASSIGN_OR_RETURN(launch.program, device_.Load(image));
    launch.grid.x = program.iterations;
    row->flops = launch.flops = program.flops;
    row->bytes = launch.bytes = program.bytes;
    std::vector<BufferView> bindings;
    for (const Program::Argument& a : program.arguments) {
      launch.arguments.push_back({static_cast<int32_t>(bindings.size()), 0});
      TG_RETURN_IF_ERROR(Bind(BytesOf(a.dtype, a.elements), a.dtype, &bindings));
    }
    TG_ASSIGN_OR_RETURN(const auto commands,
                        device_.Encode({Command{Command::Kind::kLaunch, launch, {}}}));
    for (int i = 0; i <= count_; ++i) {
      const auto begin = Clock::now();
      if (i == 1) row->processor = ProcessorMilliseconds();
      TG_ASSIGN_OR_RETURN(TimelinePoint point, device_.queue().Submit(commands, bindings, {}));
      TG_RETURN_IF_ERROR(point.Wait(absl::Minutes(1)));
      const double time = Milliseconds(begin);
      row->run = i <= 1 ? time : std::min(row->run, time);  // the first one touches the memory
    }
    row->processor = (ProcessorMilliseconds() - row->processor) / count_;
    return absl::OkStatus();
  }

  // Small numbers: neither zeros nor what overflows after some layers.
  absl::Status Bind(int64_t bytes, DType dtype, std::vector<BufferView>* bindings) {
    TG_ASSIGN_OR_RETURN(auto memory, device_.Alloc(std::max<int64_t>(bytes, 64)));
    if (dtype == DType::kFloat32) {
      auto* const values = static_cast<float*>(memory->host());
      uint32_t state = 1;
      for (int64_t i = 0; i < bytes / 4; ++i) {
        state = state * 1664525 + 1013904223;
        values[i] = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 0.1f;
      }
    }
    bindings->push_back({std::move(memory), 0, bytes});
    return absl::OkStatus();
  }

  Device& device_;
  const int count_;
  const std::string only_;  // the name of a kernel, or all
  const std::optional<std::string> moves_;
  std::vector<Row> rows_;
};

absl::Status Run(const std::string& what, int count, const std::string& only,
                 std::optional<std::string> moves) {
  CpuOptions options;
  options.target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenCpu(options));
  Bench bench(device.get(), count, only, std::move(moves));
  for (const testing::NamedModel& model : testing::kModels) {
    if (model.name != what) continue;
    TG_ASSIGN_OR_RETURN(const Plan plan, model.plan());
    return bench.Graph(plan.graph);
  }
  TG_ASSIGN_OR_RETURN(const std::string text, ReadFile(what));
  if (what.ends_with(".onnx")) {
    TG_ASSIGN_OR_RETURN(const OnnxPlan model, ImportOnnx(text));
    return bench.Graph(model.plan.graph);
  }
  Graph graph;
  TG_ASSIGN_OR_RETURN(const UOp root, Parse(text.substr(0, text.find("---")), &graph));
  if (Verify(root, kTensorLevel).ok()) return bench.Graph(Freeze(root));
  TG_RETURN_IF_ERROR(Verify(root, kKernelLevel));
  return bench.Kernel(Freeze(root));
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int count = argc >= 3 && argc <= 5 ? std::atoi(argv[2]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "Usage: kernel_bench MODEL|FILE.uop|FILE.onnx COUNT [KERNEL [MOVES]]\n");
    return 2;
  }
  if (const absl::Status status = telegrad::Run(argv[1], count, argc > 3 ? argv[3] : "",
                                                argc > 4 ? std::optional(argv[4]) : std::nullopt);
      !status.ok()) {
    std::fprintf(stderr, "kernel_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
