#include "engine/process/processor_use.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/base/strings.h"

namespace telegrad {

using std::chrono::nanoseconds;

ProcessorUse ProcessorUseOf(pid_t process) {
  ProcessorUse use;
  int64_t ran = 0, waited = 0;
  if (!(std::ifstream(StrCat("/proc/", process, "/schedstat")) >> ran >> waited)) return use;
  use.ran = nanoseconds(ran);
  use.waited = nanoseconds(waited);
  // "PID (NAME) STATE ...", where the name may contain parentheses; see proc(5).
  std::string stat;
  std::getline(std::ifstream(StrCat("/proc/", process, "/stat")), stat);
  const size_t name_end = stat.rfind(") ");
  use.runnable = name_end != std::string::npos && stat.substr(name_end + 2, 1) == "R";
  return use;
}

nanoseconds PatienceLeft(const ProcessorUse& before, const ProcessorUse& now, nanoseconds elapsed,
                         nanoseconds patience) {
  if (elapsed >= kMostPatience * patience) return nanoseconds(0);
  // The wait that is going on is not in `waited`, so of a process that is not asleep only the time
  // counts for which it ran.
  const nanoseconds counted =
      now.runnable ? now.ran - before.ran : elapsed - (now.waited - before.waited);
  if (counted >= patience) return nanoseconds(0);
  return std::min(std::max(patience - counted, patience / 8), kMostPatience * patience - elapsed);
}

absl::Status WaitPatiently(pid_t process, nanoseconds patience,
                           const std::function<absl::Status(nanoseconds)>& wait,
                           const PatienceSource& source) {
  const nanoseconds begin = source.now();
  const ProcessorUse before = source.use(process);
  for (nanoseconds left = patience;;) {
    absl::Status status = wait(left);
    if (!absl::IsDeadlineExceeded(status)) return status;
    left = PatienceLeft(before, source.use(process), source.now() - begin, patience);
    if (left.count() == 0) return status;
  }
}

}  // namespace telegrad
