// Which devices a daemon gets for its flags.
#include "devices/drivers.h"

#include <unistd.h>

#include <fstream>

#include "devices/null/null_device.h"
#include "engine/base/strings.h"
#include "tests/devices/fixture.h"

namespace telegrad {
namespace {

DriverOptions Options() {
  DriverOptions options;
  options.host.threads = 1;
  options.cpu_memory = 1 << 20;
  return options;
}

TEST(Drivers, OpenWhatTheOptionsSay) {
  const TemporaryDirectory directory;
  DriverOptions options = Options();
  options.null_devices = 2;
  options.disk_roots = {"data=" + directory.path().string()};
  options.read_only_disk_roots = {"models=" + directory.path().string()};
  options.disk_growth = 1000;
  const auto devices = OpenDevices(options);
  ASSERT_TRUE(devices.ok()) << devices.status();
  std::vector<std::string> names;
  for (const auto& device : *devices) names.push_back(device->name());
  EXPECT_THAT(names,
              ::testing::ElementsAre("CPU:0", "NULL:0", "NULL:1", "DISK:data", "DISK:models"));
  Device& data = *(*devices)[3];
  Device& models = *(*devices)[4];
  EXPECT_EQ(data.memory_limit(), 1000);
  EXPECT_TRUE(data.Open("new", 0, 1000, OpenMode::kCreate).ok());
  EXPECT_TRUE(models.Open("new", 0, -1, OpenMode::kRead).ok());
  EXPECT_EQ(models.Open("new", 0, -1, OpenMode::kWrite).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(Drivers, CpusShareThreadsAndMemory) {
  DriverOptions options = Options();
  options.host.threads = 7;
  options.cpu_devices = 3;
  const auto devices = OpenDevices(options);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 3u);
  int threads = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*devices)[i]->name(), StrCat("CPU:", i));
    EXPECT_EQ((*devices)[i]->memory_limit(), (1 << 20) / 3);
    threads += (*devices)[i]->target().threads;
  }
  EXPECT_EQ(threads, 7);
  EXPECT_EQ((*devices)[0]->target().threads, 3);
}

// A container of 64 MiB, as version 2 of control groups tells it and as version 1 does. Half of it
// is for the devices, and what would pass that is refused.
TEST(Drivers, CpusKeepToTheMemoryOfTheirControlGroup) {
  constexpr int64_t kMiB = 1 << 20;
  const struct {
    std::string groups, file;
  } kVersions[] = {
      {"0::/pod/box\n", "pod/box/memory.max"},
      {"12:cpu,cpuacct:/pod/box\n9:memory:/pod/box\n", "memory/pod/box/memory.limit_in_bytes"},
  };
  for (const auto& version : kVersions) {
    const TemporaryDirectory tree;
    const auto file = tree.path() / version.file;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << 64 * kMiB << "\n";
    std::ofstream(tree.path() / "self") << version.groups;
    DriverOptions options = Options();
    options.cpu_memory = 0;
    options.cpu_devices = 2;
    options.cgroups = {.groups = tree.path() / "self", .root = tree.path()};
    const auto devices = OpenDevices(options);
    ASSERT_TRUE(devices.ok()) << devices.status();
    ASSERT_EQ(devices->size(), 2u);
    for (const auto& device : *devices) EXPECT_EQ(device->memory_limit(), 16 * kMiB);
    Device& device = *devices->front();
    const auto first = device.Alloc(10 * kMiB);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status over = device.Alloc(7 * kMiB).status();
    EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << over;
    EXPECT_EQ(over.message(),
              "CPU:0: allocating 7340032 bytes with 10485760 in use would exceed the memory limit "
              "of 16777216 bytes");
    EXPECT_TRUE(device.Alloc(6 * kMiB).ok());
  }
}

TEST(Drivers, RemotesAreOpenedByWhoHasTheirDriver) {
  DriverOptions options = Options();
  options.open_remotes = [](std::vector<std::string>* notes) {
    notes->push_back("a/DISK:x: left out");
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(OpenNull({.index = 7}));
    return devices;
  };
  std::vector<std::string> notes;
  const auto devices = OpenDevices(options, &notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1]->name(), "NULL:7");
  EXPECT_THAT(notes, ::testing::Contains("a/DISK:x: left out"));
  options.open_remotes = [](std::vector<std::string>*) {
    return absl::StatusOr<std::vector<std::unique_ptr<Device>>>(
        absl::UnavailableError("nobody answers"));
  };
  EXPECT_EQ(OpenDevices(options).status(), absl::UnavailableError("nobody answers"));
}

TEST(Drivers, RawGpusAreOpenedWhenAskedFor) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "there is an NVIDIA driver";
  DriverOptions options = Options();
  options.nv_devices = 1;
  std::vector<std::string> notes;
  ASSERT_TRUE(OpenDevices(options, &notes).ok());
  EXPECT_THAT(notes, ::testing::Contains(::testing::HasSubstr("NV: no assembler for its code")));
  options.nv_assembler = "cubin:V0:/usr/bin/ptxas";
  ASSERT_TRUE(OpenDevices(options, &notes).ok());
  EXPECT_THAT(notes, ::testing::Contains(::testing::HasSubstr(
                         "NV:0 is left out: bring-up: /dev/nvidiactl: No such")));
}

TEST(Drivers, SayWhatTheyCannotUse) {
  DriverOptions options = Options();
  options.cuda_library = "/no/such/libcuda.so.1";
  std::vector<std::string> notes;
  const auto devices = OpenDevices(options, &notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 1u);
  EXPECT_THAT(notes, ::testing::ElementsAre(::testing::HasSubstr("no NVIDIA driver")));
  options.cuda_devices = 0;
  notes.clear();
  EXPECT_TRUE(OpenDevices(options, &notes).ok());
  EXPECT_THAT(notes, ::testing::IsEmpty());
}

TEST(Drivers, RefuseRootsThatAreNone) {
  for (const char* root : {"", "data", "=/", "data=/no/such/directory"}) {
    DriverOptions options = Options();
    options.disk_roots = {root};
    EXPECT_EQ(OpenDevices(options).status().code(), absl::StatusCode::kInvalidArgument) << root;
  }
}

}  // namespace
}  // namespace telegrad
