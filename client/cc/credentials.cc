// Makes gRPC's channel and call credentials from files, tokens and the local socket. Tokens are
// never sent in the clear to another machine; certificates are read again when their files
// change.
#include "client/cc/credentials.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "engine/base/files.h"
#include "engine/base/status.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxTokenBytes = 1 << 20;  // of a token's file

// How often the files of TLS are looked at for a change.
constexpr unsigned kTlsRefreshSeconds = 10;
constexpr int kLocalSocketSeconds = 10;

// gRPC is never shut down before the process exits. When the last channel of a process goes, gRPC
// 1.51 shuts itself down and joins its threads, one of which may be in a poll of ten seconds that
// nothing interrupts: it was begun for a message that the socket did not take at once
// (run_poller in src/core/lib/iomgr/tcp_posix.cc).
void KeepGrpc() { [[maybe_unused]] static const bool kept = (grpc_init(), true); }

absl::Status CheckReadable(const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return InvalidArgument("cannot read ", path, ": ", std::strerror(errno));
}

// A name that only begins like a loopback address may be anybody's.
bool StaysOnThisMachine(std::string_view address) {
  if (address.starts_with("unix:")) return true;
  const std::string host(address.substr(0, address.rfind(':')));
  in_addr number{};
  if (inet_pton(AF_INET, host.c_str(), &number) == 1) return (ntohl(number.s_addr) >> 24) == 127;
  return host == "localhost" || host == "[::1]";
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TransportOf(const std::string& address,
                                                                      const ClientCredentials& c) {
  if (!c.token.empty() + !c.token_file.empty() + !c.local_socket.empty() > 1) {
    return InvalidArgument("expected at most one of token, token file and local socket");
  }
  if (c.tls_cert.empty() != c.tls_key.empty()) {
    return InvalidArgument("a client certificate needs its key, and a key its certificate");
  }
  if (c.tls_ca.empty() || address.starts_with("unix:")) {
    if (!c.tls_cert.empty() && c.tls_ca.empty()) {
      return InvalidArgument(
          "a client certificate also needs the authorities that sign the server's certificate");
    }
    const bool token = !c.token.empty() || !c.token_file.empty() || !c.local_socket.empty();
    if (token && !StaysOnThisMachine(address)) {
      return InvalidArgument("a token for ", address,
                             " would travel in the clear; name the authorities of the server's "
                             "certificate (TLS)");
    }
    return grpc::InsecureChannelCredentials();
  }
  for (const std::string* path : {&c.tls_ca, &c.tls_cert, &c.tls_key}) {
    TG_RETURN_IF_ERROR(CheckReadable(*path));
  }
  namespace tls = grpc::experimental;
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      c.tls_key, c.tls_cert, c.tls_ca, kTlsRefreshSeconds));
  options.watch_root_certs();
  if (!c.tls_cert.empty()) options.watch_identity_key_cert_pairs();
  return tls::TlsCredentials(options);
}

std::string StampOf(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return "";
  return StrCat(s.st_ino, " ", s.st_size, " ", s.st_mtim.tv_sec, ".", s.st_mtim.tv_nsec);
}

// One request and its answer on a server's local socket.
absl::StatusOr<std::string> AskOnce(const std::string& path, std::string_view request) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument(path, ": too long for a unix socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const timeval patience{kLocalSocketSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char answer[8192];
  ssize_t size = -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      (send(fd, request.data(), request.size(), MSG_NOSIGNAL) >= 0 || errno == EPIPE)) {
    size = recv(fd, answer, sizeof(answer), 0);
  }
  const int error = size == 0 ? ECONNRESET : errno;
  close(fd);
  if (size <= 0) {
    return absl::UnavailableError(StrCat("no Telegrad server answers on the local socket ", path,
                                         ": ", std::strerror(error)));
  }
  return std::string(answer, static_cast<size_t>(size));
}

}  // namespace

ClientCredentials ClientCredentials::FromEnvironment() {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  return {.tls_ca = get("TELEGRAD_TLS_CA"),
          .tls_cert = get("TELEGRAD_TLS_CERT"),
          .tls_key = get("TELEGRAD_TLS_KEY"),
          .tls_server_name = get("TELEGRAD_TLS_SERVER_NAME"),
          .token = get("TELEGRAD_TOKEN"),
          .token_file = get("TELEGRAD_TOKEN_FILE"),
          .local_socket = get("TELEGRAD_LOCAL_SOCKET")};
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                           const ClientCredentials& credentials,
                                                           bool bulk) {
  TG_ASSIGN_OR_RETURN(const auto transport, TransportOf(address, credentials));
  KeepGrpc();
  grpc::ChannelArguments arguments;
  for (const ChannelArgument& row : kChannelArguments) {
    arguments.SetInt(row.name, bulk ? row.bulk : row.value);
  }
  // Every channel has a connection of its own, straight to the server.
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);
  arguments.SetInt("grpc.enable_http_proxy", 0);
  if (!credentials.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(credentials.tls_server_name);
  }
  return grpc::CreateCustomChannel(address, transport, arguments);
}

absl::StatusOr<std::string> TokenSource::Token() {
  MutexLock lock(mutex_);
  if (!credentials_.token.empty()) return credentials_.token;
  if (!credentials_.token_file.empty()) TG_RETURN_IF_ERROR(ReadFile());
  if (!credentials_.local_socket.empty() && std::chrono::steady_clock::now() >= renew_) {
    TG_RETURN_IF_ERROR(AskLocalSocket());
  }
  return token_;
}

absl::Status TokenSource::Authorize(grpc::ClientContext* context) {
  TG_ASSIGN_OR_RETURN(const std::string token, Token());
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  if (!credentials_.acts_for.empty()) {
    context->AddMetadata(kActsForHeader, credentials_.acts_for);
  }
  return absl::OkStatus();
}

absl::Status TokenSource::ReadFile() {
  const std::string& path = credentials_.token_file;
  std::string stamp = StampOf(path);
  if (!stamp.empty() && stamp == stamp_) return absl::OkStatus();
  auto text = telegrad::ReadFile(path, kMaxTokenBytes);
  if (!text.ok()) {
    return InvalidArgument("the token's file: ", ToStd(text.status().message()),
                           "; expected a file with a token on one line");
  }
  token_ = *std::move(text);
  token_.erase(token_.find_last_not_of(" \t\r\n") + 1);
  for (const char c : token_) {
    if (c <= ' ' || c >= 0x7f) return InvalidArgument(path, ": expected a token on one line");
  }
  if (token_.empty()) return InvalidArgument(path, ": the file has no token");
  stamp_ = std::move(stamp);
  return absl::OkStatus();
}

// The answer is "ok SECONDS TOKEN"; it is renewed when half of its time is over.
absl::Status TokenSource::AskLocalSocket() {
  TG_ASSIGN_OR_RETURN(const std::string answer, AskOnce(credentials_.local_socket, "token"));
  const std::string_view text = answer;
  constexpr std::string_view kOk = "ok ";
  int seconds = 0;
  const char* const begin = text.data() + std::min(kOk.size(), text.size());
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), seconds);
  if (!text.starts_with(kOk) || error != std::errc() || end == text.data() + text.size()) {
    return absl::UnauthenticatedError(
        StrCat("the server's local socket ", credentials_.local_socket, " says: ", text));
  }
  token_ = text.substr(static_cast<size_t>(end - text.data()) + 1);
  renew_ = std::chrono::steady_clock::now() + std::chrono::seconds(seconds / 2);
  return absl::OkStatus();
}

}  // namespace telegrad
