// Opens the library with dlopen and calls the driver API through function pointers. A launch
// works on copies of the arguments in device memory.
#include "tests/nvptx/raw_cuda.h"

#include <dlfcn.h>

#include "absl/cleanup/cleanup.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad::testing {
namespace {

// Values of cuda.h.
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CUdevice_attribute
constexpr int kMaxDynamicSharedSize = 8;                     // CUfunction_attribute

}  // namespace

// Of the driver API's names; a handle is a pointer, an address of the device a number.
struct RawCuda::Api {
  int (*Init)(unsigned);
  int (*DeviceGet)(int*, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*PrimaryCtxRetain)(void**, int);
  int (*PrimaryCtxRelease)(int);
  int (*CtxSetCurrent)(void*);
  int (*MemAlloc)(uint64_t*, size_t);
  int (*MemFree)(uint64_t);
  int (*MemcpyHtoD)(uint64_t, const void*, size_t, void*);
  int (*MemcpyDtoH)(void*, uint64_t, size_t, void*);
  int (*StreamSynchronize)(void*);
  int (*ModuleLoad)(void**, const void*, unsigned, int*, void**);
  int (*ModuleUnload)(void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*FuncSetAttribute)(void*, int, int);
  int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);
  int (*GetErrorName)(int, const char**);

  absl::Status Check(int result, std::string_view what) const {
    if (result == 0) return absl::OkStatus();
    const char* name = nullptr;
    GetErrorName(result, &name);
    return Internal(what, ": ", name == nullptr ? "an unknown error" : name);
  }
};

RawCuda::RawCuda() : api_(std::make_unique<Api>()) {}
RawCuda::~RawCuda() {
  if (capability_ > 0) api_->PrimaryCtxRelease(device_);
}

absl::StatusOr<std::unique_ptr<RawCuda>> RawCuda::Open(const std::string& library) {
  std::unique_ptr<RawCuda> cuda(new RawCuda());
  TG_RETURN_IF_ERROR(cuda->Start(library));
  return cuda;
}

absl::Status RawCuda::Start(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return absl::NotFoundError(dlerror());
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* found = dlsym(opened, name);
    if (found == nullptr) StrAppend(&missing, " ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(api_->Init, "cuInit");
  find(api_->DeviceGet, "cuDeviceGet");
  find(api_->DeviceGetAttribute, "cuDeviceGetAttribute");
  find(api_->PrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(api_->PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  find(api_->CtxSetCurrent, "cuCtxSetCurrent");
  find(api_->MemAlloc, "cuMemAlloc_v2");
  find(api_->MemFree, "cuMemFree_v2");
  find(api_->MemcpyHtoD, "cuMemcpyHtoDAsync_v2");
  find(api_->MemcpyDtoH, "cuMemcpyDtoHAsync_v2");
  find(api_->StreamSynchronize, "cuStreamSynchronize");
  find(api_->ModuleLoad, "cuModuleLoadDataEx");
  find(api_->ModuleUnload, "cuModuleUnload");
  find(api_->ModuleGetFunction, "cuModuleGetFunction");
  find(api_->FuncSetAttribute, "cuFuncSetAttribute");
  find(api_->LaunchKernel, "cuLaunchKernel");
  find(api_->GetErrorName, "cuGetErrorName");
  if (!missing.empty()) return absl::NotFoundError(StrCat(library, " lacks", missing));
  TG_RETURN_IF_ERROR(api_->Check(api_->Init(0), "cuInit"));
  TG_RETURN_IF_ERROR(api_->Check(api_->DeviceGet(&device_, 0), "cuDeviceGet"));
  int major = 0, minor = 0;
  void* context = nullptr;
  TG_RETURN_IF_ERROR(api_->Check(api_->DeviceGetAttribute(&major, kCapabilityMajor, device_),
                                 "cuDeviceGetAttribute"));
  TG_RETURN_IF_ERROR(api_->Check(api_->DeviceGetAttribute(&minor, kCapabilityMinor, device_),
                                 "cuDeviceGetAttribute"));
  TG_RETURN_IF_ERROR(api_->Check(api_->PrimaryCtxRetain(&context, device_), "a context"));
  capability_ = 10 * major + minor;
  return api_->Check(api_->CtxSetCurrent(context), "cuCtxSetCurrent");
}

absl::Status RawCuda::Launch(const ProgramImage& image, const std::vector<Slice>& slices,
                             std::vector<uint64_t> addresses) {
  void *module = nullptr, *function = nullptr;
  TG_RETURN_IF_ERROR(api_->Check(
      api_->ModuleLoad(&module, image.binary.c_str(), 0, nullptr, nullptr), "cuModuleLoadDataEx"));
  const absl::Cleanup unload = [&] { api_->ModuleUnload(module); };
  TG_RETURN_IF_ERROR(api_->Check(api_->ModuleGetFunction(&function, module, image.name.c_str()),
                                 "cuModuleGetFunction"));
  const auto local = static_cast<unsigned>(image.signature.local_bytes);
  TG_RETURN_IF_ERROR(
      api_->Check(api_->FuncSetAttribute(function, kMaxDynamicSharedSize, static_cast<int>(local)),
                  "cuFuncSetAttribute"));
  for (const Slice& slice : slices) {
    int64_t begin = slice.begin;
    std::vector<void*> parameters;
    for (uint64_t& address : addresses) parameters.push_back(&address);
    parameters.push_back(&begin);
    TG_RETURN_IF_ERROR(
        api_->Check(api_->LaunchKernel(function, static_cast<unsigned>(slice.workgroups), 1, 1,
                                       static_cast<unsigned>(image.signature.group.x), 1, 1, local,
                                       nullptr, parameters.data(), nullptr),
                    "cuLaunchKernel"));
  }
  return api_->Check(api_->StreamSynchronize(nullptr), "the kernel");
}

absl::Status RawCuda::Run(const ProgramImage& image, const std::vector<Slice>& slices,
                          std::vector<std::vector<uint8_t>>* arguments) {
  std::vector<uint64_t> addresses;
  const absl::Cleanup free = [&] {
    for (uint64_t address : addresses) api_->MemFree(address);
  };
  for (const std::vector<uint8_t>& argument : *arguments) {
    uint64_t address = 0;
    TG_RETURN_IF_ERROR(api_->Check(api_->MemAlloc(&address, argument.size()), "cuMemAlloc"));
    addresses.push_back(address);
    TG_RETURN_IF_ERROR(
        api_->Check(api_->MemcpyHtoD(address, argument.data(), argument.size(), nullptr), "copy"));
  }
  TG_RETURN_IF_ERROR(Launch(image, slices, addresses));
  for (size_t i = 0; i < arguments->size(); ++i) {
    std::vector<uint8_t>& argument = (*arguments)[i];
    TG_RETURN_IF_ERROR(api_->Check(
        api_->MemcpyDtoH(argument.data(), addresses[i], argument.size(), nullptr), "copy"));
  }
  return api_->Check(api_->StreamSynchronize(nullptr), "copies");
}

}  // namespace telegrad::testing
