// Memory that ends, or begins, at an inaccessible page: an access one byte outside of it is a
// fault.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "devices/api/device.h"

namespace telegrad::testing {

enum class GuardAt { kBegin, kEnd };

class GuardedMemory : public Memory {
 public:
  // A copy of `bytes`; null if the system has no memory.
  static std::shared_ptr<GuardedMemory> Make(const std::vector<uint8_t>& bytes, GuardAt at) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes.size() + page - 1) / page * page;
    const size_t mapped = inside + 2 * page;
    void* const base = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    char* const first = static_cast<char*>(base) + page;
    if (inside > 0 && mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) {
      munmap(base, mapped);
      return nullptr;
    }
    char* const begin = at == GuardAt::kBegin ? first : first + inside - bytes.size();
    if (!bytes.empty()) std::memcpy(begin, bytes.data(), bytes.size());
    return std::shared_ptr<GuardedMemory>(
        new GuardedMemory(begin, static_cast<int64_t>(bytes.size()), base, mapped));
  }
  ~GuardedMemory() override { munmap(base_, mapped_); }

  std::vector<uint8_t> Bytes() const {
    const auto* begin = static_cast<const uint8_t*>(host());
    return {begin, begin + size()};
  }

 private:
  GuardedMemory(void* begin, int64_t size, void* base, size_t mapped)
      : Memory(begin, size), base_(base), mapped_(mapped) {}

  void* const base_;
  const size_t mapped_;
};

}  // namespace telegrad::testing
