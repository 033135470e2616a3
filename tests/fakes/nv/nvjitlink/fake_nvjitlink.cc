// The fake of libnvJitLink: makes the cubins of fake_ptxas. Functions as in nvJitLink.h of CUDA 12
// and 13. Anything that telegrad does not do with it is refused.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "tests/fakes/nv/ptxas/make_cubin.h"

namespace {

enum Result : int {
  kSuccess = 0,
  kUnrecognizedOption = 1,
  kMissingArch = 2,
  kInvalidInput = 3,
  kPtxCompile = 4,
  kNullInput = 10,
};
constexpr int kPtx = 2;

struct Link {
  std::string arch, text, cubin, log;
};

std::set<Link*>& Links() {
  static std::set<Link*> links;
  return links;
}

}  // namespace

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API int nvJitLinkVersion(unsigned int* major, unsigned int* minor) {
  *major = 0;
  *minor = 7;
  return kSuccess;
}

FAKE_API int nvJitLinkCreate(Link** handle, uint32_t count, const char** options) {
  const std::string prefix = "-arch=";
  if (count == 0) return kMissingArch;
  const std::string option = options[0];
  if (count != 1 || option.compare(0, prefix.size(), prefix) != 0) return kUnrecognizedOption;
  *handle = new Link{.arch = option.substr(prefix.size()), .text = "", .cubin = "", .log = ""};
  Links().insert(*handle);
  return kSuccess;
}

FAKE_API int nvJitLinkDestroy(Link** handle) {
  if (handle == nullptr || Links().erase(*handle) == 0) return kNullInput;
  delete *handle;
  *handle = nullptr;
  return kSuccess;
}

FAKE_API int nvJitLinkAddData(Link* link, int type, const void* data, size_t bytes, const char*) {
  const auto* const text = static_cast<const char*>(data);
  if (!Links().contains(link) || text == nullptr) return kNullInput;
  if (type != kPtx || bytes == 0 || std::strlen(text) + 1 != bytes || !link->text.empty()) {
    return kInvalidInput;
  }
  link->text = text;
  return kSuccess;
}

FAKE_API int nvJitLinkComplete(Link* link) {
  if (!Links().contains(link)) return kNullInput;
  link->cubin = telegrad::fakes::CubinOfPtx(link->text, link->arch, &link->log);
  if (!link->cubin.empty()) return kSuccess;
  link->log = "fatal : " + link->log;
  return kPtxCompile;
}

FAKE_API int nvJitLinkGetLinkedCubinSize(Link* link, size_t* bytes) {
  if (!Links().contains(link) || link->cubin.empty()) return kNullInput;
  *bytes = link->cubin.size();
  return kSuccess;
}

FAKE_API int nvJitLinkGetLinkedCubin(Link* link, void* cubin) {
  if (!Links().contains(link) || link->cubin.empty()) return kNullInput;
  std::memcpy(cubin, link->cubin.data(), link->cubin.size());
  return kSuccess;
}

FAKE_API int nvJitLinkGetErrorLogSize(Link* link, size_t* bytes) {
  if (!Links().contains(link)) return kNullInput;
  *bytes = link->log.size() + 1;
  return kSuccess;
}

FAKE_API int nvJitLinkGetErrorLog(Link* link, char* log) {
  if (!Links().contains(link)) return kNullInput;
  std::memcpy(log, link->log.c_str(), link->log.size() + 1);
  return kSuccess;
}

// How many were made and not destroyed.
FAKE_API int fakeNvJitLinkLive() { return static_cast<int>(Links().size()); }
