// Serves one page over HTTP/1.1, for readers of metrics, on one thread that never blocks on a peer.
// A connection whose request or answer is not complete in time is closed; at the limit of
// connections, a new one replaces the oldest.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

class HttpPage {
 public:
  struct Options {
    std::string address;  // HOST:PORT; port 0 takes a free one
    std::string path;     // of the page, "/metrics"
    // What is served to a request with this field Accept ("" where it has none); called on the
    // page's thread.
    struct Body {
      std::string content_type, text;
    };
    std::function<Body(std::string_view accept)> body;
    std::chrono::milliseconds patience{5'000};
    size_t most = 64;  // connections
  };

  // UNAVAILABLE when the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpPage>> Start(Options options);
  ~HttpPage();
  int port() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    UniqueFd fd;
    Clock::time_point ends;
    std::string in = {}, out = {};
    size_t sent = 0;
    bool over = false;
  };

  HttpPage(Options options, UniqueFd listener);
  void Serve();
  void Accept();
  void Read(Peer& peer) const;
  static void Write(Peer& peer);
  std::string Answer(const std::string& request) const;

  const Options options_;
  const UniqueFd listener_, stop_;
  std::list<Peer> peers_;  // the oldest first
  std::thread thread_;
};

}  // namespace telegrad
