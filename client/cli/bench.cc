// telegrad bench: drives a server with runs of one graph from many sessions, of several tenants
// where several tokens are given, and prints what they took.
//
// In a closed loop each session has --depth runs under way and sends the next when one has ended.
// In an open loop (--rate) runs are due at fixed times, and what a run takes counts from then.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/remote_session.h"
#include "client/cli/bench_samples.h"
#include "client/cli/command.h"
#include "client/terminal/progress.h"
#include "engine/base/files.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

struct Load {
  int64_t sessions = 1, depth = 1, begin_ns = 0, end_ns = 0;
  int64_t period_ns = 0;  // between two runs of one session; 0: a closed loop
};

// y = x * 2 + 1, or the product of a matrix with itself.
absl::StatusOr<Plan> Workload(const Flags& flags) {
  Builder b;
  if (const int64_t n = flags.GetInt("matrix"); n > 0) {
    const Tensor x = b.Param(DType::kFloat32, {n, n}, "x");
    b.Output(x.MatMul(x), "y");
  } else {
    const Tensor x = b.Param(DType::kFloat32, {flags.GetInt("elements")}, "x");
    b.Output(x * 2 + 1, "y");
  }
  return b.Finish();
}

// One session: what it sends, and when each was answered.
class Driver {
 public:
  Driver(int32_t tenant, int32_t number, std::unique_ptr<RemoteSession> session)
      : tenant_(tenant), number_(number), session_(std::move(session)) {}

  absl::Status Prepare(const Plan& plan) {
    TG_ASSIGN_OR_RETURN(hash_, session_->Put(plan.graph.root(), /*compile=*/true).Get());
    for (const Slot& slot : plan.slots) {
      handles_.push_back(session_->NewHandle());
      const int64_t bytes = BytesOf(slot.dtype, NumElements(slot.shape));
      session_->Alloc(handles_.back(), bytes);
    }
    return session_->Run(hash_, handles_).Get().status();  // what comes first is not measured
  }

  void Drive(const Load& load) {
    std::deque<Future<RunInfo>> under_way;
    for (int64_t i = 0;; ++i) {
      int64_t due = NowNs();
      if (load.period_ns > 0) {
        // Sessions begin one after the other within a period.
        due = load.begin_ns + i * load.period_ns + load.period_ns * number_ / load.sessions;
        if (due >= load.end_ns) break;
        std::this_thread::sleep_for(std::chrono::nanoseconds(due - NowNs()));
      } else if (due >= load.end_ns) {
        break;
      }
      under_way.push_back(Send(due));
      while (load.period_ns == 0 && static_cast<int64_t>(under_way.size()) >= load.depth) {
        under_way.front().Get().status().IgnoreError();
        under_way.pop_front();
      }
    }
    for (const auto& run : under_way) run.Get().status().IgnoreError();
  }

  // Once all have ended.
  std::vector<BenchSample> Take() {
    const MutexLock lock(mutex_);
    return std::move(samples_);
  }
  int64_t answered() const {
    const MutexLock lock(mutex_);
    return std::ssize(samples_);
  }
  absl::Status first_error() const {
    const MutexLock lock(mutex_);
    return first_error_;
  }

 private:
  Future<RunInfo> Send(int64_t due) {
    Future<RunInfo> run = session_->Run(hash_, handles_);
    Future<RunInfo> seen;  // set behind the sample
    run.Then([this, due, seen](const absl::StatusOr<RunInfo>& result) {
      {
        const MutexLock lock(mutex_);
        samples_.push_back({.tenant = tenant_,
                            .session = number_,
                            .due_ns = due,
                            .end_ns = NowNs(),
                            .ok = result.ok()});
        if (first_error_.ok()) first_error_ = result.status();
      }
      seen.Set(result);
    });
    return seen;
  }

  const int32_t tenant_, number_;
  const std::unique_ptr<RemoteSession> session_;
  Digest hash_;
  std::vector<uint64_t> handles_;
  mutable Mutex mutex_;
  std::vector<BenchSample> samples_ TG_GUARDED_BY(mutex_);
  absl::Status first_error_ TG_GUARDED_BY(mutex_);
};

absl::StatusOr<std::vector<std::shared_ptr<Connection>>> ConnectAll(const Flags& flags) {
  const std::vector<std::string>& tokens = flags.GetList("token");
  std::vector<std::shared_ptr<Connection>> out;
  for (size_t i = 0; i < std::max<size_t>(tokens.size(), 1); ++i) {
    Flags own = flags;
    if (!tokens.empty()) own.Replace("token-file", {tokens[i]});
    TG_ASSIGN_OR_RETURN(out.emplace_back(), Connect(own));
  }
  return out;
}

// "sending runs: 4120 answered, 2060 runs/s, 0:03 left".
std::string SendingLine(const std::vector<std::unique_ptr<Driver>>& drivers, int64_t end_ns,
                        double seconds) {
  int64_t answered = 0;
  for (const auto& driver : drivers) answered += driver->answered();
  const int64_t left = std::max<int64_t>(0, end_ns - NowNs());
  return StrCat("sending runs: ", answered, " answered, ",
                static_cast<int64_t>(static_cast<double>(answered) / seconds), " runs/s, ",
                ClockTime(static_cast<double>(left) * 1e-9), " left");
}

absl::Status Report(const Flags& flags, std::vector<BenchSample> samples,
                    const std::vector<std::string>& tenants) {
  if (const std::string& file = flags.GetString("samples"); !file.empty()) {
    TG_RETURN_IF_ERROR(WriteFile(file, BenchCsv(samples, tenants)));
  }
  std::printf("%s\n%s", BenchTable(samples, tenants).c_str(), BenchPlot(samples).c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status Bench(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  if (const std::string& file = flags.GetString("samples"); !file.empty()) {
    TG_RETURN_IF_ERROR(CheckWritable(file));
  }
  TG_ASSIGN_OR_RETURN(const Plan plan, Workload(flags));
  TG_ASSIGN_OR_RETURN(const auto connections, ConnectAll(flags));
  std::vector<std::string> tenants;
  for (const auto& connection : connections) tenants.push_back(connection->server().tenant);
  std::vector<std::unique_ptr<Driver>> drivers;
  Load load;
  load.sessions = flags.GetInt("sessions");
  load.depth = flags.GetInt("depth");
  auto progress = std::make_unique<Progress>("opening sessions", load.sessions, "sessions");
  for (int64_t i = 0; i < load.sessions; ++i) {
    progress->Done(i);
    const size_t tenant = static_cast<size_t>(i) % connections.size();
    TG_ASSIGN_OR_RETURN(auto session, connections[tenant]->OpenSession());
    drivers.push_back(std::make_unique<Driver>(static_cast<int32_t>(tenant),
                                               static_cast<int32_t>(i), std::move(session)));
    TG_RETURN_IF_ERROR(drivers.back()->Prepare(plan));
  }
  load.begin_ns = NowNs();
  load.end_ns = load.begin_ns + flags.GetInt("seconds") * 1'000'000'000;
  const int64_t rate = flags.GetInt("rate");
  load.period_ns = rate == 0 ? 0 : 1'000'000'000 * load.sessions / rate;
  progress = std::make_unique<Progress>(
      [&](double seconds) { return SendingLine(drivers, load.end_ns, seconds); });
  std::vector<std::thread> threads;
  absl::Status status;
  for (const auto& driver : drivers) {
    auto thread = StartThread([&driver, &load] { driver->Drive(load); });
    if (!thread.ok()) {
      status = thread.status();
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) thread.join();
  progress = nullptr;
  TG_RETURN_IF_ERROR(status);
  std::vector<BenchSample> samples;
  for (const auto& driver : drivers) {
    for (const BenchSample& sample : driver->Take()) samples.push_back(sample);
    if (status.ok()) status = driver->first_error();
  }
  if (!status.ok()) {
    std::printf("the first failure: %s\n", std::string(status.message()).c_str());
  }
  return Report(flags, std::move(samples), tenants);
}

}  // namespace telegrad::cli
