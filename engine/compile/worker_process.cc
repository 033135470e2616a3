// posix_spawn and not fork: a child of a process with threads may do next to nothing before exec.
// What must hold from outside (limits, no descriptors, a clean signal mask, a process group of its
// own, so that the terminal's Ctrl-C is not its affair) is set here; that it dies with the daemon
// is its own first act.
#include "engine/compile/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <vector>

#include "engine/base/status.h"

extern char** environ;

namespace telegrad {
namespace {

constexpr std::string_view kName = "telegrad-compile-worker";
constexpr size_t kMaxLastWords = 1024;
constexpr int kLingerMs = 200;

// What drivers keep files by.
constexpr std::string_view kFolderVariables[] = {"HOME", "XDG_CACHE_HOME", "TMPDIR",
                                                 "POCL_CACHE_DIR"};

// What the dynamic linker, the OpenCL loader and the sanitizers need of the environment, and
// nothing else; and the worker's folder, if it has one.
std::vector<std::string> WorkerEnvironment(const std::string& folder) {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    for (const std::string_view name :
         {"LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS=",
          "OCL_ICD_VENDORS=", "OCL_ICD_FILENAMES=", "OPENCL_VENDOR_PATH="}) {
      if (text.starts_with(name)) kept.emplace_back(text);
    }
  }
  if (folder.empty()) return kept;
  for (const std::string_view name : kFolderVariables) kept.push_back(StrCat(name, "=", folder));
  kept.emplace_back("PATH=/usr/bin:/bin");  // PoCL runs the linker
  return kept;
}

// A folder for one worker's drivers. Empty where there can be none: then they do without.
std::string MakeFolder() {
  std::error_code error;
  const auto base = std::filesystem::temp_directory_path(error);
  if (error) return "";
  std::string path = (base / "telegrad-worker-XXXXXX").string();
  return mkdtemp(path.data()) == nullptr ? "" : path;
}

void RemoveFolder(const std::string& path) {
  std::error_code ignored;
  if (!path.empty()) std::filesystem::remove_all(path, ignored);
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
    posix_spawn_file_actions_adddup2(&actions_, socket, kWorkerSocket);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kWorkerSocket + 1);
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

absl::Status Limit(pid_t pid, int64_t memory_bytes) {
  const rlimit none{0, 0};
  if (prlimit(pid, RLIMIT_CORE, &none, nullptr) != 0) {
    return Internal("cannot limit a worker's core file: ", std::strerror(errno));
  }
  if (memory_bytes == 0 || !kLimitsMemory) return absl::OkStatus();
  const auto bytes = static_cast<rlim_t>(memory_bytes);
  const rlimit memory{bytes, bytes};
  if (prlimit(pid, RLIMIT_AS, &memory, nullptr) != 0) {
    return Internal("cannot limit a worker's memory: ", std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const Options& options,
                                                                    FrameDeadline deadline) {
  const auto bad = [&](const auto&... what) {
    return absl::UnavailableError(
        StrCat("cannot start the compile worker ", options.executable, ": ", what...));
  };
  int sockets[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return bad(std::strerror(errno));
  }
  // Nobody reads its stderr while it works, so a full pipe must not hold it up.
  if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0) {
    close(sockets[0]);
    close(sockets[1]);
    return bad(std::strerror(errno));
  }
  pid_t pid = 0;
  std::vector<std::string> arguments{options.executable};
  std::string folder;
  if (!options.opencl_library.empty()) {
    arguments.push_back(options.opencl_library);
    folder = MakeFolder();
  }
  const int error = Spawn().Run(arguments, WorkerEnvironment(folder), sockets[1], errors[1], &pid);
  close(sockets[1]);
  close(errors[1]);
  if (error != 0) {
    close(sockets[0]);
    close(errors[0]);
    RemoveFolder(folder);
    return bad(std::strerror(error));
  }
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(pid, sockets[0], errors[0], folder));
  absl::Status status = Limit(pid, options.memory_bytes);
  // Where that is refused, the worker is only less polite.
  if (options.nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(pid), options.nice);
  if (status.ok()) status = worker->Greet(deadline);
  if (!status.ok()) return bad(ToStd(status.message()), "; it ", worker->Bury());
  return worker;
}

absl::Status WorkerProcess::Greet(FrameDeadline deadline) {
  TG_ASSIGN_OR_RETURN(const std::string frame, ReadFrame(socket_, kMaxHelloBytes, deadline));
  TG_ASSIGN_OR_RETURN(hello_, DecodeHello(frame));
  if (hello_.protocol != kWorkerProtocol) {
    return FailedPrecondition("it uses version ", hello_.protocol, " of the protocol, not ",
                              kWorkerProtocol);
  }
  return absl::OkStatus();
}

WorkerProcess::~WorkerProcess() {
  Bury();
  close(socket_);
  close(errors_);
}

void WorkerProcess::Interrupt() {
  interrupted_ = true;
  shutdown(socket_, SHUT_RDWR);
}

bool WorkerProcess::IsIdle() const {
  pollfd one{socket_, POLLIN, 0};
  return poll(&one, 1, 0) == 0;
}

absl::StatusOr<WorkerAnswer> WorkerProcess::Ask(const WorkerRequest& request,
                                                FrameDeadline deadline) {
  absl::Status status = WriteFrame(socket_, Encode(request), deadline);
  if (status.ok()) {
    auto frame = ReadFrame(socket_, kMaxAnswerBytes, deadline);
    if (frame.ok()) {
      auto answer = DecodeAnswer(*frame);
      if (answer.ok() && answer->id == request.id) return answer;
      status = answer.ok() ? absl::DataLossError("an answer to another request") : answer.status();
    } else {
      status = frame.status();
    }
  }
  if (absl::IsDeadlineExceeded(status)) return status;
  const std::string end = Bury();
  if (absl::IsUnavailable(status)) return absl::AbortedError(StrCat("its compiler ", end));
  return absl::AbortedError(
      StrCat("its compiler answered garbage (", ToStd(status.message()), ") and ", end));
}

std::string WorkerProcess::Bury() {
  if (buried_) return "has exited";
  buried_ = true;
  // Who has closed its socket is about to end by itself, and how is worth knowing; who has not, or
  // lingers, is killed.
  bool ended = false;
  const bool is_leaving = !interrupted_ && !IsIdle();
  if (const int process = is_leaving ? OpenProcess(pid_) : -1; process >= 0) {
    pollfd one{process, POLLIN, 0};
    ended = poll(&one, 1, kLingerMs) > 0;
    close(process);
  }
  if (!ended) kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  RemoveFolder(folder_);
  std::string words(kMaxLastWords, '\0');
  const ssize_t size = read(errors_, words.data(), words.size());
  words.resize(size > 0 ? static_cast<size_t>(size) : 0);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  std::string how = !ended ? "was killed" : StrCat("ended with exit code ", WEXITSTATUS(status));
  if (ended && WIFSIGNALED(status)) {
    was_killed_ = WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM;
    const char* what = sigdescr_np(WTERMSIG(status));
    how = StrCat("was ended by signal ", WTERMSIG(status), " (", what ? what : "unknown", ")");
  }
  if (!words.empty()) StrAppend(&how, ", its last words: ", words);
  return how;
}

absl::StatusOr<std::string> FindCompileWorker() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return NotFound("cannot read /proc/self/exe: ", error.message());
  const std::string path = self.parent_path() / kName;
  if (access(path.c_str(), X_OK) != 0) {
    return NotFound("there is no executable ", path, ", the compile worker, beside this program");
  }
  return path;
}

}  // namespace telegrad
