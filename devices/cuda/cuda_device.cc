// Opens each GPU that the driver shows, describes it by its attributes, and enables access
// between GPUs that can reach each other. A GPU that cannot be used is left out with a note.
#include "devices/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "devices/cuda/cuda_driver.h"
#include "devices/cuda/nvml.h"
#include "devices/stream/open_each.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using cuda::CudaDriver;
using cuda::Library;
using stream::Context;
using stream::StreamDevice;

constexpr double kTransfersPerCycle = 2;
constexpr double kUsual = 0.7;  // of its best

absl::StatusOr<stream::Description> Describe(Context& context, const CudaDriver& driver,
                                             const CudaOptions& options) {
  stream::Description out;
  absl::Status status;
  const auto get = [&](cuda::CUdevice_attribute attribute) {
    int value = 0;
    if (status.ok()) {
      status =
          TG_CUDA_IN(context, driver, cuDeviceGetAttribute, &value, attribute, context.device());
    }
    return value;
  };
  const int major = get(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = get(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const int processors = get(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const int local = get(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  const int threads = get(cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const int engines = get(cuda::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  out.virtual_memory = get(cuda::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  out.words = driver.api().cuStreamWriteValue64_v2 != nullptr &&
              get(cuda::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
  const double khz = get(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  const double memory_khz = get(cuda::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  const double bus_bits = get(cuda::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  TG_RETURN_IF_ERROR(status);
  auto target = NvidiaTarget(major, minor, processors, local);
  if (!target) {
    return FailedPrecondition("its compute capability is ", major, ".", minor,
                              "; expected 8.0 or later");
  }
  out.target = *std::move(target);
  // A cubin is for GPUs of one major capability; on later ones the driver translates PTX.
  if (options.assembler && out.target.arch.starts_with(StrCat("sm_", major))) {
    if (auto features = options.assembler(out.target.arch); features.ok()) {
      out.target.features = *std::move(features);
    }
  }
  out.rates.flops = NvidiaOperationsPerCycle(major, minor) * (kUsual * processors * khz * 1e3);
  out.rates.bytes = kUsual * kTransfersPerCycle * memory_khz * 1e3 * bus_bits / 8;
  out.resident_threads = int64_t{threads} * processors;
  out.copy_queues = stream::CopyQueues(engines);
  size_t free = 0, total = 0;
  TG_RETURN_IF_ERROR(TG_CUDA_IN(context, driver, cuMemGetInfo_v2, &free, &total));
  out.memory_limit = stream::MemoryLimit(options.memory_limit, free, total);
  return out;
}

absl::StatusOr<std::unique_ptr<StreamDevice>> OpenOne(std::shared_ptr<const CudaDriver> driver,
                                                      int index, const std::string& name,
                                                      uint64_t generation,
                                                      const CudaOptions& options) {
  const Library& library = driver->library();
  cuda::CUdevice device = 0;
  TG_RETURN_IF_ERROR(TG_CUDA(library, cuDeviceGet, &device, index));
  int mode = 0;
  TG_RETURN_IF_ERROR(TG_CUDA(library, cuDeviceGetAttribute, &mode,
                             cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  if (mode == cuda::CU_COMPUTEMODE_PROHIBITED) {
    return FailedPrecondition("its compute mode prohibits work (nvidia-smi -c)");
  }
  TG_ASSIGN_OR_RETURN(auto context, Context::Open(driver, device, name, generation));
  TG_RETURN_IF_ERROR(context->Enter());
  TG_ASSIGN_OR_RETURN(stream::Description description, Describe(*context, *driver, options));
  return StreamDevice::Make(std::move(context), std::move(description),
                            {.queue_capacity = options.queue_capacity,
                             .wait_limit = options.wait_limit,
                             .hang_limit = options.hang_limit,
                             .pinned = options.pinned_memory});
}

absl::StatusOr<bool> Befriend(const CudaDriver& driver, Context& context, const Context& peer) {
  int can = 0;
  TG_RETURN_IF_ERROR(context.Enter());
  TG_RETURN_IF_ERROR(
      TG_CUDA_IN(context, driver, cuDeviceCanAccessPeer, &can, context.device(), peer.device()));
  if (can == 0) return false;
  const cuda::CUresult enabled = driver.api().cuCtxEnablePeerAccess(peer.handle(), 0);
  if (enabled == cuda::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return true;
  TG_RETURN_IF_ERROR(context.Check("cuCtxEnablePeerAccess", enabled));
  return true;
}

absl::Status Unfriend(const CudaDriver& driver, Context& context, const Context& peer) {
  TG_RETURN_IF_ERROR(context.Enter());
  return TG_CUDA_IN(context, driver, cuCtxDisablePeerAccess, peer.handle());
}

std::string NameOf(const Library& library, int index) {
  cuda::CUdevice device = 0;
  std::array<char, 256> name{};
  if (library.api().cuDeviceGet(&device, index) != cuda::CUDA_SUCCESS ||
      library.api().cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device) !=
          cuda::CUDA_SUCCESS) {
    return "a GPU";
  }
  return name.data();
}

// Null where the management library is missing or the driver does not tell where the GPU stands.
std::shared_ptr<Sensors> SensorsOf(const Library& library, std::shared_ptr<const cuda::Nvml> nvml,
                                   int index, const Clock* clock) {
  cuda::CUdevice device = 0;
  std::array<char, 32> bus_id{};
  if (nvml == nullptr || library.api().cuDeviceGet(&device, index) != cuda::CUDA_SUCCESS ||
      library.api().cuDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()) - 1,
                                        device) != cuda::CUDA_SUCCESS) {
    return nullptr;
  }
  return cuda::MakeNvmlSensors(std::move(nvml), bus_id.data(), clock);
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenCudas(const CudaOptions& options,
                                               std::vector<std::string>* notes) {
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  if (options.devices == 0) return {};
  const auto library = Library::Open(options.library);
  if (!library.ok()) {
    note(StrCat("CUDA: ", ToStd(library.status().message())));
    return {};
  }
  int count = 0;
  if (const absl::Status status = TG_CUDA(**library, cuDeviceGetCount, &count); !status.ok()) {
    note(StrCat("CUDA: ", ToStd(status.message())));
    return {};
  }
  if (count == 0) note("CUDA: the NVIDIA driver shows no GPU");
  if (options.devices > 0) count = static_cast<int>(std::min<int64_t>(count, options.devices));
  const auto driver = std::make_shared<const CudaDriver>(*library);
  const stream::Opening opening{
      .kind = "CUDA",
      .count = count,
      .only = options.only,
      .open = [driver, options](
                  int i, const std::string& name,
                  uint64_t number) { return OpenOne(driver, i, name, number, options); },
      .product = [driver](int i) { return NameOf(driver->library(), i); },
      .access = {.enable = [driver](
                               Context& device,
                               const Context& peer) { return Befriend(*driver, device, peer); },
                 .disable = [driver](
                                Context& device,
                                const Context& peer) { return Unfriend(*driver, device, peer); }},
      .sensors = [driver, nvml = cuda::OpenNvml(options.management), clock = options.clock](
                     int i) { return SensorsOf(driver->library(), nvml, i, clock); }};
  return stream::OpenEach(opening, notes);
}

}  // namespace telegrad
