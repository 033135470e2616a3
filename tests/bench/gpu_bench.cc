// What an NVIDIA GPU does under this engine, each figure beside what the same GPU does without it
// in the same run: elementwise kernels, reductions and softmax against a copy from device to
// device, the replay of many empty kernels against a bare CUDA graph of them. Matrix products are
// given in flop/s; the peer that they are held against is PyTorch
// (tests/bench/peers/torch_matmul.py).
//
// Each result is checked against the host. A line for each: name, figure, unit, ratio, of what,
// separated by tabs; a ratio over 1 is better than the other. Times are the best of several rounds,
// a round being runs that are submitted at once.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "devices/cuda/cuda_device.h"
#include "devices/cuda/library.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "tests/bench/timing.h"

namespace telegrad {
namespace {

constexpr FlagRow kFlags[] = {
    {"cuda-library", 0, FlagKind::kString, "libcuda.so.1", "FILE", "Driver library"},
    {"smoke", 0, FlagKind::kBool, "false", "",
     "Run tiny sizes for one round, to check that the benchmark works"},
};

struct Sizes {
  int64_t elements, rows, columns;
  std::vector<int64_t> products;
  int launches, rounds, runs;
};
const Sizes kFull = {64 << 20, 65536, 1024, {4096, 8192}, 1000, 5, 10};
const Sizes kSmoke = {4096, 16, 64, {64}, 8, 1, 2};

void Print(const std::string& name, double figure, const char* unit, double ratio,
           const char* of_what) {
  if (ratio > 0) {
    std::printf("%s\t%.4g\t%s\t%.3f\t%s\n", name.c_str(), figure, unit, ratio, of_what);
  } else {
    std::printf("%s\t%.4g\t%s\t-\t%s\n", name.c_str(), figure, unit, of_what);
  }
  std::fflush(stdout);
}

// Small numbers whose sums are exact in every type that is measured.
float Value(int64_t i) { return static_cast<float>(i % 5) - 2; }

class GpuBench {
 public:
  GpuBench(const Sizes& sizes, std::string library) : sizes_(sizes), library_(std::move(library)) {}

  absl::Status Open() {
    std::vector<std::string> notes;
    auto devices = OpenCudas({.library = library_, .devices = 1}, &notes);
    if (devices.empty()) return NotFound(notes.empty() ? "no NVIDIA GPU" : notes[0]);
    gpu_ = std::move(devices[0]);
    TG_ASSIGN_OR_RETURN(host_, OpenCpu({.threads = 1}));
    return absl::OkStatus();
  }

  absl::Status Run() {
    TG_RETURN_IF_ERROR(Copy());
    TG_RETURN_IF_ERROR(Add());
    TG_RETURN_IF_ERROR(RowSum());
    TG_RETURN_IF_ERROR(Softmax());
    for (const int64_t n : sizes_.products) TG_RETURN_IF_ERROR(Product(n));
    return Launches();
  }

 private:
  using Submit = std::function<absl::StatusOr<TimelinePoint>()>;
  // Seconds of one run.
  absl::StatusOr<double> Time(const Submit& submit) {
    double best = 1e30;
    for (int round = 0; round <= sizes_.rounds; ++round) {  // the first warms up
      const double start = bench::Seconds();
      TimelinePoint last;
      for (int run = 0; run < sizes_.runs; ++run) {
        TG_ASSIGN_OR_RETURN(last, submit());
      }
      TG_RETURN_IF_ERROR(last.Wait());
      if (round > 0) best = std::min(best, (bench::Seconds() - start) / sizes_.runs);
    }
    return best;
  }

  absl::StatusOr<BufferView> Buffer(Device& device, int64_t bytes) {
    TG_ASSIGN_OR_RETURN(auto memory, device.Alloc(bytes));
    return BufferView{std::move(memory), 0, bytes};
  }

  absl::StatusOr<std::shared_ptr<const CommandBuffer>> CopyCommand(int64_t bytes) {
    Command copy;
    copy.kind = Command::Kind::kCopy;
    copy.copy = {.to = {0, 0}, .from = {1, 0}, .length = bytes};
    return gpu_->Encode({copy});
  }

  absl::Status Transfer(const BufferView& to, const BufferView& from, int64_t bytes) {
    TG_ASSIGN_OR_RETURN(const auto commands, CopyCommand(bytes));
    TG_ASSIGN_OR_RETURN(const auto done,
                        gpu_->queue(QueueKind::kCopy).Submit(commands, {to, from}, {}));
    return done.Wait();
  }

  absl::Status Copy() {
    const int64_t bytes = sizes_.elements * 4;
    TG_ASSIGN_OR_RETURN(const BufferView to, Buffer(*gpu_, bytes));
    TG_ASSIGN_OR_RETURN(const BufferView from, Buffer(*gpu_, bytes));
    TG_ASSIGN_OR_RETURN(const auto commands, CopyCommand(bytes));
    TG_ASSIGN_OR_RETURN(const double seconds,
                        Time([&] { return gpu_->queue().Submit(commands, {to, from}, {}); }));
    copy_bandwidth_ = 2.0 * static_cast<double>(bytes) / seconds;
    Print("copy from device to device", copy_bandwidth_ / 1e9, "GB/s", 0, "");
    return absl::OkStatus();
  }

  // Runs a plan whose inputs are Value(i), checks the first `checked` elements of its output.
  absl::StatusOr<double> TimePlan(const Plan& plan, int64_t checked,
                                  const std::function<double(int64_t)>& want, double tolerance) {
    const FrozenGraph graph = plan.graph;
    Budget budget({.nodes = INT64_MAX, .rewrites = INT64_MAX, .kernels = INT64_MAX});
    TG_ASSIGN_OR_RETURN(const auto made,
                        cache_.Get(ContentHash(graph.root()), graph, *gpu_, &budget));
    std::vector<BufferView> buffers;
    for (const Slot& slot : plan.slots) {
      const int64_t count = NumElements(slot.shape), bytes = BytesOf(slot.dtype, count);
      TG_ASSIGN_OR_RETURN(buffers.emplace_back(), Buffer(*gpu_, bytes));
      if (slot.role != SlotRole::kInput) continue;
      TG_ASSIGN_OR_RETURN(const BufferView staged, Buffer(*host_, bytes));
      std::byte* at = static_cast<std::byte*>(staged.memory->host());
      for (int64_t i = 0; i < count; ++i) {
        const float value = Value(i);
        if (slot.dtype == DType::kBFloat16) {
          const uint16_t word = ToBFloat16(value);
          std::memcpy(at + i * 2, &word, 2);
        } else {
          std::memcpy(at + i * 4, &value, 4);
        }
      }
      TG_RETURN_IF_ERROR(Transfer(buffers.back(), staged, bytes));
    }
    TG_ASSIGN_OR_RETURN(const double seconds,
                        Time([&] { return made.executable->Submit(buffers, {}); }));
    const DType type = plan.slots.back().dtype;
    const int64_t bytes = BytesOf(type, checked);
    TG_ASSIGN_OR_RETURN(const BufferView staged, Buffer(*host_, bytes));
    TG_RETURN_IF_ERROR(Transfer(staged, buffers.back(), bytes));
    const std::byte* at = static_cast<const std::byte*>(staged.memory->host());
    for (int64_t i = 0; i < checked; ++i) {
      float got;
      if (type == DType::kBFloat16) {
        uint16_t word;
        std::memcpy(&word, at + i * 2, 2);
        got = FromBFloat16(word);
      } else {
        std::memcpy(&got, at + i * 4, 4);
      }
      if (!(std::abs(got - want(i)) <= tolerance * std::max(1.0, std::abs(want(i))))) {
        return Internal("element ", i, " is ", got, " where ", want(i), " is right");
      }
    }
    return seconds;
  }

  absl::Status OfCopy(const char* name, const Plan& plan, double bytes, int64_t checked,
                      const std::function<double(int64_t)>& want, double tolerance) {
    TG_ASSIGN_OR_RETURN(const double seconds, TimePlan(plan, checked, want, tolerance));
    const double bandwidth = bytes / seconds;
    Print(name, bandwidth / 1e9, "GB/s", bandwidth / copy_bandwidth_, "the copy's bandwidth");
    return absl::OkStatus();
  }

  absl::Status Add() {
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {sizes_.elements}, "x");
    const Tensor y = b.Param(DType::kFloat32, {sizes_.elements}, "y");
    b.Output(x + y, "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    return OfCopy(
        "elementwise add, f32", plan, 12.0 * static_cast<double>(sizes_.elements), 4096,
        [](int64_t i) { return 2.0 * Value(i); }, 0);
  }

  absl::Status RowSum() {
    Builder b;
    b.Output(b.Param(DType::kFloat32, {sizes_.rows, sizes_.columns}, "x").Sum({1}), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    const int64_t columns = sizes_.columns;
    const double bytes = 4.0 * static_cast<double>(sizes_.rows * (columns + 1));
    return OfCopy(
        "sums of rows, f32", plan, bytes, std::min<int64_t>(sizes_.rows, 256),
        [columns](int64_t row) {
          double sum = 0;
          for (int64_t k = 0; k < columns; ++k) sum += Value(row * columns + k);
          return sum;
        },
        0);
  }

  absl::Status Softmax() {
    Builder b;
    b.Output(b.Param(DType::kFloat32, {sizes_.rows, sizes_.columns}, "x").Softmax(-1), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    const int64_t columns = sizes_.columns;
    const double bytes = 8.0 * static_cast<double>(sizes_.rows * columns);
    return OfCopy(
        "softmax of rows, f32", plan, bytes, 2 * columns,
        [columns](int64_t i) {
          double sum = 0;
          for (int64_t k = 0; k < columns; ++k) {
            sum += std::exp(static_cast<double>(Value(i / columns * columns + k)));
          }
          return std::exp(static_cast<double>(Value(i))) / sum;
        },
        1e-5);
  }

  absl::Status Product(int64_t n) {
    Builder b;
    const Tensor x = b.Param(DType::kBFloat16, {n, n}, "x");
    const Tensor y = b.Param(DType::kBFloat16, {n, n}, "y");
    b.Output(x.MatMul(y), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    const auto want = [n](int64_t i) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += Value(i / n * n + k) * Value(k * n + i % n);
      return sum;
    };
    TG_ASSIGN_OR_RETURN(const double seconds, TimePlan(plan, 2 * n, want, 1.0 / 128));
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n);
    Print(StrCat("matmul bf16 ", n), flops / seconds / 1e12, "Tflop/s", 0, "");
    return absl::OkStatus();
  }

  absl::Status Launches() {
    constexpr char kEmpty[] =
        ".version 7.8\n.target sm_80\n.address_size 64\n\n"
        ".visible .entry empty(.param .u64 begin)\n.reqntid 1, 1, 1\n{\n  ret;\n}\n";
    TG_ASSIGN_OR_RETURN(
        const auto program,
        gpu_->Load(
            {.name = "empty", .binary = kEmpty, .signature = {.parameters = KernelParameters(0)}}));
    std::vector<Command> commands(sizes_.launches);
    for (Command& command : commands) {
      command.launch = Launch::Of(program);
      command.launch.name = "empty";
    }
    TG_ASSIGN_OR_RETURN(const auto encoded, gpu_->Encode(std::move(commands)));
    TG_ASSIGN_OR_RETURN(const double ours,
                        Time([&] { return gpu_->queue().Submit(encoded, {}, {}); }));
    TG_ASSIGN_OR_RETURN(const double bare, TimeBareGraph(kEmpty));
    Print("launch in a replay", ours / sizes_.launches * 1e6, "us", bare / ours,
          "a bare CUDA graph's rate");
    return absl::OkStatus();
  }

  // The same kernels, one after the other, by the driver's functions alone.
  absl::StatusOr<double> TimeBareGraph(const char* ptx) {
    using namespace cuda;  // NOLINT: the API's names
    TG_ASSIGN_OR_RETURN(const auto library, Library::Open(library_));
    CUcontext context;
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDevicePrimaryCtxRetain, &context, 0));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuCtxSetCurrent, context));
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuModuleLoadDataEx, &module, ptx, 0, nullptr, nullptr));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuModuleGetFunction, &function, module, "empty"));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphCreate, &graph, 0));
    uint64_t begin = 0;
    void* parameters[] = {&begin};
    CUDA_KERNEL_NODE_PARAMS_v2 node{};
    node.func = function;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    CUgraphNode last = nullptr;
    for (int i = 0; i < sizes_.launches; ++i) {
      const CUgraphNode before = last;
      TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphAddKernelNode_v2, &last, graph,
                                 i == 0 ? nullptr : &before, i == 0 ? 0 : 1, &node));
    }
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphInstantiateWithFlags, &exec, graph, 0));
    double best = 1e30;
    for (int round = 0; round <= sizes_.rounds; ++round) {
      const double start = bench::Seconds();
      for (int run = 0; run < sizes_.runs; ++run) {
        TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphLaunch, exec, stream));
      }
      TG_RETURN_IF_ERROR(TG_CUDA(*library, cuStreamSynchronize, stream));
      if (round > 0) best = std::min(best, (bench::Seconds() - start) / sizes_.runs);
    }
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphExecDestroy, exec));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphDestroy, graph));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuStreamDestroy_v2, stream));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuModuleUnload, module));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDevicePrimaryCtxRelease_v2, 0));
    return best;
  }

  static uint16_t ToBFloat16(float value) {  // of a value that is one
    uint32_t word;
    std::memcpy(&word, &value, 4);
    return static_cast<uint16_t>(word >> 16);
  }
  static float FromBFloat16(uint16_t word) {
    const uint32_t wide = uint32_t{word} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }

  const Sizes& sizes_;
  const std::string library_;
  std::unique_ptr<Device> host_, gpu_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
  double copy_bandwidth_ = 0;
};

int Main(int argc, char** argv) {
  const auto flags = Flags::Parse(kFlags, Arguments(argc, argv));
  if (!flags.ok() || !flags->positional().empty()) {
    std::fprintf(stderr, "gpu_bench: %s\n",
                 flags.ok() ? "takes no arguments" : std::string(flags.status().message()).c_str());
    return 2;
  }
  if (flags->help()) {
    std::printf("Usage: gpu_bench [FLAGS]\nMeasures the first NVIDIA GPU.\n\n%s",
                FlagHelp(kFlags).c_str());
    return 0;
  }
  GpuBench bench(flags->GetBool("smoke") ? kSmoke : kFull, flags->GetString("cuda-library"));
  if (const absl::Status opened = bench.Open(); !opened.ok()) {
    std::printf("gpu_bench: nothing to measure: %s\n", std::string(opened.message()).c_str());
    return absl::IsNotFound(opened) ? 0 : 1;
  }
  if (const absl::Status status = bench.Run(); !status.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return telegrad::Main(argc, argv); }
