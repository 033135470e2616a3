// A TCP proxy on the loopback that delivers what it gets later: half of a round trip each way, with
// nothing lost and no limit on what is under way.
//
// Usage: delay_proxy HOST:PORT MILLISECONDS    prints "listening on HOST:PORT"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace telegrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Received {
  Clock::time_point due;
  std::string bytes;  // empty: the end
};

// One direction of a connection.
class Pipe {
 public:
  Pipe(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  void Read() {
    std::string buffer(1 << 16, '\0');
    while (true) {
      const ssize_t n = recv(from_, buffer.data(), buffer.size(), 0);
      {
        const std::lock_guard lock(mutex_);
        const size_t bytes = n > 0 ? static_cast<size_t>(n) : 0;
        pieces_.push_back({Clock::now() + delay_, buffer.substr(0, bytes)});
      }
      changed_.notify_one();
      if (n <= 0) return;
    }
  }

  void Write() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !pieces_.empty(); });
      const Received piece = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(piece.due);
      if (piece.bytes.empty()) break;
      size_t sent = 0;
      while (sent < piece.bytes.size()) {
        const ssize_t n =
            send(to_, piece.bytes.data() + sent, piece.bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<size_t>(n);
      }
    }
    shutdown(to_, SHUT_WR);
  }

 private:
  const int from_, to_;
  const Clock::duration delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Received> pieces_;
};

void NoDelay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Carry(int client, const sockaddr_in& target, Clock::duration delay) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
    NoDelay(client);
    NoDelay(server);
    Pipe up(client, server, delay), down(server, client, delay);
    std::thread threads[] = {std::thread([&] { up.Read(); }), std::thread([&] { up.Write(); }),
                             std::thread([&] { down.Read(); }), std::thread([&] { down.Write(); })};
    for (std::thread& thread : threads) thread.join();
  }
  close(server);
  close(client);
}

int Serve(const std::string& address, int ms) {
  sockaddr_in target{}, own{};
  target.sin_family = own.sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  target.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &target.sin_addr);
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof(own);
  if (bind(listener, reinterpret_cast<sockaddr*>(&own), size) != 0 || listen(listener, 64) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    std::perror("delay_proxy");
    return 1;
  }
  std::printf("listening on 127.0.0.1:%d\n", ntohs(own.sin_port));
  std::fflush(stdout);
  const Clock::duration delay = std::chrono::microseconds(ms * 500);
  while (true) {
    const int client = accept(listener, nullptr, nullptr);
    if (client < 0) return 1;
    std::thread([=] { Carry(client, target, delay); }).detach();
  }
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "Usage: delay_proxy HOST:PORT MILLISECONDS\n");
    return 2;
  }
  return telegrad::bench::Serve(argv[1], std::atoi(argv[2]));
}
