// A network between a client and a server of this machine that fails as a test says: connections
// through it break, fall silent without an end, or carry other bytes than were sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace telegrad::fakes {

class TcpProxy {
 public:
  // To a port of the loopback address.
  explicit TcpProxy(uint16_t port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& address() const { return address_; }

  // From now on nothing passes in either direction, and nobody is told.
  void Swallow() { swallows_.store(true); }
  // From now on a bit of each piece that the client sends is another one.
  void Corrupt(uint64_t seed) { corrupts_.store(seed | 1); }
  // Breaks every connection.
  void Cut();

 private:
  struct Connection {
    int client = -1, server = -1;
    std::thread up, down;
  };
  void Accept();
  void Pass(int from, int to, bool up);

  const uint16_t port_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> swallows_{false};
  std::atomic<uint64_t> corrupts_{0};  // the seed, or 0: no
  std::mutex mutex_;
  bool stopped_ = false;
  std::list<Connection> connections_;
  std::thread acceptor_;
};

}  // namespace telegrad::fakes
