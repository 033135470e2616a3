// Tries, in a process that has installed the worker's restrictions, the system calls that a worker
// may no longer make.
#include "devices/worker/lockdown.h"

#include <asm/ioctls.h>
#include <asm/sockios.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>

#include "engine/base/sanitizers.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

// What `attempt` ends with in a process that `restrict` has restricted: 0, or errno.
int In(absl::Status (*restrict)(), int (*attempt)()) {
  const pid_t child = fork();
  if (child == 0) {
    if (!restrict().ok()) _exit(200);
    errno = 0;
    const int result = attempt();
    _exit(result < 0 ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

int Locked(int (*attempt)()) { return In(&LockDown, attempt); }
int Confined(int (*attempt)()) { return In(&ConfineDriver, attempt); }

int Call(long number, long first = 0, long second = 0, long third = 0) {
  return static_cast<int>(syscall(number, first, second, third, 0, 0, 0));
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

TEST(ConfineDriver, TakesSocketsAndOtherProcesses) {
  EXPECT_EQ(Confined([] { return socket(AF_INET, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return socket(AF_INET6, SOCK_DGRAM, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return socket(AF_NETLINK, SOCK_RAW, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return socket(AF_PACKET, SOCK_RAW, 0); }), EPERM);
  // Which opens sockets without the call of that name.
  EXPECT_EQ(Confined([] { return Call(SYS_io_uring_setup, 1, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return kill(getppid(), 0); }), EPERM);
  EXPECT_EQ(Confined([] { return kill(-1, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_tgkill, getppid(), getppid(), 0); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_rt_sigqueueinfo, getppid(), 0, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return static_cast<int>(ptrace(PTRACE_ATTACH, getppid(), 0, 0)); }),
            EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_process_vm_readv, getppid()); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_tkill, getppid(), 0); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_prlimit64, getppid(), RLIMIT_NOFILE); }), EPERM);
  // Signals by way of a descriptor's events.
  EXPECT_EQ(Confined([] { return fcntl(0, F_SETOWN, getppid()); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_fcntl, 0, F_SETOWN_EX, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_ioctl, 0, FIOSETOWN, 0); }), EPERM);
  // Services of this machine know a user by its number.
  EXPECT_EQ(Confined([] {
              const sockaddr_un to{.sun_family = AF_UNIX, .sun_path = "/nowhere"};
              return connect(socket(AF_UNIX, SOCK_STREAM, 0),
                             reinterpret_cast<const sockaddr*>(&to), sizeof(to));
            }),
            EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_fsopen); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_unshare, 0); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_mount); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_clone, CLONE_NEWUSER | SIGCHLD); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_clone, CLONE_NEWNET | SIGCHLD); }), EPERM);
  EXPECT_EQ(Confined([] { return Call(SYS_clone3); }), ENOSYS);
#if defined(__x86_64__)
  // By the numbers of x32.
  EXPECT_EQ(Confined([] { return Call(0x40000000 + SYS_socket, AF_INET, SOCK_STREAM, 0); }), EPERM);
#endif
}

// Memory of the process that started it, and of others, is not reached by way of files either.
TEST(ConfineDriver, TakesFilesOfOthersMemory) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    GTEST_SKIP() << "the kernel has no Landlock";
  }
  const auto open_parents = [] {
    const std::string path = "/proc/" + std::to_string(getppid()) + "/mem";
    return open(path.c_str(), O_RDWR);
  };
  if (In([] { return absl::OkStatus(); }, open_parents) != 0) {
    GTEST_SKIP() << "the system refuses it to everybody";
  }
  EXPECT_EQ(Confined(open_parents), EACCES);
}

// A driver opens files and devices, starts threads and programs, and talks to services of its own.
TEST(ConfineDriver, LeavesWhatDriversNeed) {
  EXPECT_EQ(Confined([] { return open("/dev/null", O_RDONLY); }), 0);
  EXPECT_EQ(Confined([] { return socket(AF_UNIX, SOCK_STREAM, 0); }), 0);
  EXPECT_EQ(Confined([] { return kill(getpid(), 0); }), 0);
  EXPECT_EQ(Confined([] {
              rlimit limit;
              return getrlimit(RLIMIT_NOFILE, &limit);
            }),
            0);
  EXPECT_EQ(Confined([] { return fcntl(0, F_GETFL); }), 0);
  EXPECT_EQ(Confined([] { return Call(SYS_tgkill, getpid(), gettid(), 0); }), 0);
  EXPECT_EQ(Confined([] {
              int ran = -1;
              std::thread([&] { ran = 0; }).join();
              return ran;
            }),
            0);
  EXPECT_EQ(Confined([] {
              const pid_t child = fork();
              if (child == 0) _exit(0);
              int status = 0;
              return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
            }),
            0);
}

// As a user without capabilities, for whom /proc has what it has for any program of his.
bool BecomeOrdinary() {
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) return false;
  return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;  // as after exec
}

// What opening that file of `process` ends with in another process of the same user: 0, or errno.
int OpenedByASibling(pid_t process, const char* file) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/%s", process, file);
  const pid_t child = fork();
  if (child == 0) {
    if (!BecomeOrdinary()) _exit(200);
    _exit(open(path, O_RDONLY) < 0 ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

// Both workers are of the daemon's user, and so is another tenant's.
TEST(ConfineDriver, HidesItsMemoryFromOthersOfItsUser) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    const char can = BecomeOrdinary() && ConfineDriver().ok() ? 1 : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!write(ready[1], &can, 1);
    while (true) pause();
  }
  char can = 0;
  EXPECT_EQ(read(ready[0], &can, 1), 1);
  for (const char* const file : {"mem", "maps", "environ", "fd"}) {
    if (can != 0) EXPECT_EQ(OpenedByASibling(worker, file), EACCES) << file;
  }
  // By which the daemon sees whether it works.
  for (const char* const file : {"stat", "schedstat"}) {
    if (can != 0) EXPECT_EQ(OpenedByASibling(worker, file), 0) << file;
  }
  kill(worker, SIGKILL);
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
  close(ready[0]);
  close(ready[1]);
  if (can == 0) GTEST_SKIP() << "this system has no other user to become";
}

}  // namespace
}  // namespace telegrad
