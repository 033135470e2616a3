// What one operation costs, with nothing to compute: clients of a running daemon that run a graph
// of 16 floats by its hash. Each client is a thread with a connection and a session of its own.
// Prints one number as its last line, and fails if a result is wrong.
//
// Usage: operations_bench HOST:PORT latency RUNS CLIENTS     median microseconds of a run, from the
//                                                            call to its answer, over all clients
//        operations_bench HOST:PORT pipelined RUNS CLIENTS   runs a second of all clients together,
//                                                            each of which sends RUNS without
//                                                            waiting
//        operations_bench HOST:PORT chain RUNS CLIENTS       median milliseconds from the first of
//                                                            RUNS that each write what the next one
//                                                            does to the answer of the last
//        operations_bench HOST:PORT steps RUNS CLIENTS       for each line of its input RUNS of
//        each
//                                                            client, then a line "done": whoever
//                                                            measures the server looks between
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <latch>
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

constexpr int kWarmUp = 500;  // runs, of all clients together at least

class Client {
 public:
  absl::Status Open(const std::string& address) {
    ConnectOptions options;
    if (const char* const device = std::getenv("TELEGRAD_DEVICE")) options.device = device;
    TG_ASSIGN_OR_RETURN(connection_, Connection::Connect(address, options));
    TG_ASSIGN_OR_RETURN(session_, connection_->OpenSession());
    const std::vector<float> in(16, 2.0f);
    for (uint64_t& handle : handles_) {
      handle = session_->NewHandle();
      session_->Alloc(handle, static_cast<int64_t>(in.size() * sizeof(float)));
    }
    session_->WriteCopy(handles_[0], 0, std::as_bytes(std::span(in)));
    Graph graph;
    TG_ASSIGN_OR_RETURN(
        hash_, session_->Put(AddConstant(&graph, static_cast<int64_t>(in.size()), 1.0)).Get());
    return session_->Run(hash_, handles_).Get().status();
  }

  // Microseconds of each of `runs` runs.
  absl::Status RunEach(int runs, std::vector<double>* micros) {
    for (int i = 0; i < runs; ++i) {
      const double start = Seconds();
      TG_RETURN_IF_ERROR(session_->Run(hash_, handles_).Get().status());
      micros->push_back((Seconds() - start) * 1e6);
    }
    return absl::OkStatus();
  }

  // The same without waiting for one before the next is sent.
  absl::Status RunAll(int runs) {
    for (int i = 1; i < runs; ++i) session_->Run(hash_, handles_);
    return session_->Run(hash_, handles_).Get().status();
  }

  absl::Status CheckResult() {
    std::vector<float> out(16);
    TG_RETURN_IF_ERROR(
        session_->Read(handles_[1], 0, std::as_writable_bytes(std::span(out))).Get().status());
    for (const float value : out) {
      if (value != 3.0f) return absl::InternalError("2 + 1 is not 3");
    }
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RemoteSession> session_;
  uint64_t handles_[2] = {};
  Digest hash_;
};

// Clients that begin at the same moment.
class Clients {
 public:
  absl::Status Open(const std::string& address, int count) {
    clients_.resize(static_cast<size_t>(count));
    for (Client& client : clients_) TG_RETURN_IF_ERROR(client.Open(address));
    return absl::OkStatus();
  }

  size_t size() const { return clients_.size(); }

  // `call` for each client on a thread of its own; the seconds that all together took.
  absl::StatusOr<double> Together(const std::function<absl::Status(Client&, size_t)>& call) {
    std::vector<absl::Status> ended(size());
    std::latch begin(static_cast<ptrdiff_t>(size()) + 1);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < size(); ++i) {
      threads.emplace_back([&, i] {
        begin.arrive_and_wait();
        ended[i] = call(clients_[i], i);
      });
    }
    begin.arrive_and_wait();
    const double start = Seconds();
    for (std::thread& thread : threads) thread.join();
    const double seconds = Seconds() - start;
    for (const absl::Status& status : ended) TG_RETURN_IF_ERROR(status);
    for (Client& client : clients_) TG_RETURN_IF_ERROR(client.CheckResult());
    return seconds;
  }

 private:
  std::vector<Client> clients_;
};

absl::StatusOr<double> Latency(Clients& clients, int runs) {
  std::vector<std::vector<double>> micros(clients.size());
  const int warm_up = kWarmUp / static_cast<int>(clients.size()) + 1;
  TG_RETURN_IF_ERROR(clients
                         .Together([&](Client& client, size_t i) -> absl::Status {
                           TG_RETURN_IF_ERROR(client.RunEach(warm_up, &micros[i]));
                           micros[i].clear();
                           return client.RunEach(runs, &micros[i]);
                         })
                         .status());
  std::vector<double> all;
  for (const auto& of_one : micros) all.insert(all.end(), of_one.begin(), of_one.end());
  return Median(std::move(all));
}

absl::StatusOr<double> Pipelined(Clients& clients, int runs) {
  const auto run = [&](Client& client, size_t) { return client.RunAll(runs); };
  TG_RETURN_IF_ERROR(clients.Together(run).status());  // to warm up
  TG_ASSIGN_OR_RETURN(const double seconds, clients.Together(run));
  return static_cast<double>(runs) * static_cast<double>(clients.size()) / seconds;
}

absl::StatusOr<double> Chain(Clients& clients, int runs) {
  constexpr int kTimes = 9;
  std::vector<double> millis;
  for (int i = 0; i < kTimes; ++i) {
    // By each client itself: on a busy machine it may be done before this thread reads a clock.
    std::vector<double> seconds(clients.size());
    const auto timed = [&](Client& client, size_t which) -> absl::Status {
      const double start = Seconds();
      TG_RETURN_IF_ERROR(client.RunAll(runs));
      seconds[which] = Seconds() - start;
      return absl::OkStatus();
    };
    TG_RETURN_IF_ERROR(clients.Together(timed).status());
    for (const double one : seconds) millis.push_back(one * 1e3);
  }
  return Median(std::move(millis));
}

// The number of steps.
absl::StatusOr<double> Steps(Clients& clients, int runs) {
  const auto run = [&](Client& client, size_t) -> absl::Status {
    std::vector<double> micros;
    return client.RunEach(runs, &micros);
  };
  double steps = 0;
  for (std::string line; std::getline(std::cin, line); ++steps) {
    TG_RETURN_IF_ERROR(clients.Together(run).status());
    std::printf("done\n");
    std::fflush(stdout);
  }
  return steps;
}

absl::StatusOr<double> Measure(const std::string& address, const std::string& what, int runs,
                               int count) {
  Clients clients;
  TG_RETURN_IF_ERROR(clients.Open(address, count));
  if (what == "latency") return Latency(clients, runs);
  if (what == "pipelined") return Pipelined(clients, runs);
  if (what == "chain") return Chain(clients, runs);
  if (what == "steps") return Steps(clients, runs);
  return absl::InvalidArgumentError(StrCat("there is no benchmark ", what));
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  const int runs = argc == 5 ? std::atoi(argv[3]) : 0;
  const int clients = argc == 5 ? std::atoi(argv[4]) : 0;
  if (runs <= 0 || clients <= 0) {
    std::fprintf(stderr,
                 "Usage: operations_bench HOST:PORT latency|pipelined|chain|steps RUNS CLIENTS\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::bench::Measure(argv[1], argv[2], runs, clients);
  if (!result.ok()) {
    std::fprintf(stderr, "operations_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.4f\n", *result);
  return 0;
}
