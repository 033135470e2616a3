// Networks on a device against the CPU: small pieces of them in every run, and ResNet-50, GPT-2 and
// BERT whole, with a training step, where an environment variable is 1.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/devices/device_graph_runner.h"
#include "tests/devices/fixture.h"
#include "tests/models/models.h"

namespace telegrad::testing {

struct Network {
  std::string name;
  std::function<absl::StatusOr<Plan>()> plan;
  bool whole;
};

inline const Network kNetworks[] = {
    {"softmax", [] { return Softmax(6, 200); }, false},
    {"layernorm", [] { return LayerNorm(5, 192); }, false},
    {"attention",
     [] {
       return Attention({.heads = 4,
                         .groups = 2,
                         .queries = 24,
                         .keys = 24,
                         .channels = 16,
                         .seen = Seen::kCausal});
     },
     false},
    {"resnet50", [] { return ResNet50(1); }, true},
    {"gpt2", [] { return Gpt2(1, 16); }, true},
    {"bert", [] { return Bert(1, 16); }, true},
    {"gpt2_train", [] { return Gpt2TrainStep(1, 8); }, true},
};

// Floats of one standard deviation about 0, numbers of tokens below 1,000, and a mask that shows
// all.
inline Slots FirstValues(const Plan& plan, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Slots slots;
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
inline double Difference(const Plan& plan, const Slots& want, const Slots& got) {
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

// A piece, or the variable of that name is 1.
inline bool IsToRun(const Network& network, const char* every) {
  const char* const value = std::getenv(every);
  return !network.whole || (value != nullptr && std::string_view(value) == "1");
}

// That the device leaves about what the CPU leaves.
inline void ExpectAgrees(const Network& network, std::unique_ptr<Device> device) {
  // Sums of some thousand products of f32 in other orders, through 50 layers.
  constexpr double kApart = 1e-4;
  ASSERT_NE(device, nullptr);
  const auto plan = network.plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Slots want = FirstValues(*plan, /*seed=*/1), got = want;
  DeviceGraphRunner cpu(
      OpenHost({.threads = 2, .memory_limit = int64_t{6} << 30, .target = HostTarget(2)}),
      {CompileInProcess(), nullptr, {}});
  absl::Status status = cpu.Run(plan->graph.root(), {}, &want);
  ASSERT_TRUE(status.ok()) << status;
  DeviceGraphRunner other(std::move(device), {CompileInProcess(), nullptr, {}});
  status = other.Run(plan->graph.root(), {}, &got);
  ASSERT_TRUE(status.ok()) << status;
  const double apart = Difference(*plan, want, got);
  EXPECT_LT(apart, kApart);
  ::testing::Test::RecordProperty(network.name, StrCat(apart));
}

}  // namespace telegrad::testing
