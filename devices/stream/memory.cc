// Freed blocks of the library's are kept by size; a block serves a request if at most an eighth of
// it would be unused. Where memory is short, kept blocks go back to the library, by the thread that
// needs the room; one for which the library then has none waits until the others have given back
// theirs.
#include "devices/stream/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "devices/api/keep_for_driver.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

constexpr int64_t kAlignment = VirtualArena::kAlignment;  // the library's is the same, or more
constexpr int64_t kPage = 4096;
constexpr int64_t kWaste = 8;  // a block that is kept serves if at most an eighth of it is too much

}  // namespace

StreamMemory::~StreamMemory() {
  if (kind() == MemoryKind::kImported) {
    owner_->Close(address_);
  } else {
    owner_->Return({address_, block_}, kind());
  }
}

// Whole pages, because it is those that a driver locks.
namespace {

absl::Status LockPages(Context& context, void* at, int64_t bytes) {
  TG_RETURN_IF_ERROR(context.Enter());
  return TG_STREAM(context, host_register, at, static_cast<size_t>(bytes), kPortable);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Memory>> PinnedMemory::Lock(const std::shared_ptr<Context>& context,
                                                           int64_t size, bool zeroed) {
  int64_t bytes = 0;
  if (size < 0 || !CheckedAdd(std::max<int64_t>(size, 1), kPage - 1, &bytes)) {
    return InvalidArgument(context->name(), ": an allocation of ", size, " bytes");
  }
  TG_RETURN_IF_ERROR(context->health());
  bytes = bytes / kPage * kPage;
  void* const at = std::aligned_alloc(kPage, static_cast<size_t>(bytes));
  if (at == nullptr) return ResourceExhausted("the host has no room for ", size, " bytes now");
  std::shared_ptr<void> pages(at, &std::free);
  if (zeroed) std::memset(at, 0, static_cast<size_t>(bytes));
  TG_RETURN_IF_ERROR(LockPages(*context, at, bytes));
  return std::make_shared<PinnedMemory>(context, std::move(pages), size);
}

absl::StatusOr<std::shared_ptr<Memory>> PinnedMemory::LockAt(
    const std::shared_ptr<Context>& context, std::shared_ptr<void> pages, int64_t size) {
  if (size <= 0 || size % kPage != 0 || reinterpret_cast<uintptr_t>(pages.get()) % kPage != 0) {
    return InvalidArgument(context->name(), ": ", size, " bytes to lock that are no whole pages");
  }
  TG_RETURN_IF_ERROR(context->health());
  TG_RETURN_IF_ERROR(LockPages(*context, pages.get(), size));
  return std::make_shared<PinnedMemory>(context, std::move(pages), size);
}

// What the driver does not give back stays locked, and is used for nothing else: until the context
// is reset where the GPU has failed, else for good, for others may hold the context, too.
PinnedMemory::~PinnedMemory() {
  bool is_free = context_->discarded();
  context_->ReleaseUnlocked(
      [&] { is_free = context_->calls().host_unregister(host()) == kSuccess; });
  if (is_free) return;
  if (!context_->health().ok()) {
    context_->Keep(std::move(pages_));
  } else {
    KeepForDriver(std::move(pages_));
  }
}

absl::Status StreamMemory::Health() const {
  const Context& context = owner_->context();
  return context.discarded() ? context.Lost() : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Memories>> Memories::Create(std::shared_ptr<Context> context,
                                                           int64_t limit, bool is_virtual) {
  TG_ASSIGN_OR_RETURN(std::unique_ptr<Stream> zeroing, Stream::Create(context));
  std::shared_ptr<Memories> out(new Memories(context, limit, std::move(zeroing)));
  if (is_virtual) {
    auto arena = VirtualArena::Create(context, limit, out->zeroing_->handle());
    if (arena.ok()) out->arena_ = *std::move(arena);  // else all memory is the library's
    TG_RETURN_IF_ERROR(context->health());
  }
  const MutexLock lock(out->zeroing_mutex_);
  TG_ASSIGN_OR_RETURN(out->zeroed_, out->context_->TakeEvent(kUntimed));
  return out;
}

Memories::~Memories() {
  zeroing_ = nullptr;
  if (zeroed_ != nullptr) context_->ReturnEvent(zeroed_, kUntimed);
  const auto kept = std::move(kept_);
  const auto retired = std::move(retired_);
  if (context_->stuck()) context_->Keep(arena_);
  context_->ReleaseUnlocked([&] {
    for (const auto& [bytes, address] : kept) context_->calls().memory_free(address);
    for (const Block& block : retired) context_->calls().memory_free(block.address);
    if (arena_ != nullptr) arena_->Drop();
  });
}

int64_t Memories::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

int64_t Memories::BytesBesideArena() const {
  const MutexLock lock(mutex_);
  return footprint_;
}

int64_t Memories::footprint() const { return BytesBesideArena() + ArenaBytes(); }

bool Memories::Makes(MemoryKind kind) const {
  const Calls& calls = context_->calls();
  switch (kind) {
    case MemoryKind::kDevice:
      return true;
    case MemoryKind::kPinnedHost:
      return calls.host_register.function != nullptr;
    case MemoryKind::kExported:
      return calls.memory_export.function != nullptr;
    case MemoryKind::kImported:
      return calls.memory_import.function != nullptr;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::AllocPinned(int64_t size) {
  return PinnedMemory::Lock(context_, size, /*zeroed=*/true);
}

absl::StatusOr<std::string> Memories::Export(const Memory& memory) {
  const auto* const own = dynamic_cast<const StreamMemory*>(&memory);
  if (own == nullptr || &own->owner() != this || own->kind() != MemoryKind::kExported) {
    return InvalidArgument(context_->name(), ": memory of kind ", NameOf(memory.kind()),
                           " is exported by the device that allocated it as exported memory");
  }
  MemoryHandle handle;
  TG_RETURN_IF_ERROR(context_->Enter());
  // What others see is zero, or what was written since.
  TG_RETURN_IF_ERROR(TG_STREAM(*context_, stream_synchronize, zeroing_->handle()));
  TG_RETURN_IF_ERROR(TG_STREAM(*context_, memory_export, &handle, own->address()));
  return std::string(handle.bytes, sizeof(handle.bytes));
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::Alloc(MemoryKind kind, int64_t size) {
  if (size < 0) {
    return InvalidArgument(context_->name(), ": an allocation of ", size, " bytes");
  }
  TG_RETURN_IF_ERROR(context_->health());
  TG_RETURN_IF_ERROR(context_->Enter());
  TG_ASSIGN_OR_RETURN(const Block block,
                      kind == MemoryKind::kExported ? TakeNew(kind, size) : Take(size));
  const auto zeroing = Zero(block, size);
  if (!zeroing.ok()) {
    Return(block, kind);
    return zeroing.status();
  }
  return std::make_shared<StreamMemory>(kind, shared_from_this(), block.address, block.bytes, size,
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
  auto out = std::make_shared<StreamMemory>(MemoryKind::kImported, shared_from_this(), address,
                                            /*block=*/0, size, /*zeroing=*/0);
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
  context_->ReleaseUnlocked([&] { context_->calls().memory_close(address); });
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
  TG_RETURN_IF_ERROR(context_->Enter());
  return Shrink(limit_);
}

absl::StatusOr<std::shared_ptr<const void>> Memories::HoldCode(int64_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  {
    const MutexLock lock(mutex_);
    if (bytes > limit_ - used_) {
      return ResourceExhausted(context_->name(), ": no room for a program with ", bytes,
                               " bytes of code: ", used_, " of ", limit_, " bytes are in use");
    }
    used_ += bytes;
    footprint_ += bytes;
  }
  std::shared_ptr<const void> out(this, [weak = weak_from_this(), bytes](const void*) {
    if (const auto memories = weak.lock()) memories->DropCode(bytes);
  });
  TG_RETURN_IF_ERROR(context_->Enter());
  TG_RETURN_IF_ERROR(Shrink(limit_));
  return out;
}

void Memories::DropCode(int64_t bytes) {
  const MutexLock lock(mutex_);
  used_ -= bytes;
  footprint_ -= bytes;
}

absl::Status Memories::NoRoomLocked(int64_t size) const {
  return ResourceExhausted(context_->name(), ": no room for ", size, " bytes: ", used_, " of ",
                           limit_, " are in use");
}

absl::StatusOr<Memories::Block> Memories::Take(int64_t size) {
  {
    const MutexLock lock(mutex_);
    if (size > limit_ - used_) return NoRoomLocked(size);
    const int64_t bytes = (std::max<int64_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
    const auto fit = kept_.lower_bound(bytes);
    if (fit != kept_.end() && fit->first - bytes <= fit->first / kWaste &&
        fit->first <= limit_ - used_) {
      const Block block{fit->second, fit->first};
      kept_.erase(fit);
      used_ += block.bytes;
      return block;
    }
  }
  return TakeNew(MemoryKind::kDevice, size);
}

// What others open is an allocation of the library's, for that alone has a handle that is bytes.
absl::StatusOr<Memories::Block> Memories::TakeNew(MemoryKind kind, int64_t size) {
  int64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    if (size > limit_ - used_) return NoRoomLocked(size);
    bytes = (std::max<int64_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > limit_ - used_) return NoRoomLocked(size);
    used_ += bytes;
  }
  auto block =
      kind == MemoryKind::kDevice && arena_ != nullptr ? TakeFromArena(bytes) : Grow(bytes);
  if (!block.ok()) {
    const MutexLock lock(mutex_);
    used_ -= bytes;
  }
  return block;
}

absl::StatusOr<Memories::Block> Memories::TakeFromArena(int64_t bytes) {
  const auto take = [&] { return arena_->Take(bytes, limit_ - BytesBesideArena()); };
  auto address = take();
  if (absl::IsResourceExhausted(address.status())) {
    TG_RETURN_IF_ERROR(GiveBackKept());
    address = take();
  }
  if (address.ok()) return Block{*address, bytes};
  if (absl::IsResourceExhausted(address.status())) return OthersTookIt(address.status(), bytes);
  TG_RETURN_IF_ERROR(context_->health());
  return Grow(bytes);  // the driver maps none
}

// The bytes count before the library has them, so that what other threads allocate meanwhile stays
// within the limit, too.
absl::StatusOr<Memories::Block> Memories::Grow(int64_t bytes) {
  {
    const MutexLock lock(mutex_);
    footprint_ += bytes;
  }
  const auto address = AllocateFromLibrary(bytes);
  if (address.ok()) return Block{*address, bytes};
  {
    const MutexLock lock(mutex_);
    footprint_ -= bytes;
  }
  if (!absl::IsResourceExhausted(address.status())) return address.status();
  return OthersTookIt(address.status(), bytes);
}

absl::Status Memories::OthersTookIt(const absl::Status& status, int64_t bytes) const {
  const MutexLock lock(mutex_);
  return ResourceExhausted(ToStd(status.message()), ": no room for ", bytes, " bytes, though of ",
                           limit_, " only ", used_ - bytes,
                           " are in use: others have taken the GPU's memory");
}

absl::StatusOr<Address> Memories::AllocateFromLibrary(int64_t bytes) {
  TG_RETURN_IF_ERROR(Shrink(limit_));
  Address address = 0;
  absl::Status status = TG_STREAM(*context_, memory_allocate, &address, bytes);
  if (absl::IsResourceExhausted(status)) {
    TG_RETURN_IF_ERROR(GiveBackKept());
    status = TG_STREAM(*context_, memory_allocate, &address, bytes);
  }
  TG_RETURN_IF_ERROR(status);
  return address;
}

absl::Status Memories::Shrink(int64_t left) {
  if (arena_ != nullptr) TG_RETURN_IF_ERROR(arena_->Shrink(left - BytesBesideArena()));
  std::vector<Block> dropped;
  size_t retired = 0;  // the first of them
  {
    const MutexLock lock(mutex_);
    for (const Block& block : retired_) footprint_ -= block.bytes;
    dropped.swap(retired_);
    retired = dropped.size();
    const int64_t of_arena = ArenaBytes();
    while (footprint_ + of_arena > left && !kept_.empty()) {
      const auto largest = std::prev(kept_.end());
      footprint_ -= largest->first;
      dropped.push_back({largest->second, largest->first});
      kept_.erase(largest);
    }
    if (dropped.empty()) return absl::OkStatus();
    ++frees_;
  }
  // The zeroing may still be at one of them.
  const absl::Status idle = TG_STREAM(*context_, stream_synchronize, zeroing_->handle());
  absl::Status freed = idle;
  if (idle.ok()) {
    for (const Block& block : dropped) {
      freed.Update(TG_STREAM(*context_, memory_free, block.address));
    }
  }
  const MutexLock lock(mutex_);
  if (!idle.ok()) {
    for (size_t i = 0; i < dropped.size(); ++i) {
      footprint_ += dropped[i].bytes;
      if (i < retired) {
        retired_.push_back(dropped[i]);
      } else {
        kept_.emplace(dropped[i].bytes, dropped[i].address);
      }
    }
  }
  --frees_;
  freed_.notify_all();
  return freed;
}

absl::Status Memories::GiveBackKept() {
  TG_RETURN_IF_ERROR(Shrink(0));
  AwaitFrees();
  return absl::OkStatus();
}

void Memories::AwaitFrees() {
  ReleasableLock lock(mutex_);
  while (frees_ > 0) freed_.wait(lock);
}

// The context stays meanwhile. Of a GPU that is stuck or lost nothing is given back.
absl::StatusOr<int64_t> Memories::GiveBack() {
  absl::StatusOr<int64_t> bytes = 0;
  if (arena_ == nullptr || !context_->health().ok()) return bytes;
  context_->Release([&] { bytes = arena_->GiveBackIdle(); });
  return bytes;
}

absl::StatusOr<int64_t> Memories::GiveBackAll() {
  const int64_t before = footprint();
  absl::Status status;
  TG_RETURN_IF_ERROR(context_->health());
  context_->ReleaseUnlocked([&] { status = GiveBackKept(); });
  TG_RETURN_IF_ERROR(status);
  return std::max<int64_t>(before - footprint(), 0);
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

// What others may still have open is no other's memory.
void Memories::Return(const Block& block, MemoryKind kind) {
  const bool of_arena = arena_ != nullptr && arena_->Has(block.address);
  if (of_arena) arena_->Return(block.address, block.bytes);
  const MutexLock lock(mutex_);
  used_ -= block.bytes;
  if (of_arena) return;
  if (kind == MemoryKind::kExported) {
    retired_.push_back(block);
  } else {
    kept_.emplace(block.bytes, block.address);
  }
}

}  // namespace telegrad::stream
