// Leaving compiled code in the middle. A kernel is loops over its arguments: it holds no lock, owns
// nothing and calls nothing that does. So a thread that is inside of one can be made to leave it at
// any instruction, by a signal whose handler jumps back to where the kernel was called. What it has
// written so far stays as it is.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "engine/base/sanitizers.h"

namespace telegrad {

// Under ThreadSanitizer signals are only delivered where the instrumented program waits, which
// compiled kernels do not.
inline constexpr bool kCanInterruptKernels = !kThreadSanitizer;

// Calls `kernel(context)` as part of a job, and returns true when it returns, or false once the
// thread was made to leave it because `interrupted` is that job's number. `kernel` owns nothing.
bool CallInterruptibly(void (*kernel)(void* context), void* context, uint64_t job,
                       const std::atomic<uint64_t>& interrupted);

// Makes that thread, which must be alive, leave the call it is in, if `interrupted` names its job.
void InterruptCall(pthread_t thread);

}  // namespace telegrad
