// Reads mallinfo2, and calls malloc_trim once after a time without work.
#include "server/admin/heap_memory.h"

#include <malloc.h>

namespace telegrad {

HeapMemory ReadHeapMemory() {
  const struct mallinfo2 info = mallinfo2();
  return {.used = static_cast<int64_t>(info.uordblks + info.hblkhd),
          .free = static_cast<int64_t>(info.fordblks)};
}

bool IdleTrim::Look(int64_t work) {
  if (work != work_) {
    work_ = work;
    idle_ = 0;
    return false;
  }
  if (idle_ == kIdleLooks || ++idle_ < kIdleLooks) return false;
  return ReadHeapMemory().free >= kLeastBytes && malloc_trim(0) == 1;
}

}  // namespace telegrad
