// Opens each GPU that the driver shows, describes it by its attributes, and enables access
// between GPUs that can reach each other. A GPU that cannot be used is left out with a note.
//
// Where a GPU is in MIG mode, the driver shows a process less than there is (mig.h): then a process
// that opens one device names it to the driver before cuInit, and a process that opens all says
// what it cannot have.
#include "devices/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "devices/cuda/cuda_driver.h"
#include "devices/cuda/mig.h"
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

// Where it stands on the bus; "": the driver does not tell.
std::string BusIdOf(const Library& library, int index) {
  cuda::CUdevice device = 0;
  std::array<char, 32> bus_id{};
  if (library.api().cuDeviceGet(&device, index) != cuda::CUDA_SUCCESS ||
      library.api().cuDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()) - 1,
                                        device) != cuda::CUDA_SUCCESS) {
    return "";
  }
  return bus_id.data();
}

absl::StatusOr<std::string> UuidOf(const Library& library, int index, bool instance) {
  cuda::CUdevice device = 0;
  cuda::CUuuid uuid{};
  TG_RETURN_IF_ERROR(TG_CUDA(library, cuDeviceGet, &device, index));
  TG_RETURN_IF_ERROR(TG_CUDA(library, cuDeviceGetUuid_v2, &uuid, device));
  return cuda::UuidText(uuid, instance);
}

// "MIG-..." where the device is an instance, else "".
std::string InstanceOf(const Library& library, const cuda::Nvml* nvml, int index) {
  if (nvml == nullptr || !cuda::IsInMigMode(*nvml, BusIdOf(library, index))) return "";
  return UuidOf(library, index, /*instance=*/true).value_or("");
}

// Null where the management library is missing or the driver does not tell where the GPU stands.
std::shared_ptr<Sensors> SensorsOf(const Library& library, std::shared_ptr<const cuda::Nvml> nvml,
                                   int index, const Clock* clock) {
  std::string bus_id = BusIdOf(library, index);
  if (nvml == nullptr || bus_id.empty()) return nullptr;
  std::string instance = InstanceOf(library, nvml.get(), index);
  return cuda::MakeNvmlSensors(std::move(nvml), std::move(bus_id), std::move(instance), clock);
}

// That the driver has understood what it was asked for.
absl::Status CheckShown(const Library& library, const std::string& uuid) {
  TG_ASSIGN_OR_RETURN(const std::string shown,
                      UuidOf(library, 0, /*instance=*/uuid.starts_with("MIG-")));
  if (shown == uuid) return absl::OkStatus();
  return absl::UnavailableError(StrCat("the driver shows ", shown, " in place of ", uuid));
}

// What `telegrad devices` says of a device that is an instance; nothing of others.
std::optional<std::string> InstanceNote(const Library& library, const cuda::Nvml* nvml, int index,
                                        const std::string& name) {
  const std::string uuid = InstanceOf(library, nvml, index);
  if (uuid.empty()) return std::nullopt;
  std::string text =
      StrCat(name, ": ", NameOf(library, index), ", an instance of a GPU in MIG mode, ", uuid);
  if (const auto bytes = cuda::MemoryOf(*nvml, uuid)) {
    StrAppend(&text, ", with ", *bytes >> 20, " MiB");
  }
  return text;
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenCudas(const CudaOptions& options,
                                               std::vector<std::string>* notes) {
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  if (options.devices == 0) return {};
  const std::shared_ptr<const cuda::Nvml> nvml = cuda::OpenNvml(options.management);
  cuda::MigUnits units;
  if (nvml != nullptr) units = cuda::FindMigUnits(*nvml, std::getenv("CUDA_VISIBLE_DEVICES"));
  for (std::string& text : units.notes) note(std::move(text));
  const auto at_most = [&](int64_t n) {
    return static_cast<int>(options.devices > 0 ? std::min(n, options.devices) : n);
  };
  const int all = at_most(std::ssize(units.uuids));
  // What this process is to open; "": what the driver shows.
  std::string wanted = options.only.hardware;
  const int number = static_cast<int>(options.only.number);
  if (number >= 0 && number < all && wanted.empty()) wanted = units.uuids[number];
  const std::string name = StrCat("CUDA:", number);  // of the wanted one
  if (!wanted.empty()) {
    options.only.Show(std::max(all, number + 1));
    options.only.TellHardware(wanted);
    setenv("CUDA_VISIBLE_DEVICES", wanted.c_str(), /*replace=*/1);
  }
  const auto library = Library::Open(options.library);
  absl::Status status = library.status();
  int count = 0;
  if (status.ok()) status = TG_CUDA(**library, cuDeviceGetCount, &count);
  if (status.ok() && !wanted.empty()) status = CheckShown(**library, wanted);
  if (!status.ok()) {
    note(wanted.empty() ? StrCat("CUDA: ", ToStd(status.message()))
                        : StrCat(name, " (", wanted, ") is left out: ", ToStd(status.message())));
    return {};
  }
  if (count == 0) note("CUDA: the NVIDIA driver shows no GPU");
  count = wanted.empty() ? at_most(count) : std::max(all, number + 1);
  if (wanted.empty() && count < all) {
    note(
        StrCat("CUDA: ", all - count, " of ", all, " GPUs and instances are left out: a GPU is in ",
               "MIG mode, and the driver gives a process one instance and no whole GPU beside it; ",
               "--isolate=device or tenant opens each in a process of its own"));
  }
  const auto driver = std::make_shared<const CudaDriver>(*library);
  // By which number the driver knows what is a device of that number here.
  const auto index = [only_one = !wanted.empty()](int i) { return only_one ? 0 : i; };
  const stream::Opening opening{
      .kind = "CUDA",
      .count = count,
      .only = options.only,
      .open =
          [=](int i, const std::string& device_name, uint64_t generation) {
            return OpenOne(driver, index(i), device_name, generation, options);
          },
      .product = [=](int i) { return NameOf(driver->library(), index(i)); },
      .access = {.enable = [driver](
                               Context& device,
                               const Context& peer) { return Befriend(*driver, device, peer); },
                 .disable = [driver](
                                Context& device,
                                const Context& peer) { return Unfriend(*driver, device, peer); }},
      .sensors = [=, clock = options.clock](
                     int i) { return SensorsOf(driver->library(), nvml, index(i), clock); }};
  auto devices = stream::OpenEach(opening, notes);
  for (int i = 0; i < count; ++i) {
    const std::string device_name = StrCat("CUDA:", i);
    const bool is_there = std::ranges::any_of(
        devices, [&](const auto& device) { return device->name() == device_name; });
    if (!is_there) continue;
    if (auto text = InstanceNote(driver->library(), nvml.get(), index(i), device_name)) {
      note(*std::move(text));
    }
  }
  return devices;
}

}  // namespace telegrad
