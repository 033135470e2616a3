// Random graphs three ways: evaluated node by node (the judge), scheduled and lowered and
// interpreted, and compiled and run on the CPU device. The three must agree.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/random_graph.h"

namespace telegrad {
namespace {

using Slots = std::vector<std::vector<uint8_t>>;

double Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * ByteSize(dtype), ByteSize(dtype));
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

// Integers exactly; floats up to the reassociation of sums. Returns what differs.
std::string Difference(DType dtype, const std::vector<uint8_t>& want,
                       const std::vector<uint8_t>& got) {
  if (!IsFloat(dtype)) return want == got ? "" : "integers differ";
  for (int64_t i = 0; i < static_cast<int64_t>(want.size()) / ByteSize(dtype); ++i) {
    const double x = Element(dtype, want, i), y = Element(dtype, got, i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) continue;
    const double scale = std::max({std::abs(x), std::abs(y), 1.0});
    if (!(std::abs(x - y) <= 1e-4 * scale)) {
      return "element " + std::to_string(i) + ": " + std::to_string(x) + " and " +
             std::to_string(y);
    }
  }
  return "";
}

// Schedules, lowers for a made-up narrow or wide target, and interprets each program.
absl::Status RunLowered(UOp sink, const Target& target, Slots* slots) {
  Budget budget;
  auto schedule = ScheduleGraph(sink, &budget);
  if (!schedule.ok()) return schedule.status();
  std::vector<std::vector<uint8_t>> temporaries;
  for (const Temporary& t : schedule->temporaries) temporaries.emplace_back(t.bytes, 0xcd);
  for (size_t k = 0; k < schedule->kernels.size(); ++k) {
    const ScheduledKernel& kernel = schedule->kernels[k];
    if (auto s = Verify(kernel.graph.root(), kKernelLevel); !s.ok()) return s;
    auto program = Lower(kernel.graph, target, "k" + std::to_string(k), &budget);
    if (!program.ok()) return program.status();
    if (auto s = Verify(*program); !s.ok()) {
      return absl::InternalError(s.ToString() + "\n" + Print(*program));
    }
    std::vector<std::span<uint8_t>> buffers;
    for (const BufferRef ref : kernel.arguments) {
      buffers.push_back(ref.kind == BufferRef::Kind::kSlot ? std::span<uint8_t>((*slots)[ref.index])
                                                           : temporaries[ref.index]);
    }
    buffers.resize(std::max(buffers.size(), program->arguments.size()));
    // Two slices, as two workers would run them.
    const int64_t half = program->iterations / 2;
    for (auto [begin, end] : {std::pair(int64_t{0}, half), std::pair(half, program->iterations)}) {
      if (begin == end) continue;
      if (auto s = reference::Run(*program, buffers, begin, end); !s.ok()) {
        return absl::InternalError(s.ToString() + "\n" + Print(*program));
      }
    }
  }
  return absl::OkStatus();
}

// The whole engine: schedule, lower, render, compile, load, submit.
absl::Status RunOnDevice(UOp sink, Device& device, ExecutableCache& cache, Slots* slots) {
  Budget budget;
  auto result = cache.Get(ContentHash(sink), Freeze(sink), device, &budget);
  if (!result.ok()) return result.status();
  std::vector<BufferView> bindings;
  for (const std::vector<uint8_t>& bytes : *slots) {
    auto memory = device.Alloc(std::max<int64_t>(bytes.size(), 1));
    if (!memory.ok()) return memory.status();
    std::copy(bytes.begin(), bytes.end(), static_cast<uint8_t*>((*memory)->host()));
    bindings.push_back({*std::move(memory), 0, static_cast<int64_t>(bytes.size())});
  }
  auto point = result->executable->Submit(bindings, {});
  if (!point.ok()) return point.status();
  if (auto s = point->Wait(absl::Seconds(30)); !s.ok()) return s;
  for (size_t i = 0; i < slots->size(); ++i) {
    std::vector<uint8_t>& slot = (*slots)[i];
    std::copy_n(static_cast<const uint8_t*>(bindings[i].memory->host()), slot.size(), slot.begin());
  }
  return absl::OkStatus();
}

uint64_t FirstSeed() {
  const char* seed = std::getenv("TELEGRAD_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
}
int Cases() {
  const char* cases = std::getenv("TELEGRAD_CASES");
  return cases != nullptr ? std::atoi(cases) : 400;
}

class Differential : public ::testing::TestWithParam<int> {};

TEST_P(Differential, LoweredProgramsAgreeWithTheTensorEvaluator) {
  Target target;
  target.vector_bytes = GetParam();
  target.vector_registers = GetParam() == 64 ? 32 : 16;
  target.threads = 2;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + Cases(); ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph;
    const testing::RandomGraph random =
        testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 30), &graph);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    Slots want = random.slots, got = random.slots;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(random.sink, want, &budget).ok()) << "seed " << seed;
    const absl::Status status = RunLowered(random.sink, target, &got);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << "\n" << Print(random.sink);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(Difference(random.dtypes[i], want[i], got[i]), "")
          << "seed " << seed << ", slot " << i << "\n"
          << Print(random.sink);
    }
  }
}

TEST(DifferentialCpu, CompiledKernelsAgreeWithTheTensorEvaluator) {
  CpuOptions options;
  options.target = HostTarget(0);
  auto device = OpenCpu(options);
  ASSERT_TRUE(device.ok()) << device.status();
  ExecutableCache cache({});
  const int cases = std::max(1, Cases() / 8);  // a kernel takes milliseconds to compile
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + cases; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph;
    const testing::RandomGraph random =
        testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 30), &graph);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    Slots want = random.slots, got = random.slots;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(random.sink, want, &budget).ok()) << "seed " << seed;
    const absl::Status status = RunOnDevice(random.sink, **device, cache, &got);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << "\n" << Print(random.sink);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(Difference(random.dtypes[i], want[i], got[i]), "")
          << "seed " << seed << ", slot " << i << "\n"
          << Print(random.sink);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Differential, ::testing::Values(16, 64));

}  // namespace
}  // namespace telegrad
