// How much memory the control groups of this process let it have (cgroups(7)): in a container, less
// than the machine has.
#pragma once

#include <cstdint>
#include <string>

namespace telegrad {

// Where the system tells of them.
struct Cgroups {
  std::string groups = "/proc/self/cgroup";  // a file: which are those of the process
  std::string root = "/sys/fs/cgroup";       // a folder: what they are
};

// The least limit of the groups of the process and of those above them, of version 2 (memory.max)
// or 1 (memory.limit_in_bytes). INT64_MAX where there is none.
int64_t CgroupMemoryLimit(const Cgroups& cgroups = {});

}  // namespace telegrad
