// Resolves the functions of symbols.def with dlsym, refuses drivers that are too old, and maps
// results to status codes.
#include "devices/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

std::string VersionText(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_NO_DEVICE:
      return absl::StatusCode::kNotFound;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_NOT_FOUND:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status Library::Check(std::string_view call, CUresult result) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  api_.cuGetErrorName(result, &name);
  api_.cuGetErrorString(result, &text);
  const std::string known =
      name != nullptr ? std::string(name) : StrCat("error ", static_cast<int>(result));
  return absl::Status(CodeOf(result),
                      StrCat(call, ": ", known, text != nullptr ? StrCat(" (", text, ")") : ""));
}

absl::StatusOr<std::shared_ptr<const Library>> Library::Open(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return NotFound("no NVIDIA driver: ", why != nullptr ? why : path);
  }
  auto library = std::make_shared<Library>();
  // First, because it says more than what is missing.
  auto* const get_version =
      reinterpret_cast<CUresult (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&library->version_) != CUDA_SUCCESS) {
    return FailedPrecondition(path, " is not a CUDA driver: it does not say its version");
  }
  if (library->version_ < kOldestVersion) {
    return FailedPrecondition("the NVIDIA driver is too old: ", path, " supports CUDA ",
                              VersionText(library->version_), "; expected ",
                              VersionText(kOldestVersion), " or later");
  }
#define CUDA_SYMBOL(name, version, parameters)                                          \
  library->api_.name = reinterpret_cast<decltype(Symbols::name)>(dlsym(handle, #name)); \
  if (library->api_.name == nullptr) {                                                  \
    return FailedPrecondition("the driver ", path,                                      \
                              " lacks " #name "; expected one that supports CUDA ",     \
                              VersionText(version), " or later");                       \
  }
#define CUDA_OPTIONAL_SYMBOL(name, version, parameters) \
  library->api_.name = reinterpret_cast<decltype(Symbols::name)>(dlsym(handle, #name));
#include "devices/cuda/symbols.def"
#undef CUDA_SYMBOL
  // Else the first launch of a function loads it, which "may require context synchronization" (CUDA
  // C++ Programming Guide, "Lazy Loading"): a queue would wait for what runs on others. Whoever has
  // set the variable has decided.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0);
  if (const absl::Status status = TG_CUDA(*library, cuInit, 0); !status.ok()) {
    if (absl::IsNotFound(status)) return NotFound("no NVIDIA GPU: ", ToStd(status.message()));
    return FailedPrecondition("the NVIDIA driver does not work: ", ToStd(status.message()));
  }
  return library;
}

}  // namespace telegrad::cuda
