// What the examples share: flags, the connection, exit codes. Each example is a program of one
// file, made to be copied: it builds its graphs, sends them to a daemon, and keeps all state there.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/local_daemon.h"
#include "client/cc/remote_plan.h"
#include "client/cc/remote_session.h"
#include "client/terminal/progress.h"
#include "engine/base/files.h"
#include "engine/base/flag_pages.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad::examples {

inline constexpr FlagRow kAddress = {
    "address",
    'a',
    FlagKind::kString,
    "",
    "ADDRESS",
    "Address of the daemon, HOST:PORT or unix:PATH (default: TELEGRAD_ADDRESS, else the daemon of "
    "this machine, else 127.0.0.1:50055)"};

inline absl::StatusOr<std::shared_ptr<Connection>> Connect(const Flags& flags) {
  const std::string& address = flags.GetString("address");
  ConnectOptions options;
  options.credentials = ClientCredentials::FromEnvironment();
  if (const char* device = std::getenv("TELEGRAD_DEVICE")) options.device = device;
  const std::string to = address.empty() ? DefaultAddress() : address;
  const Progress progress(StrCat("connecting to ", to));
  return Connection::Connect(to, options);
}

// The value of an integer flag within [low, high].
inline absl::StatusOr<int64_t> IntFlag(const Flags& flags, std::string_view name, int64_t low,
                                       int64_t high) {
  const int64_t value = flags.GetInt(name);
  if (value < low || value > high) {
    return InvalidArgument("--", name, ": ", value, " is outside of [", low, ", ", high, "]");
  }
  return value;
}

inline double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// The only tensor of a file, as .npy.
inline absl::StatusOr<HostTensor> ReadTensor(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const auto file, OpenTensorFile(path));
  if (file->tensors().size() != 1) {
    return InvalidArgument(path, " has ", file->tensors().size(), " tensors, expected one");
  }
  return file->Load(file->tensors()[0]);
}

inline absl::Status WriteNpyFile(const std::string& path, const HostTensor& tensor) {
  return SaveFile(path, [&](ByteSink* sink) { return WriteNpy(tensor, sink); });
}

// Sends a plan with the weights that it needs and the server lacks, and has it compiled.
inline absl::StatusOr<std::unique_ptr<RemotePlan>> Send(RemoteSession* session, RemoteState* state,
                                                        const Plan& plan) {
  const Progress progress(
      SessionLine(*session, "sending weights", "compiling", state->BytesToFill(plan)));
  TG_ASSIGN_OR_RETURN(auto remote, RemotePlan::Create(session, state, plan, /*compile=*/true));
  const Future<Done> arrived = session->Sync();
  TG_RETURN_IF_ERROR(arrived.Get().status());
  return remote;
}

// Runs a plan `runs` times and prints the median of the times until `output` was read; its last
// content.
inline absl::StatusOr<HostTensor> RunTimed(RemotePlan* plan, const char* output, int64_t runs,
                                           const char* what) {
  HostTensor out;
  std::vector<double> seconds;
  auto progress = std::make_unique<Progress>("running", runs, "runs");
  for (int64_t i = 0; i < runs; ++i) {
    progress->Done(i);
    const auto start = std::chrono::steady_clock::now();
    plan->Run();
    TG_ASSIGN_OR_RETURN(out, plan->Read(output));
    seconds.push_back(Seconds(start));
  }
  progress = nullptr;
  std::ranges::sort(seconds);
  std::printf("%.1f ms %s (median of %lld)\n", 1e3 * seconds[seconds.size() / 2], what,
              static_cast<long long>(runs));
  return out;
}

// The five most likely of a distribution, a line each.
inline void PrintLikely(const char* what, const HostTensor& chances) {
  const std::vector<double> p = chances.AsDoubles();
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t n = std::min<size_t>(5, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(n), order.end(),
                    [&](size_t a, size_t b) { return p[a] > p[b]; });
  for (size_t i = 0; i < n; ++i)
    std::printf("%s %6zu  %6.2f%%\n", what, order[i], 100 * p[order[i]]);
}

// What --weights names, for the plan's state; nothing if it is empty. The error names the first
// tensor that the file lacks; shapes are checked when they are sent.
inline absl::Status LoadWeights(const Flags& flags, const Plan& plan, RemoteState* state) {
  const std::string& path = flags.GetString("weights");
  if (path.empty()) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(std::shared_ptr<const TensorFile> file, OpenTensorFile(path));
  for (const Slot& slot : plan.slots) {
    if (slot.role == SlotRole::kState && file->Find(slot.name) == nullptr) {
      return NotFound("--weights: ", path, " has ", file->tensors().size(), " tensors, none named ",
                      slot.name, ", which is ", Name(slot.dtype), " ", ToString(slot.shape));
    }
  }
  state->Preset(std::move(file));
  return absl::OkStatus();
}

// main(): 0 done, 1 failed, 2 wrong usage, 3 no daemon answers.
inline int Main(int argc, char** argv, std::string_view summary, std::vector<FlagRow> rows,
                absl::Status (*run)(const Flags&)) {
  rows.push_back(kAddress);
  const auto flags = Flags::Parse(rows, Arguments(argc, argv));
  if (flags.ok() && flags->help()) {
    std::printf("Usage: %s [flags]\n%s\n\nFlags:\n%s", argv[0], std::string(summary).c_str(),
                FlagHelp(rows).c_str());
    return 0;
  }
  if (flags.ok()) {
    const std::string_view path = argv[0];
    const ProgramPage page = {.name = path.substr(path.rfind('/') + 1),
                              .section = "1",
                              .summary = "an example of Telegrad",
                              .arguments = "",
                              .description = summary,
                              .exit_codes = "0 done, 1 failed, 2 wrong usage, 3 no daemon answers.",
                              .flags = rows};
    if (const std::optional<int> code = PrintPage(page, *flags)) return *code;
  }
  absl::Status status = flags.status();
  if (flags.ok() && !flags->positional().empty()) {
    status = InvalidArgument("unexpected argument ", flags->positional().front(), "; see --help");
  }
  if (status.ok()) status = run(*flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", argv[0], std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : absl::IsUnavailable(status) ? 3 : 1;
}

}  // namespace telegrad::examples
