// GPUs in MIG mode, on the fakes of the driver and of the management library: each instance is a
// device where each is opened in a process of its own; a process that opens all has one and says
// what it lacks.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "devices/hosted/hosted_device.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/fakes/cuda/mig_units.h"

namespace telegrad {
namespace {

using fakecuda::kWhole;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Sets a variable of this process, and puts it back.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    was_set_ = before != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::string before_;
  bool was_set_ = false;
};

std::string Gpu(int gpu) { return fakecuda::UuidName(gpu, kWhole); }
std::string Instance(int gpu, int instance) { return fakecuda::UuidName(gpu, instance); }
std::string NameOfInstance(int64_t number, int gpu, int instance) {
  return StrCat("CUDA:", number, ": Fake GPU sm_90 MIG 1g.16mb, an instance of a GPU in MIG mode, ",
                Instance(gpu, instance), ", with 16 MiB");
}

// Of the fake library: of which instance, or whole GPU, a reading of used memory is.
double UsedOfInstance(int gpu, int instance) { return 10 * (gpu + 1) + instance; }
double UsedOfGpu(int gpu) { return 300 * (gpu + 1); }

class Mig : public ::testing::Test {
 protected:
  void Open(const std::string& mig, bool by_tenant = false, int64_t devices = -1) {
    const std::string folder = std::filesystem::path(FAKE_NVML).parent_path();
    HostedOptions options{
        .executable = DEVICE_WORKER,
        .prefix = "CUDA",
        .setup = {.driver = "cuda", .library = TELEGRAD_FAKE_CUDA, .devices = devices},
        .by_tenant = by_tenant,
        .environment = {"FAKE_CUDA_MIG=" + mig, "LD_LIBRARY_PATH=" + folder}};
    options.on_event = [this](const WorkerEvent& event) { events_.push_back(event); };
    notes_.clear();
    devices_ = OpenHosted(options, &notes_);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& device : devices_) names.push_back(device->name());
    return names;
  }
  static double Used(Device& device) {
    const auto sensors = device.sensors();
    if (sensors == nullptr) return -1;
    return sensors->Read()[Sensor::kMemoryUsed].value_or(-1);
  }
  // Bytes go there and back, and a program runs.
  void ExpectWorks(Device& device) {
    const auto memory = device.Alloc(8);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const BufferView buffer = Whole(*memory);
    const auto program = device.Load(NextImage());
    ASSERT_TRUE(program.ok()) << program.status();
    const auto commands = device.Encode({NextCommand(*program)});
    ASSERT_TRUE(commands.ok()) << commands.status();
    const auto there = Copy(device, buffer, HostBuffer(*host_, "absolute"));
    ASSERT_TRUE(there.ok()) << there.status();
    const TimelinePoint waits[] = {*there};
    const auto ran = device.queue().Submit(*commands, {buffer}, waits);
    ASSERT_TRUE(ran.ok()) << ran.status();
    EXPECT_EQ(ran->Wait(), absl::OkStatus());
    const BufferView out = HostBuffer(*host_, "????????");
    const auto back = Copy(device, out, buffer);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->Wait(), absl::OkStatus());
    EXPECT_EQ(Bytes(out), "bbsolute");
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::string> notes_;
  std::vector<WorkerEvent> events_;
};

// Both GPUs are in MIG mode, with two instances and three. The library lists that of bus 2 first.
TEST_F(Mig, EachInstanceIsADeviceInItsOwnProcess) {
  Open("0x23");
  EXPECT_THAT(Names(), ElementsAre("CUDA:0", "CUDA:1", "CUDA:2", "CUDA:3", "CUDA:4"));
  EXPECT_THAT(notes_,
              ElementsAre(NameOfInstance(0, 1, 0), NameOfInstance(1, 1, 1), NameOfInstance(2, 0, 0),
                          NameOfInstance(3, 0, 1), NameOfInstance(4, 0, 2)));
  ASSERT_EQ(devices_.size(), 5u);
  const double used[] = {UsedOfInstance(1, 0), UsedOfInstance(1, 1), UsedOfInstance(0, 0),
                         UsedOfInstance(0, 1), UsedOfInstance(0, 2)};
  for (size_t i = 0; i < devices_.size(); ++i) {
    EXPECT_EQ(Used(*devices_[i]), used[i]) << i;
    EXPECT_LT(devices_[i]->memory_limit(), 16 << 20) << "a quarter of the GPU's memory";
    ExpectWorks(*devices_[i]);
  }
}

TEST_F(Mig, AGpuThatIsNotInMigModeIsADeviceBesideThem) {
  Open("0x20");
  EXPECT_THAT(Names(), ElementsAre("CUDA:0", "CUDA:1", "CUDA:2"));
  EXPECT_THAT(notes_, ElementsAre(NameOfInstance(0, 1, 0), NameOfInstance(1, 1, 1)));
  ASSERT_EQ(devices_.size(), 3u);
  EXPECT_EQ(Used(*devices_[2]), UsedOfGpu(0));
  EXPECT_GT(devices_[2]->memory_limit(), 16 << 20);
  for (const auto& device : devices_) ExpectWorks(*device);
}

// Of an instance the library tells its memory, and of its GPU the rest but for what is used of it.
TEST_F(Mig, MeasureWhatTheLibraryTellsOfThem) {
  Open("0x20");
  ASSERT_EQ(devices_.size(), 3u);
  const Readings readings = devices_[1]->sensors()->Read();
  EXPECT_EQ(readings[Sensor::kUtilization], std::nullopt);
  EXPECT_EQ(readings[Sensor::kMemory], 16 << 20);
  EXPECT_EQ(readings[Sensor::kMemoryUsed], UsedOfInstance(1, 1));
  EXPECT_EQ(readings[Sensor::kPower], 3);
  EXPECT_EQ(readings[Sensor::kTemperature], 42);
  EXPECT_EQ(readings[Sensor::kEccCorrected], 200);
}

TEST_F(Mig, OneInMigModeWithoutAnInstanceIsLeftOut) {
  Open("0x80");
  EXPECT_THAT(Names(), ElementsAre("CUDA:0"));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr(Gpu(1)), HasSubstr("has no instance"))));
  ASSERT_EQ(devices_.size(), 1u);
  EXPECT_EQ(Used(*devices_[0]), UsedOfGpu(0));
  Open("0x88");
  EXPECT_THAT(devices_, IsEmpty());
  EXPECT_THAT(notes_, ElementsAre(HasSubstr(Gpu(1)), HasSubstr(Gpu(0)),
                                  HasSubstr("no NVIDIA GPU: cuInit")));
}

TEST_F(Mig, TheNumberOfDevicesIsLimited) {
  Open("0x23", /*by_tenant=*/false, /*devices=*/3);
  EXPECT_THAT(Names(), ElementsAre("CUDA:0", "CUDA:1", "CUDA:2"));
}

TEST_F(Mig, OnlyThoseCountThatTheOperatorNames) {
  {
    const Variable visible("CUDA_VISIBLE_DEVICES", Instance(0, 2) + "," + Instance(1, 1));
    Open("0x23");
    EXPECT_THAT(notes_, ElementsAre(NameOfInstance(0, 0, 2), NameOfInstance(1, 1, 1)));
    EXPECT_EQ(devices_.size(), 2u);
  }
  {
    const Variable visible("CUDA_VISIBLE_DEVICES", Gpu(0) + "," + Gpu(1));
    Open("0x20");
    EXPECT_THAT(notes_, ElementsAre(NameOfInstance(1, 1, 0), NameOfInstance(2, 1, 1)))
        << "a GPU stands for its instances";
    EXPECT_EQ(devices_.size(), 3u);
  }
  const Variable visible("CUDA_VISIBLE_DEVICES", "0");
  Open("0x23");
  EXPECT_THAT(notes_, ElementsAre(NameOfInstance(0, 0, 0)))
      << "the driver alone knows which GPU has the number";
  EXPECT_EQ(devices_.size(), 1u);
}

// The next process gets the same instance, whatever the list begins with by then.
TEST_F(Mig, ADeviceStaysItsInstance) {
  Open("0x23");
  ASSERT_EQ(devices_.size(), 5u);
  Device& device = *devices_[3];
  const pid_t worker = events_[3].pid;
  ASSERT_EQ(kill(worker, SIGKILL), 0);
  while (device.Health().ok()) std::this_thread::yield();
  const Variable visible("CUDA_VISIBLE_DEVICES", Instance(1, 1));
  ASSERT_EQ(device.Recover(), absl::OkStatus());
  EXPECT_EQ(Used(device), UsedOfInstance(0, 1));
  ExpectWorks(device);
}

TEST_F(Mig, EachTenantHasItInAProcessOfItsOwn) {
  Open("0x02", /*by_tenant=*/true);
  EXPECT_THAT(notes_, ElementsAre(NameOfInstance(1, 0, 0), NameOfInstance(2, 0, 1)));
  ASSERT_EQ(devices_.size(), 3u);
  for (const char* tenant : {"alice", "bob"}) {
    const auto device = devices_[2]->ForTenant(tenant);
    ExpectWorks(*device);
    EXPECT_EQ(Used(*device), UsedOfInstance(0, 1));
  }
}

class MigInOneProcess : public Mig {
 protected:
  void OpenAll(int64_t only = -1, const char* management = FAKE_NVML) {
    CudaOptions options = FakeOptions();
    options.management = management;
    options.only.number = only;
    notes_.clear();
    devices_ = OpenCudas(options, &notes_);
  }
};

TEST_F(MigInOneProcess, ItHasOneAndSaysWhatItLacks) {
  const Variable mig("FAKE_CUDA_MIG", "0x23");
  FakeCuda fake;
  OpenAll();
  EXPECT_THAT(Names(), ElementsAre("CUDA:0"));
  EXPECT_THAT(notes_, ElementsAre(AllOf(StartsWith("CUDA: 4 of 5 GPUs and instances are left out"),
                                        HasSubstr("--isolate=device or tenant")),
                                  NameOfInstance(0, 0, 0)));
  EXPECT_EQ(Used(*devices_[0]), UsedOfInstance(0, 0));
  devices_.clear();
  // Once the driver works, it shows nothing else.
  const Variable visible("CUDA_VISIBLE_DEVICES", Instance(1, 1) + "," + Instance(0, 1));
  OpenAll(/*only=*/1);
  EXPECT_THAT(devices_, IsEmpty());
  EXPECT_THAT(notes_,
              ElementsAre(StrCat("CUDA:1 (", Instance(0, 1), ") is left out: the driver shows ",
                                 Instance(0, 0), " in place of ", Instance(0, 1))));
}

TEST_F(MigInOneProcess, ItSaysNothingWhereTheOperatorHasNamedOne) {
  const Variable mig("FAKE_CUDA_MIG", "0x23");
  const Variable visible("CUDA_VISIBLE_DEVICES", Instance(1, 1));
  FakeCuda fake;
  OpenAll();
  EXPECT_THAT(notes_, ElementsAre(NameOfInstance(0, 1, 1)));
  ASSERT_EQ(devices_.size(), 1u);
  EXPECT_EQ(Used(*devices_[0]), UsedOfInstance(1, 1));
  ExpectWorks(*devices_[0]);
}

// An older library measures all the same.
TEST_F(MigInOneProcess, ALibraryThatLacksInstancesLeavesTheDriversDevice) {
  const Variable mig("FAKE_CUDA_MIG", "0x23");
  FakeCuda fake;
  OpenAll(/*only=*/-1, FAKE_NVML_WITHOUT_MIG);
  ASSERT_EQ(devices_.size(), 1u);
  EXPECT_THAT(notes_, IsEmpty());
  ExpectWorks(*devices_[0]);
  ASSERT_NE(devices_[0]->sensors(), nullptr);
  EXPECT_EQ(devices_[0]->sensors()->Read()[Sensor::kPower], 1.5);
}

// Where the library refuses to tell, the device is what the driver shows.
TEST_F(MigInOneProcess, WhatTheLibraryRefusesLeavesTheDriversDevice) {
  const Variable mig("FAKE_CUDA_MIG", "0x23");
  void* const nvml = dlopen(FAKE_NVML, RTLD_NOW);
  ASSERT_NE(nvml, nullptr);
  auto* const reset = reinterpret_cast<void (*)()>(dlsym(nvml, "fakeNvmlReset"));
  auto* const refuse = reinterpret_cast<void (*)(const char*, int)>(dlsym(nvml, "fakeNvmlRefuse"));
  constexpr int kUnknown = 999;  // NVML_ERROR_UNKNOWN
  for (const char* function :
       {"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMemoryInfo"}) {
    SCOPED_TRACE(function);
    FakeCuda fake;
    reset();
    refuse(function, kUnknown);
    OpenAll();
    reset();
    ASSERT_EQ(devices_.size(), 1u) << ::testing::PrintToString(notes_);
    ExpectWorks(*devices_[0]);
    devices_.clear();
  }
}

}  // namespace
}  // namespace telegrad
