// A line of the file is "ID:CONTROLLERS:PATH"; version 2 has no controllers. The path is the one of
// the host; in a container it often does not exist below its root, but the root is then the group
// itself, which is the last one that is looked at.
#include "devices/cpu/cgroup_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

namespace telegrad {
namespace {

int64_t LimitIn(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  if (!std::getline(in, text)) return INT64_MAX;
  int64_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  return error == std::errc() && limit > 0 ? limit : INT64_MAX;  // "max", or out of range
}

// Of the group at `path` below `mount` and of all above it.
int64_t LeastAbove(const std::string& mount, std::string path, const std::string& name) {
  int64_t least = LimitIn(mount + "/" + name);
  while (path.size() > 1) {
    least = std::min(least, LimitIn(mount + path + "/" + name));
    path.resize(path.rfind('/'));
  }
  return least;
}

bool HasMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::string_view one = controllers.substr(0, controllers.find(','));
    if (one == "memory") return true;
    controllers.remove_prefix(std::min(controllers.size(), one.size() + 1));
  }
  return false;
}

}  // namespace

int64_t CgroupMemoryLimit(const Cgroups& cgroups) {
  const std::string& root = cgroups.root;
  int64_t least = INT64_MAX;
  std::ifstream in(cgroups.groups);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {  // alone, or beside version 1
        least = std::min(least, LeastAbove(root + mount, path, "memory.max"));
      }
    } else if (HasMemory(controllers)) {
      least = std::min(least, LeastAbove(root + "/memory", path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace telegrad
