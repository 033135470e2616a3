// Runs an ONNX model on the CPU as its executable, for tests/bench/onnxruntime_peer.py and
// tests/bench/onnx_operators.py.
//
// Usage: onnx_run_bench FILE.onnx THREADS [deterministic | FOLDER]
//
// Once it is compiled, prints a line with the sum of the magnitudes of each f32, i32 or u8 output
// of a run whose inputs are those of Fill; then, for each line of its input, which is a number of
// runs, the median of their times in ms. A negative number: that many runs are traced, and each
// kernel gets a line, the slowest first: how often a run launches it, the ms that all its launches
// take in the median run, and what it does in that time. With a folder, inputs are read from its
// files NAME.npy, outputs are written to files there by their names, and the line has the seconds
// that import and compilation took, and the numbers of launches of a run and of kernels that were
// compiled.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "devices/api/trace.h"
#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/run_queues.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/values.h"
#include "engine/ir/content_hash.h"

namespace telegrad {
namespace {

// What the peer gives the input, too: small numbers of both signs, most of the bytes that there
// are, and 0 and 1 for wider integers, which every table of embeddings has.
void Fill(DType dtype, int64_t elements, void* to) {
  for (int64_t i = 0; i < elements; ++i) {
    if (dtype == DType::kFloat32) {
      static_cast<float*>(to)[i] = static_cast<float>(i * 7919 % 1000) / 1000 - 0.5F;
    } else if (dtype == DType::kInt64) {
      static_cast<int64_t*>(to)[i] = i % 2;
    } else if (dtype == DType::kInt32) {
      static_cast<int32_t*>(to)[i] = static_cast<int32_t>(i % 2);
    } else if (ByteSize(dtype) == 1 && IsInt(dtype)) {
      static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(i * 7919 % 251);
    }
  }
}

template <typename T>
double Magnitude(const T* values, int64_t elements) {
  double sum = 0;
  for (int64_t i = 0; i < elements; ++i) sum += std::abs(static_cast<double>(values[i]));
  return sum;
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string FileOf(const std::string& folder, const std::string& name) {
  return StrCat(folder, "/", name, ".npy");
}

class Bench {
 public:
  absl::Status Load(const std::string& path, int threads, bool deterministic,
                    const std::string& folder) {
    TG_ASSIGN_OR_RETURN(file_, ReadFile(path));
    const auto begin = std::chrono::steady_clock::now();
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, Import(folder));
    const double import_seconds = SecondsSince(begin);
    CpuOptions options;
    options.threads = threads;
    options.target = HostTarget(threads);
    options.target.deterministic = deterministic;
    TG_ASSIGN_OR_RETURN(device_, OpenCpu(options));
    Budget budget;
    const Plan& plan = onnx.plan;
    TG_ASSIGN_OR_RETURN(const auto made,
                        cache_.Get(ContentHash(plan.graph.root()), plan.graph, *device_, &budget));
    executable_ = made.executable;
    for (const SlotUse& slot : executable_->slots()) {
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(slot.bytes, 1)));
      bindings_.push_back({std::move(memory), 0, slot.bytes, NewContent()});
    }
    const auto host = [&](int slot) { return bindings_[static_cast<size_t>(slot)].memory->host(); };
    for (const OnnxWeight& weight : onnx.weights) {
      const HostTensor value = weight.value ? *weight.value : onnx.Value(weight);
      if (static_cast<size_t>(weight.slot) >= bindings_.size()) continue;
      std::memcpy(host(weight.slot), value.bytes.data(), value.bytes.size());
    }
    for (const OnnxValue& input : onnx.inputs) {
      const Slot& slot = plan.slots[static_cast<size_t>(input.slot)];
      if (static_cast<size_t>(input.slot) >= bindings_.size()) continue;
      if (const auto at = given_.find(input.name); at != given_.end()) {
        const std::string& bytes = at->second.bytes;
        const SlotUse& use = executable_->slots()[static_cast<size_t>(input.slot)];
        if (!use.used) continue;
        if (std::ssize(bytes) != use.bytes) {
          return InvalidArgument("the file of the input ", input.name, " has another shape");
        }
        std::memcpy(host(input.slot), bytes.data(), bytes.size());
      } else {
        Fill(slot.dtype, NumElements(slot.shape), host(input.slot));
      }
    }
    // The first run touches new memory, the second one packs weights.
    for (int i = 0; i < 2; ++i) TG_RETURN_IF_ERROR(Run().status());
    if (!folder.empty()) {
      const ExecutableCache::Stats stats = cache_.stats();
      std::fprintf(stderr, "seconds of all threads: schedule %.3f, lower %.3f, compile %.3f\n",
                   static_cast<double>(stats.schedule_ns) / 1e9,
                   static_cast<double>(stats.lower_ns) / 1e9,
                   static_cast<double>(stats.compile_ns) / 1e9);
      std::printf("%.3f %.3f %d %llu\n", import_seconds, static_cast<double>(made.compile_ns) / 1e9,
                  executable_->num_launches(),
                  static_cast<unsigned long long>(stats.kernels_compiled));
      return Save(onnx, folder);
    }
    for (const OnnxValue& output : onnx.outputs) {
      const Slot& slot = plan.slots[static_cast<size_t>(output.slot)];
      const void* const values = host(output.slot);
      const int64_t elements = NumElements(slot.shape);
      if (slot.dtype == DType::kFloat32) {
        std::printf("%.8g ", Magnitude(static_cast<const float*>(values), elements));
      } else if (slot.dtype == DType::kInt32) {
        std::printf("%.8g ", Magnitude(static_cast<const int32_t*>(values), elements));
      } else if (slot.dtype == DType::kUInt8) {
        std::printf("%.8g ", Magnitude(static_cast<const uint8_t*>(values), elements));
      }
    }
    std::printf("\n");
    return absl::OkStatus();
  }

  absl::Status Kernels(int runs) {
    struct Kernel {
      int launches = 0;
      double flops = 0, bytes = 0;  // of all launches of a run
      std::vector<double> ms = {};
    };
    std::map<std::string, Kernel> kernels;
    for (int i = 0; i < runs; ++i) {
      const auto trace = std::make_shared<RunTrace>();
      TG_RETURN_IF_ERROR(Run(trace).status());
      std::map<std::string, Kernel> of_run;
      for (const TraceEvent& event : trace->events()) {
        Kernel& kernel = of_run[event.name];
        ++kernel.launches;
        kernel.flops += event.flops;
        kernel.bytes += event.bytes;
        kernel.ms.push_back(static_cast<double>(event.end_ns - event.begin_ns) / 1e6);
      }
      for (Kernel& kernel : of_run | std::views::values) {
        kernel.ms = {std::accumulate(kernel.ms.begin(), kernel.ms.end(), 0.0)};
      }
      for (auto& [name, kernel] : of_run) {
        kernel.ms.insert(kernel.ms.end(), kernels[name].ms.begin(), kernels[name].ms.end());
        kernels[name] = std::move(kernel);
      }
    }
    std::vector<std::pair<double, std::string>> lines;
    for (auto& [name, kernel] : kernels) {
      std::ranges::sort(kernel.ms);
      const double ms = kernel.ms[kernel.ms.size() / 2];
      char text[128];
      std::snprintf(text, sizeof(text), " x%-3d %9.3f ms %8.1f GFLOP/s %7.1f GB/s", kernel.launches,
                    ms, kernel.flops / ms / 1e6, kernel.bytes / ms / 1e6);
      lines.emplace_back(ms, name + text);
    }
    std::ranges::sort(lines, std::greater());
    for (const auto& [ms, line] : lines) std::printf("%s\n", line.c_str());
    return absl::OkStatus();
  }

  absl::StatusOr<double> Median(int runs) {
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
      TG_ASSIGN_OR_RETURN(const double ms, Run());
      times.push_back(ms);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

 private:
  // Values are given to the import only if it asks for them: sizes that a run can decide are
  // decided by the run.
  absl::StatusOr<OnnxPlan> Import(const std::string& folder) {
    if (folder.empty()) return ImportOnnx(file_);
    TG_ASSIGN_OR_RETURN(const onnx::Model model, onnx::ParseModel(file_));
    ImportOptions options;
    for (const onnx::ValueInfo& input : model.inputs) {
      const auto file = OpenTensorFile(FileOf(folder, std::string(input.name)));
      if (!file.ok()) continue;  // an initializer
      TG_ASSIGN_OR_RETURN(HostTensor value, (*file)->Load(kOnlyTensor));
      options.input_shapes[std::string(input.name)] = value.shape;
      given_[std::string(input.name)] = std::move(value);
    }
    absl::StatusOr<OnnxPlan> made = ImportOnnx(file_, options);
    if (made.ok() || !NeedsValues(made.status())) return made;
    std::fprintf(stderr, "needs values: %s\n", made.status().ToString().c_str());
    for (const auto& [name, value] : given_) {
      auto data = std::make_shared<onnx::OnnxData>();
      data->kind = onnx::OnnxData::Kind::kTensor;
      data->tensor = value;
      options.values[name] = std::move(data);
    }
    return ImportOnnx(file_, options);
  }

  absl::Status Save(const OnnxPlan& onnx, const std::string& folder) {
    const auto read = [&](int slot) {
      const SlotUse& use = executable_->slots()[static_cast<size_t>(slot)];
      const auto* const at =
          static_cast<const char*>(bindings_[static_cast<size_t>(slot)].memory->host());
      return HostTensor{use.dtype, use.shape, std::string(at, static_cast<size_t>(use.bytes))};
    };
    for (const OnnxValue& output : onnx.outputs) {
      if (output.kind != OnnxValue::Kind::kTensor) continue;
      HostTensor value = read(output.slot);
      if (output.shape_slot >= 0) {
        TG_ASSIGN_OR_RETURN(value, Cut(value, read(output.shape_slot).Values<int64_t>()));
      }
      TG_RETURN_IF_ERROR(SaveFile(FileOf(folder, output.name),
                                  [&](ByteSink* sink) { return WriteNpy(value, sink); }));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Run(std::shared_ptr<RunTrace> trace = nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    TG_ASSIGN_OR_RETURN(
        const TimelinePoint end,
        executable_->Submit(bindings_, {}, std::move(trace), nullptr, WaitingQueues()));
    TG_RETURN_IF_ERROR(end.Wait());
    const auto took = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration<double, std::milli>(took).count();
  }

  std::string file_;
  std::map<std::string, HostTensor> given_;
  std::shared_ptr<Device> device_;
  ExecutableCache cache_{{}};
  std::shared_ptr<const Executable> executable_;
  std::vector<BufferView> bindings_;
};

absl::Status Main(const std::string& path, int threads, const std::string& option) {
  Bench bench;
  const bool deterministic = option == "deterministic";
  TG_RETURN_IF_ERROR(bench.Load(path, threads, deterministic, deterministic ? "" : option));
  std::fflush(stdout);
  int runs = 0;
  while (std::cin >> runs && runs != 0) {
    if (runs < 0) {
      TG_RETURN_IF_ERROR(bench.Kernels(-runs));
      std::fflush(stdout);
      continue;
    }
    TG_ASSIGN_OR_RETURN(const double ms, bench.Median(runs));
    std::printf("%.6f\n", ms);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "Usage: onnx_run_bench FILE.onnx THREADS [deterministic | FOLDER]\n");
    return 2;
  }
  const absl::Status status = telegrad::Main(argv[1], std::atoi(argv[2]), argc == 4 ? argv[3] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "onnx_run_bench: %s\n", status.ToString().c_str());
  return 1;
}
