// A TCP proxy on the loopback that delivers what it gets later: half of a round trip each way, with
// nothing lost. All connections together carry no more than so many megabytes a second each way,
// where a rate is given; else there is no limit on what is under way. It takes as little processor
// time as it can, for what is measured through it shares the machine with it: one thread for both
// directions of a connection, which sleeps until the next bytes come or are due.
//
// Usage: delay_proxy HOST:PORT MILLISECONDS [MEGABYTES]    prints "listening on HOST:PORT"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace telegrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

// What becomes due within so much of a look at the clock is sent with what is due.
constexpr auto kTogether = std::chrono::microseconds(20);

// What a link of that rate, which takes at most kAhead of its time, holds up.
constexpr auto kAhead = std::chrono::milliseconds(2);

// One direction of all connections.
class Link {
 public:
  // 0: no limit.
  void SetRate(double bytes_per_second) { rate_ = bytes_per_second; }
  // When the link can take more bytes; the past if it can now.
  Clock::time_point room() {
    const std::lock_guard lock(mutex_);
    return free_ - kAhead;
  }
  // When the last of these bytes has left it.
  Clock::time_point Take(size_t bytes) {
    const auto now = Clock::now();
    if (rate_ == 0) return now;
    const std::lock_guard lock(mutex_);
    free_ =
        std::max(free_, now) +
        std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / rate_ * 1e9));
    return free_;
  }

 private:
  double rate_ = 0;
  std::mutex mutex_;
  Clock::time_point free_{};
};

struct Received {
  Clock::time_point due;
  std::string bytes;  // empty: the end
};

// One direction of a connection.
class Pipe {
 public:
  Pipe(int from, int to, Clock::duration delay, Link* link)
      : from_(from), to_(to), delay_(delay), link_(link) {}

  bool is_open() const { return !ended_; }
  // What is waited for at either end: no more bytes before the link has room for them.
  short EventsOfFrom() const { return heard_end_ || room_ > Clock::now() ? 0 : POLLIN; }
  short EventsOfTo() const { return out_.empty() ? 0 : POLLOUT; }
  // Of the next bytes, or of room for more.
  std::optional<Clock::time_point> due() const {
    std::optional<Clock::time_point> due;
    if (!pieces_.empty()) due = pieces_.front().due;
    if (!heard_end_ && room_ > Clock::now()) due = due ? std::min(*due, room_) : room_;
    return due;
  }

  void Read() {
    char buffer[1 << 16];
    const ssize_t n = recv(from_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    heard_end_ = n <= 0;
    const size_t bytes = n > 0 ? static_cast<size_t>(n) : 0;
    pieces_.push_back({link_->Take(bytes) + delay_, std::string(buffer, bytes)});
    room_ = link_->room();
  }
  // What is due by then, as far as it can be sent at once.
  void WriteUntil(Clock::time_point time) {
    for (; !pieces_.empty() && pieces_.front().due <= time; pieces_.pop_front()) {
      end_due_ = pieces_.front().bytes.empty();
      out_ += pieces_.front().bytes;
    }
    size_t sent = 0;
    while (sent < out_.size()) {
      const ssize_t n =
          send(to_, out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) {
        ended_ = heard_end_ = true;
        return;
      }
      sent += static_cast<size_t>(n);
    }
    out_.erase(0, sent);
    if (!end_due_ || !out_.empty() || ended_) return;
    shutdown(to_, SHUT_WR);
    ended_ = true;
  }

 private:
  const int from_, to_;
  const Clock::duration delay_;
  Link* const link_;
  Clock::time_point room_{};
  std::deque<Received> pieces_;
  std::string out_;  // due
  bool heard_end_ = false, end_due_ = false, ended_ = false;
};

void NoDelay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Carry(int client, const sockaddr_in& target, Clock::duration delay, Link* links) {
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);  // nanoseconds that a wait may take longer
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
    NoDelay(client);
    NoDelay(server);
    Pipe up(client, server, delay, &links[0]), down(server, client, delay, &links[1]);
    while (up.is_open() || down.is_open()) {
      std::optional<Clock::time_point> due = up.due();
      if (down.due()) due = due ? std::min(*due, *down.due()) : down.due();
      const auto left =
          due ? std::max(*due - Clock::now(), Clock::duration(0)) : Clock::duration(0);
      const timespec wait = {0, std::chrono::nanoseconds(left).count()};  // delays are short
      pollfd ends[] = {{client, static_cast<short>(up.EventsOfFrom() | down.EventsOfTo()), 0},
                       {server, static_cast<short>(down.EventsOfFrom() | up.EventsOfTo()), 0}};
      for (pollfd& end : ends) end.fd = end.events != 0 ? end.fd : -1;
      if (ppoll(ends, 2, due ? &wait : nullptr, nullptr) < 0 && errno != EINTR) break;
      if ((ends[0].revents & ~POLLOUT) != 0) up.Read();
      if ((ends[1].revents & ~POLLOUT) != 0) down.Read();
      const auto now = Clock::now() + kTogether;
      up.WriteUntil(now);
      down.WriteUntil(now);
    }
  }
  close(server);
  close(client);
}

int Serve(const std::string& address, int ms, int megabytes) {
  static Link links[2];
  for (Link& link : links) link.SetRate(megabytes * 1e6);
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
    std::thread([=] { Carry(client, target, delay, links); }).detach();
  }
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  const int ms = argc == 3 || argc == 4 ? std::atoi(argv[2]) : 0;
  const int megabytes = argc == 4 ? std::atoi(argv[3]) : 0;
  if (ms <= 0 || ms > 1000 || (argc == 4 && megabytes <= 0)) {
    std::fprintf(stderr,
                 "Usage: delay_proxy HOST:PORT MILLISECONDS [MEGABYTES]\n"
                 "MILLISECONDS: a round trip, 1 to 1000; MEGABYTES: a second, each way\n");
    return 2;
  }
  return telegrad::bench::Serve(argv[1], ms, megabytes);
}
