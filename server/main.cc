// telegradd: puts the daemon together and runs it until SIGTERM or SIGINT. On SIGHUP it reads its
// configuration again.
//
// SIGTERM drains: the listeners close, health turns to NOT_SERVING, sessions end what they were
// asked, and what is still running after --drain-seconds is cancelled. A second signal cancels at
// once.
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cc/call_events.h"
#include "devices/drivers.h"
#include "engine/base/flag_pages.h"
#include "engine/base/flags.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status.h"
#include "engine/base/temporary_folder.h"
#include "engine/compile/compiler.h"
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
#include "server/device_watch.h"
#include "server/flags.h"
#include "server/http_front_end.h"
#include "server/identity/authenticator.h"
#include "server/identity/local_socket.h"
#include "server/lifetime.h"
#include "server/model_serving.h"
#include "server/options.h"
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
        "finish, and it exits. A second SIGTERM cancels what still runs. While it waits for "
        "drivers and "
        "other servers at its start, it exits at once. Started by systemd it "
        "reports its state, answers the watchdog and takes sockets that systemd opened.\n\n"
        "All flags can also be given in a file, --config. On SIGHUP the daemon reads it again, "
        "with "
        "the files that it names; a file with a mistake changes nothing, and the log says why.",
    .exit_codes =
        "0 after a drain or a signal while it starts, 1 after a failure, 2 for wrong usage.",
    .flags = kDaemonFlags,
};

constexpr int kUsageError = 2;
constexpr int kWorkers = 2;
constexpr int kSpareCompilers = 14;  // for tenants of which nothing is being compiled

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

absl::Status Serve(const Flags& command_line, const Configuration& configuration,
                   const sigset_t& signals) {
  const Flags& flags = configuration.flags;
  TG_ASSIGN_OR_RETURN(ServiceManager manager, ServiceManager::FromEnvironment());
  const int64_t descriptors = RaiseDescriptorLimit();
  TG_RETURN_IF_ERROR(configuration.Check());
  TG_ASSIGN_OR_RETURN(const auto authenticator, Authenticator::Create(IdentityOf(flags)));
  const ListenOptions listen = ListenersOf(flags, manager);
  TG_ASSIGN_OR_RETURN(const auto listeners, Listeners::Create(listen, authenticator->open()));
  const SessionLimits limits = LimitsOf(flags);
  TG_ASSIGN_OR_RETURN(const TenantTable tenant_table, configuration.Tenants(authenticator->open()));

  if (const int64_t swept = SweepTemporaryFolders(); swept > 0) {
    Log(LogLevel::kInfo, "temporary_folders_removed", {{"number", swept}});
  }
  if (flags.GetInt("opencl-devices") != 0) opencl::PrepareEnvironment();  // threads start next
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<CompileService> compile_service,
                      CompileService::Start(CompilersOf(flags)));
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
  TaskPool workers({.threads = kWorkers, .spare = kWorkers});
  TaskPool compilers({.threads = static_cast<int>(flags.GetInt("compile-threads")),
                      .spare = kSpareCompilers,
                      .nice = static_cast<int>(flags.GetInt("compile-nice"))});
  std::vector<std::string> notes;
  std::optional<EndWhileOpening> end(signals);
  const auto on_open = [&](const std::string& driver) { end->Opens(driver); };
  TG_ASSIGN_OR_RETURN(auto devices, OpenDevices(DriversOf(flags, &metrics, on_open), &notes));
  end.reset();
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<DevicePool> pool,
                      DevicePool::Create(std::move(devices), std::move(notes)));
  for (const std::string& note : pool->notes()) {  // begins with the name of what it is about
    const bool is_there = std::ranges::any_of(pool->devices(), [&](const auto& device) {
      return note.starts_with(StrCat(device->name(), ": "));
    });
    Log(LogLevel::kInfo, is_there ? "device_note" : "device_left_out", {{"why", note}});
  }
  for (const auto& device : pool->devices()) {
    Log(LogLevel::kInfo, "device",
        {{"name", device->name()},
         {"arch", device->target().arch},
         {"cpu", device->target().cpu},
         {"threads", device->target().threads},
         {"memory", device->memory_limit()}});
    if (flags.GetBool("deterministic") && !device->target().has(ParallelLevel::kWorkers)) {
      return FailedPrecondition("--deterministic: ", device->name(),
                                " adds floats in an order "
                                "that follows from shapes; start without it, by --cuda-devices 0, "
                                "--hip-devices 0, --opencl-devices 0, --nv-devices 0");
    }
  }
  std::unique_ptr<ModelServing> serving;  // outlives the tasks that it posts
  const absl::Cleanup tasks_end = [&] {
    compilers.Stop();
    workers.Stop();
  };
  const auto caches = std::make_shared<SharedCaches>(
      ExecutableCache::Limits{.kernels = flags.GetInt("kernels"),
                              .schedule_bytes = flags.GetInt("schedule-bytes")},
      compile_service->services());
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
        caches, accounts.for_caches(), limits.run.bytes);
  };
  TenantDirectory tenants(tenant_table, flags.GetInt("idle-tenants"), make_engine, &metrics);
  metrics.AddLabelled([&] { return MetricsByTenant(tenants); });
  metrics.AddLabelled([&] { return MetricsByDevice(*pool); });
  metrics.AddLabelled([&] { return MetricsOfSensors(*pool); });
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
  TG_ASSIGN_OR_RETURN(const auto bulk, listeners->StartBulk(&metrics));
  if (bulk != nullptr) sessions.SetBulkAddress(bulk->addresses().front());
  peers->SetBulk(bulk.get());
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
  ComputeService compute(env, registry, &watch, flags.GetInt("grpc-memory"));
  DataService data(env, registry, compute, bulk.get());
  const absl::Cleanup sockets_end = [&] {  // for their operations are served by what goes first
    if (bulk != nullptr) bulk->Stop();
  };

  std::unique_ptr<MetricsExporter> exporter;
  if (const std::string& address = flags.GetString("metrics"); !address.empty()) {
    TG_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
    if (parsed.is_unix) return InvalidArgument("--metrics ", address, ": expected HOST:PORT");
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
  // If anything fails from here on, the calls end before what serves them goes.
  const absl::Cleanup closed = [&] { listeners->Shutdown(std::chrono::system_clock::now()); };
  CallEvents::Lend(listeners->calls());
  const absl::Cleanup returned = [] { CallEvents::TakeBack(); };
  TG_ASSIGN_OR_RETURN(
      const auto http,
      HttpFrontEnd::Start(flags, serving.get(), authenticator.get(),
                          [&](const std::string& name) { return tenants.Find(name); }));
  std::fflush(stdout);
  LostDevices lost(pool.get());
  IdleMemories idle_memories(pool.get(), flags.GetInt("idle-memory"));
  IdleTrim trim;
  const Ticker often(std::chrono::milliseconds(250),
                     [&] { health.SetDevicesHealthy(lost.Look()); });
  const Ticker ticker(std::chrono::seconds(1), [&] {
    watch.Look();
    idle_memories.Look();
    trim.Look(std::clock() / (CLOCKS_PER_SEC / 4));  // processor time
  });
  manager.Notify("READY=1");
  const int signal = WaitForEnd(signals, manager, workers, [&] {
    reloader.Reload().IgnoreError();
    if (http != nullptr) http->Refresh();
  });
  manager.Notify("STOPPING=1");
  if (serving != nullptr) serving->Drain();
  CallEvents::TakeBack();
  DrainAndStop(*listeners, compute, health, http.get(), watch, reloader.drain_seconds(), signals,
               signal);
  Log(LogLevel::kInfo, "stopped");
  return absl::OkStatus();
}

// The exit code of a program that was to print something and did nothing else.
int Printed(int code) {
  const absl::Status printed = FlushOutput();
  if (printed.ok()) return code;
  std::fprintf(stderr, "telegradd: %s\n", std::string(printed.message()).c_str());
  return 1;
}

// Threads and compilers start with so many addresses. A device's memory needs its own beside that.
absl::Status CheckAddressSpace() {
  constexpr rlim_t kLeast = rlim_t{1} << 30;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= kLeast) return absl::OkStatus();
  return ResourceExhausted("the addresses of this process are limited to ", limit.rlim_cur,
                           " bytes, with which its threads do not start; raise the limit (ulimit "
                           "-v, LimitAS of systemd) to at least ",
                           kLeast, " beside the memory of its devices");
}

int Main(int argc, char** argv) {
  const auto args = Arguments(argc, argv);
  const auto flags = Flags::Parse(kDaemonFlags, args);
  absl::Status status = flags.status();
  if (status.ok() && flags->help()) {
    std::printf("Usage: telegradd [flags]\nServes tensor graphs over gRPC.\n\nFlags:\n%s",
                FlagHelp(kDaemonFlags).c_str());
    return Printed(0);
  }
  if (status.ok() && !flags->positional().empty()) {
    status = InvalidArgument("unexpected argument ", flags->positional().front());
  }
  if (status.ok()) {
    if (const std::optional<int> code = PrintPage(kPage, *flags)) return Printed(*code);
  }
  auto configuration =
      status.ok() ? Configuration::Load(*flags) : absl::StatusOr<Configuration>(status);
  if (status.ok()) {
    if (const std::optional<int> code = AnswerConfiguration(*flags, configuration)) {
      return Printed(*code);
    }
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
  // Debian builds Abseil with its search for deadlocks, which looks up every mutex of gRPC that is
  // locked while another one is held.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file over its limit is an error like others
  if (status.ok()) status = CheckAddressSpace();
  if (status.ok()) status = Serve(*flags, *configuration, signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "telegradd: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kUsageError : 1;
}

TG_FIRST_OF_ALL(OpenStandardDescriptors);

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) { return telegrad::Main(argc, argv); }
