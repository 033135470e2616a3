// Tensor graphs from the frontend through the whole engine onto a GPU, on the fake driver:
// schedule, lower, render, PTX, load, launch. The CPU device judges the results.
#include <random>

#include "engine/base/status.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "tests/conformance/run_graph.h"
#include "tests/devices/cuda_fixture.h"
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
    } else if (slot.role == SlotRole::kInput && slot.dtype == DType::kFloat32) {
      for (size_t i = 0; i < bytes.size(); i += 4) {
        const float x = normal(rng);
        std::memcpy(&bytes[i], &x, 4);
      }
    }
    slots.push_back(std::move(bytes));
  }
  return slots;
}

enum class Gpu { kFake, kReal, kRaw };  // the last: through its hardware queues

class CudaGraph : public ::testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    CudaOptions options;
    if (GetParam() == Gpu::kFake) {
      fake_ = std::make_unique<FakeCuda>();
      options = FakeOptions();
    }
    options.devices = 1;
    std::vector<std::string> notes;
    if (GetParam() == Gpu::kRaw) {
      raw_ = std::make_unique<fakes::FakeDriver>();
      raw_->Start();
      auto raw = OpenNvs(FakeNvOptions(*raw_), &notes);
      ASSERT_FALSE(raw.empty()) << notes[0];
      device_ = std::move(raw[0]);
      return;
    }
    auto devices = OpenCudas(options, &notes);
    if (!devices.empty()) {
      device_ = std::move(devices[0]);
    } else {
      ASSERT_EQ(GetParam(), Gpu::kReal) << notes[0];
      GTEST_SKIP() << notes[0];
    }
  }

  absl::Status RunOnGpu(UOp sink, Slots* slots) {
    Budget budget;
    TG_ASSIGN_OR_RETURN(const auto built,
                        cache_.Get(ContentHash(sink), Freeze(sink), *device_, &budget));
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
    if (fake_ != nullptr) {
      EXPECT_EQ(fake_->Problems(), "");
    }
    if (raw_ != nullptr) {
      EXPECT_THAT(raw_->Locked([&] { return raw_->gpu.errors; }), ::testing::IsEmpty());
    }
  }

  std::unique_ptr<FakeCuda> fake_;          // null: the machine's own
  std::unique_ptr<fakes::FakeDriver> raw_;  // the kernel driver of a raw one
  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::unique_ptr<Device> device_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
  int launches_ = 0;
};

TEST_P(CudaGraph, Elementwise) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {37, 129}, "x");
  const Tensor y = b.Param(DType::kFloat32, {129}, "y");
  b.Output((x * y + 1.5).Maximum(0) - x.Abs().Sqrt(), "out");
  b.Output((x * 1000).Cast(DType::kInt32) + 7, "integers");
  ExpectSame(*b.Finish());
}

TEST_P(CudaGraph, Reductions) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {33, 300}, "x");
  b.Output(x.Sum({1}), "rows");
  b.Output(x.Max({0}), "columns");
  b.Output((x * x).Sum().Reshape({1}), "all");
  ExpectSame(*b.Finish());
}

TEST_P(CudaGraph, Softmax) {
  Builder b;
  b.Output(b.Param(DType::kFloat32, {16, 200}, "x").Softmax(-1), "out");
  ExpectSame(*b.Finish());
}

TEST_P(CudaGraph, Matmul) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {48, 40}, "x");
  const Tensor y = b.Param(DType::kFloat32, {40, 56}, "y");
  b.Output(x.MatMul(y), "out");
  ExpectSame(*b.Finish());
}

// Forward, backward and the optimizer's step in place, several kernels with temporaries: a replay
// is one graph launch, and nothing is told anew.
TEST_P(CudaGraph, ATrainingStep) {
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
  }
  if (fake_ == nullptr) return;
  EXPECT_EQ(fake_->Count("launches"), kRuns * launches_);
  EXPECT_EQ(fake_->Count("graph_launches"), kRuns);
  EXPECT_EQ(fake_->Count("node_updates"), 0);
}

std::string NameOf(const ::testing::TestParamInfo<Gpu>& info) {
  constexpr const char* kNames[] = {"fake", "real", "raw"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudaGraph, ::testing::Values(Gpu::kFake, Gpu::kReal, Gpu::kRaw),
                         &NameOf);

}  // namespace
}  // namespace telegrad
