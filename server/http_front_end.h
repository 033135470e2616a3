// The models over HTTP, at the address of --http.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/flags.h"
#include "server/identity/authenticator.h"
#include "server/model_serving.h"

namespace telegrad {

class HttpFrontEnd {
 public:
  using FindTenant = std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const std::string&)>;

  // Null without --http. Says on stdout where it listens. INVALID_ARGUMENT for flags that do not
  // fit, and UNIMPLEMENTED in a build without HTTP. What is pointed to outlives it.
  static absl::StatusOr<std::unique_ptr<HttpFrontEnd>> Start(const Flags& flags,
                                                             ModelServing* serving,
                                                             Authenticator* authenticator,
                                                             FindTenant find_tenant);
  // Ends all requests.
  virtual ~HttpFrontEnd() = default;
  // While the daemon drains, as HttpServer: ends each connection with its next answer, waits for
  // the requests that are under way, and stops waiting for them.
  virtual void Drain() = 0;
  virtual void AwaitDrained(std::chrono::system_clock::time_point deadline) = 0;
  virtual void EndAll() = 0;
  // Looks now whether the files of TLS have changed.
  virtual void Refresh() = 0;
};

}  // namespace telegrad
