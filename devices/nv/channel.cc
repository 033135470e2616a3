// Lays out the rings in one region of memory, writes methods and entries, rings the doorbell,
// and frees places as the fence word grows.
#include "devices/nv/channel.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/status.h"

namespace telegrad::nv {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kTailWords = 8;  // of the release at a flush: 6, each entry has room for one
// Entries that have to be free before an operation begins: for its end, for a replay, for the
// release of a flush, and one that stays free, for a full ring would look like an empty one.
constexpr uint64_t kSpareEntries = 4;

size_t PageOf(size_t bytes) { return (bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

size_t TailsOffset(const GpuLimits& limits) {
  return PageOf(Channel::UserdOffset(limits) + kUserdBytes);
}
size_t WordsOffset(const GpuLimits& limits) {
  return PageOf(TailsOffset(limits) + limits.ring_entries * kTailWords * 4);
}
size_t DataOffset(const GpuLimits& limits) {
  return PageOf(WordsOffset(limits) + limits.words_bytes);
}

}  // namespace

size_t Channel::UserdOffset(const GpuLimits& limits) {
  return PageOf(size_t{limits.ring_entries} * 8);
}
size_t Channel::ZeroedBytes(const GpuLimits& limits) { return TailsOffset(limits); }
size_t Channel::MemoryBytes(const GpuLimits& limits) {
  return DataOffset(limits) + PageOf(limits.data_bytes);
}

Channel::Channel(Gpu& gpu, const Parts& parts)
    : gpu_(gpu),
      parts_(parts),
      tails_at_(TailsOffset(gpu.limits())),
      words_at_(WordsOffset(gpu.limits())),
      data_at_(DataOffset(gpu.limits())),
      entries_(gpu.limits().ring_entries),
      words_(gpu.limits().words_bytes / 4),
      data_(gpu.limits().data_bytes) {}

absl::Status Channel::Begin() {
  const MutexLock lock(mutex_);
  return Append(0, [&](const Block&) TG_REQUIRES(mutex_) { PushSetup(push_); });
}

uint64_t Channel::Passed() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(parts_.semaphores.host))
      .load(std::memory_order_acquire);
}

absl::StatusOr<Channel::Room> Channel::Reserve(size_t words, size_t data_bytes) {
  constexpr uint64_t kDataAlignment = 256;
  if (words > words_.size() || data_bytes > data_.size()) {
    return ResourceExhausted(gpu_.name(), ": an operation of ", words, " words and ", data_bytes,
                             " bytes; a channel has room for ", words_.size(), " and ",
                             data_.size());
  }
  hcq::SysOps& system = gpu_.system();
  int64_t since = 0;
  uint64_t seen = 0;
  while (true) {
    TG_RETURN_IF_ERROR(gpu_.Check());
    const uint64_t passed = Passed();
    for (hcq::FencedRing* ring : {&entries_, &words_, &data_}) ring->Pass(passed);
    const bool entries_free = entries_.used() + kSpareEntries < entries_.size();
    if (entries_free && (words == 0 || words_.CanTake(words)) &&
        (data_bytes == 0 || data_.CanTake(data_bytes, kDataAlignment))) {
      Room room;
      if (words > 0) room.words = *words_.Take(words);
      if (data_bytes > 0) {
        const size_t at = data_at_ + *data_.Take(data_bytes, kDataAlignment);
        room.data = {parts_.memory.address + at, parts_.memory.host + at, data_bytes};
      }
      return room;
    }
    // What is in the way ends some time, once the GPU knows of it.
    if (unflushed_) FlushLocked();
    const int64_t now = system.Ns();
    if (since == 0) ++waits_;
    if (since == 0 || passed != seen) {
      since = now;
      seen = passed;
    }
    if (now - since > gpu_.limits().hang_ns) {
      return absl::UnavailableError(
          StrCat("a channel of ", gpu_.name(), " is stuck: it freed nothing within ",
                 absl::FormatDuration(absl::Nanoseconds(gpu_.limits().hang_ns))));
    }
    system.Pause();
  }
}

// `build` pushes the same number of words, whatever block it is given.
absl::Status Channel::Append(size_t data_bytes, const std::function<void(const Block&)>& build) {
  const uint64_t step = step_;
  push_.Clear();
  build({});
  TG_ASSIGN_OR_RETURN(const Room room, Reserve(push_.words().size(), data_bytes));
  if (data_bytes > 0) {
    step_ = step;
    push_.Clear();
    build(room.data);
  }
  if (segment_ != segment_end_ && segment_end_ != room.words) CloseSegment();
  if (segment_ == segment_end_) segment_ = room.words;
  segment_end_ = room.words + push_.words().size();
  parts_.memory.StoreWords(words_at_ + 4 * room.words, push_.words().data(), push_.words().size());
  unflushed_ = true;
  return absl::OkStatus();
}

void Channel::AddEntry(uint64_t address, uint64_t words) {
  const uint64_t place = *entries_.Take(1);
  parts_.memory.Store<uint64_t>(RingOffset() + 8 * place, RingEntry(address, words));
  put_ = static_cast<uint32_t>((place + 1) % entries_.size());
}

void Channel::CloseSegment() {
  if (segment_ == segment_end_) return;
  AddEntry(parts_.memory.address + words_at_ + 4 * segment_, segment_end_ - segment_);
  segment_ = segment_end_ = 0;
}

void Channel::FlushLocked() {
  CloseSegment();
  PushBuffer release;  // push_ may hold the operation that waits for room
  release.Release(parts_.semaphores.address, ++fence_);
  // The entry's own room for the release: free as long as the entry is.
  const size_t tail = tails_at_ + 4 * kTailWords * put_;
  parts_.memory.StoreWords(tail, release.words().data(), release.words().size());
  AddEntry(parts_.memory.address + tail, release.words().size());
  for (hcq::FencedRing* ring : {&entries_, &words_, &data_}) ring->Fence(fence_);
  // A GPU that is still about an earlier doorbell may find the new end of the ring before the next
  // one, and what is there must be complete.
  gpu_.system().OrderStores();
  parts_.memory.Store<uint32_t>(UserdOffset(gpu_.limits()) + kUserdGpPut, put_);
  unflushed_ = false;
  gpu_.RingDoorbell(parts_.token);
}

absl::Status Channel::Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return Append(
      0, [&](const Block&) TG_REQUIRES(mutex_) { PushCopy(push_, to, from, bytes, NextStep()); });
}

absl::Status Channel::Fill(uint64_t to, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return Append(
      0, [&](const Block&) TG_REQUIRES(mutex_) { PushFill(push_, to, value, bytes, NextStep()); });
}

absl::Status Channel::Launch(const GridLaunch& launch) {
  const MutexLock lock(mutex_);
  const Gpu::Stacks stacks = gpu_.stacks();
  const bool tell = stacks.address != stacks_;
  TG_RETURN_IF_ERROR(
      Append(LaunchDataBytes(launch.function->kernel), [&](const Block& data) TG_REQUIRES(mutex_) {
        if (data.host != nullptr) WriteLaunchData(data, launch);
        if (tell) PushStacks(push_, stacks.address, stacks.bytes_per_tpc);
        PushLaunch(push_, data.address, NextStep());
      }));
  stacks_ = stacks.address;
  return absl::OkStatus();
}

absl::Status Channel::Replay(uint64_t address, uint64_t words) {
  const MutexLock lock(mutex_);
  if (const Gpu::Stacks stacks = gpu_.stacks(); stacks.address != stacks_) {
    TG_RETURN_IF_ERROR(Append(0, [&](const Block&) TG_REQUIRES(mutex_) {
      PushStacks(push_, stacks.address, stacks.bytes_per_tpc);
    }));
    stacks_ = stacks.address;
  }
  TG_RETURN_IF_ERROR(Reserve(0, 0).status());
  CloseSegment();
  AddEntry(address, words);
  unflushed_ = true;
  return absl::OkStatus();
}

absl::Status Channel::Release(uint64_t address, uint64_t value) {
  const MutexLock lock(mutex_);
  return Append(0, [&](const Block&) TG_REQUIRES(mutex_) { push_.Release(address, value); });
}

absl::Status Channel::Acquire(uint64_t address, uint64_t value) {
  const MutexLock lock(mutex_);
  return Append(0, [&](const Block&) TG_REQUIRES(mutex_) { push_.Acquire(address, value); });
}

absl::Status Channel::Flush() {
  const MutexLock lock(mutex_);
  if (!unflushed_) return absl::OkStatus();
  TG_RETURN_IF_ERROR(gpu_.Check());
  FlushLocked();
  return absl::OkStatus();
}

bool Channel::IsIdle() const {
  const MutexLock lock(mutex_);
  return !unflushed_ && Passed() >= fence_;
}

absl::Status Channel::Await(int64_t longest_ns) {
  TG_RETURN_IF_ERROR(Flush());
  hcq::SysOps& system = gpu_.system();
  const int64_t begin = system.Ns();
  while (!IsIdle()) {
    TG_RETURN_IF_ERROR(gpu_.Check());
    if (system.Ns() - begin > longest_ns) {
      return absl::UnavailableError(StrCat("a channel of ", gpu_.name(),
                                           " did not end its work in ",
                                           absl::FormatDuration(absl::Nanoseconds(longest_ns))));
    }
    system.Pause();
  }
  return absl::OkStatus();
}

int64_t Channel::waits() const {
  const MutexLock lock(mutex_);
  return waits_;
}

}  // namespace telegrad::nv
