// Bytes on a connection of the HTTP server, whose answers are compared with what was asked: no more
// requests are run than there are request lines, none gets more of a body than was sent, and the
// next connection is served.
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "engine/net/tcp.h"
#include "server/admin/log.h"
#include "server/http/http_server.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

constexpr int64_t kMostBody = 4096;
constexpr std::string_view kPlain = "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

// Answers each request with what it was.
class Echo final : public HttpHandler {
 public:
  std::atomic<int> run = 0, begun = 0;
  std::atomic<int64_t> taken = 0;

  absl::StatusOr<std::unique_ptr<HttpExchange>> Begin(const HttpHead& head) override {
    ++begun;
    FUZZ_CHECK(!head.method.empty() && head.path.find('\0') == std::string::npos);
    return std::make_unique<Exchange>(this);
  }

 private:
  class Exchange final : public HttpExchange {
   public:
    explicit Exchange(Echo* echo) : echo_(*echo) {}
    absl::Status Take(int64_t bytes) override {
      FUZZ_CHECK(bytes > 0);
      promised_ += bytes;
      return absl::OkStatus();
    }
    void Run(std::string body, HttpReply reply) override {
      ++echo_.run;
      FUZZ_CHECK(static_cast<int64_t>(body.size()) == promised_ && promised_ <= kMostBody);
      echo_.taken += promised_;
      reply({.text = body});
    }
    void Gone() override {}

   private:
    Echo& echo_;
    int64_t promised_ = 0;
  };
};

struct Host {
  Host() {
    SetLogLevel(LogLevel::kOff);
    // What is cut short is hung up on soon.
    auto started = HttpServer::Start({.address = "127.0.0.1:0",
                                      .most_body = kMostBody,
                                      .head_time = std::chrono::milliseconds(20),
                                      .body_time = std::chrono::milliseconds(20),
                                      .body_rate = 1 << 20},
                                     &echo);
    FUZZ_CHECK(started.ok());
    server = *std::move(started);
    address = StrCat("127.0.0.1:", server->port());
  }
  Echo echo;
  std::unique_ptr<HttpServer> server;
  std::string address;
};

// What comes back when all was sent.
std::string Ask(const Host& host, std::string_view bytes) {
  auto fd = ConnectTcp(host.address, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  FUZZ_CHECK(fd.ok());
  fcntl(fd->get(), F_SETFL, 0);
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t n = send(fd->get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    rest.remove_prefix(static_cast<size_t>(n));
  }
  shutdown(fd->get(), SHUT_WR);
  std::string out;
  char some[4096];
  for (ssize_t n = 0; (n = recv(fd->get(), some, sizeof(some), 0)) > 0;) {
    out.append(some, static_cast<size_t>(n));
  }
  return out;
}

int CountOf(std::string_view text, std::string_view what) {
  int count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++at) ++count;
  return count;
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;  // NOLINT(google-build-using-namespace)
  static Host host;
  host.echo.run = 0;
  host.echo.taken = 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data.data()), data.size());
  Ask(host, bytes);
  FUZZ_CHECK(host.echo.run <= CountOf(bytes, "HTTP/1."));
  FUZZ_CHECK(host.echo.taken <= static_cast<int64_t>(bytes.size()));
  static fuzz::Count count("connections with a request that was run");
  count.Input();
  if (host.echo.run > 0) count.Passed();
  FUZZ_CHECK(Ask(host, kPlain).starts_with("HTTP/1.1 200"));
}
