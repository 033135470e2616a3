// Devices, contexts, memory and streams: wrong calls give the results of the real driver, the
// failures that a test asks for occur, and a missing wait shows in the data.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "tests/fakes/cuda/driver_fixture.h"

namespace fakecuda {
namespace {

using testing::HasSubstr;

TEST_F(DriverTest, NothingWorksBeforeInit) {
  int count = 0;
  EXPECT_EQ(cu.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  Handle context = 0;
  EXPECT_EQ(cu.cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  DevicePointer address = 0;
  EXPECT_EQ(cu.cuMemAlloc_v2(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, PlaysOtherMachines) {
  cu.fakeCudaSet("devices", 0);
  EXPECT_EQ(cu.cuInit(0), CUDA_ERROR_NO_DEVICE);
  cu.fakeCudaReset();
  cu.fakeCudaSet("init_error", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(cu.cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  cu.fakeCudaReset();
  cu.fakeCudaSet("devices", 3);
  cu.fakeCudaSet("capability", 75);
  cu.fakeCudaSet("driver_version", 11020);
  cu.fakeCudaSet("busy_device", 1);
  ASSERT_EQ(cu.cuInit(0), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(cu.cuDriverGetVersion(&value), CUDA_SUCCESS);
  EXPECT_EQ(value, 11020);
  EXPECT_EQ(cu.cuDeviceGetAttribute(&value, 75, 2), CUDA_SUCCESS);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(cu.cuDeviceGetAttribute(&value, 76, 2), CUDA_SUCCESS);
  EXPECT_EQ(value, 5);
  EXPECT_EQ(cu.cuDeviceGetAttribute(&value, 75, 3), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cu.cuDeviceGetAttribute(&value, 9999, 0), CUDA_ERROR_INVALID_VALUE);
  Handle context = 0;
  EXPECT_EQ(cu.cuCtxCreate_v2(&context, 0, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(cu.cuCtxCreate_v2(&context, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(cu.fakeCudaSet("no such knob", 1), -1);
  const char* name = nullptr;
  EXPECT_EQ(cu.cuGetErrorName(700, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cu.cuGetErrorName(12345, &name), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, AnOldDriverLacksSymbols) {
  void* const old = dlopen(TELEGRAD_FAKE_CUDA_OLD, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(old, nullptr) << dlerror();
  EXPECT_NE(dlsym(old, "cuInit"), nullptr);
  EXPECT_EQ(dlsym(old, "cuGraphAddKernelNode_v2"), nullptr);
}

TEST_F(DriverTest, MemoryIsCountedAndBounded) {
  Start();
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, size_t{64} << 20);
  EXPECT_EQ(total, size_t{64} << 20);
  const DevicePointer a = Alloc(1000);
  EXPECT_EQ(a % 256, 0u);
  ASSERT_EQ(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, (size_t{64} << 20) - 1024);
  DevicePointer b = 0;
  EXPECT_EQ(cu.cuMemAlloc_v2(&b, 64 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu.cuMemAlloc_v2(&b, 0), CUDA_ERROR_INVALID_VALUE);
  cu.fakeCudaSet("fail_allocation", 2);
  EXPECT_EQ(cu.cuMemAlloc_v2(&b, 4), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemAlloc_v2(&b, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu.cuMemAlloc_v2(&b, 4), CUDA_SUCCESS);
  EXPECT_EQ(cu.fakeCudaCount("live_allocations"), 3);
  EXPECT_EQ(cu.cuMemFree_v2(a + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("no allocation"));
  EXPECT_NE(Alloc(1000), a);  // never again
}

TEST_F(DriverTest, MemoryIsNotZeroedAndNotTheHosts) {
  Start();
  const DevicePointer a = Alloc(16);
  for (const uint32_t v : Read(a, 4, 0)) EXPECT_NE(v, 0u);
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 16, 0), CUDA_SUCCESS);
  for (const uint32_t v : Read(a, 4, 0)) EXPECT_EQ(v, 0u);
  uint8_t here[16] = {};
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(a, reinterpret_cast<void*>(a), 16, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(reinterpret_cast<DevicePointer>(here), here, 16, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyDtoHAsync_v2(here, a + 1, 16, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemsetD8Async(a, 0, 17, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(a, here, 16, 0x1234), CUDA_ERROR_INVALID_HANDLE);
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(a), "");
}

TEST_F(DriverTest, LeaksAreReported) {
  const Handle context = Start();
  Alloc(100);
  MakeStream();
  MakeEvent();
  EXPECT_EQ(Problems(), "");
  EXPECT_EQ(cu.cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_THAT(Problems(), HasSubstr("1 allocations (100 bytes), 1 streams, 1 events"));
  EXPECT_EQ(cu.fakeCudaCount("live_allocations"), 0);
  EXPECT_EQ(cu.fakeCudaCount("live_contexts"), 0);
  EXPECT_EQ(cu.cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuCtxSetCurrent(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(DriverTest, PrimaryContextsAreCounted) {
  ASSERT_EQ(cu.cuInit(0), CUDA_SUCCESS);
  Handle a = 0;
  Handle b = 0;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&a, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&b, 0), CUDA_SUCCESS);
  EXPECT_EQ(a, b);
  ASSERT_EQ(cu.cuCtxSetCurrent(a), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  const DevicePointer memory = Alloc(16);
  EXPECT_EQ(cu.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, StreamsRunInTheirOwnOrder) {
  Start();
  const Handle stream = MakeStream();
  const DevicePointer a = Alloc(128);
  const Handle add = Function(kAdd, "add");
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, stream), CUDA_SUCCESS);
  for (uint32_t i = 1; i <= 10; ++i) ASSERT_EQ(LaunchAdd(add, a, i, stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(a, 32, stream), std::vector<uint32_t>(32, 55));
  EXPECT_EQ(cu.fakeCudaCount("launches"), 10);
  EXPECT_EQ(cu.fakeCudaCount("memsets"), 1);
  EXPECT_EQ(cu.fakeCudaCount("copied_bytes"), 128);
}

// What a copy to pinned memory on one stream sees of a launch on another.
TEST_F(DriverTest, MissingEventWaitIsSeen) {
  Start();
  const Handle compute = MakeStream();
  const Handle copy = MakeStream();
  const Handle event = MakeEvent();
  const DevicePointer a = Alloc(128);
  const Handle add = Function(kAdd, "add");
  void* host = nullptr;
  ASSERT_EQ(cu.cuMemHostAlloc(&host, 128, 0), CUDA_SUCCESS);
  std::map<bool, std::map<uint32_t, int>> seen;  // with the wait, without it
  for (const bool wait : {true, false}) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, compute), CUDA_SUCCESS);
      ASSERT_EQ(cu.cuStreamSynchronize(compute), CUDA_SUCCESS);
      ASSERT_EQ(LaunchAdd(add, a, 7, compute), CUDA_SUCCESS);
      ASSERT_EQ(cu.cuEventRecord(event, compute), CUDA_SUCCESS);
      if (wait) {
        ASSERT_EQ(cu.cuStreamWaitEvent(copy, event, 0), CUDA_SUCCESS);
      }
      ASSERT_EQ(cu.cuMemcpyDtoHAsync_v2(host, a, 128, copy), CUDA_SUCCESS);
      ASSERT_EQ(cu.cuStreamSynchronize(copy), CUDA_SUCCESS);
      ++seen[wait][static_cast<uint32_t*>(host)[5]];
      ASSERT_EQ(cu.cuStreamSynchronize(compute), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(seen[true], (std::map<uint32_t, int>{{7, 200}}));
  EXPECT_GT(seen[false][0], 0);  // by chance
  // With the laziest scheduler, always.
  cu.fakeCudaSet("hold", 1);
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, compute), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuStreamSynchronize(compute), CUDA_SUCCESS);
  ASSERT_EQ(LaunchAdd(add, a, 7, compute), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemcpyDtoHAsync_v2(host, a, 128, copy), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuStreamSynchronize(copy), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint32_t*>(host)[5], 0u);
  EXPECT_EQ(cu.cuStreamQuery(compute), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cu.cuStreamSynchronize(compute), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuStreamQuery(compute), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemFreeHost(host), CUDA_SUCCESS);
}

// A stream writes a word when its turn comes, to the address that GPUs have for it.
TEST_F(DriverTest, AWordIsWrittenLateAndInOrder) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle stream = MakeStream();
  const DevicePointer a = Alloc(128);
  const Handle add = Function(kAdd, "add");
  void* host = nullptr;
  ASSERT_EQ(cu.cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
  DevicePointer address = 0;
  EXPECT_EQ(cu.cuMemHostGetDevicePointer_v2(&address, host, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemFreeHost(host), CUDA_SUCCESS);
  constexpr unsigned kDeviceMap = 2;
  ASSERT_EQ(cu.cuMemHostAlloc(&host, 4096, kDeviceMap), CUDA_SUCCESS);
  auto* const word = static_cast<volatile uint64_t*>(host);
  *word = 0;
  ASSERT_EQ(cu.cuMemHostGetDevicePointer_v2(&address, host, 0), CUDA_SUCCESS);
  EXPECT_NE(address, reinterpret_cast<uint64_t>(host));
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, stream), CUDA_SUCCESS);
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(LaunchAdd(add, a, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuStreamWriteValue64_v2(stream, address, i << 40, 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(*word, 0u);
  EXPECT_EQ(Read(a, 1, stream)[0], 3u);
  EXPECT_EQ(*word, uint64_t{3} << 40);
  EXPECT_EQ(cu.fakeCudaCount("words"), 3);
  // To where it is not, in part, or without the barrier.
  for (const DevicePointer wrong :
       {address + 4, address + 4096, reinterpret_cast<uint64_t>(host)}) {
    EXPECT_EQ(cu.cuStreamWriteValue64_v2(stream, wrong, 1, 0), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cu.cuStreamWriteValue64_v2(stream, address, 1, 1), CUDA_ERROR_INVALID_VALUE);
  cu.fakeCudaSet("stream_words", 0);
  EXPECT_EQ(cu.cuStreamWriteValue64_v2(stream, address, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu.cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(DriverTest, PinnedMemoryIsReadLateAndPageableMemoryAtOnce) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle stream = MakeStream();
  const DevicePointer a = Alloc(4);
  const DevicePointer b = Alloc(4);
  void* pinned = nullptr;
  ASSERT_EQ(cu.cuMemHostAlloc(&pinned, 4, 0), CUDA_SUCCESS);
  uint32_t pageable = 1;
  std::memcpy(pinned, &pageable, 4);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(a, pinned, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(b, &pageable, 4, stream), CUDA_SUCCESS);
  pageable = 2;
  std::memcpy(pinned, &pageable, 4);
  EXPECT_EQ(Read(a, 1, stream)[0], 2u);
  EXPECT_EQ(Read(b, 1, stream)[0], 1u);
}

TEST_F(DriverTest, TheDefaultStreamTakesTurnsWithBlockingStreams) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle blocking = MakeStream(0);
  const Handle free = MakeStream(1);
  const DevicePointer a = Alloc(128);
  const DevicePointer b = Alloc(128);
  const Handle add = Function(kAdd, "add");
  for (const auto& [stream, memory] : {std::pair{blocking, a}, std::pair{free, b}}) {
    ASSERT_EQ(cu.cuMemsetD8Async(memory, 0, 128, stream), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(LaunchAdd(add, memory, 7, stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(Read(a, 1, 0)[0], 7u);  // the default stream waited for it
  EXPECT_EQ(Read(b, 1, 0)[0], 0u);
}

TEST_F(DriverTest, EventsHaveStatesAndTimes) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle stream = MakeStream();
  const Handle begin = MakeEvent();
  const Handle end = MakeEvent();
  const Handle untimed = MakeEvent(2);
  float milliseconds = -1;
  EXPECT_EQ(cu.cuEventQuery(begin), CUDA_SUCCESS);  // nothing was recorded
  EXPECT_EQ(cu.cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_INVALID_HANDLE);
  for (const Handle e : {begin, untimed, end}) ASSERT_EQ(cu.cuEventRecord(e, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuEventQuery(begin), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cu.cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cu.cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cu.cuEventElapsedTime(&milliseconds, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu.cuEventDestroy_v2(end), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuEventRecord(end, stream), CUDA_ERROR_INVALID_HANDLE);
}

struct Called {
  Functions* cu;
  std::atomic<int> count{0};
  int inside = 0;
};

TEST_F(DriverTest, HostFunctionsMayNotCallTheDriver) {
  Start();
  const Handle stream = MakeStream();
  Called called{&cu};
  const auto function = [](void* data) {
    auto* c = static_cast<Called*>(data);
    c->inside = c->cu->cuCtxSynchronize();
    ++c->count;
  };
  ASSERT_EQ(cu.cuLaunchHostFunc(stream, function, &called), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(called.count, 1);
  EXPECT_EQ(called.inside, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(DriverTest, FaultsPoisonTheContextAndNoOther) {
  const Handle good = Start();
  const DevicePointer kept = Alloc(128);
  Handle bad = 0;
  ASSERT_EQ(cu.cuCtxCreate_v2(&bad, 0, 0), CUDA_SUCCESS);
  const Handle stream = MakeStream();
  const Handle event = MakeEvent();
  const DevicePointer a = Alloc(64);
  const Handle add = Function(kAdd, "add");
  cu.fakeCudaSet("hold", 1);                              // no fault before everything is submitted
  ASSERT_EQ(LaunchAdd(add, a, 1, stream), CUDA_SUCCESS);  // 32 threads, 16 numbers
  ASSERT_EQ(cu.cuEventRecord(event, stream), CUDA_SUCCESS);
  Called called{&cu};
  const auto count = [](void* data) { ++static_cast<Called*>(data)->count; };
  cu.cuLaunchHostFunc(stream, count, &called);
  EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(called.count, 0);
  EXPECT_EQ(cu.cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu.cuMemFree_v2(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(LaunchAdd(add, a, 1, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(Problems(), HasSubstr("kernel add, line "));
  ASSERT_EQ(cu.cuCtxSetCurrent(good), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxDestroy_v2(bad), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuMemFree_v2(kept), CUDA_SUCCESS);
  EXPECT_EQ(cu.fakeCudaCount("live_bytes"), 0);
}

TEST_F(DriverTest, PlaysFaultsAndHangs) {
  Start();
  const Handle stream = MakeStream();
  const DevicePointer a = Alloc(128);
  Handle add = Function(kAdd, "add");
  cu.fakeCudaSet("hang_launch", 1);
  ASSERT_EQ(LaunchAdd(add, a, 1, stream), CUDA_SUCCESS);
  const Handle other = MakeStream();
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, other), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuStreamSynchronize(other), CUDA_SUCCESS);  // only its stream hangs
  EXPECT_EQ(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  cu.fakeCudaRelease();
  EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  cu.fakeCudaSet("fault_code", CUDA_ERROR_ECC_UNCORRECTABLE);
  cu.fakeCudaSet("fault_launch", 2);
  ASSERT_EQ(LaunchAdd(add, a, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(LaunchAdd(add, a, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_ERROR_ECC_UNCORRECTABLE);
}

TEST_F(DriverTest, MemoryFreedBeforeItsUseIsAFault) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle stream = MakeStream();
  const DevicePointer a = Alloc(128);
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, stream), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuMemFree_v2(a), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DriverTest, PeersMustBeEnabled) {
  const Handle first = Start();
  const DevicePointer a = Alloc(128);
  ASSERT_EQ(cu.cuMemsetD8Async(a, 1, 128, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
  Handle second = 0;
  ASSERT_EQ(cu.cuCtxCreate_v2(&second, 0, 1), CUDA_SUCCESS);
  const DevicePointer b = Alloc(128);
  EXPECT_EQ(cu.cuMemcpyDtoDAsync_v2(b, a, 128, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyPeerAsync(b, second, a, second, 128, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyPeerAsync(b, second, a, first, 128, 0), CUDA_SUCCESS);
  EXPECT_EQ(Read(b, 32, 0), std::vector<uint32_t>(32, 0x01010101));
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(first, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  const Handle add = Function(kAdd, "add");
  EXPECT_EQ(LaunchAdd(add, a, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
  // The other way it is not.
  ASSERT_EQ(cu.cuCtxSetCurrent(first), CUDA_SUCCESS);
  const Handle back = Function(kAdd, "add");
  EXPECT_EQ(LaunchAdd(add, b, 1, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(LaunchAdd(back, b, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DriverTest, ManyThreadsAtOnce) {
  const Handle context = Start();
  const Handle add = Function(kAdd, "add");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
      for (uint32_t i = 0; i < 20; ++i) {
        const Handle stream = MakeStream();
        const DevicePointer a = Alloc(128);
        ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, stream), CUDA_SUCCESS);
        ASSERT_EQ(LaunchAdd(add, a, t * 100 + i, stream), CUDA_SUCCESS);
        if (Read(a, 32, stream) == std::vector<uint32_t>(32, t * 100 + i)) ++right;
        ASSERT_EQ(cu.cuMemFree_v2(a), CUDA_SUCCESS);
        ASSERT_EQ(cu.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace fakecuda
