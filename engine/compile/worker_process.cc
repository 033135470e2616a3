#include "engine/compile/worker_process.h"

#include <optional>
#include <vector>

#include "engine/base/status.h"
#include "engine/process/processor_use.h"

namespace telegrad {
namespace {

constexpr std::string_view kName = "telegrad-compile-worker";

// What drivers keep files by.
constexpr std::string_view kFolderVariables[] = {"HOME", "XDG_CACHE_HOME", "TMPDIR",
                                                 "POCL_CACHE_DIR"};

std::vector<std::string> FolderEnvironment(const TemporaryFolder& folder) {
  std::vector<std::string> out;
  for (const std::string_view name : kFolderVariables) {
    out.push_back(StrCat(name, "=", folder.path()));
  }
  out.emplace_back("PATH=/usr/bin:/bin");  // PoCL runs the linker
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const Options& options, std::chrono::nanoseconds patience) {
  const auto bad = [&](const auto&... what) {
    return absl::UnavailableError(
        StrCat("cannot start the compile worker ", options.executable, ": ", what...));
  };
  ChildProcess::Options child{
      .executable = options.executable, .memory_bytes = options.memory_bytes, .nice = options.nice};
  std::optional<TemporaryFolder> folder;  // where there can be none, drivers do without
  if (!options.opencl_library.empty()) {
    child.arguments.push_back(options.opencl_library);
    if (auto made = TemporaryFolder::Make("worker")) folder.emplace(*std::move(made));
    if (folder) child.environment = FolderEnvironment(*folder);
  }
  auto process = ChildProcess::Start(child);
  if (!process.ok()) return bad(ToStd(process.status().message()));
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(*std::move(process), std::move(folder)));
  const absl::Status status = worker->Greet(patience);
  if (status.ok()) return worker;
  const absl::Status failed = bad(ToStd(status.message()), "; it ", worker->process_->Bury());
  return worker->was_killed() ? absl::AbortedError(failed.message()) : failed;
}

absl::Status WorkerProcess::Greet(std::chrono::nanoseconds patience) {
  TG_RETURN_IF_ERROR(AwaitFrameOf(process_->pid(), process_->socket(), patience));
  TG_ASSIGN_OR_RETURN(const std::string frame,
                      ReadFrame(process_->socket(), kMaxHelloBytes,
                                std::chrono::steady_clock::now() + kMostPatience * patience));
  TG_ASSIGN_OR_RETURN(hello_, DecodeHello(frame));
  if (hello_.protocol != kWorkerProtocol) {
    return FailedPrecondition("it uses version ", hello_.protocol, " of the protocol, not ",
                              kWorkerProtocol);
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerAnswer> WorkerProcess::Ask(const WorkerRequest& request,
                                                std::chrono::nanoseconds patience) {
  // To take the question and to give the answer a worker needs next to no processor time, but on a
  // busy machine it gets that late.
  const auto soon = [&] { return std::chrono::steady_clock::now() + kMostPatience * patience; };
  absl::Status status = WriteFrame(process_->socket(), Encode(request), soon());
  if (status.ok()) status = AwaitFrameOf(process_->pid(), process_->socket(), patience);
  if (status.ok()) {
    auto frame = ReadFrame(process_->socket(), kMaxAnswerBytes, soon());
    if (frame.ok()) {
      auto answer = DecodeAnswer(*frame);
      if (answer.ok() && answer->id == request.id) return answer;
      status = answer.ok() ? absl::DataLossError("an answer to another request") : answer.status();
    } else {
      status = frame.status();
    }
  }
  if (absl::IsDeadlineExceeded(status)) return status;
  const std::string end = process_->Bury();
  if (absl::IsUnavailable(status)) return absl::AbortedError(StrCat("its compiler ", end));
  return absl::AbortedError(
      StrCat("its compiler answered garbage (", ToStd(status.message()), ") and ", end));
}

absl::StatusOr<std::string> FindCompileWorker() { return FindBeside(kName, "the compile worker"); }

}  // namespace telegrad
