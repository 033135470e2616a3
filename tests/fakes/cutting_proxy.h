// A TCP proxy on the loopback that breaks the connections through it: all of them at once, or each
// one after so many bytes. It has one or more doors, each with an address and a target of its own.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace telegrad::fakes {

class CuttingProxy {
 public:
  // To HOST:PORT, an IPv4 address.
  explicit CuttingProxy(const std::string& target) { AddDoor(target); }
  ~CuttingProxy() {
    stop_ = true;
    for (const auto& door : doors_) {
      shutdown(door->listener, SHUT_RDWR);
      door->acceptor.join();
    }
    Cut();
    std::vector<std::thread> pumps;
    {
      std::lock_guard lock(mutex_);
      pumps.swap(pumps_);
    }
    for (std::thread& pump : pumps) pump.join();
    for (const auto& door : doors_) close(door->listener);
  }

  // The address of another door, to this target. Not from several threads.
  const std::string& AddDoor(const std::string& target) {
    Door& door = *doors_.emplace_back(std::make_unique<Door>());
    ConnectTo(target, doors_.size() - 1);
    door.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(own);
    if (bind(door.listener, reinterpret_cast<sockaddr*>(&own), size) != 0 ||
        listen(door.listener, 64) != 0 ||
        getsockname(door.listener, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
      std::abort();
    }
    door.address = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    door.acceptor = std::thread([this, &door] { Accept(door); });
    return door.address;
  }
  const std::string& address(size_t door = 0) const { return doors_[door]->address; }
  // From now on connections go to another target, which a server that is started anew is: its old
  // port may have been taken meanwhile.
  void ConnectTo(const std::string& target, size_t door = 0) {
    const size_t colon = target.rfind(':');
    std::lock_guard lock(mutex_);
    sockaddr_in& at = doors_[door]->target;
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(std::atoi(target.c_str() + colon + 1)));
    inet_pton(AF_INET, target.substr(0, colon).c_str(), &at.sin_addr);
  }
  // Each of the next `count` connections, through any door or through that one alone, breaks when
  // so many bytes have passed to the target.
  void CutEachAfter(int64_t bytes, int count, int door = -1) {
    cut_door_ = door;
    cut_after_ = bytes;
    cuts_left_ = count;
  }
  // The same, before the bytes that would be too many have passed.
  void CutEachBefore(int64_t bytes, int count, int door) {
    drops_ = true;
    CutEachAfter(bytes, count, door);
  }
  // Of what comes back through that door no connection passes on more than what came first.
  void SilenceAfterOneAnswer(size_t door) { silent_door_ = static_cast<int>(door); }
  // Breaks every connection.
  void Cut() {
    std::lock_guard lock(mutex_);
    for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
  }
  // From now on nothing comes back from the target until it is let go on.
  void HoldAnswers(bool hold) { hold_ = hold; }
  // Breaks every connection, and those that are still to come.
  void Close() {
    closed_ = true;
    Cut();
  }
  int64_t bytes_up() const { return up_; }
  int64_t bytes_down() const { return down_; }
  int cuts() const { return cuts_; }

 private:
  struct Door {
    sockaddr_in target{};
    int listener = -1;
    std::string address;
    std::thread acceptor;
  };

  void Accept(const Door& door) {
    while (!stop_) {
      const int client = accept4(door.listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in target;
      {
        std::lock_guard lock(mutex_);
        target = door.target;
      }
      const bool connected =
          connect(server, reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0;
      std::lock_guard lock(mutex_);
      if (!connected || stop_ || closed_) {
        close(client);
        close(server);
        continue;
      }
      fds_.push_back(client);
      fds_.push_back(server);
      pumps_.emplace_back([this, &door, client, server] {
        const auto is = [&](int number) {
          return number >= 0 && doors_[static_cast<size_t>(number)].get() == &door;
        };
        const bool may_cut = cut_door_ < 0 || is(cut_door_);
        Pump(client, server, may_cut && cuts_left_-- > 0 ? cut_after_.load() : INT64_MAX,
             is(silent_door_));
      });
    }
  }

  void Pump(int client, int server, int64_t limit, bool one_answer) {
    int64_t passed = 0;
    bool answered = false;
    std::vector<char> bytes(64 << 10);
    pollfd ends[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    bool open = true;
    const auto wait = [&] {
      ends[1].events = hold_ || (one_answer && answered) ? 0 : POLLIN;
      ends[1].revents = 0;
      return poll(ends, 2, kLook);
    };
    for (int ready = wait(); open && ready >= 0; ready = wait()) {
      for (int i = 0; i < 2 && open; ++i) {
        if (ends[i].revents == 0) continue;
        const ssize_t n = recv(ends[i].fd, bytes.data(), bytes.size(), 0);
        const bool drop = drops_ && i == 0 && passed + n > limit;
        open = n > 0 && (drop || Send(ends[1 - i].fd, bytes.data(), static_cast<size_t>(n)));
        answered |= i == 1;
        if (n > 0) (i == 0 ? up_ : down_) += n;
        if (i == 0) passed += n;
      }
      if (passed > limit) {
        ++cuts_;
        break;
      }
    }
    std::lock_guard lock(mutex_);
    std::erase_if(fds_, [&](int fd) { return fd == client || fd == server; });
    const linger now{1, 0};  // so that the ends learn it as a reset
    setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    setsockopt(server, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(client);
    close(server);
  }

  static bool Send(int fd, const char* data, size_t size) {
    while (size > 0) {
      const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
      if (n <= 0) return false;
      data += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }

  std::vector<std::unique_ptr<Door>> doors_;
  static constexpr int kLook = 20;  // ms, at most, until hold_ is looked at again
  std::atomic<bool> stop_{false}, closed_{false}, hold_{false};
  std::atomic<int64_t> up_{0}, down_{0}, cut_after_{INT64_MAX};
  std::atomic<int> cuts_left_{0}, cuts_{0}, cut_door_{-1}, silent_door_{-1};
  std::atomic<bool> drops_{false};
  std::mutex mutex_;
  std::vector<int> fds_;
  std::vector<std::thread> pumps_;
};

}  // namespace telegrad::fakes
