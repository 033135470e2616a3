// The threads of this process with their state and processor time, as /proc has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace telegrad {

struct ThreadUse {
  uint64_t id = 0;
  std::string name;
  uint64_t cpu_ns = 0;  // so far, in the kernel and outside
  char state = '?';     // see proc(5)
};

// By id. Of one that ends meanwhile nothing is said.
std::vector<ThreadUse> ThreadsOfThisProcess();

}  // namespace telegrad
