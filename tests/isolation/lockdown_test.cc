// Tries, in a process that has installed the worker's restrictions, the system calls that a worker
// may no longer make.
#include "devices/worker/lockdown.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/sanitizers.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

// What `attempt` ends with in a locked process: 0, or errno.
int Locked(int (*attempt)()) {
  const pid_t child = fork();
  if (child == 0) {
    if (!LockDown().ok()) _exit(200);
    errno = 0;
    const int result = attempt();
    _exit(result < 0 ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

TEST(LockDown, TakesAllButComputing) {
  if (kThreadSanitizer) GTEST_SKIP() << "LockDown does nothing under ThreadSanitizer";
  EXPECT_EQ(Locked([] { return open("/dev/null", O_RDONLY); }), EPERM);
  EXPECT_EQ(Locked([] { return open("/tmp/telegrad-lockdown", O_CREAT | O_WRONLY, 0600); }), EPERM);
  EXPECT_EQ(Locked([] { return socket(AF_INET, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(Locked([] { return socket(AF_UNIX, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(Locked([] { return kill(getppid(), 0); }), EPERM);
  EXPECT_EQ(Locked([] { return static_cast<int>(syscall(SYS_tgkill, getppid(), getppid(), 0)); }),
            EPERM);
  EXPECT_EQ(Locked([] { return static_cast<int>(ptrace(PTRACE_ATTACH, getppid(), 0, 0)); }), EPERM);
  EXPECT_EQ(Locked([] { return static_cast<int>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }),
            EPERM);
  EXPECT_EQ(Locked([] { return execl("/bin/true", "true", nullptr); }), EPERM);
  EXPECT_EQ(
      Locked([] {
        char byte;
        iovec here{&byte, 1}, there{&byte, 1};
        return static_cast<int>(syscall(SYS_process_vm_readv, getppid(), &here, 1, &there, 1, 0));
      }),
      EPERM);
}

TEST(LockDown, LeavesMemoryAndSignalsToItself) {
  EXPECT_EQ(Locked([] {
              void* const at =
                  mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              if (at == MAP_FAILED) return -1;
              return mprotect(at, 4096, PROT_READ | PROT_EXEC);
            }),
            0);
  EXPECT_EQ(Locked([] { return static_cast<int>(syscall(SYS_tgkill, getpid(), gettid(), 0)); }), 0);
}

}  // namespace
}  // namespace telegrad
