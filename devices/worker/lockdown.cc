// For a process that only computes, a list of what is allowed, since what is not needed is not
// known: memory, sleeping and waking, the two sockets that are open, and signals to its own
// threads, by which a kernel is made to end. For one that hosts a driver's library, whose needs
// nobody knows, a list of what is refused.
#include "devices/worker/lockdown.h"

#include <asm/ioctls.h>
#include <asm/sockios.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/sanitizers.h"
#include "engine/base/status.h"
#include "engine/base/unique_fd.h"

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

// Of a driver's process. io_uring opens sockets past any filter of calls. Sockets of this machine
// belong to services that know a user by its number, such as the daemon's own; tkill cannot tell
// whose threads it signals.
constexpr int kRefused[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_connect,
    SYS_tkill,
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
    SYS_fsopen,
    SYS_fspick,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_acct,
    SYS_quotactl,
#if defined(__x86_64__)
    SYS_iopl,
    SYS_ioperm,
#endif
};

// By which a descriptor's events become signals of another process.
constexpr uint32_t kOwnersByFcntl[] = {F_SETOWN, F_SETOWN_EX};
constexpr uint32_t kOwnersByIoctl[] = {FIOSETOWN, SIOCSPGRP};

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
  const auto but = [&](int call, std::span<const uint32_t> refused) {
    out.push_back(
        SkipUnless(static_cast<uint32_t>(call), static_cast<uint8_t>(2 * refused.size() + 2)));
    out.push_back(Load(offsetof(seccomp_data, args) + sizeof(uint64_t)));  // of the second
    for (const uint32_t second : refused) {
      out.push_back(SkipUnless(second, 1));
      out.push_back(Return(kRefuse));
    }
    out.push_back(Return(SECCOMP_RET_ALLOW));
  };
  but(SYS_fcntl, kOwnersByFcntl);
  but(SYS_ioctl, kOwnersByIoctl);
  only(SYS_socket, AF_UNIX);
  only(SYS_prlimit64, 0);
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

// By Landlock: whoever is in a domain reaches no memory of processes outside of it, such as the
// daemon's, by /proc/PID/mem or otherwise, and from version 6 on signals none. The domain needs
// some right that it takes; this one is needed by nothing. Without Landlock, or with another
// version, the filter is what there is.
void LeaveOthersAlone() {
  struct {  // landlock_ruleset_attr of version 6, which this system's header may not have
    uint64_t handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_BLOCK;
    uint64_t handled_access_net = 0;
    uint64_t scoped = 1 << 1;  // LANDLOCK_SCOPE_SIGNAL
  } attributes;
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return;
  const size_t size = version < 6 ? sizeof(attributes.handled_access_fs) : sizeof(attributes);
  const UniqueFd ruleset(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset.valid()) return;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  syscall(SYS_landlock_restrict_self, ruleset.get(), 0);
}

}  // namespace

absl::Status LockDown() {
  if (kThreadSanitizer) return absl::OkStatus();  // its runtime needs what the filter refuses
  HideFromOthers();
  return Install(Filter());
}

absl::Status ConfineDriver() {
  HideFromOthers();
  LeaveOthersAlone();
  return Install(DriversFilter());
}

}  // namespace telegrad
