// What a tenant feels of another: the time of trivial runs alone, and beside sessions of another
// tenant that keep sending long ones. The two say who they are with tokens of the daemon's tenants.
// Prints the 50th and 99th percentile of both in milliseconds, and fails if a result is wrong.
//
// Usage: fair_bench HOST:PORT TOKEN OTHER_TOKEN SESSIONS RUNS_IN_FLIGHT
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "tests/bench/add_constant.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

constexpr int64_t kLong = int64_t{64} << 20;  // elements: some 20 ms of two threads
constexpr int kRuns = 400;

class FairClient {
 public:
  absl::Status Open(const std::string& address, const std::string& token, int64_t elements) {
    ConnectOptions options;
    options.credentials.token = token;
    TG_ASSIGN_OR_RETURN(connection_, Connection::Connect(address, options));
    TG_ASSIGN_OR_RETURN(session_, connection_->OpenSession());
    for (uint64_t& handle : handles_) {
      handle = session_->NewHandle();
      session_->Alloc(handle, elements * 4);
    }
    Graph graph;
    TG_ASSIGN_OR_RETURN(hash_, session_->Put(AddConstant(&graph, elements, 1.0)).Get());
    return session_->Run(hash_, handles_).Get().status();
  }
  Future<RunInfo> Run() { return session_->Run(hash_, handles_); }

 private:
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RemoteSession> session_;
  uint64_t handles_[2] = {};
  Digest hash_;
};

absl::Status Measure(FairClient& client, const char* what) {
  std::vector<double> ms;
  for (int i = 0; i < kRuns; ++i) {
    const double start = Seconds();
    TG_RETURN_IF_ERROR(client.Run().Get().status());
    ms.push_back((Seconds() - start) * 1e3);
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%s: p50 %.3f ms, p99 %.3f ms\n", what, ms[kRuns / 2], ms[kRuns * 99 / 100]);
  return absl::OkStatus();
}

absl::Status Compare(const std::string& address, const std::string& token, const std::string& other,
                     int sessions, int in_flight) {
  FairClient light;
  TG_RETURN_IF_ERROR(light.Open(address, token, 16));
  TG_RETURN_IF_ERROR(Measure(light, "alone"));
  std::vector<FairClient> heavy(static_cast<size_t>(sessions));
  for (FairClient& client : heavy) TG_RETURN_IF_ERROR(client.Open(address, other, kLong));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (FairClient& client : heavy) {
    threads.emplace_back([&] {
      std::deque<Future<RunInfo>> runs;
      while (!stop.load()) {
        while (static_cast<int>(runs.size()) < in_flight) runs.push_back(client.Run());
        runs.front().Get().status().IgnoreError();
        runs.pop_front();
      }
      for (auto& run : runs) run.Get().status().IgnoreError();
    });
  }
  const absl::Status status = Measure(light, "beside");
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: fair_bench HOST:PORT TOKEN OTHER_TOKEN SESSIONS RUNS_IN_FLIGHT\n");
    return 2;
  }
  const absl::Status status =
      telegrad::bench::Compare(argv[1], argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]));
  if (status.ok()) return 0;
  std::fprintf(stderr, "fair_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
