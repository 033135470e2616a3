// A worker has three threads. The first runs records, with a pool for their launches. The second
// reads orders from the socket. The third sleeps until the daemon pings the worker or cancels a
// record. The threads end with the process only.
#include "devices/worker/serve.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/cancellation.h"
#include "devices/api/futex.h"
#include "devices/api/shared_memory.h"
#include "devices/api/spin.h"
#include "devices/api/trace.h"
#include "devices/cpu/launch_watch.h"
#include "devices/cpu/loader.h"
#include "devices/cpu/worker_pool.h"
#include "devices/worker/control.h"
#include "devices/worker/lockdown.h"
#include "devices/worker/protocol.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

constexpr int kBroken = 1;

class DeviceServer {
 public:
  DeviceServer(int socket, const DeviceWorkerSetup& setup, std::unique_ptr<SharedMapping> control,
               std::unique_ptr<SharedMapping> memory, std::unique_ptr<Loader> loader)
      : socket_(socket),
        control_mapping_(std::move(control)),
        memory_mapping_(std::move(memory)),
        control_(*reinterpret_cast<WorkerControl*>(control_mapping_->base())),
        loader_(std::move(loader)),
        pool_(setup.threads),
        watch_(&pool_, setup.launch_limit_ns == 0 ? absl::InfiniteDuration()
                                                  : absl::Nanoseconds(setup.launch_limit_ns)),
        spins_(AvailableProcessors() > 1) {}

  void StartThreads() {
    std::thread([this] { _exit(TakeOrders()); }).detach();
    std::thread([this] { Attend(); }).detach();
  }

  [[noreturn]] void RunRecords() {
    for (uint64_t number = 1;; ++number) {
      AwaitPost(number);
      const auto cancellation = std::make_shared<Cancellation>();
      {
        const MutexLock lock(mutex_);
        running_ = number;
        cancellation_ = cancellation;
        if (control_.cancelled.load() >= number) cancellation_->Cancel();
      }
      RunRecord(control_.RecordOf(number), *cancellation);
      control_.ended.Signal(number);
    }
  }

 private:
  using Program = std::shared_ptr<CpuProgram>;

  void AwaitPost(uint64_t number) {
    const auto news = [&] { return control_.posted.Reached(number); };
    while (spins_ ? !SpinUntil(news) : !news()) control_.posted.Sleep(number);
  }

  void RunRecord(RingRecord& record, const Cancellation& cancellation) {
    record.code = 0;
    record.message_bytes = 0;
    const uint64_t* argument = record.argument;
    const uint64_t* const end = argument + kRecordArguments;
    watch_.Begin(&cancellation);
    absl::Status status;
    for (uint32_t i = 0; i < std::min(record.steps, kRecordSteps); ++i) {
      const RingStep& step = record.step[i];
      control_.step.store(i, std::memory_order_relaxed);
      if (step.arguments > end - argument) {
        status = Internal("more arguments than a record has");
        break;
      }
      status = cancellation.Check();
      if (!status.ok()) break;
      if (record.traced != 0) record.times[i].begin_ns = SteadyNs();
      status = RunStep(step, argument, record.word + (argument - record.argument));
      if (record.traced != 0) record.times[i].end_ns = SteadyNs();
      if (!status.ok()) break;
      argument += step.arguments;
    }
    watch_.End();
    if (status.ok()) return;
    const std::string_view text = ToStd(status.message()).substr(0, kRecordMessage);
    record.code = static_cast<int32_t>(status.code());
    record.message_bytes = static_cast<uint32_t>(text.size());
    std::memcpy(record.message, text.data(), text.size());
  }

  // Fills in words_, with addresses in this process, and maps_.
  absl::Status ReadWords(const RingStep& step, const uint64_t* given, const RingWord* words) {
    const auto base = reinterpret_cast<uint64_t>(memory_mapping_->base());
    words_.clear();
    maps_.clear();
    for (uint32_t i = 0; i < step.arguments; ++i) {
      if (words[i] == RingWord::kScalar) {
        words_.push_back(given[i]);
        continue;
      }
      if (given[i] > static_cast<uint64_t>(memory_mapping_->size())) {
        return Internal("an argument outside of the memory");
      }
      if (words[i] == RingWord::kPlace) {
        words_.push_back(base + given[i]);
        continue;
      }
      if (step.arguments - i < kMapWords) return Internal("a part of a tensor map");
      HostTensorMap& map = maps_.emplace_back();
      std::memcpy(&map, given + i, sizeof(map));
      map.address += base;
      words_.push_back(reinterpret_cast<uint64_t>(&map));
      i += kMapWords - 1;
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const RingStep& step, const uint64_t* given, const RingWord* words) {
    TG_RETURN_IF_ERROR(ReadWords(step, given, words));
    if (step.program == 0) {
      if (words_.size() != 2) return Internal("a copy without two ends");
      std::memcpy(reinterpret_cast<void*>(words_[0]), reinterpret_cast<const void*>(words_[1]),
                  step.amount);
      return absl::OkStatus();
    }
    const Program program = Find(step.program);
    if (program == nullptr) return Internal("program ", step.program, " is not loaded");
    const bool whole = pool_.Run(program->entry(), words_.data(), step.begin,
                                 step.begin + step.amount, static_cast<int>(step.helpers));
    return whole ? absl::OkStatus() : watch_.why();
  }

  Program Find(uint64_t id) {
    const MutexLock lock(mutex_);
    const auto it = programs_.find(id);
    return it == programs_.end() ? nullptr : it->second;
  }

  int TakeOrders() {
    while (true) {
      const auto frame = ReadFrame(socket_, kMaxWorkerOrder);
      if (absl::IsUnavailable(frame.status())) return 0;  // the daemon has gone
      if (!frame.ok()) return kBroken;
      auto order = DecodeWorkerOrder(*frame);
      if (!order.ok()) return kBroken;
      Program gone;  // freed without the lock
      if (order->binary.empty()) {
        const MutexLock lock(mutex_);
        std::swap(gone, programs_[order->program]);
        programs_.erase(order->program);
        continue;
      }
      auto loaded = loader_->Load({.name = order->name, .binary = std::move(order->binary)});
      if (loaded.ok()) {
        const MutexLock lock(mutex_);
        gone = std::exchange(programs_[order->program], *loaded);
      }
      const std::string reply = EncodeWorkerReply(order->program, loaded.status());
      if (!WriteFrame(socket_, reply).ok()) return kBroken;
    }
  }

  void Attend() {
    while (true) {
      const uint32_t word = control_.attend.load();
      control_.pong.store(control_.ping.load());
      {
        const MutexLock lock(mutex_);
        if (cancellation_ != nullptr && control_.cancelled.load() >= running_) {
          cancellation_->Cancel();
        }
      }
      FutexWait(control_.attend, word, kForeverNs);
    }
  }

  const int socket_;
  const std::unique_ptr<SharedMapping> control_mapping_, memory_mapping_;
  WorkerControl& control_;
  const std::unique_ptr<Loader> loader_;
  WorkerPool pool_;
  LaunchWatch watch_;
  const bool spins_;
  std::vector<uint64_t> words_;
  std::deque<HostTensorMap> maps_;  // of words_

  Mutex mutex_;
  std::map<uint64_t, Program> programs_ TG_GUARDED_BY(mutex_);
  uint64_t running_ TG_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Cancellation> cancellation_ TG_GUARDED_BY(mutex_);  // of the record that runs
};

absl::StatusOr<std::unique_ptr<DeviceServer>> SetUp(int socket) {
  TG_RETURN_IF_ERROR(WriteFrame(socket, EncodeWorkerHello()));
  TG_ASSIGN_OR_RETURN(const auto descriptors, ReceiveDescriptors(socket, 2));
  TG_ASSIGN_OR_RETURN(const std::string frame, ReadFrame(socket, kMaxWorkerSetup));
  TG_ASSIGN_OR_RETURN(const DeviceWorkerSetup setup, DecodeWorkerSetup(frame));
  TG_ASSIGN_OR_RETURN(auto control,
                      SharedMapping::Map(descriptors[0].get(), sizeof(WorkerControl)));
  TG_ASSIGN_OR_RETURN(auto memory, SharedMapping::Map(descriptors[1].get(), setup.memory_bytes));
  TG_ASSIGN_OR_RETURN(auto loader, Loader::Create());
  return std::make_unique<DeviceServer>(socket, setup, std::move(control), std::move(memory),
                                        std::move(loader));
}

}  // namespace

int ServeDevice(int socket) {
  auto server = SetUp(socket);
  absl::Status status = server.status();
  if (status.ok()) {
    (*server)->StartThreads();
    status = LockDown();
  }
  // That it is ready, or why not.
  if (!WriteFrame(socket, EncodeWorkerReply(0, status)).ok() || !status.ok()) _exit(kBroken);
  (*server)->RunRecords();
}

}  // namespace telegrad
