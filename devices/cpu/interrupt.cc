// Each thread has the innermost such call that it is in. The handler looks whether the call's job
// is to end: a signal that comes late, when the thread is at something else, does nothing.
#include "devices/cpu/interrupt.h"

#include <setjmp.h>
#include <signal.h>

namespace telegrad {
namespace {

struct Call {
  sigjmp_buf back;
  uint64_t job;
  const std::atomic<uint64_t>* interrupted;
};

// Atomic because of the handler on the same thread alone.
thread_local std::atomic<Call*> current_call{nullptr};

int InterruptSignal() { return SIGRTMIN + 5; }

void LeaveCall(int) {
  Call* const call = current_call.load(std::memory_order_relaxed);
  if (call == nullptr || call->interrupted->load() != call->job) return;
  current_call.store(nullptr, std::memory_order_relaxed);
  siglongjmp(call->back, 1);
}

// The handler must not block its own signal: it does not return when it jumps.
bool InstallHandler() {
  struct sigaction action = {};
  action.sa_handler = LeaveCall;
  action.sa_flags = SA_NODEFER | SA_RESTART;
  sigemptyset(&action.sa_mask);
  return sigaction(InterruptSignal(), &action, nullptr) == 0;
}

}  // namespace

bool CallInterruptibly(void (*kernel)(void* context), void* context, uint64_t job,
                       const std::atomic<uint64_t>& interrupted) {
  static const bool installed = InstallHandler();
  (void)installed;
  Call call;
  call.job = job;
  call.interrupted = &interrupted;
  if (sigsetjmp(call.back, 0) != 0) return false;
  current_call.store(&call, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // Whoever interrupts says so before the signal: either it is seen here, or the signal finds this
  // call.
  if (interrupted.load() == job) {
    current_call.store(nullptr, std::memory_order_relaxed);
    return false;
  }
  kernel(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current_call.store(nullptr, std::memory_order_relaxed);
  return true;
}

void InterruptCall(pthread_t thread) { pthread_kill(thread, InterruptSignal()); }

}  // namespace telegrad
