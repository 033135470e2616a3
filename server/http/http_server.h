// An HTTP/1.1 server for requests that are answered later. libmicrohttpd parses; this adds the
// limits that it leaves to its user: one framing for a body and no other, sizes, and times
// within which a head and a body have to arrive.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/cancellation.h"
#include "engine/base/mutex.h"
#include "server/admin/ticker.h"
#include "server/http/http_head.h"
#include "server/http/http_tls.h"

struct MHD_Daemon;

namespace telegrad {

struct HttpAnswer {
  struct Part {
    const void* data = nullptr;
    size_t bytes = 0;
  };
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string text = {};         // the body, and behind it
  std::vector<Part> parts = {};  // these, which belong to
  std::shared_ptr<const void> owner = nullptr;
};

// {"error": MESSAGE} with the status code that stands for the error.
HttpAnswer ErrorAnswer(const absl::Status& status);

// Answers a request once, from any thread; further answers are of no effect.
using HttpReply = std::function<void(HttpAnswer)>;

// What is done about one request.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // So many more bytes of the body have come, or are about to; an error ends the request.
  virtual absl::Status Take(int64_t bytes) = 0;
  // The request is complete.
  virtual void Run(std::string body, HttpReply reply) = 0;
  // Whoever asked has hung up before the answer, which nobody will take.
  virtual void Gone() = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Of a request whose head is there; an error is its answer.
  virtual absl::StatusOr<std::unique_ptr<HttpExchange>> Begin(const HttpHead& head) = 0;
};

class HttpServer {
 public:
  struct Options {
    std::string address;  // HOST:PORT; port 0 takes a free one
    int64_t most_body = 80 << 20;
    // Where three quarters of them are in use, those that are between requests or have not sent a
    // head yet are hung up on, the oldest first, so that whoever has something to ask gets through.
    unsigned most_connections = 1024;
    unsigned threads = 2;
    std::chrono::milliseconds head_time{60'000};  // from the end of what was before
    std::chrono::milliseconds body_time{30'000};  // and a second for each
    int64_t body_rate = 64 << 10;                 // bytes
    HttpTls* tls = nullptr;                       // outlives it; null: not encrypted
  };
  // UNAVAILABLE when the address cannot be listened on. `handler` outlives it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           HttpHandler* handler);
  // Whoever waits for an answer gets one that says that the server stops.
  ~HttpServer();
  int port() const { return port_; }

  // From now on an answer is the last one of its connection. What is not to be begun any more, the
  // handler refuses.
  void Drain();
  // Waits, after Drain, for the requests that were under way at that time: until their answers are
  // sent, `deadline`, or EndAll.
  void AwaitDrained(std::chrono::system_clock::time_point deadline);
  // What AwaitDrained waits for is not waited for any longer.
  void EndAll();

  struct Connection;
  struct Request;

 private:
  HttpServer(const Options& options, HttpHandler* handler)
      : options_(options), handler_(*handler) {}
  struct Callbacks;
  friend struct Callbacks;

  void Look();
  void HangUpLocked(int64_t now) TG_REQUIRES(mutex_);

  const Options options_;
  HttpHandler& handler_;
  int port_ = 0;
  MHD_Daemon* daemon_ = nullptr;
  std::shared_ptr<const HttpTls::Texts> tls_texts_;
  Mutex mutex_;  // also of what a connection has, apart from `fd` and `tls`
  std::set<Connection*> connections_ TG_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Request>> requests_ TG_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Request>> drained_ TG_GUARDED_BY(mutex_);  // not yet; see AwaitDrained
  ConditionVariable is_drained_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace telegrad
