// One function of the CUDA driver API for each method of stream::Driver. The number and the sizes
// of a kernel's parameters are read from its PTX and compared with its signature, because the
// driver does not check them.
#include "devices/cuda/cuda_driver.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "devices/cubin/cubin.h"
#include "devices/cuda/ptx_parameters.h"
#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

using stream::Called;
using stream::KernelLaunch;

// Dynamic shared memory that needs no asking for.
constexpr int64_t kUnaskedLocalBytes = 48 * 1024;
// The least major compute capability with tensor maps.
constexpr int kTensorMapsFrom = 9;

// TensorInterleave, TensorSwizzle and TensorFill count as the driver does.
static_assert(static_cast<int>(TensorInterleave::k32Bytes) == CU_TENSOR_MAP_INTERLEAVE_32B);
static_assert(static_cast<int>(TensorSwizzle::k128Bytes) == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(static_cast<int>(TensorFill::kNan) ==
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

absl::StatusOr<std::vector<int64_t>> ParameterBytesOf(const ProgramImage& image) {
  if (!Cubin::IsCubin(image.binary)) return PtxParameterBytes(image.binary, image.name);
  TG_ASSIGN_OR_RETURN(const std::vector<uint32_t> bytes,
                      Cubin::ParametersOf(image.binary, image.name));
  return std::vector<int64_t>(bytes.begin(), bytes.end());
}

// The driver reads whatever lies where the parameters should be.
absl::Status CheckParameters(const ProgramImage& image) {
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, ParameterBytesOf(image));
  const auto& kinds = image.signature.parameters;
  if (bytes.size() != kinds.size()) {
    return InvalidArgument("it takes ", bytes.size(), " parameters, its signature says ",
                           kinds.size());
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (bytes[i] == ParameterBytes(kinds[i])) continue;
    return InvalidArgument("its parameter ", i, " has ", bytes[i], " bytes, its signature says ",
                           ParametersText({&kinds[i], 1}), ", which has ",
                           ParameterBytes(kinds[i]));
  }
  return absl::OkStatus();
}

// Copies look at nothing of an element but its size; filling looks at its type, too.
CUtensorMapDataType DataTypeOf(DType element) {
  switch (element) {
    case DType::kInt32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::kInt64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kFloat32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kFloat64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    default:
      break;
  }
  switch (ByteSize(element)) {
    case 1:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case 4:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
  }
}

CUDA_KERNEL_NODE_PARAMS_v2 KernelNode(const KernelLaunch& launch) {
  CUDA_KERNEL_NODE_PARAMS_v2 out{};
  out.func = launch.function;
  out.gridDimX = launch.grid[0];
  out.gridDimY = launch.grid[1];
  out.gridDimZ = launch.grid[2];
  out.blockDimX = launch.group[0];
  out.blockDimY = launch.group[1];
  out.blockDimZ = launch.group[2];
  out.sharedMemBytes = launch.local_bytes;
  out.kernelParams = launch.parameters;
  return out;
}

CUDA_MEMCPY3D_v2 CopyNode(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D_v2 out{};
  out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = to;
  out.srcDevice = from;
  out.srcPitch = out.dstPitch = out.WidthInBytes = bytes;
  out.srcHeight = out.dstHeight = out.Height = out.Depth = 1;
  return out;
}

}  // namespace

// A function, and what it returns, as Called.
#define CUDA_CALLED(name, ...) \
  Called { #name, api().name(__VA_ARGS__) }

CudaDriver::CudaDriver(std::shared_ptr<const Library> library) : library_(std::move(library)) {
#define CUDA_CALL(role, name) calls_.role = {#name, api().name};
#include "devices/cuda/calls.def"
#undef CUDA_CALL
}

absl::Status CudaDriver::Check(std::string_view call, stream::Result result) const {
  return library_->Check(call, result);
}

// Of which the API reference says that the context, or the process, has to be made anew: "this
// leaves the process in an inconsistent state and any further CUDA work will return the same
// error".
bool CudaDriver::IsSticky(stream::Result result) const {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

Called CudaDriver::Retain(int device, CUcontext* context) const {
  return CUDA_CALLED(cuDevicePrimaryCtxRetain, context, device);
}

Called CudaDriver::Release(int device) const {
  api().cuCtxSetCurrent(nullptr);
  return CUDA_CALLED(cuDevicePrimaryCtxRelease_v2, device);
}

// What an error has left of the context goes with the reset, whatever that says; the next context
// tells whether the GPU works.
void CudaDriver::Reset(int device) const {
  api().cuCtxSetCurrent(nullptr);
  api().cuDevicePrimaryCtxReset_v2(device);
  api().cuDevicePrimaryCtxRelease_v2(device);
}

Called CudaDriver::Enter(int, CUcontext context) const {
  return CUDA_CALLED(cuCtxSetCurrent, context);
}

Called CudaDriver::CopyAcross(const stream::Place& to, const stream::Place& from, size_t bytes,
                              CUstream stream) const {
  return CUDA_CALLED(cuMemcpyPeerAsync, to.address, to.context, from.address, from.context, bytes,
                     stream);
}

Called CudaDriver::AddKernel(CUgraphNode* node, CUgraph graph, std::span<const CUgraphNode> after,
                             const KernelLaunch& launch) const {
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = KernelNode(launch);
  return CUDA_CALLED(cuGraphAddKernelNode_v2, node, graph, after.data(), after.size(), &kernel);
}

Called CudaDriver::AddCopy(CUgraphNode* node, CUgraph graph, std::span<const CUgraphNode> after,
                           CUcontext context, CUdeviceptr to, CUdeviceptr from,
                           size_t bytes) const {
  const CUDA_MEMCPY3D_v2 copy = CopyNode(to, from, bytes);
  return CUDA_CALLED(cuGraphAddMemcpyNode, node, graph, after.data(), after.size(), &copy, context);
}

Called CudaDriver::SetKernel(CUgraphExec exec, CUgraphNode node, const KernelLaunch& launch) const {
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = KernelNode(launch);
  return CUDA_CALLED(cuGraphExecKernelNodeSetParams_v2, exec, node, &kernel);
}

Called CudaDriver::SetCopy(CUgraphExec exec, CUgraphNode node, CUcontext context, CUdeviceptr to,
                           CUdeviceptr from, size_t bytes) const {
  const CUDA_MEMCPY3D_v2 copy = CopyNode(to, from, bytes);
  return CUDA_CALLED(cuGraphExecMemcpyNodeSetParams, exec, node, &copy, context);
}

absl::Status CudaDriver::TakesTensorMaps(stream::Context& context) const {
  if (api().cuTensorMapEncodeTiled == nullptr) {
    return Unimplemented("the driver lacks cuTensorMapEncodeTiled; ",
                         "one that supports CUDA 12.0 or later has it");
  }
  int major = 0, minor = 0;
  TG_RETURN_IF_ERROR(TG_CUDA_IN(context, *this, cuDeviceGetAttribute, &major,
                                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context.device()));
  TG_RETURN_IF_ERROR(TG_CUDA_IN(context, *this, cuDeviceGetAttribute, &minor,
                                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, context.device()));
  if (major >= kTensorMapsFrom) return absl::OkStatus();
  return Unimplemented("the GPU has none: its compute capability is ", major, ".", minor,
                       ", expected ", kTensorMapsFrom, ".0 or later");
}

absl::Status CudaDriver::EncodeTensorMap(stream::Context& context, const TensorMap& map,
                                         CUdeviceptr address, CUtensorMap* encoded) const {
  std::array<cuuint64_t, kTensorMapRank> sizes{}, strides{};
  std::array<cuuint32_t, kTensorMapRank> boxes{}, steps{};
  std::ranges::copy(map.sizes, sizes.begin());
  std::ranges::copy(map.strides, strides.begin());
  std::ranges::copy(map.boxes, boxes.begin());
  std::ranges::copy(map.steps, steps.begin());
  // The stride of the first dimension is that of its elements, and not passed. What is fetched into
  // the cache beyond a box is this driver's choice: a line.
  return TG_CUDA_IN(context, *this, cuTensorMapEncodeTiled, encoded, DataTypeOf(map.element),
                    static_cast<cuuint32_t>(map.rank), reinterpret_cast<void*>(address),
                    sizes.data(), strides.data() + 1, boxes.data(), steps.data(),
                    static_cast<CUtensorMapInterleave>(map.interleave),
                    static_cast<CUtensorMapSwizzle>(map.swizzle),
                    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                    static_cast<CUtensorMapFloatOOBfill>(map.fill));
}

// The driver does not tell, and by how much its free memory falls says nothing while others
// allocate. Of PTX, nobody knows before it is translated: it is as long as the text, of which
// NVIDIA's machine code is about as long (docs/cuda.md).
int64_t CudaDriver::CodeBytes(const ProgramImage& image) const {
  if (!Cubin::IsCubin(image.binary)) return static_cast<int64_t>(image.binary.size());
  return Cubin::LoadedBytes(image.binary).value_or(0);
}

Called CudaDriver::LoadModule(const ProgramImage& image, CUmodule* module, std::string* log) const {
  std::array<char, 8192> text{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // A size is passed as if it were a pointer.
  void* values[] = {text.data(), reinterpret_cast<void*>(text.size())};
  const Called called = CUDA_CALLED(cuModuleLoadDataEx, module, image.binary.c_str(),
                                    std::size(options), options, values);
  text.back() = 0;
  *log = text.data();
  return called;
}

absl::StatusOr<stream::Entry> CudaDriver::Resolve(stream::Context& context,
                                                  const ProgramImage& image, int64_t local_limit,
                                                  CUmodule module) const {
  stream::Entry out;
  TG_RETURN_IF_ERROR(
      TG_CUDA_IN(context, *this, cuModuleGetFunction, &out.function, module, image.name.c_str()));
  const ProgramSignature& signature = image.signature;
  TG_RETURN_IF_ERROR(CheckParameters(image));
  absl::Status status;
  const auto get = [&](CUfunction_attribute attribute) {
    int value = 0;
    if (status.ok()) {
      status = TG_CUDA_IN(context, *this, cuFuncGetAttribute, &value, attribute, out.function);
    }
    return value;
  };
  const int threads = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  const int fixed_bytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  out.stack_bytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  TG_RETURN_IF_ERROR(status);
  TG_RETURN_IF_ERROR(stream::CheckGroup(signature.group, threads));
  const int64_t local_bytes = signature.local_bytes;
  if (local_bytes < 0 || local_bytes > local_limit - fixed_bytes) {
    return InvalidArgument(local_bytes, " bytes of local memory beside ", fixed_bytes,
                           " fixed ones; a workgroup has at most ", local_limit);
  }
  if (local_bytes > kUnaskedLocalBytes) {
    TG_RETURN_IF_ERROR(TG_CUDA_IN(context, *this, cuFuncSetAttribute, out.function,
                                  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  static_cast<int>(local_bytes)));
  }
  return out;
}

}  // namespace telegrad::cuda
