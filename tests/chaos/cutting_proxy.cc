// Each connection is a link with a thread of its own, which forwards bytes both ways until the
// budget of the link is used up, and then ends it, by a reset of both connections or by closing
// them.
#include "tests/chaos/cutting_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace telegrad::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Check(bool good) {
  if (!good) std::abort();
}

int Dial(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(fd >= 0);
  const sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// All of it, or false.
bool WriteAll(int fd, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, static_cast<size_t>(size), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

// With a reset instead of an end.
void Reset(int fd) {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

}  // namespace

CuttingProxy::CuttingProxy(int port, const Options& options)
    : to_port_(port), options_(options), random_(options.seed) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  Check(listener_ >= 0);
  Check(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  Check(listen(listener_, 128) == 0);
  Check(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

CuttingProxy::~CuttingProxy() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);  // ends the accept
  accepting_.join();
  close(listener_);
  CutAll();
  Join(/*all=*/true);
}

void CuttingProxy::CutAll() {
  std::lock_guard lock(mutex_);
  for (const auto& link : links_) Check(write(link->wake[1], "", 1) == 1);
}

void CuttingProxy::Join(bool all) {
  std::lock_guard lock(mutex_);
  std::erase_if(links_, [&](const auto& link) {
    if (!all && !link->done) return false;
    link->thread.join();
    close(link->wake[0]);
    close(link->wake[1]);
    return true;
  });
}

void CuttingProxy::Accept() {
  std::exponential_distribution<> bytes(1.0 / static_cast<double>(options_.mean_bytes));
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    Join(/*all=*/false);
    auto link = std::make_unique<Link>();
    Check(pipe(link->wake) == 0);
    const auto budget = static_cast<int64_t>(bytes(random_));
    const bool abrupt = random_() % 2 == 0;
    std::lock_guard lock(mutex_);
    Link* const raw = link.get();
    link->thread = std::thread([this, raw, client, budget, abrupt] {
      Forward(raw, client, budget, abrupt);
      raw->done = true;
    });
    links_.push_back(std::move(link));
  }
}

void CuttingProxy::Forward(Link* link, int client, int64_t budget, bool abrupt) {
  const int server = Dial(to_port_);
  bool open = server >= 0;
  bool cut = false;
  const int one = 1;
  for (const int fd : {client, server}) {
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  char buffer[16384];
  while (open && !cut) {
    pollfd ends[] = {{client, POLLIN, 0}, {server, POLLIN, 0}, {link->wake[0], POLLIN, 0}};
    if (poll(ends, 3, -1) < 0) break;
    cut = ends[2].revents != 0;
    for (int i = 0; i < 2 && open && !cut; ++i) {
      if (ends[i].revents == 0) continue;
      ssize_t n = read(ends[i].fd, buffer, sizeof(buffer));
      if (!sparing_ && n > budget) {
        cut = true;
        n = budget;  // a part of it passes
      }
      budget -= n;
      open = n >= 0 && (n > 0 || cut) && WriteAll(ends[1 - i].fd, buffer, n);
    }
  }
  if (cut) {
    ++cuts_;
    if (abrupt) Reset(client);
    if (abrupt && server >= 0) Reset(server);
  }
  close(client);
  if (server >= 0) close(server);
}

}  // namespace telegrad::testing
