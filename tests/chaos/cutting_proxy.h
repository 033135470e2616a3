// For tests only: a TCP proxy on the loopback that cuts each connection after a random number of
// bytes, in the middle of whatever is on its way; in both directions at once, or so that one end
// learns of it later.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace telegrad::testing {

class CuttingProxy {
 public:
  struct Options {
    uint64_t seed = 0;
    int64_t mean_bytes =
        50'000;  // that pass before a cut, both ways together; exponentially distributed
  };
  // To 127.0.0.1:`port`. Aborts the test where the system has no sockets left.
  CuttingProxy(int port, const Options& options);
  ~CuttingProxy();

  int port() const { return port_; }
  int64_t cuts() const { return cuts_; }
  // From now on connections are let be; those that are there as well.
  void Spare() { sparing_ = true; }
  // Every connection is cut now.
  void CutAll();

 private:
  struct Link {
    std::thread thread;
    int wake[2];  // a pipe: a byte, or its end, ends the link
    std::atomic<bool> done = false;
  };
  void Accept();
  void Forward(Link* link, int client, int64_t budget, bool abrupt);
  void Join(bool all);

  const int to_port_;
  const Options options_;
  int listener_ = -1, port_ = 0;
  std::atomic<int64_t> cuts_{0};
  std::atomic<bool> sparing_ = false, stopping_ = false;
  std::mt19937_64 random_;  // of the accepting thread
  std::mutex mutex_;
  std::vector<std::unique_ptr<Link>> links_;
  std::thread accepting_;
};

}  // namespace telegrad::testing
