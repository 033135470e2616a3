// Memory of other processes on GPUs: copied from and to, refused where the handle is none or the
// memory too small, and closed once, with the last reference.
#include <dlfcn.h>

#include "devices/null/null_device.h"
#include "gmock/gmock.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/hip_fixture.h"
#include "tests/fakes/foreign_memory.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class ImportTest : public Cuda {
 protected:
  void SetUp() override {
    Open();
    ASSERT_GE(devices_.size(), 1u);
  }
  void TearDown() override {
    devices_.clear();  // with the threads that may have been at the last reference
    EXPECT_EQ(fake_.Count("live_imports"), 0);
    EXPECT_EQ(fake_.Problems(), "");
  }
  std::shared_ptr<Memory> Import(const std::string& handle, int64_t size) {
    auto memory = device().ImportHandle(handle, size);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? *memory : nullptr;
  }
  void ExpectRefused(const std::string& handle, int64_t size, const std::string& part) {
    const absl::Status status = device().ImportHandle(handle, size).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_TRUE(device().Health().ok());
  }
};

TEST_F(ImportTest, BothProcessesSeeTheSameBytes) {
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  foreign.Write(8, "written there");
  const int64_t used = device().memory_used();
  const auto memory = Import(foreign.handle(), 48);
  EXPECT_EQ(device().memory_used(), used);
  EXPECT_EQ(memory->size(), 48);
  EXPECT_EQ(memory->host(), nullptr);
  EXPECT_EQ(Read({memory, 8, 13}), "written there");
  // From and to memory of the device's own, and by a kernel.
  const BufferView own = Buffer(13);
  EXPECT_EQ(Copy(device(), own, BufferView{memory, 8, 13})->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(own), "written there");
  EXPECT_EQ(Run({NextCommand(Next(), 0, 0)}, {{memory, 8, 1}}), absl::OkStatus());
  EXPECT_EQ(foreign.Read(8, 2), "xr");
  Fill({memory, 40, 4}, "here");
  EXPECT_EQ(foreign.Read(40, 4), "here");
}

TEST_F(ImportTest, HandlesThatOpenNothing) {
  const ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  std::string wrong = foreign.handle();
  wrong[8] = static_cast<char>(wrong[8] + 1);  // of another allocation
  ExpectRefused(wrong, 64, "cannot be opened");
  ExpectRefused(std::string(64, '\0'), 64, "cannot be opened");
  ExpectRefused(std::string(64, '\xff'), 64, "cannot be opened");
  ExpectRefused("", 64, "a memory handle of 0 bytes; expected 64");
  ExpectRefused(foreign.handle() + "x", 64, "a memory handle of 65 bytes");
  ExpectRefused(foreign.handle().substr(1), 64, "a memory handle of 63 bytes");
  // Larger than the allocation, or no size at all.
  ExpectRefused(foreign.handle(), 65, "has 64 bytes, not 65");
  ExpectRefused(foreign.handle(), INT64_MAX, "has 64 bytes");
  ExpectRefused(foreign.handle(), 0, "0 bytes");
  ExpectRefused(foreign.handle(), -1, "-1 bytes");
  EXPECT_NE(Import(foreign.handle(), 64), nullptr);
}

// A driver opens no memory of its own process: a client cannot name the daemon's.
TEST_F(ImportTest, MemoryOfTheSameProcess) {
  void* const library = dlopen(TELEGRAD_FAKE_CUDA, RTLD_NOW);
  const auto call = [&]<typename... Args>(const char* name, Args... args) {
    return reinterpret_cast<int (*)(Args...)>(dlsym(library, name))(args...);
  };
  uint64_t context = 0, address = 0;
  std::string handle(64, '\0');
  ASSERT_EQ(call("cuCtxCreate_v2", &context, 0u, 0), 0);
  ASSERT_EQ(call("cuMemAlloc_v2", &address, size_t{64}), 0);
  ASSERT_EQ(call("cuIpcGetMemHandle", handle.data(), address), 0);
  ExpectRefused(handle, 64, "CUDA_ERROR_INVALID_CONTEXT");
  ASSERT_EQ(call("cuCtxSetCurrent", context), 0);
  ASSERT_EQ(call("cuMemFree_v2", address), 0);
  ASSERT_EQ(call("cuCtxDestroy_v2", context), 0);
}

// Also by a submission that is still under way.
TEST_F(ImportTest, ItIsOpenUntilTheLastUseOfIt) {
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  foreign.Write(0, "kept");
  auto memory = Import(foreign.handle(), 64);
  auto again = Import(foreign.handle(), 32);  // opened twice, closed twice
  EXPECT_EQ(fake_.Count("live_imports"), 1);
  again.reset();
  EXPECT_EQ(fake_.Count("live_imports"), 1);
  const Gate gate;
  const BufferView own = Buffer(4);
  const auto copied = Copy(device(), own, BufferView{memory, 0, 4}, {gate.point()});
  ASSERT_TRUE(copied.ok()) << copied.status();
  memory.reset();
  EXPECT_EQ(fake_.Count("live_imports"), 1);
  gate.Open();
  EXPECT_EQ(copied->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(own), "kept");
}

TEST_F(ImportTest, DevicesThatOpenNone) {
  const ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  const absl::Status status = OpenNull({})->ImportHandle(foreign.handle(), 64).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  // A processor opens memory of its own kind.
  EXPECT_TRUE(absl::IsInvalidArgument(host_->ImportHandle(foreign.handle(), 64).status()));
}

TEST(HipImport, BothProcessesSeeTheSameBytes) {
  FakeHip fake;
  std::vector<std::string> notes;
  auto devices = OpenHips(FakeHipOptions(), &notes);
  ASSERT_GE(devices.size(), 1u);
  const auto host = OpenHost({.index = 7});
  ForeignMemory foreign(TELEGRAD_FAKE_HIP, "hip", 64);
  foreign.Write(8, "written there");
  EXPECT_TRUE(absl::IsInvalidArgument(devices[0]->ImportHandle(foreign.handle(), 65).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(devices[0]->ImportHandle(std::string(64, 'x'), 64).status()));
  {
    const auto memory = devices[0]->ImportHandle(foreign.handle(), 64);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const BufferView out = HostBuffer(*host, std::string(13, '?'));
    EXPECT_EQ(Copy(*devices[0], out, BufferView{*memory, 8, 13})->Wait(), absl::OkStatus());
    EXPECT_EQ(Bytes(out), "written there");
    EXPECT_EQ(Copy(*devices[0], BufferView{*memory, 0, 4}, HostBuffer(*host, "here"))->Wait(),
              absl::OkStatus());
  }
  EXPECT_EQ(foreign.Read(0, 4), "here");
  EXPECT_EQ(fake.Count("live_imports"), 0);
  devices.clear();
  EXPECT_EQ(fake.Problems(), "");
}

}  // namespace
}  // namespace telegrad
