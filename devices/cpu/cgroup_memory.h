// How much memory the control groups of this process let it have (cgroups(7)): in a container, less
// than the machine has.
#pragma once

#include <cstdint>
#include <string>

namespace telegrad {

// The least limit of the group in `groups`, a file like /proc/self/cgroup, and of those above it,
// of version 2 (memory.max) or 1 (memory.limit_in_bytes) below `root`. INT64_MAX where there is
// none.
int64_t CgroupMemoryLimit(const std::string& groups = "/proc/self/cgroup",
                          const std::string& root = "/sys/fs/cgroup");

}  // namespace telegrad
