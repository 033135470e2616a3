// The HTTP front end of a build without an HTTP library: it refuses --http.
#include "engine/base/status.h"
#include "server/http_front_end.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<HttpFrontEnd>> HttpFrontEnd::Start(const Flags& flags, ModelServing*,
                                                                  Authenticator*, FindTenant) {
  if (flags.GetString("http").empty()) return nullptr;
  return Unimplemented("--http: this build has no HTTP; take one that is linked dynamically");
}

}  // namespace telegrad
