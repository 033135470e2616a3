// An engine whose every executable copies slot 1 to slot 0 on the device's real queue: enough to
// watch how a session orders runs, without compiling. Runs wait at a gate while one is closed; the
// next run can be told to fail.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/tenant/engine.h"

namespace telegrad::fakes {

class Gate {
 public:
  void Close() { point_ = {std::make_shared<Timeline>(), 1}; }
  void Open(absl::Status status = absl::OkStatus()) { point_.timeline->Signal(1, status); }
  TimelinePoint point() const { return point_; }

 private:
  TimelinePoint point_;
};

class CopyExecutable final : public Executable {
 public:
  using OnRun = std::function<absl::Status()>;

  CopyExecutable(Device* device, Gate* gate, const RunCost& cost, const OnRun& on_run)
      : device_(device), gate_(gate), cost_(cost), on_run_(on_run) {}
  std::span<const SlotUse> slots() const override { return {}; }
  std::span<const KernelInfo> kernels() const override { return {&kernel_, 1}; }
  RunCost cost() const override { return cost_; }

 private:
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override {
    if (on_run_) TG_RETURN_IF_ERROR(on_run_());
    if (bindings.size() != 2) return InvalidArgument("expected 2 slots, got ", bindings.size());
    if (bindings[0].length < bindings[1].length) {
      return InvalidArgument("slot 0 has ", bindings[0].length, " bytes, expected ",
                             bindings[1].length);
    }
    Command copy;
    copy.kind = Command::Kind::kCopy;
    copy.copy = {{0, 0}, {1, 0}, bindings[1].length};
    TG_ASSIGN_OR_RETURN(auto slices, EncodeSlices(*device_, {{copy, cost_.seconds}}));
    std::vector<TimelinePoint> all(waits.begin(), waits.end());
    if (gate_->point().timeline) all.push_back(gate_->point());
    return queues.Submit(*device_, QueueKind::kCompute,
                         {std::move(slices),
                          {bindings.begin(), bindings.end()},
                          std::move(all),
                          std::move(trace),
                          std::move(cancellation)});
  }

  Device* const device_;
  Gate* const gate_;
  const RunCost cost_;
  const OnRun on_run_;
  const KernelInfo kernel_;
};

class CopyEngine final : public Engine {
 public:
  Gate gate;
  std::atomic<int> compiled = 0;
  std::atomic<int> released = 0;                    // calls of ReleaseTemporaries
  std::atomic<int> released_own = 0;                // of ReleaseMemory
  std::function<absl::Status(Budget*)> on_compile;  // set before the first run
  CopyExecutable::OnRun on_run;                     // before each; likewise
  RunCost cost;                                     // what a run says it takes; likewise

  std::shared_ptr<const Executable> Find(const Digest& hash, std::span<Device* const> devices,
                                         std::span<const VarValue>) override {
    std::lock_guard lock(mutex_);
    const auto it = made_.find({hash, devices[0]});
    return it == made_.end() ? nullptr : it->second;
  }
  absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph&,
                                              std::span<Device* const> devices, Budget* budget,
                                              std::span<const VarValue>) override {
    if (on_compile) TG_RETURN_IF_ERROR(on_compile(budget));
    ++compiled;
    auto executable = std::make_shared<CopyExecutable>(devices[0], &gate, cost, on_run);
    std::lock_guard lock(mutex_);
    made_[{hash, devices[0]}] = executable;
    return ExecutableCache::Result{executable, false, 1};
  }

  void ReleaseMemory() override { ++released_own; }
  void ReleaseTemporaries(const Device&) override { ++released; }

 private:
  std::mutex mutex_;
  std::map<std::pair<Digest, const Device*>, std::shared_ptr<const Executable>> made_;
};

}  // namespace telegrad::fakes
