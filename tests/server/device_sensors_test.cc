// What GPUs measure of themselves, as metrics: on the fake CUDA driver and a fake management
// library, which counts the GPUs in another order.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/cuda/cuda_device.h"
#include "devices/null/null_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/device_watch.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr int kNotSupported = 3, kGpuIsLost = 15;  // nvmlReturn_t
constexpr int64_t kSecond = 1'000'000'000;

class DeviceSensors : public ::testing::Test {
 protected:
  DeviceSensors() { Call<void>("fakeNvmlReset"); }
  ~DeviceSensors() override { Call<void>("fakeNvmlReset"); }

  template <typename Result, typename... Args>
  Result Call(const char* name, Args... args) {
    auto* const function = reinterpret_cast<Result (*)(Args...)>(dlsym(nvml_, name));
    return function(args...);
  }
  int Calls(const char* function) { return Call<int>("fakeNvmlCalls", function); }
  void Refuse(const char* function, int result) { Call<void>("fakeNvmlRefuse", function, result); }
  // Two GPUs, and a device that measures nothing.
  void Open(const std::string& management = FAKE_NVML) {
    std::vector<std::string> notes;
    auto devices = OpenCudas(
        {.library = TELEGRAD_FAKE_CUDA, .management = management, .clock = &clock_}, &notes);
    ASSERT_EQ(devices.size(), 2u) << ::testing::PrintToString(notes);
    EXPECT_THAT(notes, IsEmpty());
    devices.push_back(OpenNull({}));
    pool_ = *DevicePool::Create(std::move(devices));
  }
  // By metric and device.
  std::map<std::string, std::map<std::string, double>> Read() {
    std::map<std::string, std::map<std::string, double>> out;
    for (const LabelledMetric& metric : MetricsOfSensors(*pool_)) {
      const bool counts = metric.name.ends_with("_total");
      EXPECT_EQ(metric.kind, counts ? MetricInfo::kCounter : MetricInfo::kGauge) << metric.name;
      EXPECT_FALSE(metric.help.empty());
      for (const auto& sample : metric.samples) {
        EXPECT_THAT(sample.labels, ElementsAre(Pair("device", ::testing::_)));
        out[metric.name][sample.labels[0].second] = sample.value;
      }
    }
    return out;
  }

  void* const nvml_ = dlopen(FAKE_NVML, RTLD_NOW);
  fakes::ManualClock clock_;
  std::unique_ptr<DevicePool> pool_;
};

// CUDA:0 stands at bus 1, which is the library's second.
TEST_F(DeviceSensors, AreThoseOfTheGpuAtTheSamePlaceOfTheBus) {
  Open();
  const auto both = [](double first, double second) {
    return UnorderedElementsAre(Pair("CUDA:0", first), Pair("CUDA:1", second));
  };
  EXPECT_THAT(Read(),
              UnorderedElementsAre(Pair("telegrad_gpu_utilization_ratio", both(0.1, 0.2)),
                                   Pair("telegrad_gpu_memory_bytes", both(1000, 2000)),
                                   Pair("telegrad_gpu_memory_used_bytes", both(300, 600)),
                                   Pair("telegrad_gpu_power_watts", both(1.5, 3)),
                                   Pair("telegrad_gpu_temperature_celsius", both(41, 42)),
                                   Pair("telegrad_gpu_ecc_corrected_total", both(100, 200)),
                                   Pair("telegrad_gpu_ecc_uncorrected_total", both(7, 14))));
}

TEST_F(DeviceSensors, AreReadAtMostOnceASecond) {
  Open();
  EXPECT_EQ(Calls("nvmlDeviceGetPowerUsage"), 0);
  for (int i = 0; i < 3; ++i) Read();
  EXPECT_EQ(Calls("nvmlDeviceGetPowerUsage"), 2) << "one of each GPU";
  clock_.Advance(kSecond - 1);
  Read();
  EXPECT_EQ(Calls("nvmlDeviceGetPowerUsage"), 2);
  clock_.Advance(1);
  EXPECT_EQ(Read().size(), 7u);
  EXPECT_EQ(Calls("nvmlDeviceGetPowerUsage"), 4);
}

TEST_F(DeviceSensors, WhatIsRefusedHasNoRow) {
  Open();
  Refuse("nvmlDeviceGetTotalEccErrors", kNotSupported);
  EXPECT_EQ(Read().size(), 5u);
  EXPECT_EQ(Read().count("telegrad_gpu_ecc_corrected_total"), 0u);
  Refuse("nvmlDeviceGetHandleByPciBusId_v2", kGpuIsLost);
  clock_.Advance(kSecond);
  EXPECT_THAT(Read(), IsEmpty());
}

TEST_F(DeviceSensors, WithoutALibraryThereAreNone) {
  Open("no such library");
  EXPECT_THAT(Read(), IsEmpty());
  Open("libm.so.6");
  EXPECT_THAT(Read(), IsEmpty());
}

TEST_F(DeviceSensors, ALibraryThatDoesNotWorkIsNotAsked) {
  Refuse("nvmlInit_v2", 9);  // NVML_ERROR_DRIVER_NOT_LOADED
  Open();
  EXPECT_THAT(Read(), IsEmpty());
  EXPECT_EQ(Calls("nvmlDeviceGetHandleByPciBusId_v2"), 0);
}

}  // namespace
}  // namespace telegrad
