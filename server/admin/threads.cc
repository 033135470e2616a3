// /proc/self/task/ID/stat is one line, "ID (NAME) STATE ...", whose 14th and 15th fields are the
// times in user mode and in the kernel, in ticks. A name may have blanks and parentheses in it.
#include "server/admin/threads.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

namespace telegrad {
namespace {

constexpr int kFieldsBeforeTimes = 11;  // from the state on

std::optional<ThreadUse> ParseStat(const std::string& line) {
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ThreadUse out{.name = line.substr(open + 1, close - open - 1)};
  std::from_chars(line.data(), line.data() + open, out.id);
  std::istringstream fields(line.substr(close + 1));
  std::string skipped;
  uint64_t user = 0, kernel = 0;
  fields >> out.state;
  for (int i = 1; i < kFieldsBeforeTimes; ++i) fields >> skipped;
  if (!(fields >> user >> kernel)) return std::nullopt;
  out.cpu_ns = (user + kernel) * (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
  return out;
}

}  // namespace

std::vector<ThreadUse> ThreadsOfThisProcess() {
  std::vector<ThreadUse> out;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/task", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::ifstream file(entry->path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    if (auto thread = ParseStat(line)) out.push_back(*std::move(thread));
  }
  std::ranges::sort(out, {}, &ThreadUse::id);
  return out;
}

}  // namespace telegrad
