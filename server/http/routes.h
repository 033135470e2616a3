// The paths of the protocol over HTTP.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace telegrad {

struct Route {
  enum class What {
    kPage,
    kScript,
    kLive,
    kReady,
    kServer,
    kAllStatistics,
    kIndex,
    kLoad,
    kUnload,
    kModel,
    kModelReady,
    kConfig,
    kStatistics,
    kInfer,
    kRegions,
    kRegister,
    kUnregister,
    kTraceSettings,
    kLogSettings,
  };
  What what;
  std::string model = {}, version = {};  // a shared memory region is in `model`
  bool post = false;                     // else GET
  bool both = false;                     // or either, GET to ask and POST to change
  bool cuda = false;                     // of a region: in memory of a GPU
};

// None where there is no such path.
std::optional<Route> FindRoute(std::string_view path);

}  // namespace telegrad
