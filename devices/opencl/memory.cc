// Buffers of the driver, zeroed on a command queue of their own when they are made and
// subtracted from the limit until they are released. To zero gigabytes takes seconds, so it is done
// in parts, between which others have their turn, here and on the device. Pinned memory is
// allocated by the driver (CL_MEM_ALLOC_HOST_PTR), because only then it knows that it may copy from
// and to it itself.
#include "devices/opencl/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad::opencl {
namespace {

constexpr int64_t kZeroedAtOnce = int64_t{16} << 20;  // bytes, some 10 ms of a processor

class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) { turns_.Begin(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { turns_.End(); }

 private:
  Turns& turns_;
};

}  // namespace

OpenClMemory::~OpenClMemory() { owner_->Return(handle_, size()); }

PinnedMemory::~PinnedMemory() { owner_->ReturnPinned(handle_, host()); }

const Context& OpenClMemory::context() const { return owner_->context(); }

absl::Status OpenClMemory::Health() const {
  if (!context().discarded()) return absl::OkStatus();
  return DeviceLostError(
      StrCat("memory of ", context().title(), " was lost: ", ToStd(context().health().message())));
}

absl::StatusOr<std::shared_ptr<Memories>> Memories::Create(std::shared_ptr<Context> context,
                                                           int64_t limit, int64_t largest) {
  TG_ASSIGN_OR_RETURN(auto zeroing, CommandQueue::Create(context));
  return std::shared_ptr<Memories>(
      new Memories(std::move(context), limit, largest, std::move(zeroing)));
}

int64_t Memories::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::Alloc(int64_t size) {
  TG_RETURN_IF_ERROR(CheckSize(size));
  {
    const MutexLock lock(mutex_);
    if (size > limit_ - used_) {
      return ResourceExhausted(context_->name(), ": no room for ", size, " bytes: ", used_, " of ",
                               limit_, " are in use");
    }
    used_ += size;
  }
  const auto created = Create(CL_MEM_READ_WRITE, size);
  {
    const MutexLock lock(mutex_);
    if (created.ok()) {
      live_.insert(*created);
    } else {
      used_ -= size;
    }
  }
  TG_ASSIGN_OR_RETURN(const cl_mem memory, created);
  auto out = std::make_shared<OpenClMemory>(shared_from_this(), memory, size);
  TG_RETURN_IF_ERROR(Zero(memory, size));
  return out;
}

absl::Status Memories::CheckSize(int64_t size) const {
  if (size < 0) {
    return InvalidArgument(context_->name(), ": an allocation of ", size, " bytes");
  }
  TG_RETURN_IF_ERROR(context_->health());
  if (size <= largest_) return absl::OkStatus();
  return ResourceExhausted(context_->name(), ": ", size, " bytes in one piece; the driver gives ",
                           "at most ", largest_);
}

absl::StatusOr<cl_mem> Memories::Create(cl_bitfield flags, int64_t size) {
  cl_int error = CL_SUCCESS;
  const cl_mem memory = context_->api().clCreateBuffer(
      context_->handle(), flags, static_cast<size_t>(std::max<int64_t>(size, 1)), nullptr, &error);
  TG_RETURN_IF_ERROR(context_->Check("clCreateBuffer", error));
  return memory;
}

absl::StatusOr<std::shared_ptr<Memory>> Memories::AllocPinned(int64_t size) {
  TG_RETURN_IF_ERROR(CheckSize(size));
  TG_ASSIGN_OR_RETURN(const cl_mem memory, Create(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size));
  const auto at = Map(memory, size);
  if (!at.ok()) {
    if (!context_->stuck()) context_->api().clReleaseMemObject(memory);
    return at.status();
  }
  std::memset(*at, 0, static_cast<size_t>(size));
  return std::make_shared<PinnedMemory>(shared_from_this(), memory, *at, size);
}

absl::StatusOr<void*> Memories::Map(cl_mem memory, int64_t size) {
  const Turn turn(turns_);
  cl_int error = CL_SUCCESS;
  void* const at = context_->api().clEnqueueMapBuffer(
      zeroing_->handle(), memory, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0,
      static_cast<size_t>(std::max<int64_t>(size, 1)), 0, nullptr, nullptr, &error);
  TG_RETURN_IF_ERROR(context_->Check("clEnqueueMapBuffer", error));
  TG_RETURN_IF_ERROR(zeroing_->Await());
  return at;
}

// The driver keeps the buffer until it is no longer mapped.
void Memories::ReturnPinned(cl_mem memory, void* at) {
  if (context_->stuck()) return;
  {
    const Turn turn(turns_);
    (void)TG_CL_IN(*context_, clEnqueueUnmapMemObject, zeroing_->handle(), memory, at, 0, nullptr,
                   nullptr);
    (void)TG_CL_IN(*context_, clFlush, zeroing_->handle());
  }
  context_->api().clReleaseMemObject(memory);
}

absl::Status Memories::Zero(cl_mem memory, int64_t bytes) {
  const char zero = 0;
  for (int64_t at = 0; at < bytes; at += kZeroedAtOnce) {
    const Turn turn(turns_);
    TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clEnqueueFillBuffer, zeroing_->handle(), memory, &zero,
                                sizeof(zero), static_cast<size_t>(at),
                                static_cast<size_t>(std::min(kZeroedAtOnce, bytes - at)), 0,
                                nullptr, nullptr));
    TG_RETURN_IF_ERROR(zeroing_->Await());
  }
  return absl::OkStatus();
}

void Memories::Return(cl_mem memory, int64_t bytes) {
  bool release;
  {
    const MutexLock lock(mutex_);
    used_ -= bytes;
    release = live_.erase(memory) > 0;
  }
  if (release && !context_->stuck()) context_->api().clReleaseMemObject(memory);
}

void Memories::Discard() {
  absl::flat_hash_set<cl_mem> live;
  {
    const MutexLock lock(mutex_);
    live.swap(live_);
  }
  for (const cl_mem memory : live) context_->api().clReleaseMemObject(memory);
}

}  // namespace telegrad::opencl
