// telegradd: puts the daemon together and runs it until SIGTERM or SIGINT. On SIGHUP it reads its
// configuration again.
//
// SIGTERM drains: the listeners close, health turns to NOT_SERVING, sessions end what they were
// asked, and what is still running after --drain-seconds is cancelled. A second signal cancels at
// once.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "devices/drivers.h"
#include "devices/remote/remote_device.h"
#include "devices/remote/remote_peers.h"
#include "engine/base/flag_pages.h"
#include "engine/base/flags.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/ptxas.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/shared_caches.h"
#include "engine/opencl/library.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/admin/access_log.h"
#include "server/admin/address.h"
#include "server/admin/compile_service.h"
#include "server/admin/descriptors.h"
#include "server/admin/exporter.h"
#include "server/admin/heap_memory.h"
#include "server/admin/limited_log.h"
#include "server/admin/log.h"
#include "server/admin/metrics.h"
#include "server/admin/service_manager.h"
#include "server/admin/ticker.h"
#include "server/admin/tracer.h"
#include "server/data/local_data.h"
#include "server/data/peers.h"
#include "server/flags.h"
#include "server/http_front_end.h"
#include "server/identity/authenticator.h"
#include "server/identity/local_socket.h"
#include "server/model_serving.h"
#include "server/service/admin_service.h"
#include "server/service/compute_service.h"
#include "server/service/configuration.h"
#include "server/service/data_service.h"
#include "server/service/health_service.h"
#include "server/service/inference_service.h"
#include "server/service/listeners.h"
#include "server/service/otlp_exporter.h"
#include "server/service/reflection_service.h"
#include "server/service/session_service.h"
#include "server/tenant/caching_engine.h"
#include "server/tenant/kernel_search.h"
#include "server/tenant/quotas.h"
#include "server/tenant/tenant_directory.h"
#include "server/tenant/tenant_metrics.h"

namespace telegrad {
namespace {

constexpr ProgramPage kPage = {
    .name = "telegradd",
    .section = "8",
    .summary = "serves tensor graphs over gRPC",
    .arguments = "",
    .description =
        "telegradd checks the graphs that clients send, compiles them into kernels for the "
        "machine's processors and GPUs, and runs them. It prints the addresses that it listens on "
        "to standard output and its log to standard error.\n\n"
        "SIGTERM drains it: it takes no new work, running operations have --drain-seconds to "
        "finish, and it exits. A second SIGTERM cancels what still runs. Started by systemd it "
        "reports its state, answers the watchdog and takes sockets that systemd opened.\n\n"
        "All flags can also be given in a file, --config. On SIGHUP the daemon reads it again, "
        "with "
        "the files that it names; a file with a mistake changes nothing, and the log says why.",
    .exit_codes = "0 after a drain, 1 after a failure, 2 for wrong usage.",
    .flags = kDaemonFlags,
};

constexpr int kUsageError = 2;
constexpr int kWorkers = 2;
constexpr int kSpareCompilers = 14;  // for tenants of which nothing is being compiled

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

// Null unless one is asked for.
absl::StatusOr<std::unique_ptr<LocalSocket>> StartLocalSocket(const Flags& flags,
                                                              const Authenticator& authenticator,
                                                              LocalSocket::Handlers handlers) {
  const std::string& path = flags.GetString("local-socket");
  const bool memory = flags.GetBool("local-memory");
  if (path.empty() && memory) return InvalidArgument("--local-memory needs a --local-socket");
  if (path.empty()) return nullptr;
  TG_ASSIGN_OR_RETURN(LocalUsers users, LocalUsers::Parse(flags.GetList("local-users")));
  if (!memory) handlers.clear();
  handlers["token"] = [&authenticator](const LocalSocket::Request& request) {
    return StrCat(absl::ToInt64Seconds(LocalTokens::kLifetime), " ",
                  authenticator.local_tokens()->Issue(request.principal, absl::Now()));
  };
  TG_ASSIGN_OR_RETURN(auto socket, LocalSocket::Start(path, std::move(users), std::move(handlers)));
  std::printf("local socket on %s\n", path.c_str());
  return socket;
}

SessionLimits Limits(const Flags& flags) {
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

CompileService::Options CompileOptions(const Flags& flags) {
  constexpr int64_t kMostByDefault = 16;
  int64_t workers = flags.GetInt("compile-workers");
  if (workers < 0) {
    workers = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostByDefault);
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

// What makes the code of NV devices, where there are to be any.
absl::StatusOr<std::string> NvAssembler(const Flags& flags) {
  if (flags.GetInt("nv-devices") == 0) return absl::NotFoundError("none was looked for");
  TG_ASSIGN_OR_RETURN(const Ptxas ptxas, FindPtxas(flags.GetString("ptxas")));
  return CubinFeatures(ptxas);
}

// The devices of the servers that --remote names.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenRemotes(const Flags& flags,
                                                                 std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> all;
  const auto peers = std::make_shared<RemotePeers>();
  for (const std::string& remote : flags.GetList("remote")) {
    const size_t equals = remote.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == remote.size()) {
      return InvalidArgument("--remote ", remote, ": expected NAME=HOST:PORT or NAME=unix:PATH");
    }
    RemoteOptions options{.name = remote.substr(0, equals), .address = remote.substr(equals + 1)};
    options.credentials = {.tls_ca = flags.GetString("remote-tls-ca"),
                           .tls_cert = flags.GetString("remote-tls-cert"),
                           .tls_key = flags.GetString("remote-tls-key"),
                           .token_file = flags.GetString("remote-token-file"),
                           .local_socket = flags.GetString("remote-local-socket")};
    options.peers = peers;
    options.connect_time = absl::Milliseconds(flags.GetInt("remote-wait"));
    options.grace = absl::Milliseconds(flags.GetInt("remote-grace"));
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
      {{"worker", event.worker}, {"reason", event.ended}, {"pid", int64_t{event.pid}}});
}

// How many connections of gRPC leave descriptors for all else: what is open now, and a reserve for
// files, workers and the other sockets.
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

void CollectFrom(const SharedCaches& caches, const DevicePool& pool, Metrics& metrics) {
  const ExecutableCache::Stats stats = caches.stats();
  const std::pair<Metric, uint64_t> rows[] = {
      {Metric::kCompiled, stats.misses},
      {Metric::kKernelsCompiled, stats.kernels_compiled},
      {Metric::kKernelHits, stats.kernel_cache_hits},
      {Metric::kScheduleNs, stats.schedule_ns},
      {Metric::kLowerNs, stats.lower_ns},
      {Metric::kCompileNs, stats.compile_ns},
      {Metric::kAccessesProved, stats.bounds.proved},
      {Metric::kAccessesGated, stats.bounds.gated},
      {Metric::kAccessesByData, stats.bounds.data_dependent},
      {Metric::kLaunches, stats.launches},
      {Metric::kSegments, stats.segments},
  };
  for (const auto& [metric, count] : rows) metrics.Set(metric, static_cast<int64_t>(count));
  metrics.Set(Metric::kTransferBytes, stats.bytes_sent);
  int64_t healthy = 0, limit = 0, used = 0, footprint = 0, remote = 0, round_trip = 0;
  for (const auto& device : pool.devices()) {
    if (const auto link = device->link()) {
      ++remote;
      round_trip = std::max(round_trip, link->round_trip_ns);
    }
    healthy += device->Health().ok() ? 1 : 0;
    limit += device->memory_limit();
    used += device->memory_used();
    footprint += device->memory_footprint();
  }
  metrics.Set(Metric::kDevices, static_cast<int64_t>(pool.devices().size()));
  metrics.Set(Metric::kDevicesHealthy, healthy);
  metrics.Set(Metric::kRemoteDevices, remote);
  metrics.Set(Metric::kRemoteRoundTripNs, round_trip);
  metrics.Set(Metric::kDeviceMemory, limit);
  metrics.Set(Metric::kDeviceMemoryUsed, used);
  metrics.Set(Metric::kDeviceFootprint, footprint);
}

// Which devices take no work; said once when it begins and when it ends.
class LostDevices {
 public:
  explicit LostDevices(const DevicePool* pool) : pool_(pool) {}
  // Whether there are none.
  bool Look() {
    for (const auto& device : pool_->devices()) {
      const absl::Status health = device->Health();
      if (!health.ok() && lost_.insert(device->name()).second) {
        Log(LogLevel::kError, "device_lost",
            {{"name", device->name()}, {"reason", health.message()}});
      } else if (health.ok() && lost_.erase(device->name()) > 0) {
        Log(LogLevel::kInfo, "device_is_back", {{"name", device->name()}});
      }
    }
    return lost_.empty();
  }

 private:
  const DevicePool* const pool_;
  std::set<std::string> lost_;
};

void DrainAndStop(Listeners& listeners, ComputeService& compute, HealthService& health,
                  CallWatch& watch, int64_t seconds, const sigset_t& signals, int signal) {
  Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"seconds", seconds}});
  health.StopServing();
  watch.Drain();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(seconds);
  compute.Drain();
  std::thread shutdown([&] { listeners.Shutdown(deadline); });
  // The second signal: everybody who waits for the deadline is cancelled now.
  std::thread impatient([&] {
    int again = SIGHUP;
    while (again == SIGHUP) sigwait(&signals, &again);
    listeners.CancelCalls();
  });
  listeners.Wait();
  shutdown.join();
  kill(getpid(), SIGTERM);  // ends the wait for a second signal
  impatient.join();
}

// Waits for the signal that ends the daemon. A service manager with a watchdog hears twice in its
// interval that the daemon is alive, which is when its workers still take tasks.
int WaitForEnd(const sigset_t& signals, ServiceManager& manager, TaskPool& workers,
               const std::function<void()>& reload) {
  const auto interval =
      std::chrono::duration_cast<std::chrono::nanoseconds>(manager.watchdog()) / 2;
  const timespec wait{static_cast<time_t>(interval.count() / 1'000'000'000),
                      static_cast<long>(interval.count() % 1'000'000'000)};
  const auto alive = std::make_shared<std::atomic<bool>>(true);
  while (true) {
    int signal = 0;
    if (interval.count() == 0) {
      sigwait(&signals, &signal);
    } else {
      if (alive->exchange(false)) {
        manager.Notify("WATCHDOG=1");
        workers.Post([alive] { *alive = true; });
      }
      signal = sigtimedwait(&signals, nullptr, &wait);
    }
    if (signal == SIGHUP) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      manager.Notify(StrCat("RELOADING=1\nMONOTONIC_USEC=",
                            std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
      reload();
      manager.Notify("READY=1");
    }
    if (signal == SIGTERM || signal == SIGINT) return signal;
  }
}

absl::Status Serve(const Flags& command_line, const Configuration& configuration,
                   const sigset_t& signals) {
  const Flags& flags = configuration.flags;
  TG_ASSIGN_OR_RETURN(ServiceManager manager, ServiceManager::FromEnvironment());
  const int64_t descriptors = RaiseDescriptorLimit();
  TG_RETURN_IF_ERROR(configuration.Check());
  TG_ASSIGN_OR_RETURN(const auto authenticator, Authenticator::Create(IdentityOf(flags)));
  const ListenOptions listen = ListenersOf(flags, manager);
  TG_ASSIGN_OR_RETURN(const auto listeners, Listeners::Create(listen, authenticator->open()));
  const SessionLimits limits = Limits(flags);
  TG_ASSIGN_OR_RETURN(const TenantTable tenant_table, configuration.Tenants(authenticator->open()));

  if (flags.GetInt("opencl-devices") != 0) opencl::PrepareEnvironment();  // threads start next
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<CompileService> compile_service,
                      CompileService::Start(CompileOptions(flags)));
  // What runs on the devices counts and posts when it ends, as late as when they are closed: so
  // they go before these, once no task is left that could use them.
  Metrics metrics;
  Tracer tracer(flags.GetInt("trace-spans"), flags.GetInt("trace-one-in"));
  std::optional<OtlpExporter> exporter_of_spans;
  if (const std::string& collector = flags.GetString("otlp"); !collector.empty()) {
    exporter_of_spans.emplace(OtlpExporter::Options{.address = collector}, &tracer, &metrics);
  }
  std::unique_ptr<AccessLog> access_log;
  if (const std::string& path = flags.GetString("access-log"); !path.empty()) {
    TG_ASSIGN_OR_RETURN(access_log, AccessLog::Open(path, &metrics));
    tracer.AddSink(access_log.get());
  }
  const DriverOptions drivers{
      .host = HostTarget(static_cast<int>(flags.GetInt("cpu-threads"))),
      .cpu_memory = flags.GetInt("cpu-memory"),
      .cpu_devices = flags.GetInt("cpu-devices"),
      .launch_ms = flags.GetInt("launch-time"),
      .isolate = IsolationOf(flags),
      .worker_hang_ms = flags.GetInt("worker-hang-time"),
      .on_worker = [&metrics](const WorkerEvent& event) { TellWorker(event, metrics); },
      .disk_roots = flags.GetList("disk-root"),
      .read_only_disk_roots = flags.GetList("disk-root-readonly"),
      .disk_growth = flags.GetInt("disk-growth"),
      .null_devices = flags.GetInt("null-devices"),
      .open_remotes =
          [&flags](std::vector<std::string>* why_not) { return OpenRemotes(flags, why_not); },
      .cuda_library = flags.GetString("cuda-library"),
      .cuda_devices = flags.GetInt("cuda-devices"),
      .cuda_memory = flags.GetInt("cuda-memory"),
      .hip_library = flags.GetString("hip-library"),
      .hip_devices = flags.GetInt("hip-devices"),
      .hip_memory = flags.GetInt("hip-memory"),
      .opencl_library = flags.GetString("opencl-library"),
      .opencl_devices = flags.GetInt("opencl-devices"),
      .opencl_memory = flags.GetInt("opencl-memory"),
      .nv_devices = flags.GetInt("nv-devices"),
      .nv_memory = flags.GetInt("nv-memory"),
      .nv_assembler = NvAssembler(flags)};
  TaskPool workers({.threads = kWorkers, .spare = kWorkers});
  TaskPool compilers({.threads = static_cast<int>(flags.GetInt("compile-threads")),
                      .spare = kSpareCompilers,
                      .nice = static_cast<int>(flags.GetInt("compile-nice"))});
  std::vector<std::string> notes;
  TG_ASSIGN_OR_RETURN(auto devices, OpenDevices(drivers, &notes));
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<DevicePool> pool,
                      DevicePool::Create(std::move(devices), std::move(notes)));
  for (const std::string& note : pool->notes()) {
    Log(LogLevel::kInfo, "devices left out", {{"why", note}});
  }
  for (const auto& device : pool->devices()) {
    Log(LogLevel::kInfo, "device",
        {{"name", device->name()},
         {"arch", device->target().arch},
         {"cpu", device->target().cpu},
         {"threads", device->target().threads},
         {"memory", device->memory_limit()}});
  }
  std::unique_ptr<ModelServing> serving;  // outlives the tasks that it posts
  const absl::Cleanup tasks_end = [&] {
    compilers.Stop();
    workers.Stop();
  };
  const auto caches = std::make_shared<SharedCaches>(
      ExecutableCache::Limits{.kernels = flags.GetInt("kernels")}, compile_service->services());
  metrics.AddCollector([&](Metrics& m) { CollectFrom(*caches, *pool, m); });
  metrics.AddCollector([&](Metrics& m) { compile_service->CollectInto(m); });
  metrics.AddCollector([](Metrics& m) {
    const HeapMemory heap = ReadHeapMemory();
    m.Set(Metric::kHeapBytes, heap.used);
    m.Set(Metric::kHeapFreeBytes, heap.free);
  });
  metrics.AddCollector(
      [&](Metrics& m) { m.Set(Metric::kCredentialReadErrors, authenticator->read_errors()); });
  TG_ASSIGN_OR_RETURN(const auto peers, Peers::Create(flags.GetList("peer"), &metrics));
  const Environment env{pool.get(), &workers,        &compilers, &metrics,
                        limits,     Clock::Steady(), &tracer,    peers.get()};
  const auto make_engine = [&](const Accounts& accounts) {
    return std::make_shared<CachingEngine>(
        ExecutableCache::Limits{.executables = flags.GetInt("executables"),
                                .specializations = flags.GetInt("specializations")},
        caches, accounts.for_caches());
  };
  TenantDirectory tenants(tenant_table, flags.GetInt("idle-tenants"), make_engine, &metrics);
  metrics.AddLabelled([&] { return MetricsByTenant(tenants); });
  metrics.AddLabelled([&] { return MetricsByDevice(*pool); });
  // Where nobody is asked who they are, it is better to say so now.
  if (authenticator->open()) TG_RETURN_IF_ERROR(tenants.Find(kLocalTenant).status());
  std::optional<KernelSearch> search;
  if (const int64_t seconds = flags.GetInt("search-seconds"); seconds > 0) {
    search.emplace(
        KernelSearch::Options{.seconds = static_cast<double>(seconds),
                              .hot_ns = flags.GetInt("search-threshold") * 1'000'000,
                              .limits = limits.job},
        pool.get(), caches.get(), compile_service->services(),
        [&](std::string_view name) { return tenants.Find(name); }, &metrics);
  }
  SessionRegistry registry(env, access_log.get());
  registry.StartTimer();
  SessionService sessions(env, registry, flags.GetString("local-socket"));
  ComputeService compute(env, registry);
  TG_ASSIGN_OR_RETURN(const auto bulk, listeners->StartBulk(&metrics));
  if (bulk != nullptr) sessions.SetBulkAddress(bulk->addresses().front());
  peers->SetBulk(bulk.get());
  DataService data(env, registry, bulk.get());
  TG_ASSIGN_OR_RETURN(serving, ModelServing::Start(flags, env, make_engine));
  InferenceService inference(serving == nullptr ? nullptr : serving->models());
  Reloader reloader(command_line, configuration, authenticator.get(), &tenants);
  AdminService admin(env, registry, tenants, *pool, reloader, [] { kill(getpid(), SIGTERM); });
  HealthService health;
  ReflectionService reflection;
  CallWatch watch(
      std::chrono::milliseconds(flags.GetInt("handshake-time")),
      [&](const CallWatch::Known& known) {
        TG_RETURN_IF_ERROR(authenticator->CheckGrant(known.grant, known.principal));
        TG_RETURN_IF_ERROR(tenants.CheckServed(known.principal.tenant));
        if (known.acts_for.empty()) return absl::OkStatus();
        TG_RETURN_IF_ERROR(tenants.CheckActsFor(known.principal.tenant, known.acts_for));
        return tenants.CheckServed(known.acts_for);
      });

  std::unique_ptr<MetricsExporter> exporter;
  if (const std::string& address = flags.GetString("metrics"); !address.empty()) {
    TG_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
    if (!parsed.is_local && !flags.GetBool("insecure-listen-anywhere")) {
      return InvalidArgument("--metrics ", address,
                             ": other machines reach this address; say --insecure-listen-anywhere");
    }
    TG_ASSIGN_OR_RETURN(exporter, MetricsExporter::Start(address, &metrics));
    std::printf("metrics on http://%s:%d/metrics\n", parsed.host.c_str(), exporter->port());
  }
  TG_ASSIGN_OR_RETURN(
      const auto local_socket,
      StartLocalSocket(
          flags, *authenticator,
          LocalDataHandlers(&workers, FinderIn(&registry, [&](const std::string& name) {
            return tenants.Find(name);
          }))));
  TG_ASSIGN_OR_RETURN(const int64_t connections, RoomForConnections(flags, descriptors));
  listeners->LimitConnections(connections);
  Log(LogLevel::kInfo, "descriptors", {{"limit", descriptors}, {"connections", connections}});
  TG_RETURN_IF_ERROR(listeners->Start(
      {&admin, &sessions, &compute, &data, &health, &reflection, &inference}, authenticator.get(),
      [&](const std::string& name,
          const std::string& front) -> absl::StatusOr<std::shared_ptr<Tenant>> {
        if (!front.empty()) TG_RETURN_IF_ERROR(tenants.CheckActsFor(front, name));
        return tenants.Find(name);
      },
      [&](const std::string& address) { sessions.SetDataAddress(address); }, &watch, &metrics));
  TG_ASSIGN_OR_RETURN(
      const auto http,
      HttpFrontEnd::Start(flags, serving.get(), authenticator.get(),
                          [&](const std::string& name) { return tenants.Find(name); }));
  std::fflush(stdout);
  LostDevices lost(pool.get());
  IdleTrim trim;
  const Ticker ticker(std::chrono::seconds(1), [&] {
    watch.Look();
    health.SetDevicesHealthy(lost.Look());
    trim.Look(std::clock() / (CLOCKS_PER_SEC / 4));  // processor time
  });
  manager.Notify("READY=1");
  const int signal = WaitForEnd(signals, manager, workers, [&] {
    reloader.Reload().IgnoreError();
    if (http != nullptr) http->Refresh();
  });
  manager.Notify("STOPPING=1");
  if (serving != nullptr) serving->Drain();
  DrainAndStop(*listeners, compute, health, watch, reloader.drain_seconds(), signals, signal);
  Log(LogLevel::kInfo, "stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto args = Arguments(argc, argv);
  const auto flags = Flags::Parse(kDaemonFlags, args);
  absl::Status status = flags.status();
  if (status.ok() && flags->help()) {
    std::printf("Usage: telegradd [flags]\nServes tensor graphs over gRPC.\n\nFlags:\n%s",
                FlagHelp(kDaemonFlags).c_str());
    return 0;
  }
  if (status.ok() && !flags->positional().empty()) {
    status = InvalidArgument("unexpected argument ", flags->positional().front());
  }
  if (status.ok()) {
    if (const std::optional<int> code = PrintPage(kPage, *flags)) return *code;
  }
  auto configuration =
      status.ok() ? Configuration::Load(*flags) : absl::StatusOr<Configuration>(status);
  if (status.ok()) {
    if (const std::optional<int> code = AnswerConfiguration(*flags, configuration)) return *code;
    status = configuration.status();
  }
  if (status.ok()) {
    SetLogLevel(*LogLevelFromText(configuration->flags.GetString("log-level")));
  }
  // Protobuf reports what clients send wrong on stderr; it belongs in the log, and only if asked
  // for.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& message) {
        Log(LogLevel::kDebug, "protobuf", {{"message", message}});
      });
  // So does what the transport reports: failed handshakes, for the most part.
  gpr_set_log_function([](gpr_log_func_args* line) {
    static LimitedLog errors(LogLevel::kWarning, "grpc");
    if (line->severity == GPR_LOG_SEVERITY_ERROR) {
      errors.Write({{"message", line->message}});
    } else {
      Log(LogLevel::kDebug, "grpc", {{"message", line->message}});
    }
  });
  sigset_t signals;  // taken by sigwait alone; every thread inherits the mask
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // What the transport receives lies in malloc's memory until it is copied into the arena. Pages of
  // it that are given back come as slowly as new ones of the arena would, so they are kept, too.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file over its limit is an error like others
  if (status.ok()) status = Serve(*flags, *configuration, signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "telegradd: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kUsageError : 1;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return telegrad::Main(argc, argv); }
