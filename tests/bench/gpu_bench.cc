// What an NVIDIA GPU does under this engine, each figure beside what the same GPU does without it
// in the same run: elementwise kernels, reductions, softmax, layer norm and a decoder's step
// against a copy from device to device, the replay of many empty kernels against a bare CUDA graph
// of them. Matrix products and attention are given in flop/s; the peer that they are held against
// is PyTorch (tests/bench/peers/torch_peers.py). --profile: what each kernel of networks takes,
// beside what the cost model says (gpu_profile.h).
//
// Each result is checked against the host. A line for each: name, figure, unit, ratio, of what,
// separated by tabs; a ratio over 1 is better than the other. Times are the best of several rounds,
// a round being runs that are submitted at once.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "devices/cuda/library.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/bench/gpu_profile.h"
#include "tests/bench/gpu_runner.h"
#include "tests/bench/timing.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

constexpr FlagRow kFlags[] = {
    {"cuda-library", 0, FlagKind::kString, "libcuda.so.1", "FILE", "Driver library"},
    {"smoke", 0, FlagKind::kBool, "false", "",
     "Run tiny sizes for one round, to check that the benchmark works"},
    {"profile", 0, FlagKind::kBool, "false", "",
     "Print what each kernel of networks takes instead, and what the cost model says of it"},
    {"probe", 0, FlagKind::kBool, "false", "", "Only say whether there is a GPU"},
};

// Of an attention: batch, heads, and positions and channels of each.
struct Heads {
  int64_t batch, heads, positions, channels;
};
struct Sizes {
  int64_t elements, rows, columns;
  std::vector<int64_t> products;
  Heads attention;
  testing::DecoderShape decoder;
  int64_t position;  // at which a token is
  int launches;
  bench::GpuRunner::Repeats repeats;
};
const Sizes kFull = {64 << 20,
                     65536,
                     1024,
                     {4096, 8192},
                     {4, 16, 2048, 128},
                     {.layers = 12, .heads = 12, .channels = 768, .tokens = 50257},
                     511,
                     1000,
                     {5, 10}};
const Sizes kSmoke = {4096,
                      16,
                      64,
                      {64},
                      {1, 1, 32, 16},
                      {.layers = 1, .heads = 1, .channels = 4, .tokens = 8, .positions = 8},
                      5,
                      8,
                      {1, 2}};

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
  GpuBench(const Sizes& sizes, std::string library, bench::GpuRunner& runner)
      : sizes_(sizes), library_(std::move(library)), runner_(runner) {}

  absl::Status Run() {
    TG_RETURN_IF_ERROR(Copy());
    TG_RETURN_IF_ERROR(Add());
    TG_RETURN_IF_ERROR(RowSum());
    TG_RETURN_IF_ERROR(Softmax());
    TG_RETURN_IF_ERROR(LayerNorm());
    for (const int64_t n : sizes_.products) TG_RETURN_IF_ERROR(Product(n));
    for (const bool causal : {false, true}) TG_RETURN_IF_ERROR(Attention(causal));
    TG_RETURN_IF_ERROR(Decode());
    return Launches();
  }

 private:
  absl::Status Copy() {
    const int64_t bytes = sizes_.elements * 4;
    TG_ASSIGN_OR_RETURN(const BufferView to, runner_.Buffer(runner_.gpu(), bytes));
    TG_ASSIGN_OR_RETURN(const BufferView from, runner_.Buffer(runner_.gpu(), bytes));
    TG_ASSIGN_OR_RETURN(const auto commands, runner_.CopyCommand(bytes));
    TG_ASSIGN_OR_RETURN(const double seconds, runner_.Time([&] {
      return runner_.gpu().queue().Submit(commands, {to, from}, {});
    }));
    copy_bandwidth_ = 2.0 * static_cast<double>(bytes) / seconds;
    Print("copy from device to device", copy_bandwidth_ / 1e9, "GB/s", 0, "");
    return absl::OkStatus();
  }

  // Runs a plan whose inputs are Value(i), checks the first `checked` elements of its output.
  absl::StatusOr<double> TimePlan(const Plan& plan, int64_t checked,
                                  const std::function<double(int64_t)>& want, double tolerance) {
    TG_ASSIGN_OR_RETURN(const auto executable, runner_.Compile(plan, runner_.gpu()));
    TG_ASSIGN_OR_RETURN(const auto buffers, runner_.Bind(plan, runner_.gpu(), Value));
    TG_ASSIGN_OR_RETURN(const double seconds,
                        runner_.Time([&] { return executable->Submit(buffers, {}); }));
    TG_ASSIGN_OR_RETURN(const std::vector<float> got,
                        runner_.Read(buffers.back(), plan.slots.back().dtype, checked));
    for (int64_t i = 0; i < checked; ++i) {
      TG_RETURN_IF_ERROR(Compare(i, got[static_cast<size_t>(i)], want(i), tolerance));
    }
    return seconds;
  }

  static absl::Status Compare(int64_t i, double got, double want, double tolerance) {
    if (std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want))) return absl::OkStatus();
    return Internal("element ", i, " is ", got, " where ", want, " is right");
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

  absl::Status LayerNorm() {
    Builder b;
    b.Output(b.Param(DType::kFloat32, {sizes_.rows, sizes_.columns}, "x").LayerNorm(), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    const int64_t columns = sizes_.columns;
    const double bytes = 8.0 * static_cast<double>(sizes_.rows * columns);
    return OfCopy(
        "layer norm of rows, f32", plan, bytes, 2 * columns,
        [columns](int64_t i) {
          double sum = 0, squares = 0;
          for (int64_t k = 0; k < columns; ++k) sum += Value(i / columns * columns + k);
          const double mean = sum / static_cast<double>(columns);
          for (int64_t k = 0; k < columns; ++k) {
            squares += std::pow(Value(i / columns * columns + k) - mean, 2);
          }
          return (Value(i) - mean) / std::sqrt(squares / static_cast<double>(columns) + 1e-5);
        },
        1e-4);
  }

  // Queries, keys and values are the same numbers, so the keys of the first head are the first
  // rows, too.
  absl::Status Attention(bool causal) {
    const Heads& of = sizes_.attention;
    Builder b;
    const auto input = [&](const char* name) {
      return b.Param(DType::kBFloat16, {of.batch, of.heads, of.positions, of.channels}, name);
    };
    const Tensor q = input("q"), k = input("k"), v = input("v");
    b.Output(q.ScaledDotProductAttention(k, v, {}, causal), "out");
    TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
    const auto want = [&of, causal](int64_t i) {
      const int64_t query = i / of.channels, channel = i % of.channels;
      std::vector<double> scores;
      for (int64_t key = 0; key < (causal ? query + 1 : of.positions); ++key) {
        double sum = 0;
        for (int64_t c = 0; c < of.channels; ++c) {
          sum += Value(query * of.channels + c) * Value(key * of.channels + c);
        }
        scores.push_back(sum / std::sqrt(static_cast<double>(of.channels)));
      }
      const double largest = *std::ranges::max_element(scores);
      double sum = 0, weighted = 0;
      for (size_t key = 0; key < scores.size(); ++key) {
        const double weight = std::exp(scores[key] - largest);
        sum += weight;
        weighted += weight * Value(static_cast<int64_t>(key) * of.channels + channel);
      }
      return weighted / sum;
    };
    TG_ASSIGN_OR_RETURN(const double seconds, TimePlan(plan, 4 * of.channels, want, 1.0 / 32));
    // Two products; of a causal one half of the scores.
    const double scores = static_cast<double>(of.batch * of.heads * of.positions * of.positions);
    const double flops = 4.0 * scores * static_cast<double>(of.channels) * (causal ? 0.5 : 1);
    Print(StrCat("attention bf16 ", of.positions, causal ? " causal" : ""), flops / seconds / 1e12,
          "Tflop/s", 0, "");
    return absl::OkStatus();
  }

  // One token reads every weight once, but of the places' table a row, and the keys and values up
  // to its own.
  absl::Status Decode() {
    TG_ASSIGN_OR_RETURN(const Plan plan, testing::DecodeStep(sizes_.decoder));
    const VarValue position{plan.variables[0].id, sizes_.position};
    const auto small = [](int64_t i) { return Value(i) / 64; };
    double bytes = 0;
    for (const Slot& slot : plan.slots) {
      double of_slot = static_cast<double>(BytesOf(slot.dtype, NumElements(slot.shape)));
      if (slot.name.ends_with(".keys") || slot.name.ends_with(".values")) {
        of_slot *= static_cast<double>(sizes_.position + 1) /
                   static_cast<double>(sizes_.decoder.positions);
      }
      if (slot.name != "positions.table") bytes += of_slot;
    }
    std::vector<float> logits[2];
    double seconds = 0;
    for (Device* const device : {&runner_.host(), &runner_.gpu()}) {
      const bool gpu = device == &runner_.gpu();
      TG_ASSIGN_OR_RETURN(const auto executable,
                          runner_.Compile(plan, *device, std::span(&position, 1)));
      TG_ASSIGN_OR_RETURN(const auto buffers, runner_.Bind(plan, *device, small));
      const auto run = [&] { return executable->Submit(buffers, {}); };
      if (gpu) {
        TG_ASSIGN_OR_RETURN(seconds, runner_.Time(run));
      } else {
        TG_ASSIGN_OR_RETURN(const TimelinePoint done, run());
        TG_RETURN_IF_ERROR(done.Wait());
      }
      TG_ASSIGN_OR_RETURN(logits[gpu ? 1 : 0],
                          runner_.Read(buffers.back(), DType::kFloat32, sizes_.decoder.tokens));
    }
    for (size_t i = 0; i < logits[0].size(); ++i) {
      TG_RETURN_IF_ERROR(Compare(static_cast<int64_t>(i), logits[1][i], logits[0][i], 1e-3));
    }
    const double bandwidth = bytes / seconds;
    Print("a token of GPT-2, f32", bandwidth / 1e9, "GB/s", bandwidth / copy_bandwidth_,
          "the copy's bandwidth");
    return absl::OkStatus();
  }

  absl::Status Launches() {
    constexpr char kEmpty[] =
        ".version 7.8\n.target sm_80\n.address_size 64\n\n"
        ".visible .entry empty(.param .u64 begin)\n.reqntid 1, 1, 1\n{\n  ret;\n}\n";
    TG_ASSIGN_OR_RETURN(
        const auto program,
        runner_.gpu().Load(
            {.name = "empty", .binary = kEmpty, .signature = {.parameters = KernelParameters(0)}}));
    std::vector<Command> commands(sizes_.launches);
    for (Command& command : commands) {
      command.launch = Launch::Of(program);
      command.launch.name = "empty";
    }
    TG_ASSIGN_OR_RETURN(const auto encoded, runner_.gpu().Encode(std::move(commands)));
    TG_ASSIGN_OR_RETURN(const double ours, runner_.Time([&] {
      return runner_.gpu().queue().Submit(encoded, {}, {});
    }));
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
    for (int round = 0; round <= sizes_.repeats.rounds; ++round) {
      const double start = bench::Seconds();
      for (int run = 0; run < sizes_.repeats.runs; ++run) {
        TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphLaunch, exec, stream));
      }
      TG_RETURN_IF_ERROR(TG_CUDA(*library, cuStreamSynchronize, stream));
      if (round > 0) best = std::min(best, (bench::Seconds() - start) / sizes_.repeats.runs);
    }
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphExecDestroy, exec));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuGraphDestroy, graph));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuStreamDestroy_v2, stream));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuModuleUnload, module));
    TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDevicePrimaryCtxRelease_v2, 0));
    return best;
  }

  const Sizes& sizes_;
  const std::string library_;
  bench::GpuRunner& runner_;
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
  const Sizes& sizes = flags->GetBool("smoke") ? kSmoke : kFull;
  const auto runner = bench::GpuRunner::Open(flags->GetString("cuda-library"), sizes.repeats);
  if (!runner.ok()) {
    std::printf("gpu_bench: nothing to measure: %s\n",
                std::string(runner.status().message()).c_str());
    return absl::IsNotFound(runner.status()) ? 0 : 1;
  }
  if (flags->GetBool("probe")) return 0;
  const absl::Status status =
      flags->GetBool("profile") ? bench::ProfileNetworks(**runner, flags->GetBool("smoke"))
                                : GpuBench(sizes, flags->GetString("cuda-library"), **runner).Run();
  if (!status.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return telegrad::Main(argc, argv); }
