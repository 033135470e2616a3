// A list of what is allowed, since what is not needed is not known: memory, sleeping and waking,
// the two sockets that are open, and signals to its own threads, by which a kernel is made to end.
#include "devices/worker/lockdown.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "engine/base/sanitizers.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

constexpr int kAllowed[] = {
    SYS_futex,
    SYS_sched_yield,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_membarrier,
    SYS_read,
    SYS_write,
    SYS_writev,
    SYS_recvfrom,
    SYS_sendto,
    SYS_ppoll,
    SYS_close,
    SYS_fstat,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_gettid,
    SYS_getpid,
    SYS_getrandom,
    SYS_restart_syscall,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_getaffinity,
#if defined(__x86_64__)
    SYS_poll,
#endif
};

sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter SkipUnless(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}
sock_filter Return(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

std::vector<sock_filter> Filter() {
  const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> out = {
      // Numbers of calls mean other calls on other architectures.
      Load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      Return(SECCOMP_RET_KILL_PROCESS),
      Load(offsetof(seccomp_data, nr)),
  };
  for (const int call : kAllowed) {
    out.push_back(SkipUnless(static_cast<uint32_t>(call), 1));
    out.push_back(Return(SECCOMP_RET_ALLOW));
  }
  out.push_back(SkipUnless(SYS_tgkill, 3));
  out.push_back(Load(offsetof(seccomp_data, args)));  // the low half of the first
  out.push_back(SkipUnless(static_cast<uint32_t>(getpid()), 1));
  out.push_back(Return(SECCOMP_RET_ALLOW));
  out.push_back(Return(refuse));
  return out;
}

}  // namespace

absl::Status LockDown() {
  if (kThreadSanitizer) return absl::OkStatus();  // its runtime needs what the filter refuses
  std::vector<sock_filter> filter = Filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Not to be looked into by others of the same user, either.
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    return Unimplemented("the kernel takes no seccomp filter: ", std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
