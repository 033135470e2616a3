#include "server/http_front_end.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/address.h"
#include "server/admin/log.h"
#include "server/http/http_server.h"
#include "server/http/inference_http.h"

namespace telegrad {
namespace {

class RunningHttp final : public HttpFrontEnd {
 public:
  RunningHttp(std::unique_ptr<InferenceHttp> handler, std::unique_ptr<HttpServer> server)
      : handler_(std::move(handler)), server_(std::move(server)) {}

 private:
  const std::unique_ptr<InferenceHttp> handler_;
  const std::unique_ptr<HttpServer> server_;  // ends before what it calls
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpFrontEnd>> HttpFrontEnd::Start(const Flags& flags,
                                                                  ModelServing* serving,
                                                                  Authenticator* authenticator,
                                                                  FindTenant find_tenant) {
  const std::string& text = flags.GetString("http");
  if (text.empty()) return nullptr;
  if (serving == nullptr) return InvalidArgument("--http needs --models");
  TG_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
  if (address.is_unix) return InvalidArgument("--http ", text, ": expected HOST:PORT");
  if (!address.is_local && !flags.GetBool("insecure-listen-anywhere")) {
    return InvalidArgument("--http ", text,
                           ": other machines reach this address, and HTTP is not encrypted here; "
                           "use a loopback address behind a proxy with TLS, or say "
                           "--insecure-listen-anywhere");
  }
  auto handler = std::make_unique<InferenceHttp>(serving->models(), authenticator,
                                                 std::move(find_tenant), address.is_local);
  HttpServer::Options options;
  options.address = text;
  options.head_time = std::chrono::milliseconds(flags.GetInt("http-idle-time"));
  options.body_time = std::min(options.body_time, options.head_time);
  TG_ASSIGN_OR_RETURN(auto server, HttpServer::Start(options, handler.get()));
  const std::string where = StrCat(text.substr(0, text.rfind(':') + 1), server->port());
  std::printf("http listening on %s\n", where.c_str());
  Log(LogLevel::kInfo, "listening", {{"address", where}, {"kind", "http"}});
  return std::make_unique<RunningHttp>(std::move(handler), std::move(server));
}

}  // namespace telegrad
