// What products, convolutions and other kernels take on GPUs, counted: `product_counts [--wide]
// [--whole] [NAME]`; --wide: with indices of 64 bits; --whole: sums are not split over workgroups.
// AMD's code objects run on the interpreter of their
// machine code, NVIDIA's PTX on the fake driver that the variable TELEGRAD_CUDA names; a few
// workgroups run, and counts are of all. Local loads and products are those of the program. Where
// NVIDIA's assembler is found (tests/nvptx/ptxas.h), the instructions that it makes are counted,
// too. With BINARY=FILE it writes each kernel's code to FILE.ARCH, and with DUMP=FILE only a case's
// graph to FILE.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/amdgpu/run_on_machine.h"
#include "tests/nvptx/issue.h"
#include "tests/nvptx/ptx_kernels.h"
#include "tests/nvptx/ptxas.h"
#include "tests/nvptx/raw_cuda.h"
#include "tests/nvptx/sass.h"

namespace telegrad::testing {
namespace {

struct CountedCase {
  const char* name;
  Shape x, w;
  Window window = {};
  bool product = false;
  std::vector<DType> types = {DType::kFloat32, DType::kFloat16};
  Tensor (*other)(const Tensor& x, const Tensor& w) = nullptr;  // what is neither
  DType w_type = DType::kVoid;                                  // kVoid: that of x
};

const CountedCase kCases[] = {
    {"conv 3x3 64->64 56x56", {1, 64, 56, 56}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"conv 1x1 256->64 56x56", {1, 256, 56, 56}, {64, 256, 1, 1}},
    {"conv 7x7/2 3->64 224x224",
     {1, 3, 224, 224},
     {64, 3, 7, 7},
     {.stride = {2, 2}, .pads = {3, 3, 3, 3}}},
    {"conv 3x3 512->512 7x7, 8 images", {8, 512, 7, 7}, {512, 512, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"conv 3x3 128->128 28x28", {1, 128, 28, 28}, {128, 128, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"conv 3x3 256->256 28x28, 8 images",
     {8, 256, 28, 28},
     {256, 256, 3, 3},
     {.pads = {1, 1, 1, 1}},
     false,
     {DType::kFloat16}},
    {"groups", {2, 32, 9, 8}, {64, 16, 3, 3}, {.pads = {1, 1, 1, 1}}},
    {"matmul 16 x (128x64x128)", {16, 128, 64}, {16, 64, 128}, {}, true},
    {"matmul 1024x1024x1024", {1, 1024, 1024}, {1, 1024, 1024}, {}, true},
    {"matmul 4096x4096x4096", {1, 4096, 4096}, {1, 4096, 4096}, {}, true, {DType::kBFloat16}},
    {"decode 8x4096x4096", {8, 4096}, {4096, 4096}, {}, true, {DType::kBFloat16}},
    {"decode 16x4096x4096", {16, 4096}, {4096, 4096}, {}, true, {DType::kBFloat16}},
    {"decode 32x4096x4096", {32, 4096}, {4096, 4096}, {}, true, {DType::kBFloat16}},
    {.name = "channels last, conv 3x3 256->256 28x28, 8 images",
     .x = {8, 28, 28, 256},
     .w = {256, 3, 3, 256},
     .types = {DType::kFloat16},
     .other =
         [](const Tensor& x, const Tensor& w) {
           return x.Permute({0, 3, 1, 2})
               .Conv(w.Permute({0, 3, 1, 2}), {.pads = {1, 1, 1, 1}})
               .Permute({0, 2, 3, 1});
         }},
    {.name = "gradient 256x8192x512 of a weight",
     .x = {8192, 256},
     .w = {8192, 512},
     .other = [](const Tensor& x, const Tensor& w) { return x.Transpose().MatMul(w); }},
    {.name = "gradient 64x64x3x3 of a weight, 16 images 28x28",
     .x = {16, 64, 28, 28},
     .w = {16, 64, 26, 26},
     .other =
         [](const Tensor& x, const Tensor& w) {
           return x.Permute({1, 0, 2, 3}).Conv(w.Permute({1, 0, 2, 3}));
         }},
    {.name = "sum of 1000x1001 and a row",
     .x = {1000, 1001},
     .w = {1001},
     .other = [](const Tensor& x, const Tensor& w) { return x + w; }},
    {.name = "transpose 2048x1536, plus a column",
     .x = {2048, 1536},
     .w = {1536, 1},
     .other = [](const Tensor& x, const Tensor& w) { return x.Transpose() + w; }},
    {.name = "rows of 8000x768 by 512 i64",
     .x = {8000, 768},
     .w = {512},
     .other = [](const Tensor& x, const Tensor& w) { return x.Gather(w); },
     .w_type = DType::kInt64},
    {.name = "rows of 8000x768 by 512 i32",
     .x = {8000, 768},
     .w = {512},
     .other = [](const Tensor& x, const Tensor& w) { return x.Gather(w); },
     .w_type = DType::kInt32},
    {.name = "softmax of 512x1000, scaled",
     .x = {512, 1000},
     .w = {1000},
     .other = [](const Tensor& x, const Tensor& w) { return (x * w).Softmax(); }},
    {.name = "sums of columns 4096x1024",
     .x = {4096, 1024},
     .w = {1024},
     .other = [](const Tensor& x, const Tensor& w) { return x.Sum({0}) + w; }},
    {.name = "largest of windows 3x3/2 8x64x112x112",
     .x = {8, 64, 112, 112},
     .w = {64, 1, 1},
     .other =
         [](const Tensor& x, const Tensor& w) {
           return x.MaxPool({3, 3}, {.stride = {2, 2}, .pads = {1}}) + w;
         }},
};

constexpr int64_t kGroups = 2;  // that run
bool whole_sums = false;        // --whole

// Of the whole program, by thread.
struct ProgramCounts {
  double local_loads = 0, local_bytes = 0, global_loads = 0, global_bytes = 0, products = 0;
};

ProgramCounts CountProgram(const Program& program) {
  ProgramCounts counts;
  double iterations = 1;
  std::vector<double> outer;
  for (uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(u.src(0).vmax());
    } else if (u.is(Op::kEnd)) {
      iterations = outer.back();
      outer.pop_back();
    } else if (u.is(Op::kMma)) {
      counts.products += iterations / program.warp;
    } else if (u.is(Op::kCopyAsync)) {
      counts.global_loads += iterations;
      counts.global_bytes +=
          iterations * static_cast<double>(u.box_columns() * ByteSize(u.src(0).dtype()));
    } else if (u.is(Op::kLoadMatrix)) {
      counts.local_loads += iterations;
      counts.local_bytes += iterations * static_cast<double>(NumElements(u.shape()) * 2);
    } else if (u.is(Op::kLoad)) {
      UOp memory = u.src(0).src(0);
      while (memory.is(Op::kAfter)) memory = memory.src(0);
      const double bytes = iterations * static_cast<double>(NumElements(u.src(0).shape()) *
                                                            ByteSize(u.src(0).dtype()));
      if (memory.is(Op::kParam)) {
        counts.global_loads += iterations;
        counts.global_bytes += bytes;
      } else if (memory.space() == AddressSpace::kLocal) {
        counts.local_loads += iterations;
        counts.local_bytes += bytes;
      }
    }
  }
  return counts;
}

// What NVIDIA's assembler, where there is one, makes of a kernel.
void PrintAssembled(const std::string& ptx, const Target& target) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) return;
  const auto assembled = Assemble(ptxas, ptx, target.arch);
  if (!assembled.ok()) return;
  int instructions = 0;
  if (const auto by_code = CountInstructions(assembled->code, "k"); by_code.ok()) {
    for (const auto& [code, n] : *by_code) instructions += n;
  }
  std::printf("  assembled: %d instructions, %lld registers, %lld bytes spilled\n", instructions,
              static_cast<long long>(assembled->registers),
              static_cast<long long>(assembled->spill_stores));
}

struct CompiledKernel {
  Program program;
  ProgramImage image;
  // The workgroups that run, from the middle of all.
  int64_t groups() const { return std::min(kGroups, program.iterations); }
  int64_t begin() const { return (program.iterations - groups()) / 2; }
  std::vector<std::vector<uint8_t>> Arguments() const {
    std::vector<std::vector<uint8_t>> arguments;
    for (const Program::Argument& a : program.arguments) {
      arguments.emplace_back(static_cast<size_t>(BytesOf(a.dtype, a.elements)));
    }
    return arguments;
  }
};

std::vector<CompiledKernel> KernelsOf(const CountedCase& c, DType dtype, const Target& target) {
  Builder b;
  const Tensor x = b.Param(dtype, c.x, "x");
  const Tensor w = b.Param(c.w_type == DType::kVoid ? dtype : c.w_type, c.w, "w");
  b.Output(c.other != nullptr ? c.other(x, w)
           : c.product        ? x.MatMul(w)
                              : x.Conv(w, c.window, c.x[1] / c.w[1]),
           "y");
  const auto plan = b.Finish();
  std::vector<CompiledKernel> kernels;
  if (const char* file = std::getenv("DUMP")) {
    std::FILE* f = std::fopen(file, "w");
    std::fprintf(f, "%s", Print(plan->graph.root()).c_str());
    std::fclose(f);
    return kernels;
  }
  Budget budget;
  ScheduleOptions options = ScheduleOptions::For(target);
  if (whole_sums) options.transformed_bytes = 0;
  const auto schedule = ScheduleGraph(plan->graph.root(), {}, &budget, options);
  for (size_t k = 0; k < schedule->kernels.size(); ++k) {
    const auto program = Lower(schedule->kernels[k].graph, target, "k", &budget);
    if (!program.ok()) {
      std::printf("%s\n", program.status().ToString().c_str());
      continue;
    }
    const auto image = CompileKernel(*program, target);
    if (!image.ok()) {
      std::printf("%s\n", image.status().ToString().c_str());
      continue;
    }
    kernels.push_back({*program, *image});
    if (const char* file = std::getenv("BINARY")) {
      std::FILE* f = std::fopen(StrCat(file, ".", target.arch).c_str(), "w");
      std::fwrite(image->binary.data(), 1, image->binary.size(), f);
      std::fclose(f);
    }
  }
  return kernels;
}

// The fake driver, and its function fakeCudaCount.
struct CountingDriver {
  RawCuda* cuda;
  int64_t (*count)(const char*);

  IssueCounts Run(const CompiledKernel& kernel) const {
    std::vector<std::vector<uint8_t>> arguments = kernel.Arguments();
    const IssueCounts before(count);
    const auto status = cuda->Run(kernel.image, {{kernel.begin(), kernel.groups()}}, &arguments);
    if (!status.ok()) std::printf("  %s\n", status.ToString().c_str());
    return IssueCounts(count) - before;
  }
};

void PrintCounts(const IssueCounts& counts, double scale) {
  for (const Counter& c : kIssueCounters) {
    const double n = static_cast<double>(counts[c.name]) * scale;
    if (n != 0 && c.name != "instructions") {
      std::printf(" %s %.10g,", std::string(c.name).c_str(), n);
    }
  }
  // Of warps, each of which may have few active threads; and of threads, as if all were active.
  std::printf(" instructions %.10g, of threads / 32 %.10g\n",
              static_cast<double>(counts.instructions()) * scale,
              static_cast<double>(counts["instructions"]) * scale / 32);
}

// What twice as much to reduce adds is the inner loop's.
void MeasureLoop(const CountedCase& c, DType dtype, const Target& target,
                 const CompiledKernel& kernel, const IssueCounts& counts,
                 const CountingDriver& driver) {
  CountedCase half = c;
  half.x.back() /= 2;
  half.w[half.w.size() - 2] /= 2;
  const std::vector<CompiledKernel> kernels = KernelsOf(half, dtype, target);
  if (kernels.size() != 1 || kernels[0].program.moves != kernel.program.moves) return;
  const IssueCounts loop = counts - driver.Run(kernels[0]);
  if (loop.matrix() == 0) return;
  std::printf("  inner loop: %.1f%% of instructions, %.1f%% of cycles for 64 of:",
              100 * ShareOfInstructions(loop), 100 * ShareOfCycles(loop));
  PrintCounts(loop, 64.0 / static_cast<double>(loop.matrix()));
}

void Measure(const CountedCase& c, DType dtype, const Target& target,
             const CountingDriver* driver) {
  const std::vector<CompiledKernel> kernels = KernelsOf(c, dtype, target);
  for (const CompiledKernel& kernel : kernels) {
    const double all =
        static_cast<double>(kernel.program.iterations) / static_cast<double>(kernel.groups());
    const ProgramCounts p = CountProgram(kernel.program);
    std::printf("%-6s %-8s %s\n  %s\n", target.arch.c_str(), std::string(Name(dtype)).c_str(),
                c.name, kernel.program.moves.c_str());
    std::printf(
        "  %lld workgroups; by thread: global loads %.2fM of %.1f MB, local loads %.2fM of "
        "%.1f MB, products %.0f\n",
        static_cast<long long>(kernel.program.iterations), p.global_loads / 1e6,
        p.global_bytes / 1e6, p.local_loads / 1e6, p.local_bytes / 1e6, p.products);
    if (target.arch.starts_with("gfx")) {
      std::vector<std::vector<uint8_t>> arguments = kernel.Arguments();
      fakeamd::Counts counts;
      RunOnMachine(kernel.image, target, kernel.begin(), kernel.groups(), &arguments, &counts);
      std::printf("  instructions of waves %.0f, ", static_cast<double>(counts.instructions) * all);
      std::printf("global stores %.0f, bytes %.1f MB, conflicts %.0f + %.0f\n",
                  static_cast<double>(counts.global_stores) * all,
                  static_cast<double>(counts.global_bytes) * all / 1e6,
                  static_cast<double>(counts.load_conflicts) * all,
                  static_cast<double>(counts.store_conflicts) * all);
    } else if (driver != nullptr) {
      const IssueCounts counts = driver->Run(kernel);
      std::printf("  of warps:");
      PrintCounts(counts, all);
      if (c.product && kernels.size() == 1) {
        MeasureLoop(c, dtype, target, kernel, counts, *driver);
      }
    }
    if (!target.arch.starts_with("gfx")) PrintAssembled(kernel.image.binary, target);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace telegrad::testing

int main(int argc, char** argv) {
  using namespace telegrad;           // NOLINT
  using namespace telegrad::testing;  // NOLINT
  setenv("FAKE_CUDA_MEMORY", "4000000000", /*replace=*/0);
  const char* library = std::getenv("TELEGRAD_CUDA");
  auto cuda = RawCuda::Open(library == nullptr ? TELEGRAD_FAKE_CUDA : library);
  void* loaded = dlopen(library == nullptr ? TELEGRAD_FAKE_CUDA : library, RTLD_NOW);
  auto* count = reinterpret_cast<int64_t (*)(const char*)>(dlsym(loaded, "fakeCudaCount"));
  const CountingDriver counting{cuda.ok() ? cuda->get() : nullptr, count};
  const bool counts = cuda.ok() && count != nullptr;
  const auto option = [&](const char* name) {
    const bool given = argc > 1 && std::string(argv[1]) == name;
    if (given) --argc, ++argv;
    return given;
  };
  const bool wide = option("--wide");
  whole_sums = option("--whole");
  Target nvidia = *NvidiaTarget(8, 0, 108, 163840);
  Target amd = AmdTarget(*FindAmdProcessor("gfx942"), 304);
  if (wide) nvidia.index_bits = amd.index_bits = 64;
  for (const CountedCase& c : kCases) {
    if (argc > 1 && std::string(c.name).find(argv[1]) == std::string::npos) continue;
    for (const DType dtype : c.types) {
      Measure(c, dtype, nvidia, counts ? &counting : nullptr);
      Measure(c, dtype, amd, nullptr);
    }
  }
  return 0;
}
