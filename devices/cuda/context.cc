// The primary context of the device, which other libraries of the process would share.
#include "devices/cuda/context.h"

#include <utility>

#include "devices/api/keep_for_driver.h"
#include "engine/base/status.h"

namespace telegrad::cuda {
namespace {

// Of which the API reference says that the context, or the process, has to be made anew: "this
// leaves the process in an inconsistent state and any further CUDA work will return the same
// error".
bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<Context>> Context::Open(std::shared_ptr<const Library> library,
                                                       CUdevice device, std::string name) {
  CUcontext handle = nullptr;
  TG_RETURN_IF_ERROR(TG_CUDA(*library, cuDevicePrimaryCtxRetain, &handle, device));
  return std::shared_ptr<Context>(new Context(std::move(library), device, handle, std::move(name)));
}

absl::Status Context::Enter() { return TG_CUDA(*this, cuCtxSetCurrent, handle_); }

Context::~Context() {
  EnterToRelease();
  for (const CUevent event : timed_) api().cuEventDestroy_v2(event);
  for (const CUevent event : untimed_) api().cuEventDestroy_v2(event);
  api().cuCtxSetCurrent(nullptr);
  api().cuDevicePrimaryCtxRelease_v2(device_);
}

absl::Status Context::Check(std::string_view call, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const absl::Status status = library_->Check(call, result);
  if (IsSticky(result)) {
    {
      const std::lock_guard lock(mutex_);
      dead_ = true;
    }
    Fail(absl::UnavailableError(
        StrCat(name_, " failed and takes no more work: ", ToStd(status.message()))));
    return health();
  }
  return absl::Status(status.code(), StrCat(name_, ": ", ToStd(status.message())));
}

void Context::Fail(const absl::Status& why, bool stuck) {
  std::vector<std::shared_ptr<Bell>> bells;
  {
    const std::lock_guard lock(mutex_);
    if (health_.ok()) health_ = why;
    stuck_ |= stuck;
    bells = bells_;
  }
  // The GPU may write to its memory and ring its bells as long as the process lives.
  if (stuck) KeepForDriver(shared_from_this());
  for (const auto& bell : bells) bell->Ring();
}

absl::Status Context::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

bool Context::stuck() const {
  const std::lock_guard lock(mutex_);
  return stuck_;
}

bool Context::dead() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

void Context::AddBell(std::shared_ptr<Bell> bell) {
  const std::lock_guard lock(mutex_);
  bells_.push_back(std::move(bell));
}

absl::StatusOr<CUevent> Context::TakeEvent(unsigned int flags) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<CUevent>& free = FreeEvents(flags);
    if (!free.empty()) {
      const CUevent event = free.back();
      free.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  TG_RETURN_IF_ERROR(TG_CUDA(*this, cuEventCreate, &event, flags));
  return event;
}

void Context::ReturnEvent(CUevent event, unsigned int flags) {
  const std::lock_guard lock(mutex_);
  FreeEvents(flags).push_back(event);
}

absl::StatusOr<std::unique_ptr<Stream>> Stream::Create(std::shared_ptr<Context> context) {
  TG_RETURN_IF_ERROR(context->Enter());
  CUstream handle = nullptr;
  TG_RETURN_IF_ERROR(TG_CUDA(*context, cuStreamCreate, &handle, CU_STREAM_NON_BLOCKING));
  return std::unique_ptr<Stream>(new Stream(std::move(context), handle));
}

Stream::~Stream() {
  if (context_->stuck()) return;
  context_->EnterToRelease();
  context_->api().cuStreamSynchronize(handle_);
  context_->api().cuStreamDestroy_v2(handle_);
}

}  // namespace telegrad::cuda
