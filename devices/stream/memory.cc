// Freed blocks are kept by size; a block serves a request if at most an eighth of it would be
// unused. Where memory is short, kept blocks are freed.
#include "devices/stream/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kWaste = 8;  // a block that is kept serves if at most an eighth of it is too much

}  // namespace

StreamMemory::~StreamMemory() {
  if (imported_) {
    owner_->Close(address_);
  } else {
    owner_->Return({address_, block_});
  }
}

absl::Status StreamMemory::Health() const {
  const Context& context = owner_->context();
  return context.discarded() ? context.Lost() : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Memories>> Memories::Create(std::shared_ptr<Context> context,
                                                           int64_t limit) {
  TG_ASSIGN_OR_RETURN(std::unique_ptr<Stream> zeroing, Stream::Create(context));
  std::shared_ptr<Memories> out(new Memories(std::move(context), limit, std::move(zeroing)));
  const MutexLock lock(out->zeroing_mutex_);
  TG_ASSIGN_OR_RETURN(out->zeroed_, out->context_->TakeEvent(kUntimed));
  return out;
}

Memories::~Memories() {
  zeroing_ = nullptr;
  if (zeroed_ != nullptr) context_->ReturnEvent(zeroed_, kUntimed);
  const auto kept = std::move(kept_);
  context_->Release([&] {
    for (const auto& [bytes, address] : kept) context_->calls().memory_free(address);
  });
}

int64_t Memories::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

int64_t Memories::footprint() const {
  const MutexLock lock(mutex_);
  return footprint_;
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::Alloc(int64_t size) {
  if (size < 0) {
    return InvalidArgument(context_->name(), ": an allocation of ", size, " bytes");
  }
  TG_RETURN_IF_ERROR(context_->health());
  TG_RETURN_IF_ERROR(context_->Enter());
  TG_ASSIGN_OR_RETURN(const Block block, Take(size));
  const auto zeroing = Zero(block, size);
  if (!zeroing.ok()) {
    Return(block);
    return zeroing.status();
  }
  return std::make_shared<StreamMemory>(shared_from_this(), block.address, block.bytes, size,
                                        *zeroing);
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::Import(std::string_view handle, int64_t size) {
  const Calls& calls = context_->calls();
  MemoryHandle opaque;
  if (calls.memory_import.function == nullptr) {
    return Unimplemented(context_->name(), " opens no memory of other processes");
  }
  if (handle.size() != sizeof(opaque.bytes)) {
    return InvalidArgument(context_->name(), ": a memory handle of ", handle.size(),
                           " bytes; expected ", sizeof(opaque.bytes));
  }
  if (size < 1) return InvalidArgument(context_->name(), ": ", size, " bytes of shared memory");
  std::memcpy(opaque.bytes, handle.data(), handle.size());
  TG_RETURN_IF_ERROR(context_->health());
  TG_RETURN_IF_ERROR(context_->Enter());
  // Context::Check could take an error for the end of the device, and this one is of the handle.
  const auto refused = [&](const char* call, Result result) {
    const absl::Status status = context_->driver().Check(call, result);
    return InvalidArgument(context_->name(),
                           ": the memory handle cannot be opened: ", ToStd(status.message()));
  };
  Address address = 0;
  Result result = calls.memory_import(&address, opaque, kLazyPeerAccess);
  if (result != kSuccess) return refused(calls.memory_import.name, result);
  auto out = std::make_shared<StreamMemory>(shared_from_this(), address, size);
  Address base = 0;
  size_t bytes = 0;
  result = calls.memory_range(&base, &bytes, address);
  if (result != kSuccess) return refused(calls.memory_range.name, result);
  // The address is the allocation's first, whatever address the handle was made of.
  if (address != base || static_cast<uint64_t>(size) > bytes) {
    return InvalidArgument(context_->name(), ": the memory of the handle has ", bytes,
                           " bytes, not ", size);
  }
  return out;
}

void Memories::Close(Address address) const {
  context_->Release([&] { context_->calls().memory_close(address); });
}

absl::Status Memories::HoldStacks(int64_t bytes, int64_t threads) {
  int64_t all = 0;
  if (!CheckedMul(bytes, threads, &all)) all = INT64_MAX;
  {
    const MutexLock lock(mutex_);
    const int64_t more = all - stacks_;
    if (more <= 0) return absl::OkStatus();
    if (more > limit_ - used_) {
      return ResourceExhausted(context_->name(), ": no room for a program with ", bytes,
                               " bytes of stack for each of ", threads, " threads: ", used_, " of ",
                               limit_, " bytes are in use");
    }
    stacks_ = all;
    used_ += more;
    footprint_ += more;
  }
  const MutexLock growing(grow_);
  TG_RETURN_IF_ERROR(context_->Enter());
  return Shrink(limit_);
}

absl::StatusOr<Memories::Block> Memories::Take(int64_t size) {
  const auto no_room = [&](int64_t used) {
    return ResourceExhausted(context_->name(), ": no room for ", size, " bytes: ", used, " of ",
                             limit_, " are in use");
  };
  {
    const MutexLock lock(mutex_);
    if (size > limit_ - used_) return no_room(used_);
    const int64_t bytes = (std::max<int64_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
    const auto fit = kept_.lower_bound(bytes);
    if (fit != kept_.end() && fit->first - bytes <= fit->first / kWaste &&
        fit->first <= limit_ - used_) {
      const Block block{fit->second, fit->first};
      kept_.erase(fit);
      used_ += block.bytes;
      return block;
    }
    if (bytes > limit_ - used_) return no_room(used_);
    used_ += bytes;
    size = bytes;
  }
  auto block = Grow(size);
  if (!block.ok()) {
    const MutexLock lock(mutex_);
    used_ -= size;
  }
  return block;
}

absl::StatusOr<Memories::Block> Memories::Grow(int64_t bytes) {
  const MutexLock growing(grow_);
  TG_RETURN_IF_ERROR(Shrink(limit_ - bytes));
  Block block{0, bytes};
  absl::Status status = TG_STREAM(*context_, memory_allocate, &block.address, bytes);
  if (absl::IsResourceExhausted(status)) {
    TG_RETURN_IF_ERROR(Shrink(0));
    status = TG_STREAM(*context_, memory_allocate, &block.address, bytes);
  }
  const MutexLock lock(mutex_);
  if (absl::IsResourceExhausted(status)) {
    return ResourceExhausted(ToStd(status.message()), ": no room for ", bytes, " bytes, though of ",
                             limit_, " only ", used_ - bytes,
                             " are in use: others have taken the GPU's memory");
  }
  TG_RETURN_IF_ERROR(status);
  footprint_ += bytes;
  return block;
}

absl::Status Memories::Shrink(int64_t left) {
  std::vector<Block> dropped;
  {
    const MutexLock lock(mutex_);
    while (footprint_ > left && !kept_.empty()) {
      const auto largest = std::prev(kept_.end());
      footprint_ -= largest->first;
      dropped.push_back({largest->second, largest->first});
      kept_.erase(largest);
    }
  }
  if (dropped.empty()) return absl::OkStatus();
  // The zeroing may still be at one of them.
  const absl::Status idle = TG_STREAM(*context_, stream_synchronize, zeroing_->handle());
  if (!idle.ok()) {
    const MutexLock lock(mutex_);
    for (const Block& block : dropped) {
      footprint_ += block.bytes;
      kept_.emplace(block.bytes, block.address);
    }
    return idle;
  }
  absl::Status freed;
  for (const Block& block : dropped) freed.Update(TG_STREAM(*context_, memory_free, block.address));
  return freed;
}

absl::StatusOr<uint64_t> Memories::Zero(const Block& block, int64_t bytes) {
  const MutexLock lock(zeroing_mutex_);
  if (bytes == 0) return 0;
  TG_RETURN_IF_ERROR(TG_STREAM(*context_, set_bytes, block.address, 0, bytes, zeroing_->handle()));
  return ++zeroings_;
}

absl::StatusOr<uint64_t> Memories::AwaitZeroed(Context& waiter, StreamHandle stream) {
  const MutexLock lock(zeroing_mutex_);
  TG_RETURN_IF_ERROR(context_->Enter());
  TG_RETURN_IF_ERROR(TG_STREAM(*context_, event_record, zeroed_, zeroing_->handle()));
  TG_RETURN_IF_ERROR(waiter.Enter());
  TG_RETURN_IF_ERROR(TG_STREAM(waiter, stream_wait_event, stream, zeroed_, 0));
  return zeroings_;
}

void Memories::Return(const Block& block) {
  const MutexLock lock(mutex_);
  used_ -= block.bytes;
  kept_.emplace(block.bytes, block.address);
}

}  // namespace telegrad::stream
