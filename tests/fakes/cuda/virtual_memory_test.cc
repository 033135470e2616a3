// Virtual memory management: what may be mapped where, who may use it, and what goes when.
#include <gmock/gmock.h>

#include "tests/fakes/cuda/driver_fixture.h"

namespace fakecuda {
namespace {

using testing::HasSubstr;

constexpr size_t kChunk = 2 << 20;

class VirtualMemoryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    cu.fakeCudaSet("virtual_memory", 1);
  }
  static AllocationProperties On(int device) {
    return {.type = 1,
            .handle_types = 0,
            .location = {1, device},
            .win32_meta_data = nullptr,
            .compression = 0,
            .rdma_capable = 0,
            .usage = 0,
            .reserved = {}};
  }
  DevicePointer Reserve(size_t bytes) {
    DevicePointer address = 0;
    EXPECT_EQ(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  Handle Create(size_t bytes, int device = 0) {
    const AllocationProperties properties = On(device);
    Handle handle = 0;
    EXPECT_EQ(cu.cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  int Allow(DevicePointer address, size_t bytes, int device, int flags = 3) {
    const AccessDescription access{{1, device}, flags};
    return cu.cuMemSetAccess(address, bytes, &access, 1);
  }
  int Fill(DevicePointer address, size_t bytes, unsigned char value) {
    return cu.cuMemsetD8Async(address, value, bytes, 0);
  }
};

TEST_F(VirtualMemoryTest, MappedMemoryIsOneStretchForThoseWithAccess) {
  const Handle context = Start();
  size_t granularity = 0;
  const AllocationProperties properties = On(0);
  ASSERT_EQ(cu.cuMemGetAllocationGranularity(&granularity, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(granularity, kChunk);
  const DevicePointer base = Reserve(4 * kChunk);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);  // only addresses
  const Handle a = Create(kChunk), b = Create(kChunk);
  ASSERT_EQ(cu.cuMemMap(base, kChunk, 0, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemMap(base + kChunk, kChunk, 0, b, 0), CUDA_SUCCESS);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);  // no access
  ASSERT_EQ(Allow(base, 2 * kChunk, 0), CUDA_SUCCESS);
  const DevicePointer across = base + kChunk - 16;
  for (const uint32_t v : Read(across, 8, 0)) EXPECT_EQ(v, 0xcdcdcdcd);
  ASSERT_EQ(Fill(across, 32, 7), CUDA_SUCCESS);
  const Handle add = Function(kAdd, "add");
  ASSERT_EQ(LaunchAdd(add, base + kChunk - 64, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(Read(across, 8, 0), std::vector<uint32_t>(8, 0x07070708));
  EXPECT_EQ(Fill(base, 2 * kChunk + 1, 0), CUDA_ERROR_INVALID_VALUE);
  // A kernel that leaves what is mapped.
  ASSERT_EQ(LaunchAdd(add, base + 2 * kChunk - 64, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu.cuCtxDestroy_v2(context), CUDA_SUCCESS);
  // It is of no context.
  EXPECT_EQ(cu.fakeCudaCount("live_mappings"), 2);
  EXPECT_EQ(cu.cuMemUnmap(base, 2 * kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemRelease(a), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemRelease(b), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemAddressFree(base, 4 * kChunk), CUDA_SUCCESS);
  for (const char* counter : {"live_mappings", "live_bytes", "live_reservations"}) {
    EXPECT_EQ(cu.fakeCudaCount(counter), 0) << counter;
  }
}

TEST_F(VirtualMemoryTest, WrongCalls) {
  Start();
  DevicePointer address = 0;
  for (const size_t bytes : {size_t{0}, kChunk + 4096}) {
    EXPECT_EQ(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cu.cuMemAddressReserve(&address, kChunk, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemAddressReserve(&address, kChunk, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  const DevicePointer base = Reserve(4 * kChunk);
  AllocationProperties properties = On(0);
  Handle none = 0;
  EXPECT_EQ(cu.cuMemCreate(&none, kChunk / 2, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  properties.location.id = 2;
  EXPECT_EQ(cu.cuMemCreate(&none, kChunk, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
  properties = On(0);
  properties.type = 0;
  EXPECT_EQ(cu.cuMemCreate(&none, kChunk, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  const Handle two = Create(2 * kChunk), one = Create(kChunk);
  EXPECT_EQ(cu.cuMemMap(base + 4096, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemMap(base, kChunk, kChunk, two, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemMap(base, 2 * kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemMap(base + 3 * kChunk, 2 * kChunk, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemMap(base, kChunk, 0, one + 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Problems(), "");
  ASSERT_EQ(cu.cuMemMap(base + kChunk, 2 * kChunk, 0, two, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemMap(base + 2 * kChunk, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemMap(base, 2 * kChunk, 0, Create(2 * kChunk), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("cuMemMap to addresses where memory is mapped"));
  // Access and unmapping are of whole mappings.
  EXPECT_EQ(Allow(base + kChunk, kChunk, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base, 3 * kChunk, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base + kChunk, 2 * kChunk, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Allow(base + kChunk, 2 * kChunk, 0, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base + kChunk, 2 * kChunk, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemUnmap(base + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemUnmap(base, 3 * kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("cuMemUnmap of other than whole mappings"));
  EXPECT_EQ(cu.cuMemFree_v2(base + kChunk), CUDA_ERROR_INVALID_VALUE);
  IpcHandle handle{};
  EXPECT_EQ(cu.cuIpcGetMemHandle(&handle, base + kChunk), CUDA_ERROR_INVALID_VALUE);
  // Addresses with memory are not given back.
  EXPECT_EQ(cu.cuMemAddressFree(base, 4 * kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemAddressFree(base, kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("cuMemAddressFree of addresses where memory is mapped"));
}

TEST_F(VirtualMemoryTest, MemoryGoesWhenItIsReleasedAndMappedNowhere) {
  Start();
  const DevicePointer base = Reserve(2 * kChunk);
  const Handle handle = Create(kChunk);
  size_t free = 0, total = 0;
  ASSERT_EQ(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, total - kChunk);
  ASSERT_EQ(cu.cuMemMap(base, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Allow(base, kChunk, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("cuMemRelease of what is no memory"));
  EXPECT_EQ(cu.cuMemMap(base + kChunk, kChunk, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.fakeCudaCount("live_bytes"), static_cast<int64_t>(kChunk));
  ASSERT_EQ(Fill(base, 4, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuStreamSynchronize(0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemUnmap(base, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cu.fakeCudaCount("live_bytes"), 0);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);
  // At the same addresses, another memory has access of its own.
  ASSERT_EQ(cu.cuMemMap(base, kChunk, 0, Create(kChunk), 0), CUDA_SUCCESS);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);
  // It is bounded and fails as other memory.
  const AllocationProperties properties = On(0);
  Handle more = 0;
  EXPECT_EQ(cu.cuMemCreate(&more, 64 << 20, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  cu.fakeCudaSet("fail_allocation", 1);
  EXPECT_EQ(cu.cuMemCreate(&more, kChunk, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  cu.fakeCudaSet("create_error", CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cu.cuMemCreate(&more, kChunk, &properties, 0), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(VirtualMemoryTest, UnmappingTakesItFromWhatIsStillToRun) {
  Start();
  const DevicePointer base = Reserve(kChunk);
  ASSERT_EQ(cu.cuMemMap(base, kChunk, 0, Create(kChunk), 0), CUDA_SUCCESS);
  ASSERT_EQ(Allow(base, kChunk, 0), CUDA_SUCCESS);
  cu.fakeCudaSet("hold", 1);
  ASSERT_EQ(Fill(base, 4, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemUnmap(base, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(Problems(), HasSubstr("a memset of memory that was freed before it ran"));
}

TEST_F(VirtualMemoryTest, PeersNeedAccess) {
  const Handle first = Start();
  Handle second = 0;
  ASSERT_EQ(cu.cuCtxCreate_v2(&second, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuCtxEnablePeerAccess(first, 0), CUDA_SUCCESS);
  const DevicePointer base = Reserve(kChunk);
  ASSERT_EQ(cu.cuMemMap(base, kChunk, 0, Create(kChunk, 0), 0), CUDA_SUCCESS);
  ASSERT_EQ(Allow(base, kChunk, 0), CUDA_SUCCESS);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);  // whatever the contexts allow
  ASSERT_EQ(Allow(base, kChunk, 1), CUDA_SUCCESS);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Allow(base, kChunk, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(Fill(base, 4, 0), CUDA_ERROR_INVALID_VALUE);
  cu.fakeCudaSet("peer_access", 0);
  EXPECT_EQ(Allow(base, kChunk, 1), CUDA_ERROR_INVALID_DEVICE);
  // A copy between contexts says whose the memory is.
  const DevicePointer own = Alloc(16);
  EXPECT_EQ(cu.cuMemcpyPeerAsync(own, second, base, second, 16, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyPeerAsync(own, second, base, first, 16, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, DevicesWithoutIt) {
  cu.fakeCudaSet("virtual_memory", 0);
  Start();
  int value = 1;
  EXPECT_EQ(cu.cuDeviceGetAttribute(&value, 102, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 0);
  DevicePointer address = 0;
  EXPECT_EQ(cu.cuMemAddressReserve(&address, kChunk, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace fakecuda
