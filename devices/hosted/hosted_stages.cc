// Each part waits for the one before, whose failure it has then, so that nothing runs behind a
// failure. Memory of this process is read when the part is sent and written when it has ended; a
// part that reads it is sent when no part on its way will write it.
#include "devices/hosted/hosted_stages.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {

absl::Status HostedStages::Run() {
  const int64_t begin = SteadyNs();
  if (item_->work.trace != nullptr) times_.resize(commands_.commands().size());
  absl::Status status = RunEach();
  const absl::Status rest = AwaitAll();
  if (status.ok()) status = rest;
  // What was sent with the first part, if there was none.
  for (const TimelinePoint& point : item_->native) {
    if (sent_ != 0 || !status.ok()) break;
    status = queue_.AwaitHere(point, [] { return false; });
  }
  item_->device_ns = SteadyNs() - begin;
  for (size_t i = 0; i < times_.size() && times_[i].first != 0; ++i) {
    TraceEvent event = commands_.Describe(i);
    const int64_t before = item_->events.empty() ? 0 : item_->events.back().end_ns;
    event.begin_ns = std::max(times_[i].first, before);
    event.end_ns = std::max(times_[i].second, event.begin_ns);
    item_->events.push_back(std::move(event));
  }
  return status;
}

absl::Status HostedStages::RunEach() {
  const auto bindings = std::span<const BufferView>(item_->work.bindings);
  const size_t count = commands_.commands().size();
  for (size_t i = 0; i < count;) {
    TG_RETURN_IF_ERROR(Check());
    if (commands_.TouchesHost(i, bindings)) {
      Begin(i);
      TG_RETURN_IF_ERROR(CopyOne(i));
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < count && !commands_.TouchesHost(end, bindings)) ++end;
    for (size_t k = i; k < end; ++k) Begin(k);
    TG_RETURN_IF_ERROR(RunPiece(i, end));
    i = end;
  }
  return absl::OkStatus();
}

absl::Status HostedStages::Check() const {
  const Cancellation* cancellation = item_->work.cancellation.get();
  return cancellation == nullptr ? absl::OkStatus() : cancellation->Check();
}

void HostedStages::Begin(size_t command) {
  if (!times_.empty()) times_[command] = {SteadyNs(), 0};
}

void HostedStages::End(size_t first, size_t end) {
  if (times_.empty()) return;
  const int64_t now = SteadyNs();
  for (size_t i = first; i < end; ++i) times_[i].second = now;
}

template <typename Encode>
absl::Status HostedStages::Send(Flying flying, Encode encode) {
  std::vector<HostedPoint> waits = std::exchange(waits_, {});
  const auto index = static_cast<uint32_t>(queue_.options_.index);
  if (sent_ != 0) waits = {{index, sent_}};
  flying.part = std::make_shared<HostedQueue::Part>();
  HostedQueue::Flight flight{.item = item_, .part = flying.part};
  flying_.push_back(std::move(flying));
  return queue_.Launch(std::move(flight), [&](uint64_t number) {
    sent_ = number;
    return encode(HostedPoint{index, number}, std::move(waits));
  });
}

absl::Status HostedStages::AwaitOldest() {
  const Flying oldest = std::move(flying_.front());
  flying_.pop_front();
  {
    ReleasableLock lock(queue_.bell_->mutex);
    queue_.bell_->rung.wait(lock, [&] { return oldest.part->done.load(); });
  }
  if (oldest.part->status.ok() && oldest.to != nullptr) {
    std::memcpy(oldest.to, oldest.staged, oldest.length);
  }
  End(oldest.first, oldest.end);
  return oldest.part->status;
}

absl::Status HostedStages::AwaitAll() {
  absl::Status first;
  while (!flying_.empty()) {
    absl::Status status = AwaitOldest();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

absl::Status HostedStages::RunPiece(size_t first, size_t end) {
  TG_ASSIGN_OR_RETURN(const HostedCommands::Piece piece, commands_.PieceOf(first, end));
  HostedRun run{.commands = piece.commands->id()};
  for (const int32_t binding : piece.bindings) {
    const BufferView& view = item_->work.bindings[static_cast<size_t>(binding)];
    run.bindings.push_back({commands_.Own(view)->id(), view.offset, view.length});
  }
  run.scalars = item_->work.scalars;
  run.scalars.resize(piece.commands->scalars());  // the first so many
  return Send({.first = first, .end = end}, [&](HostedPoint point, std::vector<HostedPoint> waits) {
    run.point = point;
    run.waits = std::move(waits);
    return EncodeHostedRun(run);
  });
}

absl::Status HostedStages::CopyOne(size_t command) {
  const CopyBytes& copy = commands_.commands()[command].copy;
  const BufferView &to = Bound(copy.to), &from = Bound(copy.from);
  const bool reads = commands_.Own(from) == nullptr, writes = commands_.Own(to) == nullptr;
  if (reads) {
    const bool late = std::ranges::any_of(flying_, [](const Flying& f) { return f.to != nullptr; });
    if (late || writes) TG_RETURN_IF_ERROR(AwaitAll());
  }
  if (reads && writes) {
    const auto at = [](const BufferView& view, const BoundPart& part) {
      return static_cast<char*>(view.memory->host()) + view.offset + part.offset;
    };
    if (sent_ == 0) {
      for (const TimelinePoint& point : item_->native) {
        TG_RETURN_IF_ERROR(queue_.AwaitHere(point, [] { return false; }));
        TG_RETURN_IF_ERROR(point.timeline->StatusOf(point.value));
      }
    }
    if (copy.length > 0) {
      std::memcpy(at(to, copy.to), at(from, copy.from), static_cast<size_t>(copy.length));
    }
    End(command, command + 1);
    return absl::OkStatus();
  }
  for (int64_t at = 0; at < copy.length; at += kStagingBlock) {
    TG_RETURN_IF_ERROR(Check());
    TG_RETURN_IF_ERROR(CopyBlock(command, at, std::min(kStagingBlock, copy.length - at)));
  }
  if (copy.length == 0) End(command, command + 1);
  return absl::OkStatus();
}

absl::Status HostedStages::CopyBlock(size_t command, int64_t at, int64_t length) {
  // Blocks are taken in turn, and those before have ended in turn.
  if (flying_.size() >= static_cast<size_t>(kStagingBlocks)) TG_RETURN_IF_ERROR(AwaitOldest());
  const int block = next_block_++ % kStagingBlocks;
  const CopyBytes& copy = commands_.commands()[command].copy;
  const BufferView &to = Bound(copy.to), &from = Bound(copy.from);
  const size_t index = queue_.options_.index;
  char* const staged = queue_.process_->Staging(index, block);
  const HostedView here{kStagingId, DriverProcess::StagingOffset(index, block), length};
  HostedCopy order{.to = here, .from = here};
  Flying flying{.first = command,
                .end = command + 1,
                .staged = staged,
                .length = static_cast<size_t>(length)};
  if (const HostedMemory* own = commands_.Own(to)) {
    order.to = {own->id(), to.offset + copy.to.offset + at, length};
    std::memcpy(staged,
                static_cast<const char*>(from.memory->host()) + from.offset + copy.from.offset + at,
                flying.length);
  } else {
    order.from = {commands_.Own(from)->id(), from.offset + copy.from.offset + at, length};
    flying.to = static_cast<char*>(to.memory->host()) + to.offset + copy.to.offset + at;
  }
  return Send(std::move(flying), [&](HostedPoint point, std::vector<HostedPoint> waits) {
    order.point = point;
    order.waits = std::move(waits);
    return EncodeHostedCopy(order);
  });
}

}  // namespace telegrad
