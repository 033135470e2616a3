#include "server/http/http_server.h"

#include <microhttpd.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/rate_limit.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/net/tcp.h"

namespace telegrad {
namespace {

constexpr size_t kHeadMemory = 64 << 10;  // of a connection: its head, and pieces of a body
constexpr int64_t kNsPerMs = 1'000'000;
// GnuTLS's usual choice of ciphers, without versions that no client needs any more.
constexpr const char* kTlsVersions = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

int CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    default:
      return 500;
  }
}

}  // namespace

HttpAnswer ErrorAnswer(const absl::Status& status) {
  const std::string message(status.message());
  std::vector<std::pair<std::string, std::string>> headers;
  if (const auto ms = RetryAfterMs(status)) {
    headers.emplace_back("Retry-After", std::to_string((*ms + 999) / 1000));  // RFC 9110: seconds
  }
  return {.status = CodeOf(status.code()),
          .headers = std::move(headers),
          .text = StrCat("{\"error\":", JsonQuote(AsUtf8(message)), "}")};
}

struct HttpServer::Connection {
  int fd = -1;
  HttpTls* tls = nullptr;  // null without TLS
  // When what it is at has to be over; INT64_MAX while the server itself is at it.
  int64_t ends_ns = INT64_MAX;
  int64_t idle_ns = 0;  // since when there is no request with a head; INT64_MAX: there is one
};

struct HttpServer::Request {
  std::unique_ptr<HttpExchange> exchange;  // null where the answer is there at once
  std::string body;
  int64_t declared = 0;  // bytes of the body; -1: it comes in chunks
  int64_t begun_ns = 0;
  bool run = false;  // the exchange has the request
  Mutex mutex;
  MHD_Connection* suspended TG_GUARDED_BY(mutex) = nullptr;
  int fd TG_GUARDED_BY(mutex) = -1;        // of the connection while it is suspended
  bool gone TG_GUARDED_BY(mutex) = false;  // the caller has hung up meanwhile
  bool over TG_GUARDED_BY(mutex) = false;  // the connection needs no answer any more
  std::optional<HttpAnswer> answer TG_GUARDED_BY(mutex);

  void Answer(HttpAnswer with) {
    const MutexLock lock(mutex);
    if (answer || over) return;
    answer = std::move(with);
    if (suspended != nullptr) MHD_resume_connection(std::exchange(suspended, nullptr));
  }
};

struct HttpServer::Callbacks {
  using RequestPtr = std::shared_ptr<Request>;

  static void OnConnection(void* self, MHD_Connection* connection, void** context,
                           MHD_ConnectionNotificationCode code) {
    HttpServer& server = *static_cast<HttpServer*>(self);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      auto* const made = new Connection;
      made->tls = server.options_.tls;
      made->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
      const MutexLock lock(server.mutex_);
      made->idle_ns = Clock::Steady()->Ns();
      made->ends_ns = made->idle_ns + server.options_.head_time.count() * kNsPerMs;
      server.connections_.insert(made);
      *context = made;
      return;
    }
    auto* const gone = static_cast<Connection*>(*context);
    {
      const MutexLock lock(server.mutex_);
      server.connections_.erase(gone);
    }
    delete gone;
    *context = nullptr;
  }

  static void SetEnd(HttpServer& server, MHD_Connection* connection, int64_t ends_ns,
                     int64_t idle_ns = INT64_MAX) {
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == nullptr || info->socket_context == nullptr) return;
    const MutexLock lock(server.mutex_);
    static_cast<Connection*>(info->socket_context)->ends_ns = ends_ns;
    static_cast<Connection*>(info->socket_context)->idle_ns = idle_ns;
  }

  static void OnCompleted(void* self, MHD_Connection* connection, void** context,
                          MHD_RequestTerminationCode) {
    HttpServer& server = *static_cast<HttpServer*>(self);
    if (*context == nullptr) return;
    const std::unique_ptr<RequestPtr> request(static_cast<RequestPtr*>(*context));
    *context = nullptr;
    {
      const MutexLock lock((*request)->mutex);
      (*request)->over = true;
      (*request)->suspended = nullptr;
    }
    {
      const MutexLock lock(server.mutex_);
      server.requests_.erase(*request);
      if (server.drained_.erase(*request) > 0) server.is_drained_.notify_all();
    }
    const int64_t now = Clock::Steady()->Ns();
    SetEnd(server, connection, now + server.options_.head_time.count() * kNsPerMs, now);
  }

  static MHD_Result Send(HttpServer& server, MHD_Connection* connection, HttpAnswer answer,
                         bool close) {
    struct Kept {
      std::string text;
      std::shared_ptr<const void> owner;
    };
    auto* const kept = new Kept{std::move(answer.text), std::move(answer.owner)};
    std::vector<MHD_IoVec> parts;
    if (!kept->text.empty()) parts.push_back({kept->text.data(), kept->text.size()});
    for (const HttpAnswer::Part& part : answer.parts) {
      if (part.bytes > 0) parts.push_back({part.data, part.bytes});
    }
    MHD_Response* const response = MHD_create_response_from_iovec(
        parts.data(), static_cast<unsigned>(parts.size()),
        [](void* owned) { delete static_cast<Kept*>(owned); }, kept);
    if (response == nullptr) {
      delete kept;
      return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", answer.content_type.c_str());
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : answer.headers) {
      MHD_add_response_header(response, name.c_str(), value.c_str());
    }
    if (answer.status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (close || server.draining_) MHD_add_response_header(response, "Connection", "close");
    const MHD_Result sent =
        MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
    MHD_destroy_response(response);
    return sent;
  }

  static absl::Status Certify(HttpServer& server, MHD_Connection* connection, HttpHead* head) {
    if (server.options_.tls == nullptr) return absl::OkStatus();
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == nullptr) return Internal("a connection without TLS");
    TG_ASSIGN_OR_RETURN(
        HttpCertificate caller,
        server.options_.tls->CallerOf(static_cast<gnutls_session_t>(info->tls_session)));
    head->certified = !caller.pem.empty();
    head->names = std::move(caller.names);
    head->certificate = std::move(caller.pem);
    return absl::OkStatus();
  }

  // The certificate and key of a handshake, which the library frees. It has made the connection the
  // session's pointer.
  static int ShowCertificate(gnutls_session_t session, const gnutls_cert_retr_st*,
                             gnutls_pcert_st** certificates, unsigned* count,
                             gnutls_ocsp_data_st** answers, unsigned* answer_count,
                             gnutls_privkey_t* key, unsigned* flags) {
    auto* const connection = static_cast<MHD_Connection*>(gnutls_session_get_ptr(session));
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == nullptr || info->socket_context == nullptr) return -1;
    HttpTls* const tls = static_cast<Connection*>(info->socket_context)->tls;
    *answers = nullptr;
    *answer_count = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return tls->Show(certificates, count, key) ? 0 : -1;
  }

  // The head is there. A request that is refused now is not read any further.
  static MHD_Result OnHead(HttpServer& server, MHD_Connection* connection, const char* url,
                           const char* method, RequestPtr* request) {
    HttpHead head = ReadHead(connection, url, method);
    const auto length = BodyLength(head, connection);
    if (!length.ok()) return Send(server, connection, ErrorAnswer(length.status()), /*close=*/true);
    if (*length > server.options_.most_body) {
      HttpAnswer answer = ErrorAnswer(ResourceExhausted("a body of ", *length, " bytes; ",
                                                        server.options_.most_body, " are allowed"));
      answer.status = 413;
      return Send(server, connection, std::move(answer), /*close=*/true);
    }
    if (const absl::Status certified = Certify(server, connection, &head); !certified.ok()) {
      return Send(server, connection, ErrorAnswer(certified), /*close=*/true);
    }
    auto exchange = server.handler_.Begin(head);
    absl::Status status = exchange.status();
    if (status.ok() && *length > 0) status = (*exchange)->Take(*length);
    if (!status.ok()) {
      return Send(server, connection, ErrorAnswer(status), /*close=*/*length != 0);
    }
    (*request)->exchange = *std::move(exchange);
    (*request)->declared = *length;
    (*request)->begun_ns = Clock::Steady()->Ns();
    const int64_t expected = std::max<int64_t>(*length, 0);
    const int64_t ms =
        server.options_.body_time.count() + expected * 1000 / server.options_.body_rate;
    SetEnd(server, connection, (*request)->begun_ns + ms * kNsPerMs);
    if (expected > 0) (*request)->body.reserve(static_cast<size_t>(expected));
    return MHD_YES;
  }

  static MHD_Result OnBody(HttpServer& server, Request& request, const char* data, size_t* size) {
    const auto more = static_cast<int64_t>(*size);
    *size = 0;
    if (request.declared < 0) {
      // Nobody knows how much comes; a library that is in the middle of a body answers nothing, so
      // one that is too long is hung up on.
      const auto all = static_cast<int64_t>(request.body.size()) + more;
      if (all > server.options_.most_body || !request.exchange->Take(more).ok()) return MHD_NO;
    }
    request.body.append(data, static_cast<size_t>(more));
    return MHD_YES;
  }

  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char*, const char* upload, size_t* size,
                              void** context) {
    HttpServer& server = *static_cast<HttpServer*>(self);
    if (*context == nullptr) {
      auto* const request = new RequestPtr(std::make_shared<Request>());
      *context = request;
      {
        const MutexLock lock(server.mutex_);
        server.requests_.insert(*request);
      }
      return OnHead(server, connection, url, method, request);
    }
    const RequestPtr request = *static_cast<RequestPtr*>(*context);
    if (request->exchange == nullptr) return MHD_YES;  // is being refused
    if (*size > 0) return OnBody(server, *request, upload, size);
    if (!std::exchange(request->run, true)) {
      SetEnd(server, connection, INT64_MAX);
      request->exchange->Run(std::move(request->body),
                             [request](HttpAnswer answer) { request->Answer(std::move(answer)); });
    }
    ReleasableLock lock(request->mutex);
    if (!request->answer) {
      request->suspended = connection;
      request->fd =
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
      MHD_suspend_connection(connection);
      return MHD_YES;
    }
    HttpAnswer answer = *std::move(request->answer);
    request->over = true;
    lock.unlock();
    // Whoever does not take the answer is hung up on, too.
    int64_t bytes = static_cast<int64_t>(answer.text.size());
    for (const HttpAnswer::Part& part : answer.parts) bytes += static_cast<int64_t>(part.bytes);
    SetEnd(server, connection,
           Clock::Steady()->Ns() +
               (server.options_.body_time.count() + bytes * 1000 / server.options_.body_rate) *
                   kNsPerMs);
    return Send(server, connection, std::move(answer), /*close=*/false);
  }
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              HttpHandler* handler) {
  TG_ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(options.address));
  std::unique_ptr<HttpServer> server(new HttpServer(options, handler));
  server->port_ = PortOf(listener);
  const int fd = listener.release();  // the library closes it
  unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
  std::vector<MHD_OptionItem> tls;
  if (options.tls != nullptr) {
    flags |= MHD_USE_TLS;
    server->tls_texts_ = options.tls->Get();  // the library keeps pointers
    const auto text = [](const char* value) { return const_cast<char*>(value); };
    tls.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, text(kTlsVersions)});
    tls.push_back(
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, reinterpret_cast<void*>(&Callbacks::ShowCertificate)});
    if (options.tls->asks_for_certificates()) {
      tls.push_back({MHD_OPTION_HTTPS_MEM_TRUST, 0, text(server->tls_texts_->client_ca.c_str())});
    }
  }
  tls.push_back({MHD_OPTION_END, 0, nullptr});
  server->daemon_ = MHD_start_daemon(
      flags, 0, nullptr, nullptr, &Callbacks::OnRequest, server.get(), MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeadMemory, MHD_OPTION_CONNECTION_LIMIT,
      options.most_connections, MHD_OPTION_THREAD_POOL_SIZE, options.threads,
      MHD_OPTION_UNESCAPE_CALLBACK, &UnescapePath, nullptr, MHD_OPTION_STRICT_FOR_CLIENT, 1,
      MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_NOTIFY_CONNECTION, &Callbacks::OnConnection,
      server.get(), MHD_OPTION_NOTIFY_COMPLETED, &Callbacks::OnCompleted, server.get(),
      MHD_OPTION_ARRAY, tls.data(), MHD_OPTION_END);
  if (server->daemon_ == nullptr) {
    close(fd);
    return absl::UnavailableError(
        "libmicrohttpd does not start; are threads or descriptors used up?");
  }
  const auto interval = std::clamp(options.head_time / 4, std::chrono::milliseconds(10),
                                   std::chrono::milliseconds(1000));
  server->ticker_ = std::make_unique<Ticker>(interval, [server = server.get()] { server->Look(); });
  return server;
}

void HttpServer::Drain() {
  draining_ = true;
  const MutexLock lock(mutex_);
  drained_ = requests_;
}

void HttpServer::AwaitDrained(std::chrono::system_clock::time_point deadline) {
  ReleasableLock lock(mutex_);
  while (!drained_.empty()) {
    if (is_drained_.wait_until(lock, deadline) == std::cv_status::timeout) return;
  }
}

void HttpServer::EndAll() {
  const MutexLock lock(mutex_);
  drained_.clear();
  is_drained_.notify_all();
}

HttpServer::~HttpServer() {
  ticker_.reset();
  if (daemon_ == nullptr) return;
  const int listener = MHD_quiesce_daemon(daemon_);
  if (listener >= 0) close(listener);
  std::set<std::shared_ptr<Request>> waiting;
  {
    const MutexLock lock(mutex_);
    waiting = requests_;
  }
  for (const auto& request : waiting) {
    request->Answer(ErrorAnswer(absl::UnavailableError("the server is shutting down")));
  }
  MHD_stop_daemon(daemon_);
}

// Hangs up on those whose time is over: the library sees the end and does the rest.
void HttpServer::HangUpLocked(int64_t now) {
  std::vector<const Connection*> idle;
  for (const Connection* connection : connections_) {
    if (connection->ends_ns <= now) {
      shutdown(connection->fd, SHUT_RDWR);
    } else if (connection->idle_ns != INT64_MAX) {
      idle.push_back(connection);
    }
  }
  const size_t room = options_.most_connections - options_.most_connections / 4;
  if (connections_.size() <= room) return;
  const size_t count = std::min(idle.size(), connections_.size() - room);
  std::ranges::partial_sort(idle, idle.begin() + static_cast<std::ptrdiff_t>(count), {},
                            &Connection::idle_ns);
  for (size_t i = 0; i < count; ++i) shutdown(idle[i]->fd, SHUT_RDWR);
}

// The library does not look at a connection that waits for its answer, so whether somebody still
// does is asked here.
void HttpServer::Look() {
  std::vector<std::shared_ptr<Request>> requests;
  {
    const MutexLock lock(mutex_);
    HangUpLocked(Clock::Steady()->Ns());
    requests.assign(requests_.begin(), requests_.end());
  }
  for (const auto& request : requests) {
    {
      const MutexLock lock(request->mutex);
      if (request->suspended == nullptr || request->answer || request->gone) continue;
      pollfd ended{.fd = request->fd, .events = POLLRDHUP, .revents = 0};
      if (poll(&ended, 1, 0) <= 0) continue;
      request->gone = true;
    }
    request->exchange->Gone();
    request->Answer(ErrorAnswer(absl::CancelledError("the caller has disconnected")));
  }
}

}  // namespace telegrad
