// Starts the HTTP server by the daemon's flags and connects it with the models.
#include "server/http_front_end.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/address.h"
#include "server/admin/log.h"
#include "server/http/http_server.h"
#include "server/http/inference_http.h"
#include "server/pool/task_pool.h"

namespace telegrad {
namespace {

// That read and write long JSON: apart from the daemon's workers, whose tasks are shorter.
constexpr int kJsonThreads = 2;

class RunningHttp final : public HttpFrontEnd {
 public:
  RunningHttp(std::unique_ptr<HttpTls> tls, std::shared_ptr<TaskPool> json,
              std::unique_ptr<InferenceHttp> handler, std::unique_ptr<HttpServer> server)
      : tls_(std::move(tls)),
        json_(std::move(json)),
        handler_(std::move(handler)),
        server_(std::move(server)) {}
  ~RunningHttp() override {
    server_.reset();  // before what it calls
    json_->Stop();
  }

  void Drain() override { server_->Drain(); }
  void AwaitDrained(std::chrono::system_clock::time_point deadline) override {
    server_->AwaitDrained(deadline);
  }
  void EndAll() override { server_->EndAll(); }

  void Refresh() override {
    if (tls_ != nullptr) tls_->Refresh();
  }

 private:
  const std::unique_ptr<HttpTls> tls_;
  const std::shared_ptr<TaskPool> json_;
  const std::unique_ptr<InferenceHttp> handler_;
  std::unique_ptr<HttpServer> server_;
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
  const bool encrypted = !flags.GetString("tls-cert").empty();
  const bool guarded = encrypted && !authenticator->open();
  if (!address.is_local && !guarded && !flags.GetBool("insecure-listen-anywhere")) {
    return InvalidArgument("--http ", text, ": other machines reach this address, and ",
                           encrypted ? "callers would not be authenticated; give --jwt-keys or "
                                       "--tls-client-ca"
                                     : "tokens and data would travel in the clear; give --tls-cert",
                           ", use a loopback address, or say --insecure-listen-anywhere");
  }
  std::unique_ptr<HttpTls> tls;
  if (encrypted) {
    TG_ASSIGN_OR_RETURN(tls, HttpTls::Open({.certificate = flags.GetString("tls-cert"),
                                            .key = flags.GetString("tls-key"),
                                            .client_ca = flags.GetString("tls-client-ca")}));
  }
  auto json =
      std::make_shared<TaskPool>(TaskPool::Options{.threads = kJsonThreads, .spare = kJsonThreads});
  auto handler = std::make_unique<InferenceHttp>(serving->models(), authenticator, json,
                                                 std::move(find_tenant), address.is_local);
  HttpServer::Options options;
  options.address = text;
  options.tls = tls.get();
  options.head_time = std::chrono::milliseconds(flags.GetInt("http-idle-time"));
  options.body_time = std::min(options.body_time, options.head_time);
  TG_ASSIGN_OR_RETURN(auto server, HttpServer::Start(options, handler.get()));
  const std::string where = StrCat(text.substr(0, text.rfind(':') + 1), server->port());
  std::printf("http listening on %s\n", where.c_str());
  Log(LogLevel::kInfo, "listening", {{"address", where}, {"kind", "http"}});
  return std::make_unique<RunningHttp>(std::move(tls), std::move(json), std::move(handler),
                                       std::move(server));
}

}  // namespace telegrad
