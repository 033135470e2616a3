// Memory that processes share: a memfd that is sealed, so that no process can shrink it while
// others use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// `size` bytes, zero. RESOURCE_EXHAUSTED where the system has none.
absl::StatusOr<UniqueFd> CreateSharedFile(const char* name, int64_t size);

class SharedMapping {
 public:
  // All of the file, which must have `size` bytes. INVALID_ARGUMENT where it has not.
  static absl::StatusOr<std::unique_ptr<SharedMapping>> Map(int fd, int64_t size);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  char* base() const { return base_; }
  int64_t size() const { return size_; }

 private:
  SharedMapping(char* base, int64_t size) : base_(base), size_(size) {}
  char* const base_;
  const int64_t size_;
};

// Over a unix socket, with one byte. `Receive` fails with DATA_LOSS where not exactly `count` come.
absl::Status SendDescriptors(int socket, std::span<const int> descriptors);
absl::StatusOr<std::vector<UniqueFd>> ReceiveDescriptors(int socket, size_t count);

}  // namespace telegrad
