// Declarations as in nvJitLink.h of CUDA 12 and 13. The header's own functions call symbols that
// have its version in their names; those without are the same for callers of any version.
#include "engine/compile/nvjitlink.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using nvJitLinkHandle = struct nvJitLink*;
using nvJitLinkResult = int;
constexpr nvJitLinkResult NVJITLINK_SUCCESS = 0;
constexpr int NVJITLINK_INPUT_PTX = 2;
constexpr size_t kMostLog = 4096, kMostLinked = size_t{128} << 20;  // bytes

struct JitLink {
  nvJitLinkResult (*Version)(unsigned int* major, unsigned int* minor) = nullptr;
  nvJitLinkResult (*Create)(nvJitLinkHandle* handle, uint32_t count,
                            const char** options) = nullptr;
  nvJitLinkResult (*Destroy)(nvJitLinkHandle* handle) = nullptr;
  nvJitLinkResult (*AddData)(nvJitLinkHandle handle, int type, const void* data, size_t bytes,
                             const char* name) = nullptr;
  nvJitLinkResult (*Complete)(nvJitLinkHandle handle) = nullptr;
  nvJitLinkResult (*GetLinkedCubinSize)(nvJitLinkHandle handle, size_t* bytes) = nullptr;
  nvJitLinkResult (*GetLinkedCubin)(nvJitLinkHandle handle, void* cubin) = nullptr;
  nvJitLinkResult (*GetErrorLogSize)(nvJitLinkHandle handle, size_t* bytes) = nullptr;
  nvJitLinkResult (*GetErrorLog)(nvJitLinkHandle handle, char* log) = nullptr;
  std::string path;  // where it was found
};

absl::StatusOr<JitLink> OpenJitLink(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return NotFound(why != nullptr ? why : name);
  }
  JitLink out;
  std::string missing;
  const auto find = [&]<typename Function>(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
  find(out.Version, "nvJitLinkVersion");
  find(out.Create, "nvJitLinkCreate");
  find(out.Destroy, "nvJitLinkDestroy");
  find(out.AddData, "nvJitLinkAddData");
  find(out.Complete, "nvJitLinkComplete");
  find(out.GetLinkedCubinSize, "nvJitLinkGetLinkedCubinSize");
  find(out.GetLinkedCubin, "nvJitLinkGetLinkedCubin");
  find(out.GetErrorLogSize, "nvJitLinkGetErrorLogSize");
  find(out.GetErrorLog, "nvJitLinkGetErrorLog");
  if (!missing.empty()) return FailedPrecondition(name, " lacks ", missing);
  Dl_info about{};
  const bool known = dladdr(reinterpret_cast<void*>(out.Version), &about) != 0;
  out.path = known && about.dli_fname != nullptr ? about.dli_fname : name;
  return out;
}

// Opened once for each path, and never closed: it may have threads.
absl::StatusOr<JitLink> Opened(const std::string& path) {
  static Mutex mutex;
  static auto* const all = new std::map<std::string, JitLink>();
  const MutexLock lock(mutex);
  const auto found = all->find(path);
  if (found != all->end()) return found->second;
  TG_ASSIGN_OR_RETURN(JitLink made, OpenJitLink(path));
  return all->emplace(path, std::move(made)).first->second;
}

std::string LogOf(const JitLink& link, nvJitLinkHandle handle) {
  size_t bytes = 0;
  if (handle == nullptr || link.GetErrorLogSize(handle, &bytes) != NVJITLINK_SUCCESS ||
      bytes == 0 || bytes > kMostLinked) {
    return "it says nothing";
  }
  std::string log(bytes, '\0');
  if (link.GetErrorLog(handle, log.data()) != NVJITLINK_SUCCESS) return "it says nothing";
  log.resize(std::min({log.find('\0'), kMostLog, log.size()}));
  return log;
}

}  // namespace

absl::StatusOr<Assembler> FindNvJitLink(std::string_view libraries) {
  std::string why;
  while (true) {
    const size_t colon = libraries.find(':');
    const std::string name(libraries.substr(0, colon));
    auto link = Opened(name);
    if (link.ok()) {
      unsigned int major = 0, minor = 0;
      if (link->Version(&major, &minor) != NVJITLINK_SUCCESS) {
        return FailedPrecondition(name, " does not say its version");
      }
      Assembler out{.path = link->path, .version = StrCat("nvJitLink-", major, ".", minor)};
      TG_RETURN_IF_ERROR(CheckForKeys(out, name));
      return out;
    }
    if (!absl::IsNotFound(link.status())) return link.status();
    StrAppend(&why, why.empty() ? "" : "; ", ToStd(link.status().message()));
    if (colon == libraries.npos) return NotFound("there is no library nvJitLink: ", why);
    libraries.remove_prefix(colon + 1);
  }
}

absl::StatusOr<std::string> LinkPtx(const std::string& library, const std::string& ptx,
                                    const std::string& arch, const std::string& kernel) {
  const auto link = Opened(library);
  if (!link.ok()) {
    return absl::UnavailableError(StrCat("nvJitLink: ", ToStd(link.status().message())));
  }
  const std::string option = StrCat("-arch=", arch);
  const char* options[] = {option.c_str()};
  nvJitLinkHandle handle = nullptr;
  std::string cubin;
  const char* step = "nvJitLinkCreate";
  const auto next = [&](const char* name, nvJitLinkResult result) {
    step = name;
    return result;
  };
  nvJitLinkResult result = link->Create(&handle, 1, options);
  size_t bytes = 0;
  // The size of PTX counts the zero at its end.
  if (result == NVJITLINK_SUCCESS) {
    result = next("nvJitLinkAddData", link->AddData(handle, NVJITLINK_INPUT_PTX, ptx.c_str(),
                                                    ptx.size() + 1, kernel.c_str()));
  }
  if (result == NVJITLINK_SUCCESS) result = next("nvJitLinkComplete", link->Complete(handle));
  if (result == NVJITLINK_SUCCESS) {
    result = next("nvJitLinkGetLinkedCubinSize", link->GetLinkedCubinSize(handle, &bytes));
  }
  if (result == NVJITLINK_SUCCESS && bytes <= kMostLinked) {
    cubin.resize(bytes);
    result = next("nvJitLinkGetLinkedCubin", link->GetLinkedCubin(handle, cubin.data()));
  }
  const std::string log = result == NVJITLINK_SUCCESS ? "" : LogOf(*link, handle);
  if (handle != nullptr) link->Destroy(&handle);
  if (result != NVJITLINK_SUCCESS) {
    return Internal("kernel ", kernel, ": ", step, " ended with error ", result, ": ", log);
  }
  if (!cubin.starts_with("\177ELF")) {
    return Internal("kernel ", kernel, ": nvJitLink ended well, but made no cubin");
  }
  return cubin;
}

}  // namespace telegrad
