// Memory of other processes: which handles are opened, and how often what is open has to be closed.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/fakes/cuda/driver_fixture.h"
#include "tests/fakes/foreign_memory.h"

namespace fakecuda {
namespace {

using testing::HasSubstr;

TEST_F(DriverTest, MemoryOfAnotherProcess) {
  const Handle context = Start();
  const DevicePointer own = Alloc(64);
  IpcHandle handle{};
  EXPECT_EQ(cu.cuIpcGetMemHandle(&handle, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cu.cuIpcGetMemHandle(&handle, own), CUDA_SUCCESS);
  DevicePointer opened = 0;
  EXPECT_EQ(cu.cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Problems(), HasSubstr("cuIpcCloseMemHandle of what is not open"));

  telegrad::ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  foreign.Write(8, "theirs");
  std::memcpy(handle.bytes, foreign.handle().data(), sizeof(handle.bytes));
  EXPECT_EQ(cu.cuIpcOpenMemHandle_v2(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuIpcOpenMemHandle_v2(nullptr, handle, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuIpcOpenMemHandle_v2(&opened, {}, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cu.cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_SUCCESS);
  DevicePointer again = 0;
  ASSERT_EQ(cu.cuIpcOpenMemHandle_v2(&again, handle, 1), CUDA_SUCCESS);
  EXPECT_EQ(again, opened);
  DevicePointer base = 0;
  size_t bytes = 0;
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&base, &bytes, opened + 63), CUDA_SUCCESS);
  EXPECT_EQ(base, opened);
  EXPECT_EQ(bytes, 64u);
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&base, &bytes, opened + 64), CUDA_ERROR_NOT_FOUND);
  // What was opened is not exported again, nor freed, and is closed as often as it was opened.
  EXPECT_EQ(cu.cuIpcGetMemHandle(&handle, opened), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemFree_v2(opened), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
  char text[7] = {};
  ASSERT_EQ(cu.cuMemcpyDtoHAsync_v2(text, opened + 8, 6, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuStreamSynchronize(0), CUDA_SUCCESS);
  EXPECT_STREQ(text, "theirs");
  EXPECT_EQ(cu.fakeCudaCount("live_imports"), 1);
  EXPECT_EQ(cu.cuIpcCloseMemHandle(opened), CUDA_SUCCESS);
  EXPECT_EQ(cu.fakeCudaCount("live_imports"), 0);
  EXPECT_EQ(cu.cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemcpyDtoHAsync_v2(text, opened + 8, 6, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuMemFree_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fakecuda
