// Opens each AMD GPU that HIP shows and whose processor the compiler supports, and enables
// access between GPUs that can reach each other. Others are left out with a note.
#include "devices/hip/hip_device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "devices/hip/hip_driver.h"
#include "devices/stream/open_each.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using hip::HipDriver;
using stream::Context;
using stream::StreamDevice;
using HipLibrary = hip::Library;

constexpr double kTransfers = 2;     // of memory in a cycle
constexpr double kUsualShare = 0.7;  // of its best

// What there are, for messages.
std::string KnownProcessors() {
  std::string out;
  for (const AmdProcessor& each : AmdProcessors()) {
    StrAppend(&out, out.empty() ? "" : ", ", each.name);
  }
  return out;
}

absl::StatusOr<stream::Description> DescribeHip(Context& context, const HipDriver& driver,
                                                const HipOptions& options) {
  stream::Description out;
  hip::hipDeviceProp_tR0600 properties{};
  TG_RETURN_IF_ERROR(
      TG_HIP_IN(context, driver, hipGetDevicePropertiesR0600, &properties, context.device()));
  properties.gcnArchName.back() = 0;
  const std::string_view full(properties.gcnArchName.data());
  const std::string_view name = full.substr(0, full.find(':'));
  const AmdProcessor* processor = FindAmdProcessor(name);
  if (processor == nullptr) {
    return FailedPrecondition("its processor is ", name, "; expected one of ", KnownProcessors());
  }
  absl::Status status;
  const auto get = [&](hip::hipDeviceAttribute_t attribute) {
    int value = 0;
    if (status.ok()) {
      status =
          TG_HIP_IN(context, driver, hipDeviceGetAttribute, &value, attribute, context.device());
    }
    return value;
  };
  const int processors = get(hip::hipDeviceAttributeMultiprocessorCount);
  const int local = get(hip::hipDeviceAttributeMaxSharedMemoryPerBlock);
  const int threads = get(hip::hipDeviceAttributeMaxThreadsPerMultiProcessor);
  const double khz = get(hip::hipDeviceAttributeClockRate);
  const double memory_khz = get(hip::hipDeviceAttributeMemoryClockRate);
  const double bus_bits = get(hip::hipDeviceAttributeMemoryBusWidth);
  TG_RETURN_IF_ERROR(status);
  // Not every version of the library tells; of a GPU that does one copy at a time and maps no
  // memory, the rest is true.
  const auto get_if_known = [&](hip::hipDeviceAttribute_t attribute, int otherwise) {
    int value = otherwise;
    const auto got = driver.api().hipDeviceGetAttribute(&value, attribute, context.device());
    return got == hip::hipSuccess ? value : otherwise;
  };
  out.words = true;  // which no attribute tells, but the first that is refused
  const int engines = get_if_known(hip::hipDeviceAttributeAsyncEngineCount, 1);
  out.virtual_memory =
      get_if_known(hip::hipDeviceAttributeVirtualMemoryManagementSupported, 0) != 0;
  if (processors < 1) return FailedPrecondition("it has ", processors, " multiprocessors");
  out.target = AmdTarget(*processor, processors, local);
  out.rates.flops[Arithmetic::kVectorF32] =
      kUsualShare * processors * processor->flops_per_cycle * khz * 1e3;
  out.rates.bytes = kUsualShare * kTransfers * memory_khz * 1e3 * bus_bits / 8;
  out.resident_threads = int64_t{threads} * processors;
  out.copy_queues = stream::CopyQueues(engines);
  size_t free = 0, total = 0;
  TG_RETURN_IF_ERROR(TG_HIP_IN(context, driver, hipMemGetInfo, &free, &total));
  out.memory_limit = stream::MemoryLimit(options.memory_limit, free, total);
  return out;
}

absl::StatusOr<std::unique_ptr<StreamDevice>> OpenHip(std::shared_ptr<const HipDriver> driver,
                                                      int index, const std::string& name,
                                                      uint64_t generation,
                                                      const HipOptions& options) {
  TG_ASSIGN_OR_RETURN(auto context, Context::Open(driver, index, name, generation));
  TG_RETURN_IF_ERROR(context->Enter());
  TG_ASSIGN_OR_RETURN(stream::Description description, DescribeHip(*context, *driver, options));
  return StreamDevice::Make(std::move(context), std::move(description),
                            {.queue_capacity = options.queue_capacity,
                             .wait_limit = options.wait_limit,
                             .hang_limit = options.hang_limit,
                             .pinned = options.pinned_memory});
}

absl::StatusOr<bool> BefriendHip(const HipDriver& driver, Context& context, const Context& peer) {
  int can = 0;
  TG_RETURN_IF_ERROR(context.Enter());
  TG_RETURN_IF_ERROR(
      TG_HIP_IN(context, driver, hipDeviceCanAccessPeer, &can, context.device(), peer.device()));
  if (can == 0) return false;
  const hip::hipError_t enabled = driver.api().hipDeviceEnablePeerAccess(peer.device(), 0);
  if (enabled == hip::hipErrorPeerAccessAlreadyEnabled) return true;
  TG_RETURN_IF_ERROR(context.Check("hipDeviceEnablePeerAccess", enabled));
  return true;
}

absl::Status UnfriendHip(const HipDriver& driver, Context& context, const Context& peer) {
  TG_RETURN_IF_ERROR(context.Enter());
  return TG_HIP_IN(context, driver, hipDeviceDisablePeerAccess, peer.device());
}

std::string HipName(const HipLibrary& library, int index) {
  std::array<char, 256> name{};
  const auto got =
      library.api().hipDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, index);
  return got == hip::hipSuccess ? name.data() : "a GPU";
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenHips(const HipOptions& options,
                                              std::vector<std::string>* notes) {
  const auto note = [&](std::string_view text) {
    if (notes != nullptr) notes->push_back(StrCat("HIP: ", text));
  };
  if (options.devices == 0) return {};
  const auto library = HipLibrary::Open(options.library);
  if (!library.ok()) {
    note(ToStd(library.status().message()));
    return {};
  }
  int count = 0;
  if (const absl::Status status = TG_HIP(**library, hipGetDeviceCount, &count); !status.ok()) {
    note(ToStd(status.message()));
    return {};
  }
  if (count == 0) note("the library shows no GPU");
  if (options.devices > 0) count = static_cast<int>(std::min<int64_t>(count, options.devices));
  const auto driver = std::make_shared<const HipDriver>(*library);
  const stream::Opening opening{
      .kind = "HIP",
      .count = count,
      .only = options.only,
      .open = [driver, options](
                  int i, const std::string& name,
                  uint64_t number) { return OpenHip(driver, i, name, number, options); },
      .product = [driver](int i) { return HipName(driver->library(), i); },
      .access = {.enable = [driver](
                               Context& device,
                               const Context& peer) { return BefriendHip(*driver, device, peer); },
                 .disable =
                     [driver](Context& device, const Context& peer) {
                       return UnfriendHip(*driver, device, peer);
                     }}};
  return stream::OpenEach(opening, notes);
}

}  // namespace telegrad
