// Clients of several tenants that measure how they affect each other, and clients that flood the
// daemon. Each names its tenant by a token. fairness.py starts the daemon and reads what these
// print.
//
//   light HOST:PORT TOKEN RUNS               one trivial run after another: "P50 P99" in ms
//   flood HOST:PORT TOKEN WHAT SESSIONS      "ready", then from a line on standard input on
//                                            runs: of 64 Mi additions, four under way in each
//                                            short: of 0.1 ms or so, 200 under way in each
//                                            long: products of 4096 x 4096, 3 s or so, four
//                                            under way in each
//                                            compile: a new graph of 16 kernels after another
//                                            transfer: 256 MiB up and down
//   idle HOST:PORT SESSIONS TOKEN...         so many sessions on a connection of each token;
//   "idle",
//                                            then until standard input ends
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/bench/add_constant.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

absl::StatusOr<std::shared_ptr<Connection>> ConnectAs(const std::string& address,
                                                      const std::string& token) {
  ConnectOptions options;
  options.credentials.token = token;
  return Connection::Connect(address, options);
}

// A session with one graph: slot 1 = slot 0 + 1; of no elements: a product of matrices.
class FairClient {
 public:
  absl::Status Open(std::shared_ptr<Connection> connection, int64_t elements) {
    connection_ = std::move(connection);
    TG_ASSIGN_OR_RETURN(session_, connection_->OpenSession());
    constexpr int64_t kMatrix = 4096;
    for (uint64_t& handle : handles_) {
      handle = session_->NewHandle();
      session_->Alloc(handle, (elements > 0 ? elements : kMatrix * kMatrix) * 4);
    }
    if (elements == 0) {
      Builder b;
      const Tensor x = b.Param(DType::kFloat32, {kMatrix, kMatrix}, "x");
      b.Output(x.MatMul(x), "y");
      TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
      TG_ASSIGN_OR_RETURN(hash_, session_->Put(plan.graph.root(), /*compile=*/true).Get());
      return absl::OkStatus();
    }
    Graph graph;
    TG_ASSIGN_OR_RETURN(hash_, session_->Put(AddConstant(&graph, elements, 1.0)).Get());
    return session_->Run(hash_, handles_).Get().status();
  }
  Future<RunInfo> Run() { return session_->Run(hash_, handles_); }
  RemoteSession& session() { return *session_; }
  uint64_t handle() const { return handles_[0]; }

 private:
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RemoteSession> session_;
  uint64_t handles_[2] = {};
  Digest hash_;
};

absl::Status Light(const std::string& address, const std::string& token, int runs) {
  FairClient client;
  TG_ASSIGN_OR_RETURN(auto connection, ConnectAs(address, token));
  TG_RETURN_IF_ERROR(client.Open(std::move(connection), 16));
  std::vector<double> ms;
  for (int i = 0; i < runs; ++i) {
    const double start = Seconds();
    TG_RETURN_IF_ERROR(client.Run().Get().status());
    ms.push_back((Seconds() - start) * 1e3);
  }
  std::sort(ms.begin(), ms.end());
  const size_t n = ms.size();
  std::printf("%.3f %.3f\n", ms[n / 2], ms[n * 99 / 100]);
  return absl::OkStatus();
}

absl::Status KeepRunning(FairClient& client, size_t under_way) {
  std::deque<Future<RunInfo>> runs;
  while (true) {
    while (runs.size() < under_way) runs.push_back(client.Run());
    TG_RETURN_IF_ERROR(runs.front().Get().status());
    runs.pop_front();
  }
}

// Sums of rows, of which no two graphs have the same length: each takes kernels of its own.
UOp NewGraph(Graph* graph, int64_t number) {
  constexpr int kKernels = 16;
  std::vector<UOp> stores;
  for (int k = 0; k < kKernels; ++k) {
    const int64_t dims[] = {8, 1000 + number * kKernels + k};
    const UOp in = graph->Param(2 * k, DType::kFloat32, dims);
    const UOp twice = graph->Make(Op::kMul, {in, graph->ConstFloat(DType::kFloat32, 2.0 + k)});
    const UOp out = graph->Param(2 * k + 1, DType::kFloat32, dims);
    stores.push_back(graph->Make(Op::kStore, {out, graph->Make(Op::kExp2, {twice})}));
  }
  return graph->Make(Op::kSink, DType::kVoid, stores);
}

absl::Status KeepCompiling(FairClient& client, std::atomic<int64_t>& number) {
  while (true) {
    Graph graph;
    TG_RETURN_IF_ERROR(
        client.session().Put(NewGraph(&graph, ++number), /*compile=*/true).Get().status());
  }
}

absl::Status KeepTransferring(FairClient& client) {
  std::vector<std::byte> bytes(size_t{256} << 20);
  while (true) {
    client.session().Write(client.handle(), 0, bytes);
    TG_RETURN_IF_ERROR(client.session().Read(client.handle(), 0, bytes).Get().status());
  }
}

absl::Status Flood(const std::string& address, const std::string& token, const std::string& what,
                   int sessions) {
  constexpr int64_t kMi = int64_t{1} << 20;
  struct Kind {
    int64_t elements;
    std::function<absl::Status(FairClient&)> keep;
  };
  std::atomic<int64_t> number{0};
  const std::map<std::string, Kind> kinds = {
      {"runs", {64 * kMi, [](FairClient& c) { return KeepRunning(c, 4); }}},
      {"short", {kMi / 8, [](FairClient& c) { return KeepRunning(c, 200); }}},
      {"long", {0, [](FairClient& c) { return KeepRunning(c, 4); }}},
      {"compile", {16, [&](FairClient& c) { return KeepCompiling(c, number); }}},
      {"transfer", {64 * kMi, [](FairClient& c) { return KeepTransferring(c); }}},
  };
  const auto kind = kinds.find(what);
  if (kind == kinds.end()) return InvalidArgument("there is no flood ", what);
  std::vector<FairClient> clients(static_cast<size_t>(sessions));
  TG_ASSIGN_OR_RETURN(const auto connection, ConnectAs(address, token));
  for (FairClient& c : clients) TG_RETURN_IF_ERROR(c.Open(connection, kind->second.elements));
  std::printf("ready\n");
  std::fflush(stdout);
  std::getchar();
  std::vector<std::thread> threads;
  std::vector<absl::Status> ended(clients.size());
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] { ended[i] = kind->second.keep(clients[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return ended.front();
}

absl::Status Idle(const std::string& address, int sessions, int tokens, char** token) {
  std::vector<std::shared_ptr<Connection>> connections;
  std::vector<std::unique_ptr<RemoteSession>> open;
  for (int i = 0; i < tokens; ++i) {
    TG_ASSIGN_OR_RETURN(auto connection, ConnectAs(address, token[i]));
    for (int k = 0; k < sessions; ++k) {
      TG_ASSIGN_OR_RETURN(auto session, connection->OpenSession());
      open.push_back(std::move(session));
    }
    connections.push_back(std::move(connection));
  }
  for (auto& session : open) {
    if (const auto done = session->Sync().Get(); !done.ok()) return done.status();
  }
  std::printf("idle\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return absl::OkStatus();
}

absl::Status Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "light" && argc == 5) return Light(argv[2], argv[3], std::atoi(argv[4]));
  if (what == "flood" && argc == 6) return Flood(argv[2], argv[3], argv[4], std::atoi(argv[5]));
  if (what == "idle" && argc > 4) return Idle(argv[2], std::atoi(argv[3]), argc - 4, argv + 4);
  return InvalidArgument(
      "usage: fair_bench light HOST:PORT TOKEN RUNS | flood HOST:PORT TOKEN "
      "runs|short|long|compile|transfer SESSIONS | idle HOST:PORT SESSIONS TOKEN...");
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  const absl::Status status = telegrad::bench::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fair_bench: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
