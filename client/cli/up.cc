// telegrad up and telegrad down: a daemon of this user on this machine, which every other command
// then finds without an address. The process is found by asking the kernel which process listens on
// the socket, so there is no file with a process number that could be stale.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "client/cc/local_daemon.h"
#include "client/cli/command.h"
#include "client/terminal/progress.h"
#include "engine/base/status.h"
#include "engine/base/unique_fd.h"

extern char** environ;

namespace telegrad::cli {
namespace {

// An installation has telegradd beside telegrad; a build has it in another folder.
std::string FindDaemonProgram(const Flags& flags) {
  if (!flags.GetString("program").empty()) return flags.GetString("program");
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* where : {"telegradd", "../../server/telegradd", "../sbin/telegradd"}) {
    const std::filesystem::path program = self / where;
    if (access(program.c_str(), X_OK) == 0) return program.lexically_normal();
  }
  return "telegradd";  // in PATH
}

// Everything that was written to the file, at most `most` bytes of its end.
std::string Tail(const std::string& path, int64_t most) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const int64_t size = in ? static_cast<int64_t>(in.tellg()) : 0;
  std::string text(static_cast<size_t>(std::min(size, most)), '\0');
  in.seekg(size - static_cast<int64_t>(text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

struct Spawned {
  pid_t pid = -1;
  UniqueFd out;  // its standard output
};

// In a session of its own, so that it outlives the terminal.
absl::StatusOr<Spawned> Spawn(const std::string& program, std::vector<std::string> args,
                              const std::string& log) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailedPrecondition("pipe: ", std::strerror(errno));
  Spawned out;
  out.out = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const int error =
      posix_spawnp(&out.pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return NotFound("cannot start ", program, ": ", std::strerror(error),
                    "; install telegradd or name it with --program");
  }
  return out;
}

// Until the line that begins with `prefix`; false where the output ends without it, or after a
// second without any.
bool WaitForLine(const UniqueFd& out, std::string_view prefix, int64_t seconds) {
  std::string text;
  char buffer[1024];
  pollfd polled{out.get(), POLLIN, 0};
  while (poll(&polled, 1, static_cast<int>(seconds * 1000)) > 0) {
    const ssize_t size = read(out.get(), buffer, sizeof(buffer));
    if (size <= 0) return false;
    text.append(buffer, static_cast<size_t>(size));
    if (text.starts_with(prefix) || text.find(StrCat("\n", prefix)) != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace

absl::Status Up(const Flags& flags) {
  TG_RETURN_IF_ERROR(MakeUserRuntimeFolder());
  const std::string folder = UserRuntimeFolder();
  const std::string address = StrCat("unix:", folder, "/", kDaemonSocketName);
  if (const auto process = DaemonProcess(address); process.ok()) {
    std::printf("telegradd (process %d) already listens on %s\n", *process, address.c_str());
    return absl::OkStatus();
  }
  const std::string log = StrCat(folder, "/telegradd.log");
  std::vector<std::string> args = {"--listen", address};
  args.insert(args.end(), flags.positional().begin(), flags.positional().end());
  const std::string program = FindDaemonProgram(flags);
  auto progress = std::make_unique<Progress>(StrCat("starting ", program));
  TG_ASSIGN_OR_RETURN(const Spawned daemon, Spawn(program, args, log));
  const bool listens = WaitForLine(daemon.out, "listening on ", flags.GetInt("wait"));
  progress = nullptr;
  if (!listens) {
    kill(daemon.pid, SIGKILL);
    waitpid(daemon.pid, nullptr, 0);
    return FailedPrecondition(program, " did not start; its log, ", log, ", ends with:\n",
                              Tail(log, 2000));
  }
  std::printf("telegradd (process %d) listens on %s\nlog: %s\nstop it with: telegrad down\n",
              daemon.pid, address.c_str(), log.c_str());
  return absl::OkStatus();
}

absl::Status Down(const Flags& flags) {
  if (!flags.positional().empty()) {
    return InvalidArgument("unexpected argument ", flags.positional().front());
  }
  const std::string address = StrCat("unix:", UserRuntimeFolder(), "/", kDaemonSocketName);
  TG_ASSIGN_OR_RETURN(const int process, DaemonProcess(address));
  // A service manager that opened the socket is who listens, and not to be ended.
  std::ifstream name(StrCat("/proc/", process, "/comm"));
  if (std::string comm; !std::getline(name, comm) || comm != "telegradd") {
    return FailedPrecondition("process ", process, ", which listens on ", address,
                              ", is not telegradd; stop it where it was started");
  }
  const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!fd.valid() || kill(process, SIGTERM) != 0) {
    return FailedPrecondition("cannot end telegradd (process ", process,
                              "): ", std::strerror(errno));
  }
  auto progress = std::make_unique<Progress>(StrCat("stopping telegradd (process ", process, ")"));
  pollfd polled{fd.get(), POLLIN, 0};
  const int ended = poll(&polled, 1, static_cast<int>(flags.GetInt("wait") * 1000));
  progress = nullptr;
  if (ended != 1) {
    return absl::DeadlineExceededError(
        StrCat("telegradd (process ", process, ") still runs; kill -KILL ", process, " ends it"));
  }
  std::printf("telegradd (process %d) has stopped\n", process);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
