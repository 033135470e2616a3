// Opens the channel, asks the server for its properties, and derives from its answer the
// addresses for bulk transfers. An address outside of gRPC is used only on the host that was
// connected to.
#include "client/cc/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "client/cc/remote_session.h"
#include "engine/base/burst.h"
#include "engine/base/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {
namespace {

absl::Status FromGrpc(const grpc::Status& status, std::string_view address, bool advises) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    if (!advises) {
      return absl::UnavailableError(
          StrCat("no Telegrad server answers at ", address, " (", message, ")"));
    }
    return absl::UnavailableError(
        StrCat("no Telegrad server answers at ", address, " (", message,
               "); \"telegrad up\" starts one on this machine, \"telegradd --listen ", address,
               "\" one at this address; --address or TELEGRAD_ADDRESS name another. A server that "
               "requires TLS, "
               "or rejects this client's certificate, causes the same error"));
  }
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && advises) {
    return absl::UnauthenticatedError(
        StrCat(message, "; the server at ", address,
               " requires credentials; give a token or a certificate (docs/security.md)"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

// An address that the server has said, which may be only a port of the host at hand.
std::string Reached(const std::string& address, const std::string& said) {
  if (!said.starts_with(':')) return said;
  if (address.starts_with("unix:")) return "";
  return StrCat(address.substr(0, address.rfind(':')), said);
}

std::string_view HostOf(std::string_view address) { return address.substr(0, address.rfind(':')); }

// An address, not a name that begins like one.
bool IsLoopback(std::string_view host) {
  in_addr v4;
  if (inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  return host == "localhost" || host == "[::1]";
}

// Bytes outside gRPC go to no other host than the connected one: otherwise a server could direct
// its clients to arbitrary hosts.
std::string ReachedHere(const std::string& address, const std::string& said) {
  const std::string reached = Reached(address, said);
  if (reached.rfind(':') == std::string::npos) return "";
  if (IsLoopback(HostOf(reached))) {
    const bool here = address.starts_with("unix:") || IsLoopback(HostOf(address));
    return here ? reached : "";
  }
  return HostOf(reached) == HostOf(address) ? reached : "";
}

// One unary call with the connection's deadline.
template <typename Call>
absl::Status Invoke(Connection& connection, Call call) {
  const auto stub = v1::Session::NewStub(connection.channel());
  grpc::ClientContext context;
  TG_RETURN_IF_ERROR(connection.Authorize(&context));
  context.set_deadline(absl::ToChronoTime(absl::Now() + connection.options().timeout));
  Burst::Flush();  // for the answer may be long in coming
  return FromGrpc(call(*stub, &context), connection.address(), connection.options().advises);
}

}  // namespace

bool IsLoopbackAddress(std::string_view address) {
  return address.starts_with("unix:") || IsLoopback(HostOf(address));
}

Connection::Connection(std::string address, const ConnectOptions& options,
                       std::shared_ptr<grpc::Channel> channel)
    : address_(std::move(address)),
      options_(options),
      channel_(std::move(channel)),
      tokens_(options.credentials) {}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Connect(std::string_view address,
                                                                const ConnectOptions& options) {
  if (address.find(':') == std::string_view::npos) {
    return InvalidArgument("\"", address, "\" is not an address; expected HOST:PORT or unix:PATH");
  }
  constexpr size_t kMostPath = sizeof(sockaddr_un::sun_path) - 1;
  if (address.starts_with("unix:") && address.size() - 5 > kMostPath) {
    return InvalidArgument("\"", address, "\": the path of a unix socket has 1 to ", kMostPath,
                           " bytes");
  }
  std::string target(address);
  TG_ASSIGN_OR_RETURN(auto channel, OpenChannel(target, options.credentials, /*bulk=*/false));
  std::shared_ptr<Connection> connection(new Connection(target, options, std::move(channel)));
  TG_RETURN_IF_ERROR(connection->Hello());
  return connection;
}

absl::Status Connection::Hello() {
  v1::HelloRequest request;
  request.mutable_protocol()->set_min(kProtocolMin);
  request.mutable_protocol()->set_max(kProtocolMax);
  request.mutable_graph_form()->set_min(kGraphFormMin);
  request.mutable_graph_form()->set_max(kGraphFormMax);
  request.set_client(options_.client);
  v1::HelloResponse response;
  TG_RETURN_IF_ERROR(Invoke(*this, [&](auto& stub, grpc::ClientContext* context) {
    return stub.Hello(context, request, &response);
  }));
  server_ = {.server = response.server(),
             .protocol = response.protocol(),
             .graph_form = response.graph_form(),
             .max_message_bytes = static_cast<int64_t>(response.max_message_bytes()),
             .chunk_bytes = static_cast<int64_t>(response.chunk_bytes()),
             .local_socket = response.local_socket(),
             .tenant = response.tenant(),
             .data_address = Reached(address_, response.data_address()),
             .bulk_address = {},
             .binds_parts = response.binds_parts(),
             .copies = response.copies(),
             .gathers = response.gathers(),
             .operation_sockets = false,
             .peer_key = response.peer_key(),
             .peers = {response.peers().begin(), response.peers().end()}};
  if (server_.data_address.empty()) server_.data_address = address_;
  if (options_.bulk_sockets && options_.data_address.empty()) {
    server_.bulk_address = ReachedHere(address_, response.bulk_address());
  }
  if (options_.bulk_sockets && !options_.bulk_address.empty()) {
    server_.bulk_address = options_.bulk_address;
  }
  server_.operation_sockets = response.operation_sockets() && !server_.bulk_address.empty();
  if (!options_.data_address.empty()) server_.data_address = options_.data_address;
  for (const int offered : response.compressions()) {
    if (offered == static_cast<int>(options_.compression)) {
      server_.compression = options_.compression;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connection::OpenDataChannel() const {
  // Wherever the data is, it is the same server: its certificate has the name that this one had.
  ClientCredentials credentials = options_.credentials;
  if (credentials.tls_server_name.empty() && !address_.starts_with("unix:")) {
    credentials.tls_server_name = address_.substr(0, address_.rfind(':'));
    std::erase_if(credentials.tls_server_name, [](char c) { return c == '[' || c == ']'; });
  }
  return OpenChannel(server_.data_address, credentials, /*bulk=*/true);
}

absl::StatusOr<std::vector<DeviceInfo>> Connection::ListDevices(std::vector<std::string>* notes) {
  v1::ListDevicesResponse response;
  TG_RETURN_IF_ERROR(Invoke(*this, [&](auto& stub, grpc::ClientContext* context) {
    return stub.ListDevices(context, {}, &response);
  }));
  std::vector<DeviceInfo> devices;
  for (const v1::Device& device : response.devices()) {
    devices.push_back({.name = device.name(),
                       .target = device.target(),
                       .memory_limit = static_cast<int64_t>(device.memory_limit()),
                       .memory_used = static_cast<int64_t>(device.memory_used()),
                       .threads = static_cast<int>(device.threads()),
                       .healthy = device.healthy(),
                       .health = device.health(),
                       .kind = device.kind(),
                       .remote = device.remote(),
                       .round_trip_ns = static_cast<int64_t>(device.round_trip_ns()),
                       .bytes_per_second = device.bytes_per_second(),
                       .generation = device.generation(),
                       .memory_generation = device.memory_generation(),
                       .of_tenant = device.of_tenant()});
    for (const v1::OperationRate& rate : device.rates()) {
      devices.back().rates.emplace_back(rate.kind(), rate.per_second());
    }
  }
  if (notes != nullptr) notes->assign(response.notes().begin(), response.notes().end());
  return devices;
}

bool Connection::Reconnect(absl::Duration limit) {
  grpc::experimental::ChannelResetConnectionBackoff(channel_.get());
  return channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + limit));
}

absl::StatusOr<std::map<std::string, double>> Connection::Stats() {
  v1::StatsResponse response;
  TG_RETURN_IF_ERROR(Invoke(*this, [&](auto& stub, grpc::ClientContext* context) {
    return stub.Stats(context, {}, &response);
  }));
  return std::map<std::string, double>(response.values().begin(), response.values().end());
}

absl::StatusOr<std::unique_ptr<RemoteSession>> Connection::OpenSession(
    const SessionOptions& options) {
  TG_RETURN_IF_ERROR(tokens_.Token().status());  // says it better than the stream could
  return std::make_unique<RemoteSession>(shared_from_this(), options);
}

}  // namespace telegrad
