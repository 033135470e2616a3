// ptxas reads and writes files, so each run has a folder of its own that goes with it. It belongs
// to the process group of whoever runs it: a compile worker that is killed takes it along.
#include "engine/compile/ptxas.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/base/unique_fd.h"
#include "engine/compile/nvjitlink.h"

extern char** environ;

namespace telegrad {
namespace {

constexpr std::string_view kLibrary = "nvJitLink-";
constexpr std::string_view kCubin = "cubin:", kCubinOrPtx = "cubin-or-ptx:";
constexpr std::string_view kElf = "\177ELF";
constexpr int kMostMs = 120'000;  // of one run
constexpr int64_t kMostSaid = 4096, kMostCode = int64_t{128} << 20;

class Folder {
 public:
  Folder() {
    std::error_code error;
    const auto base = std::filesystem::temp_directory_path(error);
    if (error) return;
    std::string path = (base / "telegrad-ptxas-XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  bool ok() const { return !path_.empty(); }
  std::string File(const char* name) const { return StrCat(path_, "/", name); }

 private:
  std::string path_;
};

// Whether the child ends within that time, or nothing can tell.
bool EndsWithin(pid_t pid, int ms) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return true;
  const UniqueFd closed(fd);
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  int ready;
  while ((ready = ::poll(&poll, 1, ms)) < 0 && errno == EINTR) {
  }
  return ready != 0;
}

// Runs it with its output in the file `said`. Its exit code.
absl::StatusOr<int> Run(std::vector<std::string> arguments, const std::string& said) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, said.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, arguments[0].c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::UnavailableError(StrCat("cannot run ptxas: ", std::strerror(error)));
  }
  const bool ended = EndsWithin(pid, kMostMs);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return absl::UnavailableError(std::strerror(errno));
  }
  if (!ended) {
    return absl::UnavailableError(StrCat("ptxas did not end within ", kMostMs / 1000, " seconds"));
  }
  if (WIFSIGNALED(status)) {
    return absl::InternalError(StrCat("ptxas was ended by signal ", WTERMSIG(status)));
  }
  return WEXITSTATUS(status);
}

std::string Said(const std::string& file) {
  absl::StatusOr<std::string> text = ReadFile(file, kMostCode);
  if (!text.ok()) return "nothing";
  text->resize(std::min<size_t>(text->size(), kMostSaid));
  return *std::move(text);
}

std::string Locate(const std::string& name) {
  if (name.empty() || name.find('/') != name.npos) return name;
  const char* const path = std::getenv("PATH");
  std::string folders = StrCat(path == nullptr ? "" : path, ":/usr/local/cuda/bin");
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    const std::string file = StrCat(folders.substr(at, end - at), "/", name);
    if (end > at && access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return "";
}

}  // namespace

bool Assembler::is_library() const { return version.starts_with(kLibrary); }

std::string Describe(const Assembler& assembler) {
  if (!assembler.is_library()) return StrCat("ptxas ", assembler.version);
  return StrCat("nvJitLink ", assembler.version.substr(kLibrary.size()));
}

absl::Status CheckForKeys(const Assembler& assembler, std::string_view name) {
  const auto plain = [](unsigned char c) { return c > 32 && c < 127 && !std::strchr("\"\\|", c); };
  const auto in_a_path = [&](unsigned char c) { return c == ' ' || plain(c); };
  if (!std::ranges::all_of(assembler.path, in_a_path)) {
    return InvalidArgument("the path of ", name,
                           " has characters other than ASCII's, or one of "
                           "\", \\ and |: a key of kernels cannot have it");
  }
  if (assembler.version.find(':') != assembler.version.npos ||
      !std::ranges::all_of(assembler.version, plain)) {
    return FailedPrecondition(assembler.path, " says a malformed version: ", assembler.version);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> OutputOf(std::vector<std::string> arguments) {
  const Folder folder;
  if (!folder.ok()) return absl::UnavailableError("cannot make a temporary folder");
  const std::string program = arguments[0];
  TG_ASSIGN_OR_RETURN(const int code, Run(std::move(arguments), folder.File("said")));
  std::string said = Said(folder.File("said"));
  if (code != 0) return FailedPrecondition(program, " ended with exit code ", code, ": ", said);
  return said;
}

absl::StatusOr<Assembler> FindPtxas(const std::string& name) {
  Assembler out{.path = Locate(name), .version = ""};
  if (out.path.empty() || access(out.path.c_str(), X_OK) != 0) {
    return NotFound("there is no program ", name.empty() ? "ptxas" : name);
  }
  TG_RETURN_IF_ERROR(CheckForKeys(out, name));
  TG_ASSIGN_OR_RETURN(const std::string said, OutputOf({out.path, "--version"}));
  const size_t at = said.find(", V");
  if (at == said.npos) {
    return FailedPrecondition(out.path, " --version does not say its version: ", said);
  }
  out.version = said.substr(at + 2, said.find_first_of(" \r\n", at + 2) - (at + 2));
  TG_RETURN_IF_ERROR(CheckForKeys(out, name));
  return out;
}

std::string CubinFeatures(const Assembler& assembler) {
  return StrCat(kCubin, assembler.version, ":", assembler.path);
}

std::string CubinOrPtxFeatures(const Assembler& assembler) {
  return StrCat(kCubinOrPtx, assembler.version, ":", assembler.path);
}

bool TakesPtx(const Target& target) { return target.features.starts_with(kCubinOrPtx); }

bool IsLeftToDriver(const Target& target, std::string_view code) {
  return TakesPtx(target) && !code.starts_with(kElf);
}

std::optional<Assembler> AssemblerOf(const Target& target) {
  const std::string_view features = target.features;
  if (!features.starts_with(kCubin) && !features.starts_with(kCubinOrPtx)) return std::nullopt;
  const size_t begin = features.find(':') + 1;
  const size_t colon = features.find(':', begin);
  if (colon == features.npos) return std::nullopt;
  return Assembler{.path = std::string(features.substr(colon + 1)),
                   .version = std::string(features.substr(begin, colon - begin))};
}

absl::StatusOr<std::string> AssemblePtx(const Assembler& assembler, const std::string& ptx,
                                        const std::string& arch, const std::string& kernel) {
  if (assembler.is_library()) return LinkPtx(assembler.path, ptx, arch, kernel);
  const Folder folder;
  if (!folder.ok()) return absl::UnavailableError("cannot make a temporary folder");
  TG_RETURN_IF_ERROR(WriteFile(folder.File("in.ptx"), ptx));
  TG_ASSIGN_OR_RETURN(const int code, Run({assembler.path, "-arch", arch, folder.File("in.ptx"),
                                           "-o", folder.File("out.cubin")},
                                          folder.File("said")));
  if (code != 0) {
    return Internal("kernel ", kernel, ": ptxas ended with exit code ", code, ": ",
                    Said(folder.File("said")));
  }
  TG_ASSIGN_OR_RETURN(std::string cubin, ReadFile(folder.File("out.cubin"), kMostCode));
  if (!cubin.starts_with(kElf)) {
    return Internal("kernel ", kernel, ": ptxas ended well, but wrote no cubin");
  }
  return cubin;
}

}  // namespace telegrad
