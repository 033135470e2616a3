// Splits a path at its slashes and compares the parts with the forms that the protocol has.
#include "server/http/routes.h"

#include <vector>

namespace telegrad {
namespace {

constexpr size_t kMostParts = 8;

// "/a/b" as {"a", "b"}; nothing for a path that is not of this form or has more parts than any.
std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (path.starts_with('/')) {
    path.remove_prefix(1);
    const size_t end = path.find('/');
    parts.push_back(path.substr(0, end));
    if (parts.size() > kMostParts || parts.back().empty()) return {};
    if (end == std::string_view::npos) return parts;
    path.remove_prefix(end);
  }
  return {};
}

}  // namespace

std::optional<Route> FindRoute(std::string_view path) {
  if (path == "/") return Route{Route::What::kPage};
  if (path == "/page.js") return Route{Route::What::kScript};
  const std::vector<std::string_view> parts = PartsOf(path);
  const size_t n = parts.size();
  if (n == 0 || parts[0] != "v2") return std::nullopt;
  if (n == 1) return Route{Route::What::kServer};
  if (n == 3 && parts[1] == "health" && parts[2] == "live") return Route{Route::What::kLive};
  if (n == 3 && parts[1] == "health" && parts[2] == "ready") return Route{Route::What::kReady};
  if (n == 3 && parts[1] == "models" && parts[2] == "stats")
    return Route{Route::What::kAllStatistics};
  if (n == 3 && parts[1] == "repository" && parts[2] == "index") {
    return Route{.what = Route::What::kIndex, .post = true};
  }
  if (n == 5 && parts[1] == "repository" && parts[2] == "models") {
    const std::string model(parts[3]);
    if (parts[4] == "load") return Route{.what = Route::What::kLoad, .model = model, .post = true};
    if (parts[4] == "unload")
      return Route{.what = Route::What::kUnload, .model = model, .post = true};
    return std::nullopt;
  }
  if (n == 2 && parts[1] == "logging")
    return Route{.what = Route::What::kLogSettings, .both = true};
  if (n == 3 && parts[1] == "trace" && parts[2] == "setting") {
    return Route{.what = Route::What::kTraceSettings, .both = true};
  }
  if (n == 5 && parts[1] == "models" && parts[3] == "trace" && parts[4] == "setting") {
    return Route{.what = Route::What::kTraceSettings, .model = std::string(parts[2]), .both = true};
  }
  const bool cuda = n >= 3 && parts[1] == "cudasharedmemory";
  if (cuda || (n >= 3 && parts[1] == "systemsharedmemory")) {
    const bool of_one = n == 5 && parts[2] == "region";
    if (n != 3 && !of_one) return std::nullopt;
    Route out{
        .what = Route::What::kRegions, .model = of_one ? std::string(parts[3]) : "", .cuda = cuda};
    if (parts[n - 1] == "status") return out;
    out.post = true;
    out.what = of_one && parts[4] == "register" ? Route::What::kRegister : Route::What::kUnregister;
    if (out.what == Route::What::kUnregister && parts[n - 1] != "unregister") return std::nullopt;
    return out;
  }
  if (n < 3 || parts[1] != "models") return std::nullopt;
  Route out{.what = Route::What::kModel, .model = std::string(parts[2])};
  size_t at = 3;
  if (n > at + 1 && parts[at] == "versions") {
    out.version = std::string(parts[at + 1]);
    at += 2;
  }
  if (at == n) return out;
  if (at + 1 != n) return std::nullopt;
  if (parts[at] == "ready") {
    out.what = Route::What::kModelReady;
  } else if (parts[at] == "config") {
    out.what = Route::What::kConfig;
  } else if (parts[at] == "stats") {
    out.what = Route::What::kStatistics;
  } else if (parts[at] == "infer") {
    out.what = Route::What::kInfer;
    out.post = true;
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace telegrad
