// How an ExecuteStream handles the server's answers: each completes its operation, and acknowledges
// all earlier operations that have no answer of their own.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "client/cc/execute_stream.h"
#include "client/cc/received_answer.h"
#include "engine/base/device_lost.h"
#include "engine/base/rate_limit.h"
#include "engine/base/status.h"
#include "google/protobuf/arena.h"

namespace telegrad {
namespace {

// Of the stack; more is allocated.
constexpr size_t kArenaBytes = 4096;

// Answers, and bytes of reads in them, after which they are acknowledged where no operation carries
// that: a quarter of what a server keeps.
constexpr int kAcknowledgeEvery = 512;
constexpr uint64_t kAcknowledgeBytes = 4 << 20;

RunInfo ToRunInfo(const v1::RunResult& run) {
  RunInfo info{.cached = run.cached(),
               .kernels = static_cast<int>(run.kernels()),
               .device_ns = static_cast<int64_t>(run.device_ns()),
               .compile_ns = static_cast<int64_t>(run.compile_ns()),
               .trace = nullptr};
  if (!run.has_trace()) return info;
  auto trace = std::make_shared<RunEvents>();
  trace->dropped = static_cast<int64_t>(run.trace().dropped());
  trace->end_ns = static_cast<int64_t>(run.trace().end_ns());
  for (const v1::TraceEvent& e : run.trace().events()) {
    trace->events.push_back({.copy = e.kind() == v1::TraceEvent::COPY,
                             .name = e.name(),
                             .queue = e.queue(),
                             .begin_ns = e.begin_ns(),
                             .duration_ns = static_cast<int64_t>(e.duration_ns()),
                             .flops = e.flops(),
                             .bytes = e.bytes(),
                             .reasons = {e.reasons().begin(), e.reasons().end()}});
  }
  info.trace = std::move(trace);
  return info;
}

void ReadCost(const v1::RunCost& cost, PutInfo* info) {
  info->flops = cost.flops();
  info->bytes = cost.bytes();
  info->seconds = cost.seconds();
  info->launch_seconds = cost.launch_seconds();
  info->temporary_bytes = static_cast<int64_t>(cost.temporary_bytes());
}

HasInfo ToHasInfo(const v1::HasResult& has) {
  HasInfo info{.has = has.has()};
  if (!has.has_cost()) return info;
  FormCost<PutInfo>& cost = info.cost.emplace();
  ReadCost(has.cost(), &cost.greatest);
  cost.least_share = has.least_share();
  for (const v1::VariableRange& range : has.ranges()) {
    cost.bounds.push_back({range.id(), range.min(), range.max(), range.multiple()});
  }
  return info;
}

}  // namespace

// Handles the message in incoming_. An error is a violation of the protocol and ends the session.
absl::Status ExecuteStream::Receive() {
  ReceivedAnswer message;
  // Answers are made where nothing is allocated for each.
  alignas(8) char block[kArenaBytes];
  google::protobuf::Arena arena(block, sizeof(block));
  auto& response = *google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
  TG_RETURN_IF_ERROR(
      message.Take(incoming_, &response, v1::ExecuteResponse::kGatheredFieldNumber, kMostGathered));
  if (response.has_open()) return Opened(response.open());
  TG_RETURN_IF_ERROR(Answered(response, message.envelope()));
  auto& one = *google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
  for (const std::string_view gathered : message.others()) {
    if (!one.ParseFromArray(gathered.data(), static_cast<int>(gathered.size()))) {
      return Internal("a gathered answer could not be read");
    }
    if (one.gathered_size() > 0 || one.has_open() || one.has_read()) {
      return Internal("an answer to operation ", one.op_id(), " may not be gathered with others");
    }
    TG_RETURN_IF_ERROR(Answered(one, {}));
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::Answered(const v1::ExecuteResponse& response,
                                     const Envelope& envelope) {
  Pending* pending;
  std::vector<Sent> taken;  // goes without the lock
  std::vector<Told> told;
  absl::Cleanup tell = [&] {
    for (const Told& one : told) one.done.Set(Done{});
  };
  {
    MutexLock lock(mutex_);
    taken = TakenLocked(response.op_id());
    if (call_->is_socket()) moves_ = 0;
    while (!pending_.empty() && pending_.front().last < response.op_id()) {
      Completion& completion = pending_.front().completion;
      if (auto* without = std::get_if<Told>(&completion)) {
        told.push_back(std::move(*without));
      } else if (!std::holds_alternative<std::monostate>(completion)) {
        return Internal("operation ", pending_.front().last, " was not answered");
      }
      pending_.pop_front();
    }
    if (pending_.empty() || pending_.front().first > response.op_id()) {
      return Internal("an answer to operation ", response.op_id(), ", which waits for none");
    }
    pending = &pending_.front();  // stays there: others only append
  }
  std::move(tell).Invoke();  // in the order of the operations
  bool finished = true;
  TG_RETURN_IF_ERROR(Complete(*pending, response, envelope, &finished));
  Completion completed;  // goes without the lock: the end of a sink may call this stream
  if (!finished) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (pending->last == response.op_id()) {
    completed = std::move(pending->completion);
    pending_.pop_front();
    changed_.notify_all();
  }
  if (options_.resumable) {
    received_ = response.op_id();
    unacknowledged_bytes_ += envelope.payload_bytes;
    acknowledges_ |=
        ++unacknowledged_ >= kAcknowledgeEvery || unacknowledged_bytes_ >= kAcknowledgeBytes;
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::RecordError(const char* what, uint64_t id, absl::StatusCode code,
                                        std::string_view message) {
  const absl::Status status(code, ToAbsl(StrCat("operation ", id, " (", what, "): ", message)));
  MutexLock lock(mutex_);
  if (first_error_.ok()) first_error_ = status;
  return status;
}

absl::Status ExecuteStream::Complete(Pending& pending, const v1::ExecuteResponse& response,
                                     const Envelope& envelope, bool* finished) {
  if (response.status().code() != 0) {
    const auto code = static_cast<absl::StatusCode>(response.status().code());
    absl::Status error =
        RecordError(pending.what, response.op_id(), code, response.status().message());
    if (response.status().device_lost()) error = DeviceLostError(ToStd(error.message()));
    const auto retry = static_cast<int64_t>(response.status().retry_after_ms());
    std::visit(Fail{retry > 0 ? WithRetryAfter(error, retry) : error}, pending.completion);
    return absl::OkStatus();
  }
  if (auto* target = std::get_if<ReadTarget>(&pending.completion)) {
    return TakeChunk(*target, response, envelope, finished);
  }
  if (auto* done = std::get_if<Future<Done>>(&pending.completion)) {
    const absl::Status first = status(/*take=*/false);
    done->Set(first.ok() ? absl::StatusOr<Done>(Done{}) : first);
  } else if (auto* without = std::get_if<Told>(&pending.completion)) {
    without->done.Set(Done{});
  } else if (auto* has = std::get_if<Future<bool>>(&pending.completion)) {
    has->Set(response.has().has());
  } else if (auto* has_told = std::get_if<Future<HasInfo>>(&pending.completion)) {
    has_told->Set(ToHasInfo(response.has()));
  } else if (auto* put = std::get_if<Future<Digest>>(&pending.completion)) {
    Digest digest;
    if (!Digest::FromBytes(response.put().hash(), &digest))
      return Internal("a hash of unexpected length");
    put->Set(digest);
  } else if (auto* told = std::get_if<Future<PutInfo>>(&pending.completion)) {
    PutInfo info;
    ReadCost(response.put().cost(), &info);
    if (!Digest::FromBytes(response.put().hash(), &info.hash)) {
      return Internal("a hash of odd length");
    }
    told->Set(std::move(info));
  } else if (auto* run = std::get_if<Future<RunInfo>>(&pending.completion)) {
    run->Set(ToRunInfo(response.run()));
  } else if (auto* told_run = std::get_if<RunTellsSink>(&pending.completion)) {
    told_run->sink->OnRun(told_run->which, ToRunInfo(response.run()));
  } else if (auto* import = std::get_if<Future<RemoteModel>>(&pending.completion)) {
    TG_ASSIGN_OR_RETURN(RemoteModel model, ToRemoteModel(response.import()));
    import->Set(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::TakeChunk(ReadTarget& target, const v1::ExecuteResponse& response,
                                      const Envelope& envelope, bool* finished) {
  const uint64_t begin = response.read().offset() - static_cast<uint64_t>(target.offset);
  const uint64_t size = target.into.size();
  if (begin > size || envelope.payload_bytes > size - begin) {
    return Internal("operation ", response.op_id(), ": a chunk outside of what was read");
  }
  // Chunks come in order; behind a resumption some may come again.
  if (begin > target.arrived) {
    return Internal("operation ", response.op_id(), ": bytes ", target.arrived, " to ", begin,
                    " of what was read are missing");
  }
  target.arrived = std::max(target.arrived, begin + envelope.payload_bytes);
  if (target.lent == nullptr || target.lent->Begin(this)) {
    std::byte* out = target.into.data() + begin;
    for (const ByteSpan& piece : envelope.payload) {
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
    if (target.lent != nullptr) target.lent->End(this);
  }
  meter_->Move(envelope.payload_bytes);
  *finished = response.read().last();
  if (*finished && target.arrived < size) {
    return Internal("operation ", response.op_id(), ": ", target.arrived, " bytes of ", size,
                    " that were read");
  }
  if (*finished) target.done.Set(Done{});
  return absl::OkStatus();
}

}  // namespace telegrad
