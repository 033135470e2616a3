// A buffer is the caller's pointer and a reference that keeps its owner alive; copies run on the
// queue of a memory device.
#include "devices/npy/npy_device.h"

#include <atomic>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr char kName[] = "NPY:0";

class NpyMemory : public Memory {
 public:
  NpyMemory(void* data, int64_t size, bool writable, std::shared_ptr<const void> owner,
            std::shared_ptr<std::atomic<int64_t>> used)
      : Memory(data, size, writable), owner_(std::move(owner)), used_(std::move(used)) {
    used_->fetch_add(size);
  }
  ~NpyMemory() override { used_->fetch_sub(size()); }

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
};

class NpyDeviceImpl : public NpyDevice {
 public:
  explicit NpyDeviceImpl(const NpyOptions& options)
      : NpyDevice(kName, options.queue_capacity, options.wait_limit,
                  std::make_unique<CopyRunner>(kName)) {}

  int64_t memory_limit() const override { return INT64_MAX; }
  int64_t memory_used() const override { return used_->load(); }
  bool host_visible() const override { return true; }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t) override {
    return Unimplemented(name(), " has no memory of its own; import the caller's");
  }
  absl::StatusOr<std::shared_ptr<Memory>> Import(void* data, int64_t size,
                                                 std::shared_ptr<const void> owner) override {
    return Wrap(data, size, true, std::move(owner));
  }
  absl::StatusOr<std::shared_ptr<Memory>> ImportReadOnly(
      const void* data, int64_t size, std::shared_ptr<const void> owner) override {
    return Wrap(const_cast<void*>(data), size, false, std::move(owner));
  }

 private:
  absl::StatusOr<std::shared_ptr<Memory>> Wrap(void* data, int64_t size, bool writable,
                                               std::shared_ptr<const void> owner) {
    if (size < 0 || (data == nullptr && size > 0)) {
      return InvalidArgument(name(), ": an import of ", size, " bytes",
                             data == nullptr ? " at a null pointer" : "");
    }
    // An empty array has an address, too: null would say that the host cannot address it.
    static char nothing;
    return std::make_shared<NpyMemory>(data != nullptr ? data : &nothing, size, writable,
                                       std::move(owner), used_);
  }

  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace

std::unique_ptr<NpyDevice> OpenNpy(const NpyOptions& options) {
  return std::make_unique<NpyDeviceImpl>(options);
}

}  // namespace telegrad
