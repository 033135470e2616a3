#include "engine/opencl/device_facts.h"

#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad::opencl {
namespace {

constexpr cl_uint kMaxPlatforms = 64, kMaxDevices = 256;  // that are looked at
constexpr int kDimensions = 3;
constexpr size_t kLeastGroupThreads = 256;  // which kernels may have
constexpr int64_t kMaxGroupThreads = 1024;  // more hide nothing, and make barriers long
constexpr double kGpuLanes = 64;            // of f32 in a compute unit, about

// Answers clGetDeviceInfo, keeping the first error.
class Reader {
 public:
  Reader(const Library& library, cl_device_id device) : api_(library.api()), device_(device) {}

  template <typename T>
  T Value(cl_uint what, const char* name) {
    T value{};
    Keep(name, api_.clGetDeviceInfo(device_, what, sizeof(value), &value, nullptr));
    return value;
  }
  std::string Text(cl_uint what, const char* name) {
    std::array<char, 1024> text{};
    Keep(name, api_.clGetDeviceInfo(device_, what, text.size() - 1, text.data(), nullptr));
    return text.data();
  }
  const absl::Status& status() const { return status_; }

 private:
  void Keep(const char* name, cl_int error) {
    if (status_.ok()) status_ = Check(StrCat("clGetDeviceInfo(", name, ")"), error);
  }

  const Symbols& api_;
  const cl_device_id device_;
  absl::Status status_;
};

#define TG_CL_VALUE(reader, type, what) (reader).Value<type>(what, #what)
#define TG_CL_TEXT(reader, what) (reader).Text(what, #what)

// Fit to be a field of Target::Key, and to stand in a line.
std::string Plain(std::string text) {
  for (char& c : text) {
    if (c < 32 || c > 126 || c == '|' || c == '"' || c == '\\' || c == '\'') c = ' ';
  }
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

struct FpNeed {
  cl_bitfield bit;
  std::string_view name;
};
constexpr FpNeed kNeeds[] = {
    {CL_FP_DENORM, "denormal numbers"},
    {CL_FP_INF_NAN, "infinities and NaN"},
    {CL_FP_ROUND_TO_NEAREST, "rounding to nearest"},
    {CL_FP_FMA, "fused multiply-add"},
    {CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, "correctly rounded division and square root"},
};
// Of f64 every device that has it rounds division correctly.
constexpr cl_bitfield kDoubleNeeds =
    CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA;

absl::Status CheckArithmetic(cl_bitfield single) {
  std::string missing;
  for (const FpNeed& need : kNeeds) {
    if ((single & need.bit) == 0) StrAppend(&missing, missing.empty() ? "" : ", ", need.name);
  }
  if (missing.empty()) return absl::OkStatus();
  return FailedPrecondition("its f32 arithmetic lacks ", missing);
}

}  // namespace

absl::StatusOr<Listing> ListDevices(const Library& library) {
  const Symbols& api = library.api();
  std::array<cl_platform_id, kMaxPlatforms> platforms{};
  cl_uint count = 0;
  TG_RETURN_IF_ERROR(TG_CL(api, clGetPlatformIDs, kMaxPlatforms, platforms.data(), &count));
  Listing out;
  absl::Status failed;
  for (cl_uint p = 0; p < std::min(count, kMaxPlatforms); ++p) {
    std::array<cl_device_id, kMaxDevices> devices{};
    cl_uint found = 0;
    const absl::Status status = TG_CL(api, clGetDeviceIDs, platforms[p], CL_DEVICE_TYPE_ALL,
                                      kMaxDevices, devices.data(), &found);
    if (absl::IsNotFound(status)) continue;  // a platform without devices
    if (!status.ok()) {
      failed.Update(status);
      out.left_out.push_back(StrCat("platform ", p, ": ", ToStd(status.message())));
      continue;
    }
    for (cl_uint d = 0; d < std::min(found, kMaxDevices); ++d) {
      out.devices.push_back({platforms[p], devices[d]});
    }
  }
  if (!out.devices.empty()) return out;
  TG_RETURN_IF_ERROR(failed);
  return NotFound("OpenCL's platforms show no device");
}

std::string NameOf(const Library& library, const PlatformDevice& device) {
  Reader read(library, device.device);
  const std::string name = Plain(TG_CL_TEXT(read, CL_DEVICE_NAME));
  return name.empty() ? "?" : name;
}

absl::StatusOr<DeviceFacts> ReadFacts(const Library& library, const PlatformDevice& device) {
  Reader read(library, device.device);
  std::array<char, 1024> platform{};
  TG_RETURN_IF_ERROR(TG_CL(library.api(), clGetPlatformInfo, device.platform, CL_PLATFORM_VERSION,
                           platform.size() - 1, platform.data(), nullptr));
  const std::string name = TG_CL_TEXT(read, CL_DEVICE_NAME);
  const std::string version = TG_CL_TEXT(read, CL_DEVICE_VERSION);
  const std::string driver = TG_CL_TEXT(read, CL_DRIVER_VERSION);
  const auto type = TG_CL_VALUE(read, cl_bitfield, CL_DEVICE_TYPE);
  const auto available = TG_CL_VALUE(read, cl_bool, CL_DEVICE_AVAILABLE);
  const auto compiles = TG_CL_VALUE(read, cl_bool, CL_DEVICE_COMPILER_AVAILABLE);
  const auto little = TG_CL_VALUE(read, cl_bool, CL_DEVICE_ENDIAN_LITTLE);
  const auto address_bits = TG_CL_VALUE(read, cl_uint, CL_DEVICE_ADDRESS_BITS);
  const auto units = TG_CL_VALUE(read, cl_uint, CL_DEVICE_MAX_COMPUTE_UNITS);
  const auto mhz = TG_CL_VALUE(read, cl_uint, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  const auto dimensions = TG_CL_VALUE(read, cl_uint, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
  const auto group = TG_CL_VALUE(read, size_t, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  const auto native = TG_CL_VALUE(read, cl_uint, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  const auto single = TG_CL_VALUE(read, cl_bitfield, CL_DEVICE_SINGLE_FP_CONFIG);
  const auto wide = TG_CL_VALUE(read, cl_bitfield, CL_DEVICE_DOUBLE_FP_CONFIG);
  const auto local_type = TG_CL_VALUE(read, cl_uint, CL_DEVICE_LOCAL_MEM_TYPE);
  const auto local = TG_CL_VALUE(read, cl_ulong, CL_DEVICE_LOCAL_MEM_SIZE);
  const auto memory = TG_CL_VALUE(read, cl_ulong, CL_DEVICE_GLOBAL_MEM_SIZE);
  const auto allocation = TG_CL_VALUE(read, cl_ulong, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  TG_RETURN_IF_ERROR(read.status());
  if (available == CL_FALSE) return FailedPrecondition("it is not available");
  if (compiles == CL_FALSE) return FailedPrecondition("its driver has no compiler");
  if (little == CL_FALSE || address_bits != 64) {
    return FailedPrecondition("it has ", address_bits, " address bits and is ",
                              little == CL_FALSE ? "big" : "little",
                              "-endian; expected 64 and little-endian");
  }
  if (dimensions != kDimensions) {
    return FailedPrecondition("its workgroups have ", dimensions, " dimensions; expected 3");
  }
  const auto sizes =
      read.Value<std::array<size_t, kDimensions>>(CL_DEVICE_MAX_WORK_ITEM_SIZES, "sizes");
  TG_RETURN_IF_ERROR(read.status());
  DeviceFacts out;
  out.exact = CheckArithmetic(single);
  out.is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
  out.memory_bytes = static_cast<int64_t>(std::min<cl_ulong>(memory, INT64_MAX));
  out.allocation_bytes = static_cast<int64_t>(std::min<cl_ulong>(allocation, INT64_MAX));
  Target& target = out.target;
  const auto processors = static_cast<int>(std::clamp<cl_uint>(units, 1, 65536));
  const auto vector_bytes = static_cast<int>(4 * std::clamp<cl_uint>(native, 4, 16));
  target = out.is_cpu ? OpenClProcessor(processors, vector_bytes) : OpenClTarget(processors);
  target.cpu = Plain(StrCat(name, ", ", version, ", ", driver, ", ", platform.data()));
  if ((wide & kDoubleNeeds) != kDoubleNeeds) {
    target.computes =
        DTypeSet::FromBits(target.computes.bits() & ~DTypeSet{DType::kFloat64}.bits());
  }
  size_t threads = std::min<size_t>(group, kMaxGroupThreads);
  for (const size_t size : sizes) threads = std::min(threads, size);
  if (threads < kLeastGroupThreads) {
    return FailedPrecondition("its workgroups have at most ", threads, " threads; expected ",
                              kLeastGroupThreads);
  }
  target.group_threads = static_cast<int>(threads);
  target.local_bytes = static_cast<int64_t>(std::min<cl_ulong>(local, INT32_MAX));
  target.stages = local_type == CL_LOCAL;
  const double lanes = out.is_cpu ? target.vector_bytes / 4 : kGpuLanes;
  out.flops = 2 * lanes * 1e6 * static_cast<double>(mhz) * static_cast<double>(units);
  return out;
}

}  // namespace telegrad::opencl
