// Checks the addresses and their protection, makes the credentials of each listener, and starts
// a gRPC server for each kind.
#include "server/service/listeners.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "engine/base/status.h"
#include "grpc/grpc.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "proto/transport.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

// How often the files of TLS are looked at for a change.
constexpr unsigned kTlsRefreshSeconds = 1;
// An administrator's unix socket is for the daemon's own user.
constexpr mode_t kOwnerOnly = 0177;

absl::Status CheckReach(const char* flag, const ListenAddress& address,
                        const ListenOptions& options, bool open_to_all) {
  if (address.is_local || options.anywhere) return absl::OkStatus();
  if (open_to_all) {
    return InvalidArgument(
        flag, " ", address.text,
        ": other machines reach this address and callers would not be authenticated; give "
        "--jwt-keys or --tls-client-ca, use a loopback address or a unix "
        "socket, or say --insecure-listen-anywhere");
  }
  if (options.tls.certificate.empty()) {
    return InvalidArgument(flag, " ", address.text,
                           ": other machines reach this address, and tokens and data would travel "
                           "in the clear; give --tls-cert, or say --insecure-listen-anywhere");
  }
  return absl::OkStatus();
}

// `checked`: what gRPC reads; null: no TLS.
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ListenOptions& options,
                                                       const CheckedTls* checked,
                                                       const ListenAddress& address) {
  if (address.is_unix || checked == nullptr) return grpc::InsecureServerCredentials();
  const TlsFiles& files = checked->copies();
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions credentials(
      std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate,
                                                            files.client_ca, kTlsRefreshSeconds));
  credentials.watch_identity_key_cert_pairs();
  credentials.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  if (!files.client_ca.empty()) {
    credentials.watch_root_certs();
    credentials.set_cert_request_type(
        options.certificates_required ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(credentials);
}

constexpr std::string_view kPassed = "systemd";

bool IsPassed(std::string_view text) { return text == kPassed || text.starts_with("systemd:"); }

absl::StatusOr<BulkOptions> BulkOf(const ListenOptions& options, bool open_to_all) {
  BulkOptions bulk{
      .addresses = {}, .tls = !options.tls.certificate.empty(), .most = options.bulk_sockets};
  if (options.bulk == std::vector<std::string>{"none"}) return bulk;
  for (const std::string& text : options.bulk) {
    TG_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (address.is_unix) {
      return InvalidArgument("--bulk-listen ", text,
                             ": expected HOST:PORT, because bulk sockets use TCP; for clients on "
                             "this machine use --local-memory");
    }
    TG_RETURN_IF_ERROR(CheckReach("--bulk-listen", address, options, open_to_all));
    bulk.addresses.push_back(text);
  }
  if (!options.bulk.empty()) return bulk;
  std::string first;  // of loopback; with any other, there are clients whom it says nothing
  for (const std::string& text : options.compute) {
    if (IsPassed(text)) continue;
    TG_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (address.is_unix) continue;
    if (!address.is_local) return bulk;
    if (first.empty()) first = StrCat(text.substr(0, text.rfind(':') + 1), "0");
  }
  if (!first.empty()) bulk.addresses.push_back(first);
  return bulk;
}

ListenAddress AddressOf(const PassedSocket& socket) {
  return {
      .text = socket.address, .host = {}, .is_unix = socket.is_unix, .is_local = socket.is_local};
}

// The sockets that `text` stands for, "systemd" or "systemd:NAME".
absl::StatusOr<std::vector<PassedSocket>> FindPassed(const char* flag, const std::string& text,
                                                     const std::vector<PassedSocket>& passed) {
  std::vector<PassedSocket> found;
  for (const PassedSocket& socket : passed) {
    if (text == kPassed || text == StrCat(kPassed, ":", socket.name)) found.push_back(socket);
  }
  if (found.empty()) {
    return InvalidArgument(flag, " ", text, ": of the ", passed.size(),
                           " sockets that the service manager passed to this process (LISTEN_FDS), "
                           "none is meant; start it through its socket unit");
  }
  return found;
}

}  // namespace

Listeners::Listeners(const ListenOptions& options) : options_(options), guard_(options.max_resets) {
  memory_.Resize(static_cast<size_t>(options.memory));
}

absl::StatusOr<std::unique_ptr<Listeners>> Listeners::Create(const ListenOptions& options,
                                                             bool open_to_all) {
  auto listeners = std::make_unique<Listeners>(options);
  if (!options.tls.certificate.empty()) {
    TG_ASSIGN_OR_RETURN(listeners->tls_, CheckedTls::Open(options.tls));
  }
  const struct {
    Listener listener;
    const char *flag, *says;
    const std::vector<std::string>& texts;
  } kRows[] = {{kOnData, "--data-listen", "data on ", options.data},
               {kOnAdmin, "--admin-listen", "admin on ", options.admin},
               {kOnCompute, "--listen", "listening on ", options.compute}};
  for (const auto& row : kRows) {
    if (row.texts.empty()) continue;
    Kind kind{row.listener, row.says, {}, {}, nullptr, {}, nullptr, nullptr};
    for (const std::string& text : row.texts) {
      if (IsPassed(text)) {
        TG_ASSIGN_OR_RETURN(const auto passed, FindPassed(row.flag, text, options.passed));
        for (const PassedSocket& socket : passed) {
          TG_RETURN_IF_ERROR(CheckReach(row.flag, AddressOf(socket), options, open_to_all));
          kind.passed.push_back(socket);
        }
        continue;
      }
      TG_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
      TG_RETURN_IF_ERROR(CheckReach(row.flag, address, options, open_to_all));
      kind.addresses.push_back(std::move(address));
    }
    listeners->kinds_.push_back(std::move(kind));
  }
  TG_ASSIGN_OR_RETURN(listeners->bulk_, BulkOf(options, open_to_all));
  return listeners;
}

absl::StatusOr<std::unique_ptr<BulkListener>> Listeners::StartBulk(Metrics* metrics) {
  if (bulk_.addresses.empty()) return nullptr;
  TG_ASSIGN_OR_RETURN(auto bulk, BulkListener::Start(bulk_, metrics));
  bulk_.addresses = bulk->addresses();
  return bulk;
}

absl::Status Listeners::Start(const Services& services, Authenticator* authenticator,
                              const Router::FindTenant& find_tenant,
                              const std::function<void(const std::string&)>& data_first,
                              CallWatch* watch, Metrics* metrics) {
  metrics->AddCollector([this](Metrics& m) { m.Set(Metric::kConnections, connections_.open()); });
  acceptor_ = std::make_unique<Acceptor>(&connections_, metrics);
  for (Kind& kind : kinds_) {
    kind.router = std::make_unique<Router>(kind.listener, services, authenticator, find_tenant,
                                           &guard_, &connections_, watch);
    const absl::StatusOr<std::string> address = StartKind(kind);
    if (!address.ok()) {
      Shutdown(std::chrono::system_clock::now());  // nobody calls what is about to go
      return address.status();
    }
    if (kind.listener == kOnData) data_first(*address);
  }
  metrics->AddLabelled([this] {
    LabelledMetric calls{.name = "telegrad_call_seconds",
                         .kind = MetricInfo::kHistogram,
                         .help = "Duration of calls, by method and listener"};
    for (const Kind& kind : kinds_) {
      if (kind.router == nullptr) continue;
      for (auto& sample : kind.router->CallTimes()) calls.samples.push_back(std::move(sample));
    }
    return std::vector<LabelledMetric>{std::move(calls)};
  });
  if (const absl::Status accepts = acceptor_->Start(); !accepts.ok()) {
    Shutdown(std::chrono::system_clock::now());
    return accepts;
  }
  for (const std::string& address : bulk_.addresses) {
    std::printf("bulk sockets on %s\n", address.c_str());
    Log(LogLevel::kInfo, "listening", {{"address", address}, {"kind", "bulk"}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Listeners::StartKind(Kind& kind) {
  grpc::ServerBuilder builder;
  for (const ChannelArgument& row : kChannelArguments) {
    builder.AddChannelArgument(row.name, kind.listener == kOnData ? row.bulk : row.value);
  }
  // A message is refused for its length only once gRPC has all of it.
  builder.SetResourceQuota(memory_);
  // Of TLS and of HTTP/2 together.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(options_.handshake_ms));
  builder.AddChannelArgument("grpc.http2.min_ping_interval_without_data_ms", 10'000);
  std::vector<Acceptor::Take> takes;  // of each address, then of each socket that was passed
  const auto add_door = [&](const ListenAddress& address) {
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    kind.doors.push_back(builder.experimental().AddExternalConnectionAcceptor(
        Type::FROM_FD, CredentialsOf(options_, tls_.get(), address)));
    takes.push_back([door = kind.doors.back().get()](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;  // which gRPC closes
      door->HandleNewConnection(&connection);
    });
  };
  for (const ListenAddress& address : kind.addresses) add_door(address);
  for (const PassedSocket& socket : kind.passed) add_door(AddressOf(socket));
  kind.calls = std::make_unique<CallQueue>(
      &builder, [router = kind.router.get()](auto* context) { return router->Open(context); });
  kind.server = builder.BuildAndStart();
  if (kind.server == nullptr) return Internal("gRPC starts no server; its log says why");
  kind.calls->Start();
  const mode_t usual = umask(0);
  umask(usual);
  const mode_t mask = kind.listener == kOnAdmin ? kOwnerOnly : usual;
  std::string first;
  const auto say = [&](const std::string& where) {
    std::printf("%s%s\n", kind.says, where.c_str());
    Log(LogLevel::kInfo, "listening", {{"address", where}, {"kind", kind.listener}});
    if (first.empty()) first = where;
  };
  size_t next = 0;
  for (const ListenAddress& address : kind.addresses) {
    TG_ASSIGN_OR_RETURN(const std::string where, acceptor_->Listen(address, mask, takes[next++]));
    say(where);
  }
  for (const PassedSocket& socket : kind.passed) {
    TG_RETURN_IF_ERROR(acceptor_->Adopt(AddressOf(socket), socket.fd, takes[next++]));
    say(socket.address);
  }
  return first;
}

void Listeners::Shutdown(std::chrono::system_clock::time_point deadline) {
  if (acceptor_ != nullptr) acceptor_->Stop();  // gRPC would lose what it is given from now on
  std::vector<std::thread> threads;
  for (Kind& kind : kinds_) {
    if (kind.server == nullptr) continue;
    threads.emplace_back([&kind, deadline] {
      kind.server->Shutdown(deadline);
      kind.calls->Stop();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The server's own Shutdown would wait until the one that is under way has ended.
void Listeners::CancelCalls() {
  for (Kind& kind : kinds_) {
    if (kind.server != nullptr) grpc_server_cancel_all_calls(kind.server->c_server());
  }
}

grpc::CompletionQueue* Listeners::calls() {
  const auto kind =
      std::ranges::find_if(kinds_, [](const Kind& k) { return k.listener & kOnCompute; });
  return kind == kinds_.end() ? nullptr : kind->calls->queue();
}

void Listeners::Wait() {
  for (Kind& kind : kinds_) kind.server->Wait();
}

}  // namespace telegrad
