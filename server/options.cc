#include "server/options.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "devices/remote/remote_device.h"
#include "devices/remote/remote_peers.h"
#include "engine/base/thread.h"
#include "engine/compile/compiler.h"
#include "engine/compile/find_assembler.h"
#include "engine/compile/worker_process.h"
#include "server/admin/address.h"
#include "server/admin/descriptors.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

// What makes the code of NV devices, where there are to be any.
absl::StatusOr<std::string> NvAssembler(const Flags& flags) {
  if (flags.GetInt("nv-devices") == 0) return absl::NotFoundError("none was looked for");
  TG_ASSIGN_OR_RETURN(const Assembler ptxas, FindPtxas(flags.GetString("ptxas")));
  return CubinFeatures(ptxas);
}

AssemblerNames NamesOfAssemblers(const Flags& flags) {
  AssemblerNames out{.ptxas = flags.GetString("ptxas"),
                     .nvjitlink = flags.GetString("nvjitlink"),
                     .executable = ""};
  if (flags.GetInt("compile-workers") == 0) return out;
  if (auto worker = FindCompileWorker(); worker.ok()) out.executable = *std::move(worker);
  return out;
}

// What makes the code of CUDA's GPUs, in a compile worker: what takes our PTX. It is tried once for
// each kind of GPU.
std::function<absl::StatusOr<std::string>(const std::string&)> CudaAssembler(const Flags& flags) {
  if (flags.GetInt("cuda-devices") == 0) return {};
  struct Tried {
    Mutex mutex;
    std::map<std::string, absl::StatusOr<std::string>> by_arch TG_GUARDED_BY(mutex);
  };
  return [names = NamesOfAssemblers(flags),
          tried = std::make_shared<Tried>()](const std::string& arch) {
    const MutexLock lock(tried->mutex);
    const auto found = tried->by_arch.find(arch);
    if (found != tried->by_arch.end()) return found->second;
    absl::Status of_ptxas;
    const auto assembler = FindAssembler(names, arch, &of_ptxas);
    if (assembler.ok()) {
      if (!of_ptxas.ok()) {
        Log(LogLevel::kInfo, "ptxas_unused",
            {{"arch", arch}, {"instead", Describe(*assembler)}, {"reason", of_ptxas.message()}});
      }
      return tried->by_arch.emplace(arch, CubinOrPtxFeatures(*assembler)).first->second;
    }
    Log(LogLevel::kInfo, "ptxas_unused",
        {{"arch", arch}, {"instead", "the driver"}, {"reason", assembler.status().message()}});
    return tried->by_arch.emplace(arch, assembler.status()).first->second;
  };
}

// What --remote-bulk says of the servers, by their names.
absl::StatusOr<std::map<std::string, std::string>> RemoteBulk(const Flags& flags) {
  std::map<std::string, std::string> all;
  for (const std::string& text : flags.GetList("remote-bulk")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return InvalidArgument("--remote-bulk ", text, ": expected NAME=HOST:PORT or NAME=none");
    }
    const std::string name = text.substr(0, equals), address = text.substr(equals + 1);
    if (address != "none") {
      const auto parsed = ParseListenAddress(address);
      if (!parsed.ok() || parsed->is_unix) {
        return InvalidArgument("--remote-bulk ", text, ": ", address, " is not HOST:PORT or none");
      }
    }
    if (!all.emplace(name, address).second) {
      return InvalidArgument("--remote-bulk ", text, ": ", name, " has been given before");
    }
  }
  return all;
}

absl::StatusOr<std::vector<RemoteOptions>> RemotesOf(const Flags& flags) {
  std::vector<RemoteOptions> all;
  const auto peers = std::make_shared<RemotePeers>();
  TG_ASSIGN_OR_RETURN(auto bulk, RemoteBulk(flags));
  for (const std::string& remote : flags.GetList("remote")) {
    const size_t equals = remote.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == remote.size()) {
      return InvalidArgument("--remote ", remote, ": expected NAME=HOST:PORT or NAME=unix:PATH");
    }
    RemoteOptions options{.name = remote.substr(0, equals), .address = remote.substr(equals + 1)};
    if (const auto parsed = ParseListenAddress(options.address); !parsed.ok()) {
      return InvalidArgument("--remote ", remote, ": ", ToStd(parsed.status().message()));
    }
    options.credentials = {.tls_ca = flags.GetString("remote-tls-ca"),
                           .tls_cert = flags.GetString("remote-tls-cert"),
                           .tls_key = flags.GetString("remote-tls-key"),
                           .token_file = flags.GetString("remote-token-file"),
                           .local_socket = flags.GetString("remote-local-socket")};
    if (auto of = bulk.extract(options.name)) options.bulk_address = std::move(of.mapped());
    options.peers = peers;
    options.connect_time = absl::Milliseconds(flags.GetInt("remote-wait"));
    options.drain = absl::Seconds(flags.GetInt("drain-seconds"));
    options.grace = absl::Milliseconds(flags.GetInt("remote-grace"));
    all.push_back(std::move(options));
  }
  if (!bulk.empty()) {
    return InvalidArgument("--remote-bulk ", bulk.begin()->first, ": there is no --remote ",
                           bulk.begin()->first);
  }
  return all;
}

// The devices of the servers that --remote names.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenRemotes(
    const Flags& flags, const std::function<void(const std::string&)>& on_open,
    std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> all;
  TG_ASSIGN_OR_RETURN(const std::vector<RemoteOptions> remotes, RemotesOf(flags));
  for (const RemoteOptions& options : remotes) {
    on_open(StrCat("remote ", options.name, " at ", options.address));
    TG_ASSIGN_OR_RETURN(auto devices, OpenRemote(options, notes));
    for (auto& device : devices) all.push_back(std::move(device));
  }
  return all;
}

Isolation IsolationOf(const Flags& flags) {
  const std::string& choice = flags.GetString("isolate");
  if (choice == "device") return Isolation::kDevice;
  return choice == "tenant" ? Isolation::kTenant : Isolation::kNone;
}

void TellWorker(const WorkerEvent& event, Metrics& metrics) {
  if (event.ended.empty()) {
    Log(LogLevel::kInfo, "device_worker", {{"worker", event.worker}, {"pid", int64_t{event.pid}}});
    return;
  }
  metrics.Add(Metric::kDeviceWorkerEnds);
  Log(LogLevel::kError, "device_worker_ended",
      {{"worker", event.worker},
       {"reason", event.ended},
       {"pid", int64_t{event.pid}},
       {"pause_ms", absl::ToInt64Milliseconds(event.pause)}});
}

}  // namespace

ListenOptions ListenersOf(const Flags& flags, const ServiceManager& manager) {
  ListenOptions options{.compute = flags.GetList("listen"),
                        .data = flags.GetList("data-listen"),
                        .admin = flags.GetList("admin-listen"),
                        .passed = manager.sockets(),
                        .bulk = flags.GetList("bulk-listen"),
                        .bulk_sockets = flags.GetInt("bulk-sockets"),
                        .tls = {.certificate = flags.GetString("tls-cert"),
                                .key = flags.GetString("tls-key"),
                                .client_ca = flags.GetString("tls-client-ca")},
                        .certificates_required = flags.GetString("jwt-keys").empty() &&
                                                 flags.GetString("local-socket").empty(),
                        .max_resets = flags.GetInt("max-resets"),
                        .handshake_ms = flags.GetInt("handshake-time"),
                        .memory = flags.GetInt("grpc-memory"),
                        .anywhere = flags.GetBool("insecure-listen-anywhere")};
  if (options.compute.empty()) options.compute.push_back("127.0.0.1:50055");
  return options;
}

AuthenticatorOptions IdentityOf(const Flags& flags) {
  return {.jwt_keys = flags.GetString("jwt-keys"),
          .rules = {.issuer = flags.GetString("jwt-issuer"),
                    .audience = flags.GetString("jwt-audience")},
          .certificates = !flags.GetString("tls-client-ca").empty(),
          .tls_tenants = flags.GetString("tls-tenants"),
          .tls_crl = flags.GetString("tls-crl"),
          .tls_client_ca = flags.GetString("tls-client-ca"),
          .local_tokens = !flags.GetString("local-socket").empty()};
}

SessionLimits LimitsOf(const Flags& flags) {
  SessionLimits limits;
  int64_t job_time = 0;
  const std::pair<std::string_view, int64_t*> rows[] = {
      {"max-sessions", &limits.sessions},     {"session-handles", &limits.handles},
      {"session-bytes", &limits.bytes},       {"staged-bytes", &limits.staged_bytes},
      {"head-bytes", &limits.head_bytes},     {"trace-events", &limits.trace_events},
      {"transfers", &limits.transfers},       {"job-time", &job_time},
      {"session-lease", &limits.lease_ms},    {"session-max-lease", &limits.max_lease_ms},
      {"session-grace", &limits.grace_ms},    {"run-time", &limits.run.ms},
      {"launch-time", &limits.run.launch_ms},
#define BUDGET(name, default_value, what) {"job-" #name, &limits.job.name},
#include "engine/base/budget.def"
#undef BUDGET
  };
  for (const auto& [name, limit] : rows) *limit = flags.GetInt(name);
  limits.job.time = std::chrono::milliseconds(job_time);
  limits.run.bytes = flags.GetInt("run-memory");
  return limits;
}

CompileService::Options CompilersOf(const Flags& flags) {
  constexpr int64_t kMostByDefault = 16;
  int64_t workers = flags.GetInt("compile-workers");
  if (workers < 0) {
    workers = std::min<int64_t>(AvailableProcessors(), kMostByDefault);
  }
  const bool opencl = flags.GetInt("opencl-devices") != 0;
  return {.workers = static_cast<int>(workers),
          .opencl_library = opencl ? flags.GetString("opencl-library") : "",
          .kernel_time = std::chrono::milliseconds(flags.GetInt("kernel-time")),
          .worker_memory = flags.GetInt("compile-memory"),
          .nice = static_cast<int>(flags.GetInt("compile-nice")),
          .store = flags.GetString("kernel-cache"),
          .store_bytes = flags.GetInt("kernel-cache-bytes"),
          .reproducers = flags.GetString("reproducers"),
          .search = flags.GetInt("search-seconds") > 0,
          .found_moves = flags.GetString("search-cache")};
}

DriverOptions DriversOf(const Flags& flags, Metrics* metrics,
                        const std::function<void(const std::string&)>& on_open) {
  Target host = HostTarget(static_cast<int>(flags.GetInt("cpu-threads")));
  host.winograd = flags.GetBool("cpu-winograd");
  host.deterministic = flags.GetBool("deterministic");
  return {.host = std::move(host),
          .cpu_memory = flags.GetInt("cpu-memory"),
          .cpu_devices = flags.GetInt("cpu-devices"),
          .launch_ms = flags.GetInt("launch-time"),
          .isolate = IsolationOf(flags),
          .worker_hang_ms = flags.GetInt("worker-hang-time"),
          .gpu_workers = flags.GetInt("gpu-workers"),
          .on_worker = [metrics](const WorkerEvent& event) { TellWorker(event, *metrics); },
          .on_open = on_open,
          .disk_roots = flags.GetList("disk-root"),
          .read_only_disk_roots = flags.GetList("disk-root-readonly"),
          .disk_growth = flags.GetInt("disk-growth"),
          .null_devices = flags.GetInt("null-devices"),
          .open_remotes =
              [&flags, on_open](std::vector<std::string>* why_not) {
                return OpenRemotes(flags, on_open, why_not);
              },
          .pinned_memory = flags.GetInt("pinned-memory"),
          .cuda_library = flags.GetString("cuda-library"),
          .cuda_devices = flags.GetInt("cuda-devices"),
          .cuda_memory = flags.GetInt("cuda-memory"),
          .cuda_assembler = CudaAssembler(flags),
          .hip_library = flags.GetString("hip-library"),
          .hip_devices = flags.GetInt("hip-devices"),
          .hip_memory = flags.GetInt("hip-memory"),
          .opencl_library = flags.GetString("opencl-library"),
          .opencl_devices = flags.GetInt("opencl-devices"),
          .opencl_memory = flags.GetInt("opencl-memory"),
          .nv_devices = flags.GetInt("nv-devices"),
          .nv_memory = flags.GetInt("nv-memory"),
          .nv_assembler = NvAssembler(flags)};
}

absl::StatusOr<int64_t> RoomForConnections(const Flags& flags, int64_t limit) {
  constexpr int64_t kLeast = 8, kFiles = 1024, kOthers = 2048;
  const auto roots = static_cast<int64_t>(flags.GetList("disk-root").size() +
                                          flags.GetList("disk-root-readonly").size());
  const int64_t wanted = kOthers + flags.GetInt("bulk-sockets") + roots * kFiles;
  const int64_t room = limit - CountOpenDescriptors() - std::min(limit / 4, wanted);
  if (room < kLeast) {
    return ResourceExhausted("a process may have ", limit, " descriptors, which leaves ", room,
                             " for connections, expected at least ", kLeast,
                             "; raise it with ulimit -Hn or LimitNOFILE");
  }
  return std::min(room, flags.GetInt("max-connections"));
}

}  // namespace telegrad
