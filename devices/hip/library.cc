// Opens the first library of the list that can be opened, resolves the functions of symbols.def,
// refuses versions that are too old, and maps results to status codes.
#include "devices/hip/library.h"

#include <dlfcn.h>

#include "engine/base/status.h"

namespace telegrad::hip {
namespace {

// hip_version.h: 10,000,000 times the major version and 100,000 times the minor one.
std::string VersionText(int version) {
  return StrCat(version / 10'000'000, ".", version % 10'000'000 / 100'000);
}

absl::StatusCode CodeOf(hipError_t result) {
  switch (result) {
    case hipErrorOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case hipErrorNoDevice:
      return absl::StatusCode::kNotFound;
    case hipErrorInvalidDeviceFunction:
    case hipErrorInvalidImage:
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidKernelFile:
    case hipErrorSharedObjectInitFailed:
    case hipErrorNotFound:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

// A library of `paths` that can be opened, and its name.
absl::StatusOr<std::pair<void*, std::string>> OpenFirst(std::string_view paths) {
  std::string why;
  while (true) {
    const size_t colon = paths.find(':');
    const std::string path(paths.substr(0, colon));
    if (void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {{handle, path}};
    const char* said = dlerror();
    StrAppend(&why, why.empty() ? "" : "; ", said != nullptr ? said : path);
    if (colon == paths.npos) return NotFound("no AMD driver: ", why);
    paths.remove_prefix(colon + 1);
  }
}

}  // namespace

absl::Status Library::Check(std::string_view call, hipError_t result) const {
  if (result == hipSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  api_.hipDrvGetErrorName(result, &name);
  api_.hipDrvGetErrorString(result, &text);
  const std::string known =
      name != nullptr ? std::string(name) : StrCat("error ", static_cast<int>(result));
  return absl::Status(CodeOf(result),
                      StrCat(call, ": ", known, text != nullptr ? StrCat(" (", text, ")") : ""));
}

absl::StatusOr<std::shared_ptr<const Library>> Library::Open(std::string_view paths) {
  TG_ASSIGN_OR_RETURN(const auto opened, OpenFirst(paths));
  const auto& [handle, path] = opened;
  auto library = std::make_shared<Library>();
  // First, because it says more than what is missing.
  auto* const get_version =
      reinterpret_cast<hipError_t (*)(int*)>(dlsym(handle, "hipRuntimeGetVersion"));
  if (get_version == nullptr || get_version(&library->version_) != hipSuccess) {
    return FailedPrecondition(path, " is not a HIP library: it does not say its version");
  }
  if (library->version_ < kOldestVersion) {
    return FailedPrecondition("the HIP library is too old: ", path, " is HIP ",
                              VersionText(library->version_), "; expected ",
                              VersionText(kOldestVersion), " or later");
  }
#define HIP_SYMBOL(name, parameters)                                                    \
  library->api_.name = reinterpret_cast<decltype(Symbols::name)>(dlsym(handle, #name)); \
  if (library->api_.name == nullptr) {                                                  \
    return FailedPrecondition("the HIP library ", path, " lacks " #name "; expected ",  \
                              VersionText(kOldestVersion), " or later");                \
  }
#include "devices/hip/symbols.def"
#undef HIP_SYMBOL
  if (const absl::Status status = TG_HIP(*library, hipInit, 0); !status.ok()) {
    if (absl::IsNotFound(status)) return NotFound("no AMD GPU: ", ToStd(status.message()));
    return FailedPrecondition("the HIP library does not work: ", ToStd(status.message()));
  }
  return library;
}

}  // namespace telegrad::hip
