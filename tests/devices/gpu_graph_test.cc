// Tensor graphs from the frontend through the whole engine onto a GPU, on the fake drivers of
// NVIDIA and AMD: schedule, lower, render, compile, load, launch. The CPU device judges the
// results.
#include <filesystem>
#include <fstream>
#include <random>

#include "devices/disk/disk_device.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/find_assembler.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/scalar.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/sharded_step.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/hip_fixture.h"
#include "tests/nv/nv_fixture.h"

namespace telegrad {
namespace {

using testing::CpuRunner;
using testing::Slots;

constexpr uint64_t kSeed = 7;
constexpr int kRuns = 3;

// Inputs are random, state has its first value.
Slots FirstValues(const Plan& plan) {
  std::mt19937_64 rng(kSeed);
  std::normal_distribution<float> normal;
  Slots slots;
  for (const Slot& slot : plan.slots) {
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape))));
    if (slot.role == SlotRole::kState) {
      const std::string first = InitialValue(slot)->bytes;
      bytes.assign(first.begin(), first.end());
    } else if (slot.role == SlotRole::kInput && IsFloat(slot.dtype)) {
      const auto size = static_cast<size_t>(ByteSize(slot.dtype));
      for (size_t i = 0; i < bytes.size(); i += size) {
        const int64_t x =
            ScalarToMemory(slot.dtype, ScalarFromDouble(slot.dtype, double{normal(rng)}));
        std::memcpy(&bytes[i], &x, size);
      }
    }
    slots.push_back(std::move(bytes));
  }
  return slots;
}

// Whose driver, and what the fake one pretends to be; or NVIDIA's hardware queues without a driver.
struct Gpu {
  enum Maker { kNvidia, kAmd, kRawNvidia };
  std::string name;
  Maker maker = kNvidia;
  bool fake = true;
  int64_t processor = 0;  // the digits of gfx942, or the compute capability, 10 * major + minor
  bool cubins = false;    // code is assembled before the driver gets it
};
const Gpu kGpus[] = {{.name = "cuda_fake", .processor = 90},
                     {.name = "cuda_fake_cubins", .processor = 90, .cubins = true},
                     {.name = "cuda_fake_sm_80", .processor = 80},
                     {.name = "cuda", .fake = false},
                     {.name = "nv_fake", .maker = Gpu::kRawNvidia},
                     {.name = "hip_fake_wave64", .maker = Gpu::kAmd, .processor = 0x942},
                     {.name = "hip_fake_wave32", .maker = Gpu::kAmd, .processor = 0x1100},
                     {.name = "hip", .maker = Gpu::kAmd, .fake = false}};

class GpuGraph : public ::testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    const Gpu& gpu = GetParam();
    if (gpu.fake && gpu.maker == Gpu::kAmd) {
      fake_hip_ = std::make_unique<FakeHip>();
      fake_hip_->Set("processor", gpu.processor);
    } else if (gpu.fake && gpu.maker == Gpu::kNvidia) {
      fake_cuda_ = std::make_unique<FakeCuda>();
      fake_cuda_->Set("capability", gpu.processor);
    }
    std::vector<std::string> notes;
    if (gpu.maker == Gpu::kRawNvidia) {
      raw_ = std::make_unique<fakes::FakeDriver>();
      raw_->Start();
      auto raw = OpenNvs(FakeNvOptions(*raw_), &notes);
      ASSERT_FALSE(raw.empty()) << notes[0];
      device_ = std::move(raw[0]);
      return;
    }
    auto devices = gpu.maker == Gpu::kAmd ? OpenAmd(gpu, &notes) : OpenNvidia(gpu, &notes);
    if (!devices.empty()) {
      device_ = std::move(devices[0]);
    } else {
      ASSERT_FALSE(gpu.fake) << notes[0];
      GTEST_SKIP() << notes[0];
    }
  }

  static std::vector<std::unique_ptr<Device>> OpenAmd(const Gpu& gpu,
                                                      std::vector<std::string>* notes) {
    HipOptions options = gpu.fake ? FakeHipOptions() : HipOptions();
    options.devices = 1;
    return OpenHips(options, notes);
  }
  static std::vector<std::unique_ptr<Device>> OpenNvidia(const Gpu& gpu,
                                                         std::vector<std::string>* notes) {
    CudaOptions options = gpu.fake ? FakeOptions() : CudaOptions();
    options.devices = 1;
    if (gpu.cubins) {
      options.assembler = [](const std::string& arch) -> absl::StatusOr<std::string> {
        const AssemblerNames names{.ptxas = FAKE_PTXAS, .nvjitlink = "", .executable = ""};
        TG_ASSIGN_OR_RETURN(const Assembler assembler, FindAssembler(names, arch));
        return CubinOrPtxFeatures(assembler);
      };
    }
    return OpenCudas(options, notes);
  }
  void TearDown() override {
    if (fake_hip_ != nullptr) {
      EXPECT_EQ(Count("vgpr_spills"), 0);
      EXPECT_EQ(Count("private_bytes"), 0);
    }
    if (!GetParam().cubins) return;
    EXPECT_GT(Count("modules_loaded"), 0);
    EXPECT_EQ(Count("modules_translated"), 0) << "by the driver, in the daemon";
  }
  std::string Problems() {
    return fake_hip_ != nullptr    ? fake_hip_->Problems()
           : fake_cuda_ != nullptr ? fake_cuda_->Problems()
                                   : "";
  }
  int64_t Count(const char* counter) {
    return fake_hip_ != nullptr ? fake_hip_->Count(counter) : fake_cuda_->Count(counter);
  }

  absl::Status RunOnGpu(UOp sink, Slots* slots) { return RunOnGpu(sink, slots, {}, &cache_); }
  absl::Status RunOnGpu(UOp sink, Slots* slots, std::span<const VarValue> values,
                        ExecutableCache* cache) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto built,
                        cache->Get(ContentHash(sink), Freeze(sink), *device_, &budget, values));
    launches_ = built.executable->num_launches();
    std::vector<BufferView> staged, bound;
    for (const auto& bytes : *slots) {
      staged.push_back(HostBuffer(*host_, {bytes.begin(), bytes.end()}));
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(staged.back().length));
      bound.push_back(Whole(std::move(memory)));
      TG_ASSIGN_OR_RETURN(const auto copied, Copy(*device_, bound.back(), staged.back()));
      TG_RETURN_IF_ERROR(copied.Wait());
    }
    for (int run = 0; run < kRuns; ++run) {
      TG_ASSIGN_OR_RETURN(const auto done, built.executable->Submit(bound, {}));
      TG_RETURN_IF_ERROR(done.Wait());
    }
    for (size_t i = 0; i < slots->size(); ++i) {
      TG_ASSIGN_OR_RETURN(const auto copied, Copy(*device_, staged[i], bound[i]));
      TG_RETURN_IF_ERROR(copied.Wait());
      const std::string bytes = Bytes(staged[i]);
      (*slots)[i].assign(bytes.begin(), bytes.end());
    }
    return absl::OkStatus();
  }

  // Runs the plan a few times on either and compares every slot.
  void ExpectSame(const Plan& plan) {
    Slots want = FirstValues(plan), got = want;
    const auto cpu = CpuRunner::Open();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    for (int run = 0; run < kRuns; ++run) {
      ASSERT_EQ((*cpu)->Run(plan.graph.root(), {}, &want), absl::OkStatus());
    }
    ASSERT_EQ(RunOnGpu(plan.graph.root(), &got), absl::OkStatus());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(testing::Difference(plan.slots[i].dtype, false, want[i], got[i]), "")
          << plan.slots[i].name << ", inputs of seed " << kSeed;
    }
    EXPECT_EQ(Problems(), "");
    if (raw_ != nullptr) {
      EXPECT_THAT(raw_->Locked([&] { return raw_->gpu.errors; }), ::testing::IsEmpty());
    }
  }

  std::unique_ptr<FakeCuda> fake_cuda_;  // null, all three: the machine's own
  std::unique_ptr<FakeHip> fake_hip_;
  std::unique_ptr<fakes::FakeDriver> raw_;  // the kernel driver of a raw one
  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::unique_ptr<Device> device_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
  int launches_ = 0;
};

TEST_P(GpuGraph, Elementwise) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {37, 129}, "x");
  const Tensor y = b.Param(DType::kFloat32, {129}, "y");
  b.Output((x * y + 1.5).Maximum(0) - x.Abs().Sqrt(), "out");
  b.Output((x * 1000).Cast(DType::kInt32) + 7, "integers");
  ExpectSame(*b.Finish());
}

TEST_P(GpuGraph, Reductions) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {33, 300}, "x");
  b.Output(x.Sum({1}), "rows");
  b.Output(x.Max({0}), "columns");
  b.Output((x * x).Sum().Reshape({1}), "all");
  ExpectSame(*b.Finish());
}

TEST_P(GpuGraph, Softmax) {
  Builder b;
  b.Output(b.Param(DType::kFloat32, {16, 200}, "x").Softmax(-1), "out");
  ExpectSame(*b.Finish());
}

// With the matrix instructions that the GPU has.
TEST_P(GpuGraph, MatmulOf16BitFloats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Builder b;
    const Tensor x = b.Param(dtype, {40, 48}, "x");
    const Tensor y = b.Param(dtype, {48, 72}, "y");
    b.Output(x.Cast(DType::kFloat32).MatMul(y.Cast(DType::kFloat32)), "out");
    ExpectSame(*b.Finish());
  }
}

// Half of the products are -0, which a sum with +0 would lose.
TEST_P(GpuGraph, ProductsRoundedToHalf) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat16, {8, 32}, "x");
  const Tensor y = b.Param(DType::kFloat32, {32}, "y");
  const Tensor zeros = (x.Cast(DType::kFloat32) * (y - y)).Cast(DType::kFloat16);
  b.Output(zeros.Bitcast(DType::kInt16), "zeros");
  b.Output((x.Cast(DType::kFloat32) * y).Cast(DType::kFloat16), "products");
  ExpectSame(*b.Finish());
}

TEST_P(GpuGraph, Matmul) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {48, 40}, "x");
  const Tensor y = b.Param(DType::kFloat32, {40, 56}, "y");
  b.Output(x.MatMul(y), "out");
  ExpectSame(*b.Finish());
}

// Products of tiles in local memory, with padding and channels that no tile divides.
TEST_P(GpuGraph, Convolutions) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Builder b;
    const Tensor x = b.Param(dtype, {2, 6, 9, 10}, "x"), w = b.Param(dtype, {40, 6, 3, 3}, "w");
    const Tensor y = b.Param(dtype, {40, 6, 1, 1}, "y");
    b.Output(x.Conv(w, {.stride = {2, 1}, .pads = {1, 1, 1, 1}}).Relu(), "padded");
    b.Output(x.Conv(y), "pointwise");
    ExpectSame(*b.Finish());
  }
}

// A matrix of which a tile has more columns than there are: only some lanes store what all of a
// wave have multiplied.
TEST_P(GpuGraph, ConvolutionOfGroupsWithFewPixels) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat16, {2, 48, 9, 9}, "x");
  const Tensor w = b.Param(DType::kFloat16, {64, 24, 1, 1}, "w");
  b.Output(x.Conv(w, {.stride = {2}}, /*groups=*/2).Silu(), "out");
  ExpectSame(*b.Finish());
}

// All lanes of a wave load the same three weights.
TEST_P(GpuGraph, ThreeWeightsOfAWave) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {1, 3, 64}, "x");
  b.Output(x.Conv(b.Param(DType::kFloat32, {4, 3, 1}, "w")), "out");
  ExpectSame(*b.Finish());
}

// Threads of a workgroup read what others of it have written to an output.
TEST_P(GpuGraph, AnOutputAndItsMeanInOneKernel) {
  Builder b;
  const Tensor x = b.Param(DType::kBFloat16, {1, 12, 11, 9}, "x");
  const Tensor w = b.Param(DType::kBFloat16, {21, 4, 3, 1}, "w");
  const Window window{.stride = {2}, .pads = {1, 1, 1, 1}};
  const Tensor y = x.Conv(w, window, /*groups=*/3);
  b.Output(y, "convolved");
  b.Output((y + b.Param(DType::kBFloat16, {21, 1, 1}, "bias")).Relu().Mean({-2, -1}), "mean");
  ExpectSame(*b.Finish());
}

// Forward, backward and the optimizer's step in place, several kernels with temporaries: a replay
// is one graph launch, and nothing is told anew.
TEST_P(GpuGraph, ATrainingStep) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {8, 12}, "x");
  const Tensor y = b.Param(DType::kFloat32, {8, 3}, "y");
  const Tensor w = b.Trainable(DType::kFloat32, {12, 16}, "w", Init::Uniform(-0.3, 0.3, 1));
  const Tensor v = b.Trainable(DType::kFloat32, {16, 3}, "v", Init::Uniform(-0.3, 0.3, 2));
  const Tensor error = x.MatMul(w).Relu().MatMul(v) - y;
  const Tensor loss = (error * error).Mean();
  const std::vector<Tensor> gradients = Gradients(loss, b.trainable());
  for (size_t i = 0; i < gradients.size(); ++i) {
    b.Store(b.trainable()[i], b.trainable()[i] - gradients[i] * 0.1);
  }
  b.Output(loss.Reshape({1}), "loss");
  ExpectSame(*b.Finish());
  EXPECT_GT(launches_, 1);
  if (raw_ != nullptr) {
    EXPECT_EQ(raw_->Locked([&] { return raw_->gpu.kernels; }), kRuns * launches_);
    return;
  }
  if (!GetParam().fake) return;
  EXPECT_EQ(Count("launches"), kRuns * launches_);
  EXPECT_EQ(Count("graph_launches"), kRuns);
  EXPECT_EQ(Count("node_updates"), 0);
}

// A form for all values of a variable launches the workgroups of the run's value: the graph that is
// replayed is changed in place.
TEST_P(GpuGraph, WorkgroupsFollowTheValue) {
  constexpr int64_t kBound = 1024;
  Builder b;
  const Tensor n = b.Variable("n", 1, kBound);
  const Tensor rows = b.Param(DType::kFloat32, {kBound, 16}, "rows").Narrow(0, 0, n);
  const Tensor columns = b.Param(DType::kFloat32, {8, kBound}, "columns").Narrow(1, 0, n);
  b.Output(rows * 2 + 1, "of rows");
  b.Output(b.Param(DType::kFloat32, {64, 8}, "w").MatMul(columns), "product");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  int64_t all = 0;
  ExecutableCache general({.specializations = 0});
  for (const int64_t value : {kBound, int64_t{8}, int64_t{300}, kBound}) {
    SCOPED_TRACE(value);
    const std::vector<VarValue> values{{plan->variables[0].id, value}};
    Slots want = FirstValues(*plan), got = want;
    ASSERT_EQ((*cpu)->Run(plan->graph.root(), values, &want), absl::OkStatus());
    const int64_t before = fake_cuda_ != nullptr ? Count("workgroups") : 0;
    ASSERT_EQ(RunOnGpu(plan->graph.root(), &got, values, &general), absl::OkStatus());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(testing::Difference(plan->slots[i].dtype, false, want[i], got[i]), "") << i;
    }
    if (fake_cuda_ == nullptr) continue;
    const int64_t groups = Count("workgroups") - before;
    if (all == 0) all = groups;
    if (value == kBound) EXPECT_EQ(groups, all) << "as the first time";
    if (value == 8) EXPECT_LE(groups, all / 8);
    if (value == 300) EXPECT_LT(groups, all * 3 / 5);
  }
  EXPECT_EQ(general.stats().misses, 1u) << "one form is for all of them";
  EXPECT_EQ(Problems(), "");
}

// A graph on two GPUs, of which one is lost: its values there are, too, and the next run has
// others.
TEST(GpuGraphs, GoOnAfterALoss) {
  FakeCuda fake;
  std::vector<std::string> notes;
  const auto gpus = OpenCudas(FakeOptions(), &notes);
  ASSERT_GE(gpus.size(), 2u);
  const auto host = OpenHost({.index = 7});
  const std::vector<Device*> devices{gpus[0].get(), gpus[1].get()};
  Graph g;
  const UOp x = g.Param(0, DType::kFloat32, Shape{4}, 0);
  const auto to = [&](UOp value, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {value}, {device});
  };
  const UOp there = to(g.Make(Op::kNeg, {x}), 1);
  const UOp back = to(g.Make(Op::kMul, {there, there}), 0);
  const UOp sink =
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kFloat32, Shape{4}, 0), back})});
  ASSERT_TRUE(sink.valid()) << g.status();
  ExecutableCache parts{ExecutableCache::Limits{}};
  PartitionedCache cache{&parts, {}};
  Budget budget;
  const auto made = cache.Get(ContentHash(sink), Freeze(sink), devices, &budget);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<BufferView> bound{Whole(*gpus[0]->Alloc(16)), Whole(*gpus[0]->Alloc(16))};
  const float values[] = {1, 2, 3, 4};
  const BufferView given = HostBuffer(*host, {reinterpret_cast<const char*>(values), 16});
  ASSERT_EQ(Copy(*gpus[0], bound[0], given)->Wait(), absl::OkStatus());
  const auto run = [&] {
    const auto point = made->executable->Submit(bound, {});
    return point.ok() ? point->Wait() : point.status();
  };
  ASSERT_EQ(run(), absl::OkStatus());
  for (int loss = 0; loss < 2; ++loss) {
    fake.Set("fault_launch", 2);  // that of the second
    EXPECT_TRUE(IsDeviceLost(run()));
    ASSERT_EQ(gpus[0]->Health(), absl::OkStatus());
    ASSERT_EQ(gpus[1]->Recover(), absl::OkStatus());
    // As often as there are sets of buffers, and once more.
    for (int i = 0; i < 4; ++i) ASSERT_EQ(run(), absl::OkStatus()) << "run " << i;
  }
  const BufferView out = HostBuffer(*host, std::string(16, '?'));
  ASSERT_EQ(Copy(*gpus[0], out, bound[1])->Wait(), absl::OkStatus());
  const auto* const results = static_cast<const float*>(out.memory->host());
  EXPECT_THAT(std::vector<float>(results, results + 4), ::testing::ElementsAre(1, 4, 9, 16));
}

// An attention over two GPUs whose caches grow: no step but the first schedules or compiles
// anything, and each computes what the interpreter does.
TEST(GpuGraphs, DecodeOverTwoGpusCompilesOnce) {
  FakeCuda fake;
  std::vector<std::string> notes;
  const auto gpus = OpenCudas(FakeOptions(), &notes);
  ASSERT_GE(gpus.size(), 2u);
  const auto host = OpenHost({.index = 7});
  const std::vector<Device*> devices{gpus[0].get(), gpus[1].get()};
  ExecutableCache parts{ExecutableCache::Limits{}};
  PartitionedCache cache{&parts, {}};
  const testing::ShardedStep step{.positions = 12};
  std::mt19937_64 rng(1);
  std::vector<std::vector<uint8_t>> want = step.Contents(rng);
  std::vector<BufferView> bound;
  for (int64_t s = 0; s < step.slots(); ++s) {
    const auto& bytes = want[static_cast<size_t>(s)];
    Device& device = *devices[static_cast<size_t>(step.device_of(s))];
    bound.push_back(Whole(*device.Alloc(static_cast<int64_t>(bytes.size()))));
    const std::string text(bytes.begin(), bytes.end());
    ASSERT_EQ(Copy(device, bound.back(), HostBuffer(*host, text))->Wait(), absl::OkStatus());
  }
  const FrozenGraph graph = step.Graph();
  uint64_t compiled = 0, scheduled = 0;
  for (int64_t at = 0; at < step.positions; ++at) {
    const std::vector<VarValue> values{{testing::ShardedStep::kPosition, at}};
    Budget budget;
    const auto made = cache.Get(ContentHash(graph.root()), graph, devices, &budget, values);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto point = made->executable->Submit(bound, {});
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_EQ(point->Wait(), absl::OkStatus());
    ASSERT_EQ(reference::Evaluate(graph.root(), want, &budget, {{values[0].id, at}}),
              absl::OkStatus());
    for (int64_t s = 0; s < step.slots(); ++s) {
      const auto& expected = want[static_cast<size_t>(s)];
      const BufferView out = HostBuffer(*host, std::string(expected.size(), '?'));
      Device& device = *devices[static_cast<size_t>(step.device_of(s))];
      ASSERT_EQ(Copy(device, out, bound[static_cast<size_t>(s)])->Wait(), absl::OkStatus());
      const auto* const got = static_cast<const float*>(out.memory->host());
      for (size_t i = 0; i < expected.size() / sizeof(float); ++i) {
        float value;
        std::memcpy(&value, expected.data() + i * sizeof value, sizeof value);
        ASSERT_NEAR(got[i], value, 1e-5) << "position " << at << ", slot " << s << ", " << i;
      }
    }
    if (at > 0) {
      EXPECT_TRUE(made->cached) << at;
      EXPECT_EQ(parts.stats().kernels_compiled, compiled) << at;
      EXPECT_EQ(parts.stats().misses, scheduled) << at;
    }
    compiled = parts.stats().kernels_compiled;
    scheduled = parts.stats().misses;
  }
  EXPECT_EQ(parts.stats().partitions, 1u);
  EXPECT_EQ(parts.stats().bytes_sent, step.positions * 2 * 4 * step.width);
}

// What the driver had to translate because an assembler failed once, as where its disk was full,
// is not kept on disk: the next daemon asks the assembler again. Where the driver refuses cubins,
// as those of a newer assembler, it gets PTX.
TEST(GpuGraphs, CodeThatIsLeftToTheDriverIsNotKept) {
  FakeCuda fake;
  const TemporaryDirectory directory;
  const std::string full = directory.path() / "full", script = directory.path() / "ptxas";
  std::ofstream(full) << "x";
  std::ofstream(script)
      << "#!/bin/sh\n[ \"$1\" = --version ] || grep -q nothing \"$3\" || ! test -e " << full
      << " || exit 3\nexec " FAKE_PTXAS " \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CudaOptions options = FakeOptions();
  options.devices = 1;
  options.assembler = [&](const std::string& arch) -> absl::StatusOr<std::string> {
    const AssemblerNames names{.ptxas = script, .nvjitlink = "", .executable = ""};
    TG_ASSIGN_OR_RETURN(const Assembler assembler, FindAssembler(names, arch));
    return CubinOrPtxFeatures(assembler);
  };
  std::vector<std::string> notes;
  const auto gpus = OpenCudas(options, &notes);
  ASSERT_FALSE(gpus.empty()) << ::testing::PrintToString(notes);
  const FrozenGraph graph = [] {
    Graph g;
    const UOp x = g.Param(0, DType::kFloat32, Shape{4}), y = g.Param(1, DType::kFloat32, Shape{4});
    return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {y, g.Make(Op::kNeg, {x})})}));
  }();
  // As a daemon that begins with what is on disk.
  struct Made {
    uint64_t compiled, left;
    int64_t translated;
  };
  const auto make = [&]() -> Made {
    auto store = KernelStore::Open({directory.path() / "kernels", {}, nullptr});
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) return {};
    ExecutableCache cache(ExecutableCache::Limits{}, {CompileInProcess(), *std::move(store), {}});
    const int64_t before = fake.Count("modules_translated");
    Budget budget;
    const auto made = cache.Get(ContentHash(graph.root()), graph, *gpus[0], &budget);
    EXPECT_TRUE(made.ok()) << made.status();
    const ExecutableCache::Stats stats = cache.stats();
    return {stats.kernels_compiled, stats.kernels_left_to_driver,
            fake.Count("modules_translated") - before};
  };
  Made made = make();
  EXPECT_EQ(made.compiled, 1u);
  EXPECT_EQ(made.left, 1u);
  EXPECT_EQ(made.translated, 1);
  std::filesystem::remove(full);
  made = make();
  EXPECT_EQ(made.compiled, 1u) << "again";
  EXPECT_EQ(made.left, 0u);
  EXPECT_EQ(made.translated, 0);
  made = make();
  EXPECT_EQ(made.compiled, 0u) << "the cubin is kept";
  EXPECT_EQ(made.translated, 0);
  fake.Set("cubin_error", 200);  // CUDA_ERROR_INVALID_IMAGE
  for (int i = 0; i < 2; ++i) {
    made = make();
    EXPECT_EQ(made.compiled, 2u);
    EXPECT_EQ(made.left, 1u);
    EXPECT_EQ(made.translated, 1);
  }
  EXPECT_EQ(fake.Problems(), "");
}

// Bytes of a file pass the host once: the disk reads into memory from which the GPU copies.
TEST(GpuGraphs, AFileIsReadIntoPinnedMemory) {
  FakeCuda fake;
  std::vector<std::string> notes;
  const auto gpus = OpenCudas(FakeOptions(), &notes);
  ASSERT_FALSE(gpus.empty());
  const int64_t words = fake.Count("live_host_allocations");  // by which queues see what has ended
  const TemporaryDirectory directory;
  const auto disk = OpenDisk({.name = "data", .directory = directory.path()});
  ASSERT_TRUE(disk.ok()) << disk.status();
  constexpr int64_t kElements = 3 << 19;  // more bytes than a chunk of staging has
  std::string bytes(4 * kElements, 'x');
  std::ofstream(directory.path() / "file", std::ios::binary) << bytes;
  const auto file = (*disk)->Open("file", 0, -1, OpenMode::kRead);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<Device*> devices{gpus[0].get(), disk->get()};
  Graph g;
  const UOp x = g.Param(0, DType::kInt32, Shape{kElements}, 1);
  const UOp here = g.Make(Op::kCopy, DType::kVoid, {x}, {0});
  const UOp sink =
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kInt32, Shape{kElements}, 0),
                                             g.Make(Op::kNeg, {here})})});
  ASSERT_TRUE(sink.valid()) << g.status();
  ExecutableCache parts{ExecutableCache::Limits{}};
  PartitionedCache cache{&parts, {}};
  Budget budget;
  const auto made = cache.Get(ContentHash(sink), Freeze(sink), devices, &budget);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<BufferView> bound{Whole(*file), Whole(*gpus[0]->Alloc(4 * kElements))};
  const auto point = made->executable->Submit(bound, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(fake.Count("live_host_allocations") - words, 1) << "pinned memory, and no staging";
  const auto host = OpenHost({.index = 7});
  const BufferView out = HostBuffer(*host, std::string(16, '?'));
  ASSERT_EQ(Copy(*gpus[0], out, {bound[1].memory, 0, 16})->Wait(), absl::OkStatus());
  const int32_t expected = -0x78787878;
  const auto* const results = static_cast<const int32_t*>(out.memory->host());
  EXPECT_THAT(std::vector<int32_t>(results, results + 4), ::testing::Each(expected));
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuGraph, ::testing::ValuesIn(kGpus),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
