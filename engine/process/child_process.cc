// posix_spawn and not fork: a child of a process with threads may do next to nothing before exec.
// What must hold from outside (limits, no descriptors, a clean signal mask, a process group of its
// own, so that the terminal's Ctrl-C is not its affair) is set here; that it dies with the daemon
// is its own first act.
//
// A process that was killed may be in a wait of the kernel that no signal ends, such as a driver's
// for its hardware, for any time. So whoever buries it waits for a while only. Its number stays its
// own until somebody has waited for it, which is done when the next child is started or buried.
#include "engine/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/unique_fd.h"

extern char** environ;

namespace telegrad {
namespace {

constexpr size_t kMaxLastWords = 1024;
constexpr int kLingerMs = 200;
// Between two looks at a process that has ended while somebody else, such as a debugger, has still
// to be told.
constexpr int kLookMs = 10;

// What the dynamic linker, the OpenCL loader and the sanitizers need of the environment, and
// nothing else.
std::vector<std::string> BareEnvironment() {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    for (const std::string_view name :
         {"LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS=",
          "OCL_ICD_VENDORS=", "OCL_ICD_FILENAMES=", "OPENCL_VENDOR_PATH="}) {
      if (text.starts_with(name)) kept.emplace_back(text);
    }
  }
  return kept;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

class Spawn {
 public:
  Spawn() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  // errno's kind of error, or 0.
  int Run(std::vector<std::string> arguments, std::vector<std::string> environment, int socket,
          int errors, pid_t* pid) {
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, errors, 2);
    posix_spawn_file_actions_adddup2(&actions_, socket, kChildSocket);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kChildSocket + 1);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    return posix_spawn(pid, arguments[0].c_str(), &actions_, &attributes_,
                       Pointers(arguments).data(), Pointers(environment).data());
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// The header of glibc 2.36 declares pidfd_open without extern "C".
int OpenProcess(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Its status once it has ended; nothing where that takes longer than `most`.
std::optional<int> AwaitEnd(pid_t pid, std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  const UniqueFd process(OpenProcess(pid));
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return status;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd one{process.get(), POLLIN, 0};
    const bool blind = !process.valid() || poll(&one, 1, 0) > 0;
    const auto pause = static_cast<int>(left.count());
    blind ? poll(nullptr, 0, std::min(pause, kLookMs)) : poll(&one, 1, pause);
  }
}

// Those that had not ended when they were buried.
class Unended {
 public:
  static Unended& All() {
    static auto* const all = new Unended();  // the last may end after everything
    return *all;
  }
  void Add(pid_t pid) {
    const MutexLock lock(mutex_);
    pids_.push_back(pid);
  }
  // How many there still are.
  size_t Reap() {
    const MutexLock lock(mutex_);
    std::erase_if(pids_, [](pid_t pid) {
      const pid_t ended = waitpid(pid, nullptr, WNOHANG);
      return ended == pid || (ended < 0 && errno != EINTR);
    });
    return pids_.size();
  }

 private:
  Mutex mutex_;
  std::vector<pid_t> pids_ TG_GUARDED_BY(mutex_);
};

absl::Status Limit(pid_t pid, int64_t memory_bytes) {
  const rlimit none{0, 0};
  if (prlimit(pid, RLIMIT_CORE, &none, nullptr) != 0) {
    return Internal("cannot limit its core file: ", std::strerror(errno));
  }
  if (memory_bytes == 0 || !kLimitsMemory) return absl::OkStatus();
  // A limit of this process (ulimit -v) is the most that it can give.
  rlimit own{RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(RLIMIT_AS, &own);
  const rlim_t bytes = std::min(static_cast<rlim_t>(memory_bytes), own.rlim_max);
  const rlimit memory{bytes, bytes};
  if (prlimit(pid, RLIMIT_AS, &memory, nullptr) != 0) {
    return Internal("cannot limit its memory: ", std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace

size_t ChildProcess::ReapUnended() { return Unended::All().Reap(); }

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  ReapUnended();
  int sockets[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  // Nobody reads its stderr while it works, so a full pipe must not hold it up.
  if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0) {
    close(sockets[0]);
    close(sockets[1]);
    return absl::UnavailableError(std::strerror(errno));
  }
  std::vector<std::string> arguments{options.executable};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = BareEnvironment();
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  pid_t pid = 0;
  const int error = Spawn().Run(arguments, environment, sockets[1], errors[1], &pid);
  close(sockets[1]);
  close(errors[1]);
  if (error != 0) {
    close(sockets[0]);
    close(errors[0]);
    return absl::UnavailableError(std::strerror(error));
  }
  std::unique_ptr<ChildProcess> child(
      new ChildProcess(pid, sockets[0], errors[0], options.bury_limit));
  const absl::Status status = Limit(pid, options.memory_bytes);
  // Where that is refused, the child is only less polite.
  if (options.nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(pid), options.nice);
  if (!status.ok()) {
    return absl::UnavailableError(StrCat(ToStd(status.message()), "; it ", child->Bury()));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  Bury();
  close(socket_);
  close(errors_);
}

void ChildProcess::Interrupt() {
  interrupted_ = true;
  shutdown(socket_, SHUT_RDWR);
}

bool ChildProcess::IsQuiet() const {
  pollfd one{socket_, POLLIN, 0};
  return poll(&one, 1, 0) == 0;
}

// That this process has shut its own end looks the same, so that is to be asked afterwards.
bool ChildProcess::HasLeft() const {
  pollfd one{socket_, 0, 0};
  return poll(&one, 1, 0) > 0 && (one.revents & POLLHUP) != 0 && !interrupted_;
}

bool ChildProcess::HasEnded() const {
  siginfo_t info = {};
  return buried_ ||
         waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

std::string ChildProcess::Bury() {
  const End end = BuryApart();
  return end.last_output.empty() ? end.how
                                 : StrCat(end.how, ", its last output: ", end.last_output);
}

ChildProcess::End ChildProcess::BuryApart() {
  if (buried_) return {"has exited", ""};
  // Who has closed its socket is about to end by itself, and how is worth knowing; who has not, or
  // lingers, is killed.
  bool ended = HasEnded();
  const bool has_left = HasLeft();
  const bool is_leaving = !ended && !interrupted_ && !IsQuiet();
  buried_ = true;
  if (const int process = is_leaving ? OpenProcess(pid_) : -1; process >= 0) {
    pollfd one{process, POLLIN, 0};
    ended = poll(&one, 1, kLingerMs) > 0;
    close(process);
  }
  if (!ended) kill(pid_, SIGKILL);
  // Its group, which has its number as long as nobody has waited for it: what it has started, such
  // as the linker of a driver's compiler, works for nobody now.
  kill(-pid_, SIGKILL);
  ReapUnended();
  const std::optional<int> waited = AwaitEnd(pid_, bury_limit_);
  if (!waited) {
    Unended::All().Add(pid_);
    Interrupt();  // for whoever waits until it closes its end
  }
  const int status = waited.value_or(SIGKILL);
  std::string words(kMaxLastWords, '\0');
  const ssize_t size = read(errors_, words.data(), words.size());
  words.resize(size > 0 ? static_cast<size_t>(size) : 0);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  for (char& c : words) {
    if (c == '\n') c = ' ';
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  }
  // The signal from here ends only who has not begun to end by itself; to end may take longer than
  // kLingerMs where others have the processors. Who has closed its socket had begun.
  const bool ended_here = !ended && !has_left && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  std::string how =
      ended_here ? "was killed" : StrCat("ended with exit code ", WEXITSTATUS(status));
  if (!ended_here && WIFSIGNALED(status)) {
    was_killed_ = WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM;
    const char* what = sigdescr_np(WTERMSIG(status));
    how = StrCat("was ended by signal ", WTERMSIG(status), " (", what ? what : "unknown", ")");
  }
  if (!waited) how = "was killed, but the system has not ended it yet";
  return {std::move(how), std::move(words)};
}

bool BeginAsChild() {
  int type;
  socklen_t size = sizeof(type);
  if (getsockopt(kChildSocket, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return false;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return true;
}

absl::StatusOr<std::string> FindBeside(std::string_view name, std::string_view what) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return NotFound("cannot read /proc/self/exe: ", error.message());
  const std::string path = self.parent_path() / name;
  if (access(path.c_str(), X_OK) != 0) {
    return NotFound("there is no executable ", path, ", ", what, ", beside this program");
  }
  return path;
}

}  // namespace telegrad
