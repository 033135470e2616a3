// lld reads and writes files only. Here these are a file in memory and a pipe: a pipe, because lld
// replaces a regular file by one beside it. Its state is global to the process.
#include "engine/compile/code_object_link.h"

#include "engine/base/status.h"

#ifdef TELEGRAD_LLD

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace telegrad {
namespace {

std::string PathOf(const UniqueFd& fd) { return StrCat("/proc/self/fd/", fd.get()); }

absl::Status NoFile(std::string_view what) {
  return Internal("cannot link a code object: ", what, ": ", std::strerror(errno));
}

absl::StatusOr<UniqueFd> InMemory(const std::string& bytes) {
  UniqueFd file(memfd_create("telegrad-object", MFD_CLOEXEC));
  if (file.get() < 0) return NoFile("memfd_create");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return NoFile("write");
    done += static_cast<size_t>(n);
  }
  return file;
}

// All that is written to the pipe until its last writer closes it.
std::string ReadAll(int fd) {
  std::string out;
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return out;
    out.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace

absl::StatusOr<std::string> LinkCodeObject(const std::string& object) {
  static Mutex mutex;
  static bool usable TG_GUARDED_BY(mutex) = true;  // lld says when it must not be called again
  const MutexLock lock(mutex);
  if (!usable) return Internal("cannot link a code object: lld has crashed in this process");
  TG_ASSIGN_OR_RETURN(const UniqueFd in, InMemory(object));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return NoFile("pipe2");
  const UniqueFd out(ends[0]);
  UniqueFd writer(ends[1]);
  std::string linked, said;
  std::thread reader([&] { linked = ReadAll(out.get()); });
  const std::string from = PathOf(in), to = PathOf(writer);
  const std::array<const char*, 8> arguments = {"ld.lld",          "-shared",     "--no-undefined",
                                                "--build-id=none", "--threads=1", "-o",
                                                to.c_str(),        from.c_str()};
  llvm::raw_string_ostream text(said);
  const lld::DriverDef driver{lld::Gnu, &lld::elf::link};
  const lld::Result result = lld::lldMain(arguments, text, text, {driver});
  writer = UniqueFd();
  reader.join();
  usable = result.canRunAgain;
  if (result.retCode != 0 || linked.empty()) {
    return Internal("cannot link a code object: ", said.empty() ? "lld says nothing" : said);
  }
  return linked;
}

}  // namespace telegrad

#else

namespace telegrad {

absl::StatusOr<std::string> LinkCodeObject(const std::string&) {
  return Unimplemented("this build has no linker for code of AMD's GPUs (lld)");
}

}  // namespace telegrad

#endif
