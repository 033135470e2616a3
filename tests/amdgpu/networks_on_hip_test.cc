// Networks on the fake HIP library, for waves of 64 and of 32, against the CPU: small pieces of
// them in every run, and ResNet-50, GPT-2 and BERT whole, with a training step, where
// TELEGRAD_HIP_EVERY is 1.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>

#include "tests/devices/device_graph_runner.h"
#include "tests/devices/hip_fixture.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

struct Network {
  std::string name;
  std::function<absl::StatusOr<Plan>()> plan;
  bool whole;
};

const Network kNetworks[] = {
    {"softmax", [] { return testing::Softmax(6, 200); }, false},
    {"layernorm", [] { return testing::LayerNorm(5, 192); }, false},
    {"attention",
     [] {
       return testing::Attention({.heads = 4,
                                  .groups = 2,
                                  .queries = 24,
                                  .keys = 24,
                                  .channels = 16,
                                  .seen = testing::Seen::kCausal});
     },
     false},
    {"resnet50", [] { return testing::ResNet50(1); }, true},
    {"gpt2", [] { return testing::Gpt2(1, 16); }, true},
    {"bert", [] { return testing::Bert(1, 16); }, true},
    {"gpt2_train", [] { return testing::Gpt2TrainStep(1, 8); }, true},
};

// Floats of one standard deviation about 0, numbers of tokens below 1,000, and a mask that shows
// all.
testing::Slots FirstValues(const Plan& plan, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  testing::Slots slots;
  for (const Slot& slot : plan.slots) {
    const auto bytes = static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape)));
    std::vector<uint8_t> out(bytes);
    if (slot.role == SlotRole::kState || slot.content != nullptr) {
      const auto value = InitialValue(slot);
      EXPECT_TRUE(value.ok()) << slot.name << ": " << value.status();
      if (value.ok()) std::memcpy(out.data(), value->bytes.data(), bytes);
    } else if (slot.role == SlotRole::kInput && slot.dtype == DType::kFloat32) {
      for (size_t i = 0; i < bytes; i += 4) {
        const float x = slot.name == "mask" ? 1 : normal(random);
        std::memcpy(out.data() + i, &x, 4);
      }
    } else if (slot.role == SlotRole::kInput) {
      EXPECT_EQ(slot.dtype, DType::kInt32) << slot.name;
      const uint32_t most = slot.name == "types" ? 2 : 1000;
      for (size_t i = 0; i < bytes; i += 4) {
        const auto x = static_cast<uint32_t>(random() % most);
        std::memcpy(out.data() + i, &x, 4);
      }
    }
    slots.push_back(std::move(out));
  }
  return slots;
}

// The largest difference of the outputs, over their largest value; 1 for what is no number.
double Difference(const Plan& plan, const testing::Slots& want, const testing::Slots& got) {
  double difference = 0;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].role != SlotRole::kOutput) continue;
    double apart = 0, most = 0;
    for (size_t at = 0; at < want[i].size(); at += 4) {
      float x = 0, y = 0;
      std::memcpy(&x, want[i].data() + at, 4);
      std::memcpy(&y, got[i].data() + at, 4);
      if (!std::isfinite(x) || !std::isfinite(y)) return 1;
      apart = std::max(apart, std::abs(static_cast<double>(x) - y));
      most = std::max(most, std::abs(static_cast<double>(x)));
    }
    EXPECT_GT(most, 0) << plan.slots[i].name;
    difference = std::max(difference, apart / most);
  }
  return difference;
}

class NetworksOnHip : public ::testing::TestWithParam<int> {};

TEST_P(NetworksOnHip, Agree) {
  // Sums of some thousand products of f32 in other orders, through 50 layers.
  constexpr double kApart = 1e-4;
  const char* every = std::getenv("TELEGRAD_HIP_EVERY");
  const bool whole = every != nullptr && std::string_view(every) == "1";
  for (const Network& network : kNetworks) {
    if (network.whole && !whole) continue;
    SCOPED_TRACE(network.name);
    const auto plan = network.plan();
    ASSERT_TRUE(plan.ok()) << plan.status();
    testing::Slots want = FirstValues(*plan, /*seed=*/1), got = want;
    DeviceGraphRunner cpu(
        OpenHost({.threads = 2, .memory_limit = int64_t{6} << 30, .target = HostTarget(2)}),
        {CompileInProcess(), nullptr, {}});
    absl::Status status = cpu.Run(plan->graph.root(), {}, &want);
    ASSERT_TRUE(status.ok()) << status;
    FakeHip fake;
    auto device = OpenFakeHip(fake, GetParam(), /*gib=*/6);
    ASSERT_NE(device, nullptr);
    DeviceGraphRunner hip(std::move(device), {CompileInProcess(), nullptr, {}});
    status = hip.Run(plan->graph.root(), {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    const double apart = Difference(*plan, want, got);
    EXPECT_LT(apart, kApart);
    EXPECT_GT(fake.Count("launches"), 0);
    EXPECT_EQ(fake.Problems(), "");
    RecordProperty(network.name, StrCat(apart));
  }
}

// A kernel is one module, however many launches and executables have it; so an executable that is
// built again, or another that shares kernels, loads none.
TEST_P(NetworksOnHip, LoadAModuleForEachKernel) {
  const char* every = std::getenv("TELEGRAD_HIP_EVERY");
  const bool whole = every != nullptr && std::string_view(every) == "1";
  for (const Network& network : kNetworks) {
    if (network.whole && !whole) continue;
    SCOPED_TRACE(network.name);
    const auto plan = network.plan();
    ASSERT_TRUE(plan.ok()) << plan.status();
    FakeHip fake;
    const auto device = OpenFakeHip(fake, GetParam(), /*gib=*/6);
    ASSERT_NE(device, nullptr);
    ExecutableCache cache(ExecutableCache::Limits{}, {CompileInProcess(), nullptr, {}});
    const UOp sink = plan->graph.root();
    Budget budget;
    const auto built = cache.Get(ContentHash(sink), Freeze(sink), *device, &budget, {});
    ASSERT_TRUE(built.ok()) << built.status();
    std::set<std::string> kernels;
    for (const KernelInfo& kernel : built->executable->kernels()) kernels.insert(kernel.name);
    EXPECT_EQ(fake.Count("modules_loaded"), static_cast<int64_t>(kernels.size()));
    EXPECT_EQ(fake.Count("live_modules"), static_cast<int64_t>(kernels.size()));
    RecordProperty(network.name,
                   StrCat(built->executable->num_launches(), " launches, ", kernels.size(),
                          " modules, ", device->memory_used(), " bytes"));
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, NetworksOnHip, ::testing::Values(0x942, 0x1100),
                         [](const auto& info) {
                           return info.param == 0x942 ? "gfx942" : "gfx1100";
                         });

}  // namespace
}  // namespace telegrad
