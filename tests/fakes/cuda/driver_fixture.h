// For tests of the fake driver: the library, opened as programs open it, in a fresh state.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/cuda/abi.h"

namespace fakecuda {

struct Functions {
#define FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
#include "tests/fakes/cuda/functions.def"
#undef FUNCTION
};

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = dlopen(TELEGRAD_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
#define FUNCTION(result, name, parameters)                                 \
  cu.name = reinterpret_cast<result(*) parameters>(dlsym(library, #name)); \
  ASSERT_NE(cu.name, nullptr) << #name;
#include "tests/fakes/cuda/functions.def"
#undef FUNCTION
    cu.fakeCudaReset();
    const int64_t seed = std::random_device{}();
    std::printf("seed %lld\n", static_cast<long long>(seed));
    cu.fakeCudaSet("seed", seed);
  }
  void TearDown() override { cu.fakeCudaReset(); }

  // cuInit and a context on device 0.
  Handle Start() {
    EXPECT_EQ(cu.cuInit(0), CUDA_SUCCESS);
    Handle context = 0;
    EXPECT_EQ(cu.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    return context;
  }
  DevicePointer Alloc(size_t bytes) {
    DevicePointer address = 0;
    EXPECT_EQ(cu.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  Handle MakeStream(unsigned flags = 1) {
    Handle stream = 0;
    EXPECT_EQ(cu.cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  Handle MakeEvent(unsigned flags = 0) {
    Handle event = 0;
    EXPECT_EQ(cu.cuEventCreate(&event, flags), CUDA_SUCCESS);
    return event;
  }
  Handle Function(const std::string& ptx, const char* name, Handle* module = nullptr) {
    Handle loaded = 0;
    Handle function = 0;
    EXPECT_EQ(cu.cuModuleLoadDataEx(&loaded, ptx.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS)
        << Problems();
    EXPECT_EQ(cu.cuModuleGetFunction(&function, loaded, name), CUDA_SUCCESS);
    if (module != nullptr) *module = loaded;
    return function;
  }
  // add(address, value): adds value to the 32-bit number of each of 32 threads.
  int LaunchAdd(Handle function, DevicePointer address, uint32_t value, Handle stream,
                unsigned groups = 1) {
    void* parameters[] = {&address, &value};
    return cu.cuLaunchKernel(function, groups, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  std::string Problems() {
    std::string text(cu.fakeCudaProblems(nullptr, 0) + 1, 0);
    cu.fakeCudaProblems(text.data(), text.size());
    text.pop_back();
    return text;
  }
  std::vector<uint32_t> Read(DevicePointer from, size_t count, Handle stream) {
    std::vector<uint32_t> values(count);
    EXPECT_EQ(cu.cuMemcpyDtoHAsync_v2(values.data(), from, 4 * count, stream), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return values;
  }

  static constexpr char kAdd[] = R"(
.version 7.1
.target sm_80
.address_size 64
.visible .entry add(.param .u64 a, .param .u32 v)
{
  .reg .b32 %r<6>; .reg .b64 %x<4>;
  ld.param.u64 %x0, [a]; ld.param.u32 %r0, [v];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r1, %r2, 32, %r1;
  mul.wide.u32 %x1, %r1, 4; add.s64 %x2, %x0, %x1;
  ld.global.u32 %r3, [%x2]; add.s32 %r3, %r3, %r0; st.global.u32 [%x2], %r3;
  ret;
})";

  Functions cu;
};

}  // namespace fakecuda
