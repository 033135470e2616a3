// Starts a driver's process: by the thread that watches, since a child ends with the thread that
// started it.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "devices/api/trace.h"
#include "devices/hosted/driver_process.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

extern char** environ;

namespace telegrad {
namespace {

// By which drivers are told where to keep what they have compiled.
constexpr std::string_view kCaches[] = {"XDG_CACHE_HOME=", "CUDA_CACHE_PATH=", "POCL_CACHE_DIR="};

// What drivers read of the environment, by the beginnings of the names; `caches`: the folder for
// what they compile, "": as the environment has it.
std::vector<std::string> DriverEnvironment(const std::string& caches) {
  std::vector<std::string> kept;
  if (!caches.empty()) {
    for (const std::string_view name : kCaches) kept.push_back(StrCat(name, caches));
  }
  const auto is_set = [&](std::string_view text) {
    return !caches.empty() && std::ranges::any_of(kCaches, [text](std::string_view name) {
      return text.starts_with(name);
    });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    for (const std::string_view begin :
         {"CUDA_", "NVIDIA_", "HIP_", "HSA_", "ROCR_", "ROCM_", "AMD_", "GPU_", "POCL_", "CL_",
          "HOME=", "PATH=", "XDG_CACHE_HOME="}) {
      if (text.starts_with(begin) && !is_set(text)) kept.emplace_back(text);
    }
  }
  return kept;
}

}  // namespace

absl::StatusOr<std::shared_ptr<DriverProcess>> DriverProcess::Start(Options options) {
  std::shared_ptr<DriverProcess> process(new DriverProcess(std::move(options)));
  TG_ASSIGN_OR_RETURN(process->thread_, StartThread([self = process.get()] { self->Keep(); }));
  absl::Status status;
  {
    ReleasableLock lock(process->mutex_);
    while (!process->opened_or_not_) process->changed_.wait(lock);
    status = process->why_not_;
  }
  if (status.ok()) return process;
  process->Stop();
  return status;
}

void DriverProcess::Keep() {
  watcher_ = std::this_thread::get_id();
  absl::Status status = Open();
  if (!status.ok()) {
    status = absl::UnavailableError(StrCat("cannot start ", options_.whose, ", ",
                                           options_.executable, ": ", ToStd(status.message())));
    if (process_ != nullptr) {
      status = absl::UnavailableError(StrCat(ToStd(status.message()), "; it ", process_->Bury()));
    }
  }
  {
    const MutexLock lock(mutex_);
    opened_or_not_ = true;
    why_not_ = status;
    if (!status.ok()) {
      over_ = status;
      is_over_ = true;
    }
    changed_.notify_all();
  }
  if (status.ok()) Watch();
  End("was closed");
  if (reader_.joinable()) reader_.join();
  folder_.reset();
}

absl::Status DriverProcess::Open() {
  const int64_t staging_bytes = StagingOffset(kHostedQueues, 0);
  TG_ASSIGN_OR_RETURN(const UniqueFd control,
                      CreateSharedFile("telegrad-driver", sizeof(HostedControl)));
  TG_ASSIGN_OR_RETURN(control_, SharedMapping::Map(control.get(), sizeof(HostedControl)));
  TG_ASSIGN_OR_RETURN(const UniqueFd staging, CreateSharedFile("telegrad-staging", staging_bytes));
  TG_ASSIGN_OR_RETURN(staging_, SharedMapping::Map(staging.get(), staging_bytes));
  eventfd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!eventfd_.valid()) return ResourceExhausted("no eventfd: ", std::strerror(errno));
  if (auto made = TemporaryFolder::Make("driver")) folder_.emplace(*std::move(made));
  if (options_.own_caches && !folder_) {
    return absl::UnavailableError("there is no folder for what its driver compiles");
  }
  ChildProcess::Options child{
      .executable = options_.executable,
      .arguments = {"driver"},
      .environment = DriverEnvironment(options_.own_caches ? folder_->path() : "")};
  if (folder_) child.environment.push_back("TMPDIR=" + folder_->path());
  for (const std::string& entry : options_.environment) child.environment.push_back(entry);
  TG_ASSIGN_OR_RETURN(process_, ChildProcess::Start(child));
  pid_ = process_->pid();
  TG_RETURN_IF_ERROR(Greet(control, staging));
  opened_ns_ = SteadyNs();
  TG_ASSIGN_OR_RETURN(reader_, StartThread([this] { Read(); }));
  return absl::OkStatus();
}

absl::StatusOr<std::string> DriverProcess::ReadPatiently(size_t most) {
  TG_RETURN_IF_ERROR(AwaitFrameOf(pid_, process_->socket(), options_.patience));
  return ReadFrame(process_->socket(), most, std::chrono::steady_clock::now() + options_.patience);
}

absl::Status DriverProcess::Greet(const UniqueFd& control, const UniqueFd& staging) {
  TG_ASSIGN_OR_RETURN(const std::string hello, ReadPatiently(kMaxHostedHello));
  TG_RETURN_IF_ERROR(CheckHostedHello(hello));
  const int descriptors[] = {control.get(), staging.get(), eventfd_.get()};
  TG_RETURN_IF_ERROR(SendDescriptors(process_->socket(), descriptors));
  TG_RETURN_IF_ERROR(WriteFrame(process_->socket(), EncodeHostedSetup(options_.setup),
                                std::chrono::steady_clock::now() + options_.patience));
  TG_ASSIGN_OR_RETURN(const std::string frame, ReadPatiently(kMaxHostedOpened));
  TG_ASSIGN_OR_RETURN(opened_, DecodeHostedOpened(frame));
  return opened_.status;
}

}  // namespace telegrad
