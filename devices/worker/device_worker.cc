// Starts the process, exchanges the messages of protocol.h with it, writes records into the
// ring, and checks at intervals whether the worker still answers while a record is under way.
#include "devices/worker/device_worker.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "devices/api/futex.h"
#include "devices/api/spin.h"
#include "devices/api/trace.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Between two looks at a worker that a record is awaited of, and at whether it still answers.
constexpr int64_t kLookNs = 10'000'000;
constexpr int64_t kPingNs = 200'000'000;
// To load a program, which is linked in a fraction of a millisecond.
constexpr std::chrono::seconds kLoadTime{10};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceWorker>> DeviceWorker::Start(const Options& options) {
  const auto bad = [&](std::string_view what) {
    return absl::UnavailableError(
        StrCat("cannot start ", options.whose, ", ", options.executable, ": ", what));
  };
  TG_ASSIGN_OR_RETURN(const UniqueFd file,
                      CreateSharedFile("telegrad-ring", sizeof(WorkerControl)));
  TG_ASSIGN_OR_RETURN(auto control, SharedMapping::Map(file.get(), sizeof(WorkerControl)));
  auto process = ChildProcess::Start({.executable = options.executable});
  if (!process.ok()) return bad(ToStd(process.status().message()));
  std::unique_ptr<DeviceWorker> worker(
      new DeviceWorker(options, *std::move(process), std::move(control)));
  if (absl::Status status = worker->Greet(file.get()); !status.ok()) {
    return bad(StrCat(ToStd(status.message()), "; it ", worker->process_->Bury()));
  }
  worker->started_ = std::chrono::steady_clock::now();
  return worker;
}

absl::StatusOr<std::string> DeviceWorker::ReadPatiently(size_t max_bytes) {
  TG_RETURN_IF_ERROR(AwaitFrameOf(pid(), socket(), options_.patience, options_.patience_source));
  return ReadFrame(socket(), max_bytes,
                   std::chrono::steady_clock::now() + kMostPatience * options_.patience);
}

absl::Status DeviceWorker::Greet(int control) {
  TG_ASSIGN_OR_RETURN(const std::string hello, ReadPatiently(kMaxWorkerHello));
  TG_RETURN_IF_ERROR(CheckWorkerHello(hello));
  const int descriptors[] = {control, options_.memory};
  TG_RETURN_IF_ERROR(SendDescriptors(socket(), descriptors));
  TG_RETURN_IF_ERROR(
      WriteFrame(socket(), EncodeWorkerSetup(options_.setup),
                 std::chrono::steady_clock::now() + kMostPatience * options_.patience));
  TG_ASSIGN_OR_RETURN(const std::string ready, ReadPatiently(kMaxWorkerReply));
  absl::Status status;
  TG_RETURN_IF_ERROR(DecodeWorkerReply(ready, 0, &status));
  return status;
}

absl::Status DeviceWorker::Load(uint64_t program, std::string_view name, std::string_view binary) {
  if (binary.empty()) return InvalidArgument("program ", name, " has no code");
  const MutexLock lock(asking_);
  TG_RETURN_IF_ERROR(Over());
  const FrameDeadline deadline = std::chrono::steady_clock::now() + kLoadTime;
  absl::Status status = WriteFrame(socket(), EncodeWorkerOrder(program, name, binary), deadline);
  if (status.ok()) {
    auto frame = ReadFrame(socket(), kMaxWorkerReply, deadline);
    status = frame.status();
    if (frame.ok()) {
      absl::Status said;
      status = DecodeWorkerReply(*frame, program, &said);
      if (status.ok()) return said;
    }
  }
  if (absl::IsUnavailable(status)) return End("");
  return End(StrCat("loaded the program ", name, " wrongly (", ToStd(status.message()), ")"));
}

void DeviceWorker::Drop(uint64_t program) {
  const MutexLock lock(asking_);
  if (!Over().ok()) return;
  const FrameDeadline deadline = std::chrono::steady_clock::now() + kLoadTime;
  (void)WriteFrame(socket(), EncodeWorkerOrder(program, "", ""), deadline);
}

RingRecord* DeviceWorker::Next() {
  return posted_ - awaited_ < kRingRecords ? &control().RecordOf(posted_ + 1) : nullptr;
}

uint64_t DeviceWorker::Post() {
  woke_ = control().posted.sleepers.load() != 0;
  control().posted.Signal(++posted_);
  return posted_;
}

void DeviceWorker::CancelAll() {
  control().cancelled.store(posted_);
  control().attend.fetch_add(1);
  FutexWake(control().attend);
}

RingTimes DeviceWorker::TimesOf(uint64_t number, uint32_t step) {
  return control().RecordOf(number).times[step];
}

DeviceWorker::Outcome DeviceWorker::AwaitEnd(uint64_t number, const Cancellation* cancellation) {
  WorkerControl& shared = control();
  const auto ended = [&] { return shared.ended.Reached(number); };
  Outcome out;
  int64_t asked = 0, pinged = 0;  // when; 0: not yet
  int64_t since = SteadyNs();     // when it went on to the step that it is at
  uint32_t at = UINT32_MAX;
  // A worker that had to be woken takes longer than spinning does, and where this thread spins
  // meanwhile it may wait for this thread's processor. One that is awake ends quick work soon.
  constexpr int kSpins = 3;
  if (std::exchange(woke_, false) && !ended()) shared.ended.Sleep(number, kLookNs);
  for (int i = 0; i < kSpins && !SpinUntil(ended); ++i) {
  }
  while (!SpinUntil(ended)) {
    shared.ended.Sleep(number, kLookNs);
    if (ended()) break;
    const int64_t now = SteadyNs(), limit = absl::ToInt64Nanoseconds(options_.hang_limit);
    out.status = Over();
    if (const uint32_t step = shared.step.load(); step != at) {
      at = step;
      since = now;
    }
    const int64_t longest = options_.setup.launch_limit_ns;
    if (out.status.ok() && longest != 0 && now - since > longest + limit) {
      out.status = End(StrCat("went on with a launch for more than ", longest / 1'000'000, " ms"));
    }
    if (out.status.ok() && asked != 0 && now - asked > limit) {
      out.status = End(StrCat("went on with what was cancelled for more than ",
                              absl::FormatDuration(options_.hang_limit)));
    }
    if (out.status.ok() && pinged != 0 && now - pinged > limit && shared.pong.load() != ping_) {
      out.status = End(StrCat("has not answered for ", absl::FormatDuration(options_.hang_limit)));
    }
    if (!out.status.ok()) {
      out.died = true;
      return out;
    }
    bool attend = false;
    if (asked == 0 && cancellation != nullptr && !cancellation->Check().ok()) {
      asked = now;
      shared.cancelled.store(number);
      attend = true;
    }
    if (pinged == 0 || (now - pinged > kPingNs && shared.pong.load() == ping_)) {
      pinged = now;
      shared.ping.store(++ping_);
      attend = true;
    }
    if (attend) {
      shared.attend.fetch_add(1);
      FutexWake(shared.attend);
    }
  }
  awaited_ = number;
  if (shared.ended.value.load() > posted_) {
    out.status = End("broke the protocol: it ended what it was not given");
    out.died = true;
    return out;
  }
  const RingRecord& record = shared.RecordOf(number);
  const int32_t code = record.code;
  if (code == 0) {
    if (!worked_.load(std::memory_order_relaxed)) worked_ = true;
    return out;
  }
  const uint32_t bytes = std::min(record.message_bytes, kRecordMessage);
  out.status = WorkerStatus(code, std::string(record.message, bytes));
  const absl::Status cancelled = cancellation == nullptr ? absl::OkStatus() : cancellation->Check();
  if (!cancelled.ok() && absl::IsCancelled(out.status)) out.status = cancelled;
  return out;
}

absl::Status DeviceWorker::WhileRunning(std::string_view name) {
  const MutexLock lock(end_mutex_);
  return DeviceLostError(StrCat(ToStd(over_.message()), "; it was running ", name));
}

absl::Status DeviceWorker::Over() {
  {
    const MutexLock lock(end_mutex_);
    if (!over_.ok()) return over_;
    // Who is about to end has closed its socket; who has done only that is of no use.
    pollfd one{socket(), 0, 0};
    if (!process_->HasEnded() && poll(&one, 1, 0) == 0) return absl::OkStatus();
  }
  return End("");
}

absl::Status DeviceWorker::End(std::string_view why) {
  const MutexLock lock(end_mutex_);
  if (!over_.ok()) return over_;
  const std::string name = StrCat(options_.whose, " (process ", pid(), ")");
  // Who is taken for hung has not closed its end, and is killed at once.
  const std::string how = process_->Bury();
  ended_at_once_ = !worked_.load() && std::chrono::steady_clock::now() - started_ <
                                          absl::ToChronoNanoseconds(options_.short_life);
  over_ = DeviceLostError(StrCat(name, " ", why, why.empty() ? "" : " and ", how, " (generation ",
                                 options_.generation, ")"));
  return over_;
}

}  // namespace telegrad
