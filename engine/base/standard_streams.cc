#include "engine/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/base/strings.h"

namespace telegrad {

void OpenStandardDescriptors() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd)) {
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

absl::Status FlushOutput() {
  const bool failed = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed) return absl::OkStatus();
  return absl::DataLossError(StrCat("cannot write to the standard output",
                                    failed ? "" : StrCat(": ", std::strerror(errno)),
                                    "; what is there is not complete"));
}

}  // namespace telegrad
