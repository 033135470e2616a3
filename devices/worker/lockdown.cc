// For a process that only computes, a list of what is allowed, since what is not needed is not
// known: memory, sleeping and waking, the two sockets that are open, and signals to its own
// threads, by which a kernel is made to end. For one that hosts a driver's library, whose needs
// nobody knows, a list of what is refused.
#include "devices/worker/lockdown.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

// Of a driver's process. io_uring opens sockets past any filter of calls.
constexpr int kRefused[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_sethostname,
    SYS_acct,
    SYS_quotactl,
};

sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter SkipUnless(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}
sock_filter Return(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

// Leaves the number of the call loaded.
std::vector<sock_filter> Begin() {
  return {
      // Numbers of calls mean other calls on other architectures.
      Load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      Return(SECCOMP_RET_KILL_PROCESS),
      Load(offsetof(seccomp_data, nr)),
  };
}

std::vector<sock_filter> DriversFilter() {
  std::vector<sock_filter> out = Begin();
#if defined(__x86_64__)
  // The same calls by other numbers: x32's.
  constexpr uint32_t kX32 = 0x40000000;  // __X32_SYSCALL_BIT
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1));
  out.push_back(Return(kRefuse));
#endif
  for (const int call : kRefused) {
    out.push_back(SkipUnless(static_cast<uint32_t>(call), 1));
    out.push_back(Return(kRefuse));
  }
  // A child in namespaces of its own. The flags of clone3 are in memory, where no filter reads
  // them; who is told that there is no such call uses clone.
  constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  out.push_back(SkipUnless(SYS_clone3, 1));
  out.push_back(Return(SECCOMP_RET_ERRNO | ENOSYS));
  out.push_back(SkipUnless(SYS_clone, 4));
  out.push_back(Load(offsetof(seccomp_data, args)));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNamespaces, 0, 1));
  out.push_back(Return(kRefuse));
  out.push_back(Return(SECCOMP_RET_ALLOW));
  const auto only = [&](int call, uint32_t first) {
    out.push_back(SkipUnless(static_cast<uint32_t>(call), 4));
    out.push_back(Load(offsetof(seccomp_data, args)));  // the low half of the first
    out.push_back(SkipUnless(first, 1));
    out.push_back(Return(SECCOMP_RET_ALLOW));
    out.push_back(Return(kRefuse));
  };
  only(SYS_socket, AF_UNIX);
  const auto self = static_cast<uint32_t>(getpid());
  for (const int call : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo}) {
    only(call, self);
  }
  out.push_back(Return(SECCOMP_RET_ALLOW));
  return out;
}

std::vector<sock_filter> Filter() {
  std::vector<sock_filter> out = Begin();
  for (const int call : kAllowed) {
    out.push_back(SkipUnless(static_cast<uint32_t>(call), 1));
    out.push_back(Return(SECCOMP_RET_ALLOW));
  }
  out.push_back(SkipUnless(SYS_tgkill, 3));
  out.push_back(Load(offsetof(seccomp_data, args)));  // the low half of the first
  out.push_back(SkipUnless(static_cast<uint32_t>(getpid()), 1));
  out.push_back(Return(SECCOMP_RET_ALLOW));
  out.push_back(Return(kRefuse));
  return out;
}

absl::Status Install(std::vector<sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    return Unimplemented("the kernel takes no seccomp filter: ", std::strerror(errno));
  }
  return absl::OkStatus();
}

// From processes of the same user, which open /proc/PID/mem otherwise: no filter of calls refuses
// that, since a driver opens files.
void HideFromOthers() { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

}  // namespace

absl::Status LockDown() {
  if (kThreadSanitizer) return absl::OkStatus();  // its runtime needs what the filter refuses
  HideFromOthers();
  return Install(Filter());
}

absl::Status RefuseNetwork() {
  HideFromOthers();
  return Install(DriversFilter());
}

}  // namespace telegrad
