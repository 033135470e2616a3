// The memory that malloc has for this process: what is in use, and what it keeps for later.
#pragma once

#include <cstdint>

namespace telegrad {

struct HeapMemory {
  int64_t used = 0;  // bytes of allocations and their headers
  int64_t free = 0;  // kept by malloc; their pages need not be there
};

// Zeros where another allocator takes malloc's place.
HeapMemory ReadHeapMemory();

// Gives the pages of free memory back to the system when a process that has done much does nothing
// any more. malloc itself does this only for memory at the end of a heap, of which there is one for
// some threads each; and while there is work, new pages would cost more than they are worth.
class IdleTrim {
 public:
  static constexpr int64_t kLeastBytes = 8 << 20;
  static constexpr int kIdleLooks = 10;

  // Called at intervals with a count that grows with all work. True if pages were given back: at
  // the last of kIdleLooks calls with the same count, and not again until it grows, where
  // kLeastBytes or more are free.
  bool Look(int64_t work);

 private:
  int64_t work_ = -1;
  int idle_ = 0;
};

}  // namespace telegrad
