// Memory that processes share: a memfd that is sealed, so that no process can shrink it while
// others use it. Another process gets it over a socket, or opens it by a handle: text that names
// process and descriptor, and a random number that is in the file's name, so that only who was
// given the handle opens the file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// `size` bytes, zero. RESOURCE_EXHAUSTED where the system has none.
absl::StatusOr<UniqueFd> CreateSharedFile(const char* name, int64_t size);

struct ExportedFile {
  UniqueFd file;
  std::string handle;  // for as long as the file is open here
};
absl::StatusOr<ExportedFile> CreateExportedFile(int64_t size);
// INVALID_ARGUMENT for a handle that names no such file (any more).
absl::StatusOr<UniqueFd> OpenExportedFile(std::string_view handle);
// The process that a handle names; 0 where it names none.
pid_t ExportingProcess(std::string_view handle);
// The size of a file in bytes; -1 where there is none.
int64_t SizeOf(const UniqueFd& file);

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
