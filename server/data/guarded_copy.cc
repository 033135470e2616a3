// The handler maps zero pages in place of missing ones and lets the copy continue. It does not jump
// out of the copy, so the interrupted code always completes. It uses only what a signal handler may
// use: variables of its thread, and mmap and sigaction as system calls.
#include "server/data/guarded_copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "server/data/stream_copy.h"

namespace telegrad {
namespace {

struct Guarded {
  uintptr_t begin = 0, end = 0;
  bool lost = false;
};

constinit thread_local Guarded guarded;
struct sigaction previous;
uintptr_t page_bytes;

void OnBusError(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (at >= guarded.begin && at < guarded.end) {
    const uintptr_t page = at / page_bytes * page_bytes;
    const void* const zeros =
        mmap(reinterpret_cast<void*>(page), guarded.end - page, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros != MAP_FAILED) {
      guarded.lost = true;
      return;
    }
  }
  // The access is repeated, and this time ends as it would have.
  sigaction(signal, &previous, nullptr);
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, &previous);
  });
}

}  // namespace

bool GuardedCopy(void* to, const void* from, size_t bytes, const void* mapped) {
  InstallHandler();
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  guarded = {.begin = begin, .end = begin + bytes};
  // The handler runs in this thread: what it looks at must be written before the copy and read
  // after.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  StreamCopy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool whole = !guarded.lost;
  guarded = {};
  return whole;
}

}  // namespace telegrad
