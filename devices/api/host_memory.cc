// Aligned memory of the heap.
#include "devices/api/host_memory.h"

#include <cstdlib>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kAlignment = 64;

class HostMemory final : public Memory {
 public:
  HostMemory(void* at, int64_t size) : Memory(at, size) {}
  ~HostMemory() override { std::free(host()); }
};

}  // namespace

absl::StatusOr<std::shared_ptr<Memory>> AllocHostMemory(int64_t size) {
  if (size < 0) return InvalidArgument("an allocation of ", size, " bytes");
  const size_t rounded = (static_cast<size_t>(size) / kAlignment + 1) * kAlignment;
  void* const at = std::aligned_alloc(kAlignment, rounded);
  if (at == nullptr) return ResourceExhausted("the host has no room for ", size, " bytes now");
  return std::make_shared<HostMemory>(at, size);
}

}  // namespace telegrad
