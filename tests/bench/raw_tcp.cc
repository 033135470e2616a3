// The peer of the bulk transfers: the same bytes over one TCP connection of loopback and nothing
// else, from one process's memory into another's.
//
// Usage: raw_tcp serve                               prints "listening on HOST:PORT"
//        raw_tcp HOST:PORT up|down MIBS REPEATS      median GB/s
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr size_t kCall = 1 << 20;  // bytes of one send or recv

struct Request {
  uint64_t bytes;
  uint64_t upload;
};

bool SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, std::min(size, kCall), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd, data, std::min(size, kCall), 0);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

// Both sides keep their memory from one transfer to the next, so its pages are there.
void ServeOne(int fd) {
  std::vector<char> memory;
  Request request;
  while (ReceiveAll(fd, reinterpret_cast<char*>(&request), sizeof(request))) {
    memory.resize(request.bytes, 'm');
    char done = 1;
    if (request.upload) {
      if (!ReceiveAll(fd, memory.data(), request.bytes) || !SendAll(fd, &done, 1)) break;
    } else if (!SendAll(fd, memory.data(), request.bytes)) {
      break;
    }
  }
  close(fd);
}

int Serve() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 8) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("raw_tcp");
    return 1;
  }
  std::printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return 1;
    NoDelay(fd);
    std::thread(ServeOne, fd).detach();
  }
}

int Connect(std::string_view to) {
  const size_t colon = to.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(to.data() + colon + 1)));
  inet_pton(AF_INET, std::string(to.substr(0, colon)).c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return -1;
  NoDelay(fd);
  return fd;
}

int Measure(std::string_view to, std::string_view direction, size_t bytes, int repeats) {
  const int fd = Connect(to);
  if (fd < 0) {
    std::perror("raw_tcp");
    return 1;
  }
  std::vector<char> memory(bytes, 'm');
  std::vector<double> rates;
  for (int i = 0; i < repeats + 2; ++i) {  // two to warm up
    const auto start = std::chrono::steady_clock::now();
    const Request request{bytes, direction == "up"};
    char done;
    const bool ok = SendAll(fd, reinterpret_cast<const char*>(&request), sizeof(request)) &&
                    (request.upload ? SendAll(fd, memory.data(), bytes) && ReceiveAll(fd, &done, 1)
                                    : ReceiveAll(fd, memory.data(), bytes));
    if (!ok) {
      std::fprintf(stderr, "raw_tcp: the connection broke\n");
      return 1;
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (i >= 2) rates.push_back(static_cast<double>(bytes) / time.count() / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%.3f\n", rates[rates.size() / 2]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "serve") return Serve();
  if (argc == 5) {
    return Measure(argv[1], argv[2], static_cast<size_t>(std::atoll(argv[3])) << 20,
                   std::atoi(argv[4]));
  }
  std::fprintf(stderr, "Usage: raw_tcp serve | raw_tcp HOST:PORT up|down MIBS REPEATS\n");
  return 2;
}
