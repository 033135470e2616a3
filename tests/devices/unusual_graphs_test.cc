// Unusual graphs, and random ones of every op and element type, on the CPU and on the fake drivers
// of NVIDIA and AMD, against the interpreter of tensor graphs. TELEGRAD_CASES says how many of each
// kind, TELEGRAD_SEED from which seed on; TELEGRAD_PRINT prints each before it runs.
#include "tests/devices/unusual_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>

#include "engine/compile/compiler.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/compare.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/device_graph_runner.h"
#include "tests/devices/hip_fixture.h"

namespace telegrad {
namespace {

using testing::Slots;

struct Place {
  std::string name;
  enum Maker : uint8_t { kHost, kNvidia, kAmd } maker;
  int processor = 0;
};
const Place kPlaces[] = {{"cpu", Place::kHost},
                         {"sm_80", Place::kNvidia, 80},
                         {"sm_90", Place::kNvidia, 90},
                         {"gfx942", Place::kAmd, 0x942},
                         {"gfx1100", Place::kAmd, 0x1100}};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

// A device that is one of kPlaces.
class PlaceRunner {
 public:
  explicit PlaceRunner(const Place& place) {
    std::unique_ptr<Device> device;
    if (place.maker == Place::kNvidia) {
      cuda_ = std::make_unique<FakeCuda>();
      device = OpenFakeCuda(*cuda_, place.processor);
    } else if (place.maker == Place::kAmd) {
      hip_ = std::make_unique<FakeHip>();
      device = OpenFakeHip(*hip_, place.processor);
    } else {
      device = OpenHost({.threads = 2, .memory_limit = int64_t{1} << 30, .target = HostTarget(2)});
    }
    if (device == nullptr) return;
    runner_ = std::make_unique<DeviceGraphRunner>(std::move(device),
                                                  KernelServices{CompileInProcess(), nullptr, {}});
  }
  ~PlaceRunner() {
    runner_.reset();
    if (cuda_ != nullptr) {
      EXPECT_EQ(cuda_->Problems(), "");
    }
    if (hip_ != nullptr) {
      EXPECT_EQ(hip_->Problems(), "");
    }
  }
  DeviceGraphRunner* get() { return runner_.get(); }

 private:
  std::unique_ptr<FakeCuda> cuda_;
  std::unique_ptr<FakeHip> hip_;
  std::unique_ptr<DeviceGraphRunner> runner_;
};

class UnusualGraphs : public ::testing::TestWithParam<std::tuple<int, size_t>> {};

TEST_P(UnusualGraphs, AgreeWithTheInterpreter) {
  const auto& [place, kind] = GetParam();
  PlaceRunner device(kPlaces[place]);
  ASSERT_NE(device.get(), nullptr);
  const uint64_t first = FromEnvironment("TELEGRAD_SEED", 1);
  const uint64_t end = first + FromEnvironment("TELEGRAD_CASES", 1);
  for (uint64_t seed = first; seed < end; ++seed) {
    SCOPED_TRACE(StrCat("TELEGRAD_SEED=", seed));
    const auto graph = testing::MakeUnusualGraph(kind, seed);
    ASSERT_TRUE(graph.ok()) << graph.status();
    Slots want = graph->slots, got = want;
    Budget budget(testing::WithoutDeadline());
    const UOp sink = graph->plan.graph.root();
    if (std::getenv("TELEGRAD_PRINT") != nullptr) std::fputs(Print(sink).c_str(), stderr);
    ASSERT_EQ(reference::Evaluate(sink, want, &budget, {}), absl::OkStatus());
    ASSERT_EQ(device.get()->Run(sink, {}, &got), absl::OkStatus()) << Print(sink);
    ASSERT_EQ(testing::UnusualDifference(graph->plan, want, got), "") << Print(sink);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Places, UnusualGraphs,
    ::testing::Combine(::testing::Range(0, static_cast<int>(std::size(kPlaces))),
                       ::testing::Range<size_t>(0, testing::UnusualKinds().size())),
    [](const auto& info) {
      return StrCat(kPlaces[std::get<0>(info.param)].name, "_",
                    std::string(testing::UnusualKinds()[std::get<1>(info.param)]));
    });

class OnPlaces : public ::testing::TestWithParam<Place> {};

// Of floats under 32 bits, as many at a time as one element, a vector, or more.
TEST_P(OnPlaces, LargestValuesKeepNan) {
  PlaceRunner device(GetParam());
  ASSERT_NE(device.get(), nullptr);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const int64_t n : {1, 3, 4, 8, 16, 33}) {
      Builder b;
      const Tensor x = b.Param(dtype, {9, n}, "x"), y = b.Param(dtype, {9, n}, "y");
      b.Output(x.Maximum(y), "larger");
      b.Output(x.Minimum(y), "smaller");
      b.Output(x.Max({0}), "largest");
      b.Output(x.Maximum(y).Maximum(x.Roll({1}, {0})).Abs(), "of three");
      b.Output(x.MaxPool({2}, {.dilation = {std::min<int64_t>(n, 3)}, .pads = {1}}), "of windows");
      const auto plan = b.Finish();
      ASSERT_TRUE(plan.ok()) << plan.status();
      std::mt19937_64 rng(static_cast<uint64_t>(n));
      Slots want;
      for (const Slot& slot : plan->slots) {
        want.emplace_back(static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape))));
        const auto size = static_cast<size_t>(ByteSize(dtype));
        for (size_t at = 0; slot.role == SlotRole::kInput && at < want.back().size(); at += size) {
          constexpr double kValues[] = {NAN, -NAN, 0.0, -0.0, 1, -1, 2, INFINITY, -INFINITY};
          const double value = kValues[rng() % std::size(kValues)];
          const int64_t raw = ScalarToMemory(dtype, ScalarFromDouble(dtype, value));
          std::memcpy(&want.back()[at], &raw, size);
        }
      }
      Slots got = want;
      Budget budget;
      const UOp sink = plan->graph.root();
      ASSERT_EQ(reference::Evaluate(sink, want, &budget), absl::OkStatus());
      ASSERT_EQ(device.get()->Run(sink, {}, &got), absl::OkStatus());
      EXPECT_EQ(testing::UnusualDifference(*plan, want, got), "") << n;
    }
  }
}

class RandomGraphs : public OnPlaces {};

TEST_P(RandomGraphs, AgreeWithTheInterpreter) {
  PlaceRunner device(GetParam());
  ASSERT_NE(device.get(), nullptr);
  const testing::Way run = [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return device.get()->Run(sink, variables, slots);
  };
  EXPECT_EQ("", testing::CompareMany(run, 40));
}

INSTANTIATE_TEST_SUITE_P(Places, OnPlaces, ::testing::ValuesIn(kPlaces),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Places, RandomGraphs, ::testing::ValuesIn(kPlaces + 1, std::end(kPlaces)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
