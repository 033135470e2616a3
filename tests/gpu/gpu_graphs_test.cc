// Tensor graphs on a GPU, whichever driver library is at hand, against the CPU device: random ones
// of every plain op, and sizes that fill a GPU. Set TELEGRAD_CUDA_LIBRARY to another library than
// libcuda.so.1 and TELEGRAD_GPU_GRAPHS to how many random graphs; without a GPU the tests are
// skipped.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "devices/cuda/cuda_device.h"
#include "engine/base/status.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/verify.h"
#include "tests/conformance/decode_text.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {
namespace {

const char* FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

class GpuGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* library = FromEnvironment("TELEGRAD_CUDA_LIBRARY", "libcuda.so.1");
    fake_ = std::string(library) != "libcuda.so.1";
    std::vector<std::string> notes;
    auto devices = OpenCudas({.library = library, .devices = 1}, &notes);
    if (devices.empty()) GTEST_SKIP() << (notes.empty() ? "no NVIDIA GPU" : notes[0]);
    gpu_ = std::move(devices[0]);
    auto host = OpenCpu({.threads = 1});
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    auto cpu = CpuRunner::Open();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    cpu_ = *std::move(cpu);
  }

  absl::Status Transfer(const BufferView& to, const BufferView& from) {
    Command copy;
    copy.kind = Command::Kind::kCopy;
    copy.copy = {.to = {0, 0}, .from = {1, 0}, .length = to.length};
    TG_ASSIGN_OR_RETURN(const auto commands, gpu_->Encode({copy}));
    TG_ASSIGN_OR_RETURN(const auto done,
                        gpu_->queue(QueueKind::kCopy).Submit(commands, {to, from}, {}));
    return done.Wait();
  }

  absl::Status RunOnGpu(UOp sink, std::span<const VarValue> variables, Slots* slots) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto made,
                        cache_.Get(ContentHash(sink), Freeze(sink), *gpu_, &budget, variables));
    std::vector<BufferView> staged, bound;
    for (const auto& bytes : *slots) {
      const auto length = static_cast<int64_t>(bytes.size());
      for (Device* device : {host_.get(), gpu_.get()}) {
        TG_ASSIGN_OR_RETURN(auto memory, device->Alloc(std::max<int64_t>(length, 1)));
        (device == host_.get() ? staged : bound).push_back({std::move(memory), 0, length});
      }
      if (length == 0) continue;
      std::memcpy(staged.back().memory->host(), bytes.data(), bytes.size());
      TG_RETURN_IF_ERROR(Transfer(bound.back(), staged.back()));
    }
    TG_ASSIGN_OR_RETURN(const auto done, made.executable->Submit(bound, {}));
    TG_RETURN_IF_ERROR(done.Wait());
    for (size_t i = 0; i < slots->size(); ++i) {
      if (bound[i].length == 0) continue;
      TG_RETURN_IF_ERROR(Transfer(staged[i], bound[i]));
      std::memcpy((*slots)[i].data(), staged[i].memory->host(), (*slots)[i].size());
    }
    return absl::OkStatus();
  }

  // All steps run what the first one compiled.
  void ExpectDecoding(const DecoderShape& shape, int tokens) {
    uint64_t compiled = 0;
    const auto run = [&](UOp sink, std::span<const VarValue> values, Slots* slots) {
      return RunOnGpu(sink, values, slots);
    };
    DecodeText(shape, tokens, run, [&](int steps) {
      const ExecutableCache::Stats stats = cache_.stats();
      if (steps == 1) compiled = stats.kernels_compiled;
      ASSERT_GT(compiled, 0u);
      ASSERT_EQ(stats.kernels_compiled, compiled) << steps;
      ASSERT_EQ(stats.misses, 1u) << steps;
    });
  }

  // All slots of a plan: inputs are random.
  void ExpectSame(const Plan& plan) {
    std::mt19937_64 rng(5);
    std::normal_distribution<float> normal;
    Slots want;
    for (const Slot& slot : plan.slots) {
      std::vector<uint8_t> bytes(BytesOf(slot.dtype, NumElements(slot.shape)));
      for (size_t i = 0; slot.role == SlotRole::kInput && i + 4 <= bytes.size(); i += 4) {
        const float x = normal(rng);
        std::memcpy(&bytes[i], &x, 4);
      }
      want.push_back(std::move(bytes));
    }
    Slots got = want;
    ASSERT_EQ(cpu_->Run(plan.graph.root(), {}, &want), absl::OkStatus());
    ASSERT_EQ(RunOnGpu(plan.graph.root(), {}, &got), absl::OkStatus());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(Difference(plan.slots[i].dtype, false, want[i], got[i]), "") << plan.slots[i].name;
    }
  }

  bool fake_ = false;  // sizes are for an interpreter then
  std::unique_ptr<Device> host_, gpu_;
  std::unique_ptr<CpuRunner> cpu_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
};

TEST_F(GpuGraphs, RandomGraphs) {
  constexpr uint64_t kSeed = 20260101;
  const int graphs = std::atoi(FromEnvironment("TELEGRAD_GPU_GRAPHS", fake_ ? "40" : "1000"));
  std::mt19937_64 rng(kSeed);
  int ran = 0;
  for (int i = 0; i < graphs; ++i) {
    Graph graph;
    const RandomGraph random = MakeRandomGraph(rng, 30, &graph);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    Slots want = random.slots, got = random.slots;
    const auto variables = VariablesOf(random.sink, random.variables);
    ASSERT_EQ(cpu_->Run(random.sink, variables, &want), absl::OkStatus()) << "graph " << i;
    ASSERT_EQ(RunOnGpu(random.sink, variables, &got), absl::OkStatus()) << "graph " << i;
    for (size_t slot = 0; slot < want.size(); ++slot) {
      ASSERT_EQ(Difference(random.dtypes[slot], random.exact[slot], want[slot], got[slot]), "")
          << "seed " << kSeed << ", graph " << i << ", slot " << slot;
    }
    ++ran;
  }
  std::printf("%d graphs of seed %llu\n", ran, static_cast<unsigned long long>(kSeed));
  EXPECT_GT(ran, graphs / 2);
}

TEST_F(GpuGraphs, Elementwise) {
  const int64_t n = fake_ ? 1000 : 10'000'001;
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {n}, "x"), y = b.Param(DType::kFloat32, {n}, "y");
  b.Output((x * y + 1.5).Maximum(0) - x.Abs().Sqrt(), "out");
  ExpectSame(*b.Finish());
}

TEST_F(GpuGraphs, Reductions) {
  const int64_t rows = fake_ ? 9 : 4099, columns = fake_ ? 130 : 4100;
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {rows, columns}, "x");
  b.Output(x.Sum({1}), "rows");
  b.Output(x.Max({0}), "columns");
  b.Output(x.Softmax(-1), "softmax");
  ExpectSame(*b.Finish());
}

TEST_F(GpuGraphs, Product) {
  const int64_t n = fake_ ? 40 : 1024;
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {n, n}, "x"), y = b.Param(DType::kFloat32, {n, n}, "y");
  b.Output(x.MatMul(y), "out");
  ExpectSame(*b.Finish());
}

// Each token has another position, a variable that the kernels read: nothing is compiled for it.
TEST_F(GpuGraphs, DecodingCompilesOnce) {
  ExpectDecoding(
      fake_ ? DecoderShape{.layers = 1, .heads = 1, .channels = 4, .tokens = 8} : DecoderShape{},
      1000);
}

// Of so many heads, each has a workgroup that goes over the keys up to the position.
TEST_F(GpuGraphs, DecodingByHeadsCompilesOnce) {
  ExpectDecoding({.layers = 1, .heads = 16, .channels = 256, .tokens = 8}, fake_ ? 12 : 1000);
}

}  // namespace
}  // namespace telegrad::testing
