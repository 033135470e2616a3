// Two threads for each connection, which end with it. The sockets are closed when both have
// ended, so that the number of a descriptor is not reused while a thread has it.
#include "tests/fakes/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

namespace telegrad::fakes {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int to, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(to, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

TcpProxy::TcpProxy(uint16_t port) : port_(port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any = Loopback(0);
  socklen_t size = sizeof(any);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&any), size) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&any), &size) != 0) {
    std::abort();
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(any.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

TcpProxy::~TcpProxy() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Cut();
  for (Connection& c : connections_) {
    c.up.join();
    c.down.join();
    close(c.client);
    close(c.server);
  }
  close(listener_);
}

void TcpProxy::Cut() {
  std::lock_guard lock(mutex_);
  for (Connection& c : connections_) {
    shutdown(c.client, SHUT_RDWR);
    shutdown(c.server, SHUT_RDWR);
  }
}

void TcpProxy::Accept() {
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = Loopback(port_);
    const bool connected = connect(server, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
    std::lock_guard lock(mutex_);
    if (stopped_ || !connected) {
      close(client);
      close(server);
      continue;
    }
    Connection& c = connections_.emplace_back();
    c.client = client;
    c.server = server;
    c.up = std::thread([this, client, server] { Pass(client, server, true); });
    c.down = std::thread([this, client, server] { Pass(server, client, false); });
  }
}

void TcpProxy::Pass(int from, int to, bool up) {
  std::mt19937_64 random(static_cast<uint64_t>(from));
  char data[16 << 10];
  while (true) {
    const ssize_t n = recv(from, data, sizeof(data), 0);
    if (n <= 0) break;
    if (swallows_.load()) continue;
    if (const uint64_t seed = corrupts_.load(); seed != 0 && up) {
      random.discard(seed % 64);
      data[random() % static_cast<uint64_t>(n)] ^= static_cast<char>(1 << (random() % 8));
    }
    if (!SendAll(to, data, static_cast<size_t>(n))) break;
  }
  // Who was silenced never hears of the end either.
  if (!swallows_.load()) {
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }
}

}  // namespace telegrad::fakes
