// PoCL takes its settings from the environment. Left to itself it handles SIGFPE and SIGUSR2, keeps
// code in the user's cache folder, and compiles every kernel again for the sizes of a launch, in
// the process that launches; without that it runs the code that is in the program's binary.
// Variables that are set already stay.
#include "engine/opencl/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/temporary_folder.h"

namespace telegrad::opencl {
namespace {

struct Setting {
  const char* variable;
  const char* value;
};
constexpr Setting kSettings[] = {
    {"POCL_SIGFPE_HANDLER", "0"},
    {"POCL_SIGUSR2_HANDLER", "0"},
    {"POCL_WORK_GROUP_SPECIALIZATION", "0"},
};
constexpr char kCacheVariable[] = "POCL_CACHE_DIR";

struct ErrorRow {
  cl_int value;
  std::string_view name;
  absl::StatusCode code;
};
constexpr ErrorRow kErrors[] = {
#define CL_ERROR(name, value, code) {value, #name, absl::StatusCode::code},
#include "engine/opencl/errors.def"
#undef CL_ERROR
};

// For as long as the process lives.
TemporaryFolder* g_cache = nullptr;

void RemoveCache() { delete std::exchange(g_cache, nullptr); }

void MakeCache() {
  if (std::getenv(kCacheVariable) != nullptr) return;
  auto folder = TemporaryFolder::Make("opencl");
  if (!folder) return;
  g_cache = new TemporaryFolder(*std::move(folder));
  setenv(kCacheVariable, g_cache->path().c_str(), 0);
  std::atexit(&RemoveCache);  // after the exit handlers of drivers, which are registered later
}

}  // namespace

void PrepareEnvironment() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const Setting& setting : kSettings) setenv(setting.variable, setting.value, 0);
    MakeCache();
  });
}

absl::Status Check(std::string_view call, cl_int error) {
  if (error == CL_SUCCESS) return absl::OkStatus();
  for (const ErrorRow& row : kErrors) {
    if (row.value == error) return absl::Status(row.code, StrCat(call, ": ", row.name));
  }
  return Internal(call, ": OpenCL error ", error);
}

absl::StatusOr<std::shared_ptr<const Library>> Library::Open(const std::string& path) {
  PrepareEnvironment();
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return NotFound("no OpenCL loader: ", why != nullptr ? why : path);
  }
  auto library = std::make_shared<Library>();
#define CL_SYMBOL(name, result, parameters)                                             \
  library->api_.name = reinterpret_cast<decltype(Symbols::name)>(dlsym(handle, #name)); \
  if (library->api_.name == nullptr) {                                                  \
    return FailedPrecondition("the OpenCL loader ", path,                               \
                              " lacks " #name "; expected one of OpenCL 1.2 or later"); \
  }
#include "engine/opencl/symbols.def"
#undef CL_SYMBOL
  return library;
}

}  // namespace telegrad::opencl
