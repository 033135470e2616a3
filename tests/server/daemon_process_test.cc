// The daemon as a process: its flags and the limits that they set, its health and metrics, the
// command line beside it, and how it ends.
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>

#include "engine/base/sanitizers.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Output;
using testing::RunProgram;

// Its shutdown waits up to ten seconds for a poll that nothing interrupts.
TEST_F(DaemonTest, GrpcIsNotShutDownWithTheLastConnectionOfAClient) {
  connection_.reset();
  EXPECT_TRUE(grpc_is_initialized());
}

TEST_F(DaemonTest, HealthAndMetricsPage) {
  grpc::GenericStub stub(connection_->channel());
  grpc::ClientContext context;
  grpc::ByteBuffer request, response;
  const grpc::Slice nothing;
  request = grpc::ByteBuffer(&nothing, 1);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status s) {
                   std::lock_guard lock(mutex);
                   status = s;
                   done = true;
                   changed.notify_all();
                 });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::Slice slice;
  ASSERT_TRUE(response.DumpToSingleSlice(&slice).ok());
  EXPECT_EQ(std::string(slice.begin(), slice.end()), std::string("\x08\x01", 2)) << "SERVING";

  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(metrics_)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string get = "GET /metrics HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(fd, get.data(), get.size()), static_cast<ssize_t>(get.size()));
  std::string page;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) page.append(buffer, n);
  close(fd);
  const auto stats = connection_->Stats();
  for (const auto& [name, value] : *stats) {
    EXPECT_THAT(page, HasSubstr(StrCat("# HELP ", name, " "))) << name;
  }
  EXPECT_THAT(page, HasSubstr("telegrad_tenant_limit{tenant=\"local\",quota=\"sessions\"} 1024"));
  EXPECT_THAT(page, HasSubstr("# TYPE telegrad_tenant_run_seconds_total counter"));
}

TEST_F(DaemonTest, SigtermLetsAnIdleSessionEndAndExitsZero) {
  const auto session = Session();
  session->Alloc(1, 8);
  ASSERT_TRUE(session->Sync().Get().ok());
  daemon_->Signal(SIGTERM);
  const Output output = daemon_->Wait();
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const absl::Status after = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsUnavailable(after)) << after;
  const absl::Status nobody = Connection::Connect(address_).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr(address_));
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("telegradd --listen"));
}

// Whoever starts it may have closed them: then no socket or file is taken for the log.
TEST_F(DaemonTest, StandardDescriptorsAreItsOwn) {
  const std::string path = ::testing::TempDir() + StrCat("closed_", getpid());
  testing::Process daemon("/bin/bash", {"-c", StrCat("exec ", TELEGRADD, " --listen unix:", path,
                                                     " --cpu-threads 1 <&- >&- 2>&-")});
  while (!Connection::Connect("unix:" + path).ok()) {
  }
  for (const int fd : {0, 1, 2}) {
    EXPECT_EQ(std::filesystem::read_symlink(StrCat("/proc/", daemon.pid(), "/fd/", fd)),
              "/dev/null");
  }
}

// The address space of a compiler is what --compile-memory says, or what the daemon itself may
// have.
TEST_F(DaemonTest, ALimitOfItsAddressSpaceIsThatOfItsCompilers) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers reserve terabytes";
  testing::Process daemon("/bin/bash", {"-c", StrCat("ulimit -v 3000000; exec ", TELEGRADD,
                                                     " --listen 127.0.0.1:0 --cpu-threads 1 "
                                                     "--cpu-memory 100000000 --log-level off")});
  const std::string address = daemon.Line("listening on ");
  ASSERT_NE(address, "") << daemon.Wait().text;
  daemon.ReadOn();
  const auto connection = Connection::Connect(address);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const auto session = *(*connection)->OpenSession();
  EXPECT_TRUE(session->Put(DoubleGraph(1024).root(), /*compile=*/true).Get().ok());
}

// Whoever starts a second daemon at the same address by mistake does not take the first one's
// clients.
TEST_F(DaemonTest, ASocketInUseStaysWithItsDaemon) {
  const std::string address = "unix:" + ::testing::TempDir() + StrCat("in_use_", getpid());
  const std::vector<std::string> flags = {"--listen", address, "--cpu-threads", "1"};
  testing::Process first(TELEGRADD, flags);
  ASSERT_EQ(first.Line("listening on "), address);
  first.ReadOn();
  testing::Process second(TELEGRADD, flags);
  ASSERT_EQ(second.Line("listening on "), "");
  const Output refused = second.Wait();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.text, HasSubstr("another process listens there"));
  EXPECT_TRUE(Connection::Connect(address).ok());
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().exit_code, 0);
  EXPECT_NE(access(address.substr(5).c_str(), F_OK), 0);
}

TEST_F(DaemonTest, SigtermLetsRunningOperationsEnd) {
  constexpr int64_t kElements = 4 << 20;
  constexpr int kRuns = 50;
  const auto session = Session();
  const uint64_t handles[] = {1, 2};
  for (const uint64_t handle : handles) session->Alloc(handle, 4 * kElements);
  const Digest hash = *session->Put(DoubleGraph(kElements).root(), /*compile=*/true).Get();
  const double before = Stat("telegrad_operations_total");
  std::vector<Future<RunInfo>> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(session->Run(hash, handles));
  while (Stat("telegrad_operations_total") < before + kRuns) {
  }
  daemon_->Signal(SIGTERM);
  for (const auto& run : runs) EXPECT_TRUE(run.Get().ok()) << run.Get().status();
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(DaemonTest, KilledDaemonFailsWhatWasUnderWay) {
  const auto session = Session();
  session->Alloc(1, 8);
  ASSERT_TRUE(session->Sync().Get().ok());
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  const absl::Status status = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(DaemonTest, LimitsAreFlags) {
  Start({"--max-sessions", "1", "--session-handles", "2"});
  const auto first = Session();
  first->Alloc(1, 8);
  first->Alloc(2, 8);
  first->Alloc(3, 8);
  first->Sync().Get();
  const absl::Status handles = first->TakeStatus();
  EXPECT_TRUE(absl::IsResourceExhausted(handles)) << handles;
  EXPECT_THAT(std::string(handles.message()),
              HasSubstr("may have 2; raise it with --session-handles"));
  const auto second = Session();
  const absl::Status status = second->Sync().Get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("may have 1; raise it with --max-sessions"));
}

// For n elements of x: the sum over all j of the larger of x[i] and x[j].
FrozenGraph AllPairs(int64_t n) {
  Graph g;
  const int64_t dims[] = {n}, column[] = {n, 1}, row[] = {1, n}, all[] = {n, n}, over_j[] = {0, 1};
  const UOp x = g.Param(1, DType::kFloat32, dims);
  const auto spread = [&](std::span<const int64_t> as) {
    return g.Make(Op::kExpand, {g.Make(Op::kReshape, {x}, as)}, all);
  };
  const UOp sum = g.Make(Op::kReduce, {g.Make(Op::kMax, {spread(column), spread(row)})}, over_j);
  const UOp out = g.Make(Op::kReshape, {sum}, dims);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(0, DType::kFloat32, dims), out})}));
}

TEST_F(DaemonTest, RunsOverTheirLimitsAreRefused) {
  Start({"--run-memory", "1000000", "--run-time", "1"});
  const auto session = Session();
  const auto run = [&](const FrozenGraph& graph, int64_t bytes) {
    const uint64_t handles[] = {session->NewHandle(), session->NewHandle()};
    for (const uint64_t handle : handles) session->Alloc(handle, bytes);
    return session->Run(*session->Put(graph.root()).Get(), handles).Get().status();
  };
  EXPECT_TRUE(run(DoubleGraph(1000), 4000).ok());
  const absl::Status memory = run(DoubleGraph(200'000), 800'000);
  EXPECT_TRUE(absl::IsResourceExhausted(memory)) << memory;
  EXPECT_THAT(std::string(memory.message()), HasSubstr("needs 1600000 bytes"));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("limited to 1000000"));
  const absl::Status time = run(AllPairs(65'536), 4 * 65'536);
  EXPECT_TRUE(absl::IsResourceExhausted(time)) << time;
  EXPECT_THAT(std::string(time.message()), HasSubstr("predicted to take"));
  EXPECT_THAT(std::string(time.message()), HasSubstr("limited to 1 ms"));
  EXPECT_EQ(Stat("telegrad_kernel_launches_total"), 1) << "the one that was let in";
}

TEST_F(DaemonTest, CommandLine) {
  const Output devices = RunProgram(TELEGRAD, {"devices", "--address", address_});
  EXPECT_EQ(devices.exit_code, 0);
  EXPECT_THAT(devices.text, HasSubstr("CPU:0"));
  EXPECT_THAT(devices.text, ContainsRegex(", f64 [0-9.e-]+, f32 [0-9.e-]+ T/s"));
  const Output stats = RunProgram(TELEGRAD, {"stats", "--address=unix:" + socket_});
  EXPECT_EQ(stats.exit_code, 0);
  EXPECT_THAT(stats.text, HasSubstr("telegrad_devices "));
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--address", "127.0.0.1:1"}).exit_code, 3);
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--address", "nonsense"}).exit_code, 2);
  EXPECT_EQ(RunProgram(TELEGRAD, {"nonsense"}).exit_code, 2);
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--nonsense"}).exit_code, 2);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"devices", "--help"}, {"stats", "-h"}}) {
    const Output help = RunProgram(TELEGRAD, args);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.text, HasSubstr("Usage:"));
  }
}

TEST(DaemonFlagsTest, RefusesWhatItShould) {
  const struct {
    std::vector<std::string> args;
    int exit_code;
    std::string text;
  } kCases[] = {
      {{"--listen", "0.0.0.0:0"}, 2, "--insecure-listen-anywhere"},
      {{"--listen", "nonsense"}, 2, "expected HOST:PORT"},
      {{"--listen", "127.0.0.1:99999"}, 2, "expected HOST:PORT"},
      {{"--metrics", "0.0.0.0:0"}, 2, "--insecure-listen-anywhere"},
      {{"--metrics", "nonsense"}, 2, "--metrics \"nonsense\" is not an address"},
      {{"--otlp", "nonsense"}, 2, "--otlp \"nonsense\" is not an address"},
      {{"--http", "127.0.0.1:0"}, 2, "--http needs --models"},
      {{"--nonsense"}, 2, "unknown flag --nonsense"},
      {{"--drain-seconds"}, 2, "needs a value"},
      {{"--drain-seconds", "soon"}, 2, "not a whole number"},
      {{"--session-handles", "0"}, 2, "--session-handles: 0 is too small; expected at least 1"},
      {{"--default-quota", "graphs"}, 2, "--default-quota: \"graphs\" is not NAME=VALUE"},
      {{"--tenants", "/nowhere/at/all"}, 2, "cannot read /nowhere/at/all: No such file"},
      {{"--idle-tenants", "-1"}, 2, "--idle-tenants: -1 is not from 0 to 1000000"},
      {{"--run-memory", "-1"}, 2, "--run-memory: -1 is too small; expected at least 0"},
      {{"--run-memory", "9223372036854775808"}, 2, "not a whole number from -2^63 to 2^63 - 1"},
      {{"--run-time", "0"}, 2, "--run-time: 0 is too small; expected at least 1"},
      {{"--run-time", ""}, 2, "--run-time: \"\" is not a whole number"},
      {{"--job-time", "9223372036854775807"}, 2, "is not from 1 to 86400000"},
      {{"--specializations", "9223372036854775807"}, 2, "is not from 0 to 1000000"},
      {{"--cpu-devices", "0"}, 2, "--cpu-devices: 0 is not from 1 to 256"},
      {{"--cpu-devices", "257"}, 2, "--cpu-devices: 257 is not from 1 to 256"},
      {{"--cpu-devices", "2", "--cpu-memory", "1"}, 2, "1 bytes for 2 devices"},
      {{"--cpu-memory", "9223372036854775807"}, 2, "a memory limit of 9223372036854775807 bytes"},
      {{"--remote", "x"}, 2, "--remote x: expected NAME=HOST:PORT or NAME=unix:PATH"},
      {{"--remote", "x=127.0.0.1:99999"}, 2, "--remote x=127.0.0.1:99999: "},
      {{"--remote", "a=127.0.0.1:1", "--remote", "x=unix:"}, 2, "--remote x=unix:: "},
      {{"--remote-bulk", "x"}, 2, "--remote-bulk x: expected NAME=HOST:PORT or NAME=none"},
      {{"--remote-bulk", "=none"}, 2, "--remote-bulk =none: expected NAME=HOST:PORT"},
      {{"--remote-bulk", "x="}, 2, "--remote-bulk x=: expected NAME=HOST:PORT"},
      {{"--remote-bulk", "x=unix:/y"}, 2, "unix:/y is not HOST:PORT or none"},
      {{"--remote-bulk", "x=1.2.3.4:70000"}, 2, "1.2.3.4:70000 is not HOST:PORT or none"},
      {{"--remote-bulk", "x=none", "--remote-bulk", "x=a:1"}, 2, "x has been given before"},
      {{"--remote-bulk", "x=none"}, 2, "--remote-bulk x: there is no --remote x"},
      {{"--remote", "a/b=127.0.0.1:1"}, 2, "\"a/b\" is not a name for a server"},
      {{"--remote", "a=127.0.0.1:1", "--remote-wait", "1"},
       1,
       "remote a: no Telegrad server answers"},
      {{"--compile-workers", "-2"}, 2, "--compile-workers: -2 is not from -1 to 256"},
      {{"--kernel-time", "0"}, 2, "--kernel-time: 0 is not from 1 to"},
      {{"--compile-memory", "1e9"}, 2, "--compile-memory: \"1e9\" is not a whole number"},
      {{"--kernel-cache-bytes", "0"},
       2,
       "--kernel-cache-bytes: 0 is too small; expected at least 1"},
      {{"--kernel-cache", TELEGRADD}, 1, "as a folder: Not a directory"},
      {{"--reproducers", "/dev/null/none"}, 1, "cannot make the folder /dev/null/none"},
      {{"--trace-events", "0"}, 2, "--trace-events: 0 is too small; expected at least 1"},
      {{"--disk-growth", "-1"}, 2, "--disk-growth: -1 is too small; expected at least 0"},
      {{"--disk-root", ""}, 2, "--disk-root \"\": expected NAME=DIR"},
      {{"--disk-root", "data"}, 2, "--disk-root \"data\": expected NAME=DIR"},
      {{"--disk-root", "=."}, 2, "expected 1 to 64 letters"},
      {{"--disk-root", "../data=."}, 2, "expected 1 to 64 letters"},
      {{"--disk-root", "data="}, 2, "disk root data: "},
      {{"--disk-root", "data=/dev/null"}, 2, "Not a directory"},
      {{"--disk-root", "a=.", "--disk-root-readonly", "a=."}, 2, "two devices are named DISK:a"},
      {{"--log-level", "loud"}, 2, "--log-level"},
      {{"stray"}, 2, "unexpected argument stray"},
      {{"--help"}, 0, "--drain-seconds N"},
  };
  for (const auto& c : kCases) {
    const Output output = RunProgram(TELEGRADD, c.args);
    EXPECT_EQ(output.exit_code, c.exit_code) << output.text;
    EXPECT_THAT(output.text, HasSubstr(c.text));
  }
}

// What was asked for is not there.
TEST(Daemon, OutputThatCannotBeWrittenIsAnError) {
  for (const std::string words : {"--help", "--version", "--generate=man"}) {
    const Output full =
        RunProgram("/bin/bash", {"-c", StrCat(TELEGRADD, " ", words, " > /dev/full")});
    EXPECT_EQ(full.exit_code, 1) << words;
    EXPECT_THAT(full.text, HasSubstr("cannot write to the standard output")) << words;
  }
}

// Drivers and other servers may never answer; here nobody, and a library that nobody writes.
TEST(Daemon, EndsBySignalWhileItOpensDevices) {
  const std::string library = StrCat(::testing::TempDir(), "/library", getpid());
  ASSERT_EQ(mkfifo(library.c_str(), 0600), 0);
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--cuda-devices", "0", "--remote", "a=127.0.0.1:1", "--remote-wait", "600000"},
       "remote a at 127.0.0.1:1"},
      {{"--cuda-library", library}, "cuda"}};
  for (const auto& [flags, opening] : cases) {
    for (const int signal : {SIGTERM, SIGINT}) {
      std::vector<std::string> args = {"--listen", "127.0.0.1:0", "--log-level", "info"};
      args.insert(args.end(), flags.begin(), flags.end());
      testing::Process daemon(TELEGRADD, args);
      std::string line;
      do {
        line = daemon.Line("20");  // of this century
      } while (!line.empty() && (line.find("opening_devices") == std::string::npos ||
                                 line.find(opening) == std::string::npos));
      EXPECT_FALSE(line.empty()) << opening;
      daemon.Signal(signal);
      const Output output = daemon.Wait();
      EXPECT_EQ(output.exit_code, 0) << output.text;
      EXPECT_THAT(output.text, ContainsRegex(StrCat("ended_while_starting signal=", signal)));
    }
  }
  unlink(library.c_str());
}

TEST(Daemon, TooFewAddressesAreAnErrorThatSaysWhatToDo) {
  if (kAddressSanitizer || kThreadSanitizer)
    GTEST_SKIP() << "a sanitizer takes more addresses for itself";
  const Output refused = RunProgram("/bin/bash", {"-c", StrCat("ulimit -v 500000; ", TELEGRADD)});
  EXPECT_EQ(refused.exit_code, 1) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace telegrad
