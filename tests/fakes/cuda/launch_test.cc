// Modules, launches and graphs: what the real driver refuses, what the compiler's log says, and
// that a graph keeps what it was launched with.
#include <gmock/gmock.h>

#include <array>
#include <cstring>

#include "tests/fakes/cuda/driver_fixture.h"

namespace fakecuda {
namespace {

using testing::HasSubstr;

TEST_F(DriverTest, ModulesAreCompiled) {
  Start();
  std::array<char, 200> log = {};
  int options[] = {kJitErrorLog, kJitErrorLogSize};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  Handle module = 0;
  const std::string good = kAdd;
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, good.c_str(), 2, options, values), CUDA_SUCCESS);
  Handle function = 0;
  EXPECT_EQ(cu.cuModuleGetFunction(&function, module, "sub"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cu.cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(LaunchAdd(function, Alloc(128), 1, 0), CUDA_ERROR_INVALID_HANDLE);

  std::string bad = good;
  bad.replace(bad.find("add.s32"), 7, "odd.s32");
  values[1] = reinterpret_cast<void*>(log.size());
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, bad.c_str(), 2, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log.data(), HasSubstr("line 11: odd.s32: unknown instruction"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values[1]), std::strlen(log.data()) + 1);
  values[1] = reinterpret_cast<void*>(size_t{10});
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, bad.c_str(), 2, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(std::strlen(log.data()), 9u);
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, "\177ELF", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_IMAGE);
  std::string hopper = good;
  hopper.replace(hopper.find("sm_80"), 5, "sm_90a");
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, hopper.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
  cu.fakeCudaSet("capability", 100);
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, hopper.c_str(), 0, nullptr, nullptr),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, good.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
  cu.fakeCudaSet("jit_error", CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cu.cuModuleLoadDataEx(&module, good.c_str(), 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_PTX);
}

TEST_F(DriverTest, LaunchesAreChecked) {
  Start();
  const Handle add = Function(kAdd, "add");
  DevicePointer a = Alloc(4096);
  uint32_t one = 1;
  void* parameters[] = {&a, &one};
  const auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned bz, unsigned shared) {
    return cu.cuLaunchKernel(add, gx, gy, 1, bx, 1, bz, shared, 0, parameters, nullptr);
  };
  EXPECT_EQ(launch(0, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 65536, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 512, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 32, 1, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuFuncSetAttribute(add, kMaxDynamicSharedSizeBytes, (227 << 10) + 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuFuncSetAttribute(add, kMaxDynamicSharedSizeBytes, 100 << 10), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 1, 32, 1, 100 << 10), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuLaunchKernel(1, 1, 1, 1, 32, 1, 1, 0, 0, parameters, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 77, parameters, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  // All parameters in one buffer, of just the declared size.
  struct {
    DevicePointer a;
    uint32_t value;
  } packed = {a, 1};
  for (const size_t bytes : {size_t{12}, size_t{8}, size_t{16}}) {
    size_t size = bytes;
    void* extra[] = {reinterpret_cast<void*>(kLaunchParamBuffer), &packed,
                     reinterpret_cast<void*>(kLaunchParamBufferSize), &size, nullptr};
    EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, nullptr, extra),
              bytes == 12 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, parameters, extra),
              CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(cu.cuFuncGetAttribute(&value, kMaxThreadsPerBlock, add), CUDA_SUCCESS);
  EXPECT_EQ(value, 1024);
  EXPECT_EQ(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, add, 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 8);
}

TEST_F(DriverTest, RequiredThreadsAreRequired) {
  Start();
  std::string text = kAdd;
  text.replace(text.find("u32 v)"), 6, "u32 v) .reqntid 32, 1, 1");
  const Handle add = Function(text, "add");
  DevicePointer a = Alloc(4096);
  uint32_t one = 1;
  void* parameters[] = {&a, &one};
  EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, 0, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, parameters, nullptr), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(cu.cuFuncGetAttribute(&value, kMaxThreadsPerBlock, add), CUDA_SUCCESS);
  EXPECT_EQ(value, 32);
}

TEST_F(DriverTest, ParametersAreCopiedAtTheCall) {
  Start();
  cu.fakeCudaSet("hold", 1);
  const Handle add = Function(kAdd, "add");
  const DevicePointer a = Alloc(128);
  ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, 0), CUDA_SUCCESS);
  DevicePointer address = a;
  uint32_t value = 5;
  void* parameters[] = {&address, &value};
  ASSERT_EQ(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, parameters, nullptr), CUDA_SUCCESS);
  address = 0;
  value = 9;
  EXPECT_EQ(Read(a, 32, 0), std::vector<uint32_t>(32, 5));
}

TEST_F(DriverTest, GraphsReplayWithNewParameters) {
  const Handle context = Start();
  cu.fakeCudaSet("hold", 1);
  const Handle stream = MakeStream();
  const Handle add = Function(kAdd, "add");
  DevicePointer a = Alloc(128);
  DevicePointer b = Alloc(128);
  for (const DevicePointer m : {a, b}) ASSERT_EQ(cu.cuMemsetD8Async(m, 0, 128, stream), 0);
  uint32_t value = 3;
  void* parameters[] = {&a, &value};
  KernelNodeParams kernel = {};
  kernel.func = add;
  kernel.grid[0] = kernel.grid[1] = kernel.grid[2] = 1;
  kernel.block[0] = 32;
  kernel.block[1] = kernel.block[2] = 1;
  kernel.kernel_params = parameters;
  MemcpyParams copy = {};
  copy.from.type = kDevice;
  copy.from.device = a;
  copy.to.type = kDevice;
  copy.to.device = b;
  copy.width_bytes = 128;
  copy.height = copy.depth = 1;
  Handle graph = 0;
  Handle first = 0;
  Handle second = 0;
  Handle executable = 0;
  ASSERT_EQ(cu.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuGraphAddKernelNode_v2(&first, graph, nullptr, 0, &kernel), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuGraphAddMemcpyNode(&second, graph, &first, 1, &copy, context), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuGraphAddMemcpyNode(&second, graph, &executable, 1, &copy, context),
            CUDA_ERROR_INVALID_VALUE);  // depends on no node
  MemcpyParams plane = copy;
  plane.height = 0;
  EXPECT_EQ(cu.cuGraphAddMemcpyNode(&second, graph, &first, 1, &plane, context),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cu.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  // What is launched already keeps what it had.
  value = 100;
  ASSERT_EQ(cu.cuGraphExecKernelNodeSetParams_v2(executable, first, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(Read(b, 32, stream), std::vector<uint32_t>(32, 3));
  ASSERT_EQ(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(b, 32, stream), std::vector<uint32_t>(32, 103));
  const DevicePointer c = Alloc(128);
  copy.to.device = c;
  ASSERT_EQ(cu.cuGraphExecMemcpyNodeSetParams(executable, second, &copy, context), CUDA_SUCCESS);
  ASSERT_EQ(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(c, 32, stream), std::vector<uint32_t>(32, 203));
  EXPECT_EQ(cu.cuGraphExecKernelNodeSetParams_v2(executable, second, &kernel),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuGraphExecMemcpyNodeSetParams(executable, 1, &copy, context),
            CUDA_ERROR_INVALID_HANDLE);
  copy.from.type = kHost;  // the kind of memory cannot change
  copy.from.host = &value;
  EXPECT_EQ(cu.cuGraphExecMemcpyNodeSetParams(executable, second, &copy, context),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.fakeCudaCount("graph_launches"), 3);
  EXPECT_EQ(cu.fakeCudaCount("node_updates"), 2);
  EXPECT_EQ(cu.fakeCudaCount("launches"), 3);
  EXPECT_EQ(cu.cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(cu.cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, GraphNodesRunInAnyOrderThatTheirEdgesAllow) {
  const Handle context = Start();
  const Handle stream = MakeStream();
  DevicePointer a = Alloc(128);
  const DevicePointer b = Alloc(128);
  uint32_t value = 1;
  void* parameters[] = {&a, &value};
  KernelNodeParams kernel = {.func = Function(kAdd, "add"),
                             .grid = {1, 1, 1},
                             .block = {32, 1, 1},
                             .shared_bytes = 0,
                             .kernel_params = parameters,
                             .extra = nullptr,
                             .kern = 0,
                             .ctx = 0};
  MemcpyParams copy = {};
  copy.from.type = copy.to.type = kDevice;
  copy.from.device = a;
  copy.to.device = b;
  copy.width_bytes = 128;
  copy.height = copy.depth = 1;
  for (const bool edge : {true, false}) {
    Handle graph = 0;
    Handle first = 0;
    Handle second = 0;
    Handle executable = 0;
    ASSERT_EQ(cu.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuGraphAddKernelNode_v2(&first, graph, nullptr, 0, &kernel), CUDA_SUCCESS);
    ASSERT_EQ(cu.cuGraphAddMemcpyNode(&second, graph, &first, edge ? 1 : 0, &copy, context),
              CUDA_SUCCESS);
    ASSERT_EQ(cu.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    int late = 0;  // copies after the kernel
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(cu.cuMemsetD8Async(a, 0, 128, stream), CUDA_SUCCESS);
      ASSERT_EQ(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
      late += Read(b, 1, stream)[0] == 1 ? 1 : 0;
    }
    if (edge) {
      EXPECT_EQ(late, 64);
    } else {
      EXPECT_GT(late, 0);
      EXPECT_LT(late, 64);
    }
  }
}

}  // namespace
}  // namespace fakecuda
