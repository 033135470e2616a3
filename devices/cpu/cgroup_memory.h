// How much memory the control groups of this process let it have (cgroups(7)): in a container, less
// than the machine has.
#pragma once

#include <cstdint>
#include <string>

namespace telegrad {

// Where Linux describes control groups.
struct Cgroups {
  std::string groups = "/proc/self/cgroup";  // file that names the groups of this process
  std::string root = "/sys/fs/cgroup";       // folder with the files of every group
};

// The least memory limit of the control groups of this process and of the groups above them, in
// bytes: memory.max of version 2, memory.limit_in_bytes of version 1. INT64_MAX without a limit.
int64_t CgroupMemoryLimit(const Cgroups& cgroups = {});

}  // namespace telegrad
