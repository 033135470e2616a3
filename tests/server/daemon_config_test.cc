// The file of --config: what it says is what the flags would say, mistakes in it are told by line,
// and it is read again while the daemon runs.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "client/cc/admin.h"
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/double_graph.h"
#include "tests/server/raw_session.h"
#include "tests/server/trace_events.h"

namespace telegrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;

class ConfigTest : public DaemonTest {
 protected:
  void SetUp() override {
    file_ = StrCat(::testing::TempDir(), "telegradd_", getpid(), ".conf");
    admin_socket_ = StrCat(::testing::TempDir(), "telegradd_admin_", getpid(), ".sock");
  }
  void TearDown() override { std::filesystem::remove(file_); }

  void Write(const std::string& text) {
    std::ofstream(file_ + ".new") << text;
    std::filesystem::rename(file_ + ".new", file_);
  }
  testing::Output Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"--config", file_});
    return testing::RunProgram(TELEGRADD, args);
  }
  // The flags that wait for the next start, or the error.
  absl::StatusOr<std::vector<std::string>> Reload() {
    return AdminClient(Connect("unix:" + admin_socket_)).Reload();
  }
  // Of the tenant local; -1 if there is none.
  int64_t LimitOf(const std::string& quota) {
    auto tenants = AdminClient(Connect("unix:" + admin_socket_)).Tenants();
    EXPECT_TRUE(tenants.ok()) << tenants.status();
    for (const TenantUse& tenant : *tenants) {
      for (const TenantUse::Row& row : tenant.quotas) {
        if (tenant.tenant == "local" && row.quota == quota) return static_cast<int64_t>(row.limit);
      }
    }
    return -1;
  }
  // Whether a second session ends so; one before it may not have given its place back yet.
  bool SecondSessionIs(Code code) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      RawSession session(connection_->channel());
      if (session.Ask(AllocRequest(1, 8)).code() == code) return true;
    }
    return false;
  }

  std::string file_, admin_socket_;
};

TEST_F(ConfigTest, MistakesAreToldByLine) {
  Write(
      "listen = 127.0.0.1:0\n"
      "cpu-thread = 3\n"
      "log-level = loud   # not a level\n"
      "\n"
      "kernels = 0\n"
      "nonsense\n");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--check-config"}, std::vector<std::string>{}}) {
    const testing::Output out = Run(args);
    EXPECT_EQ(out.exit_code, 2);
    EXPECT_THAT(out.text,
                HasSubstr(file_ + ":2: no flag is named \"cpu-thread\"; there is cpu-threads"));
    EXPECT_THAT(out.text, HasSubstr(file_ + ":3: log-level: \"loud\" is not one of debug, "));
    EXPECT_THAT(out.text, HasSubstr(file_ + ":5: kernels: 0 is too small; expected at least 1"));
    EXPECT_THAT(out.text,
                HasSubstr(file_ + ":6: \"nonsense\" is neither NAME = VALUE nor [SECTION]"));
  }
  Write("[a]\nsessions = 1\n[b]\nsession = 1\nweight = 99999\n");
  const testing::Output sections = Run({"--check-config"});
  EXPECT_EQ(sections.exit_code, 2);
  EXPECT_THAT(sections.text, HasSubstr(file_ + ":4: unknown quota \"session\""));
  EXPECT_THAT(sections.text, HasSubstr(file_ + ":5: weight: 99999 is too large"));
  Write("tenants = /nowhere\n[a]\n");
  EXPECT_THAT(Run({"--check-config"}).text, HasSubstr("expected one of the two"));
  Write("tls-cert = /nowhere\n");
  EXPECT_THAT(Run({"--check-config"}).text, HasSubstr("--tls-cert needs --tls-key"));
  Write("config = other\n");
  EXPECT_THAT(Run({"--check-config"}).text,
              HasSubstr(":1: config is given on the command line only"));
  std::filesystem::remove(file_);
  EXPECT_THAT(Run({"--check-config"}).text, HasSubstr("--config " + file_ + ": No such file"));
  Write("listen = unix:/tmp/x # fine\n[*]\n");
  const testing::Output good = Run({"--check-config"});
  EXPECT_EQ(good.exit_code, 0) << good.text;
  EXPECT_EQ(good.text, file_ + ": no mistakes were found\n");
}

TEST_F(ConfigTest, WhatIsPrintedSaysTheSame) {
  Write(
      "listen = 127.0.0.1:0\n"
      "listen = \"unix:/tmp/a b #1\"\n"
      "  cpu-threads =   3  # comment\n"
      "jwt-audience = \n"
      "[alice]\n"
      "weight = 7\n");
  const testing::Output first = Run({"--print-config", "--cpu-threads", "5", "--kernels", "9"});
  ASSERT_EQ(first.exit_code, 0) << first.text;
  EXPECT_THAT(first.text, HasSubstr("\nlisten = 127.0.0.1:0\nlisten = \"unix:/tmp/a b #1\"\n"));
  EXPECT_THAT(first.text, HasSubstr("\ncpu-threads = 5\n")) << "the command line goes before";
  EXPECT_THAT(first.text, HasSubstr("\nkernels = 9\n"));
  EXPECT_THAT(first.text, HasSubstr("\n#executables = 1024\n"));
  EXPECT_THAT(first.text, HasSubstr("\n[alice]\nweight = 7\n"));
  Write(first.text);
  const testing::Output again = Run({"--print-config"});
  EXPECT_EQ(again.text, first.text);
}

TEST_F(ConfigTest, IsReadAgainWithoutARestart) {
  const std::string base =
      StrCat("listen = 127.0.0.1:0\nmetrics = 127.0.0.1:0\ncpu-memory = 268435456\n",
             "compile-workers = 1\nlog-level = error\nadmin-listen = unix:", admin_socket_, "\n");
  Write(base + "[local]\nsessions = 1\n");
  daemon_ =
      std::make_unique<testing::Process>(TELEGRADD, std::vector<std::string>{"--config", file_});
  address_ = daemon_->Line("listening on ");
  connection_ = Connect(address_);
  ASSERT_NE(connection_, nullptr);
  RawSession first(connection_->channel());
  ASSERT_EQ(first.Ask(AllocRequest(1, 8)), absl::OkStatus());
  EXPECT_TRUE(SecondSessionIs(Code::kResourceExhausted));

  Write(base + "[local]\nsessions = 2\nweight = 5\n");
  auto waiting = Reload();
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_THAT(*waiting, IsEmpty());
  EXPECT_TRUE(SecondSessionIs(Code::kOk));
  EXPECT_EQ(LimitOf("weight"), 5);

  for (const char* wrong : {"[local]\nsessions = what\n", "nonsense", "log-level = loud\n",
                            "tls-cert = /nowhere\ntls-key = /nowhere\n"}) {
    Write(base + wrong);
    const absl::Status refused = Reload().status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << wrong;
    EXPECT_TRUE(SecondSessionIs(Code::kOk)) << "a file that is wrong changes nothing";
  }
  Write(base + "kernels = 77\ncpu-devices = 2\ndefault-quota = graphs=3\n[local]\nsessions = 1\n");
  waiting = Reload();
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_THAT(*waiting, ElementsAre("cpu-devices", "kernels"));
  EXPECT_TRUE(SecondSessionIs(Code::kResourceExhausted)) << "what could change has";
  EXPECT_EQ(LimitOf("graphs"), 3);

  Write(base + "[local]\nsessions = 2\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(SecondSessionIs(Code::kOk));
  EXPECT_EQ(first.Ask(AllocRequest(2, 8)), absl::OkStatus()) << "no call was dropped";
}

// Wherever a file of several lines is cut, even where what is left has no mistake.
TEST_F(ConfigTest, AFileThatIsCutChangesNothing) {
  const std::string tenants = file_ + ".tenants";
  const std::string config = "log-level = error\ntenants = " + tenants + "\n# end\n";
  const std::string table = "[*]\n[local]\nweight = 3\nsessions = 7\n# end\n";
  std::ofstream(tenants) << table;
  Write(config);
  Start({"--config", file_, "--admin-listen", "unix:" + admin_socket_});
  const auto check = [&](const std::string& file, const std::string& whole) {
    for (size_t n = 0; n < whole.size(); ++n) {
      std::ofstream(file) << whole.substr(0, n);
      const absl::Status refused = Reload().status();
      EXPECT_EQ(refused.code(), Code::kInvalidArgument) << whole.substr(0, n);
    }
    EXPECT_EQ(LimitOf("weight"), 3);
    std::ofstream(file) << whole;
    EXPECT_TRUE(Reload().ok());
  };
  check(tenants, table);
  check(file_, config);
  std::ofstream(tenants) << "[*]\n";
  EXPECT_THAT(
      Reload().status().message(),
      HasSubstr("--tenants " + tenants + ": its last line was \"# end\" and is not any more"));
  std::filesystem::remove(tenants);
}

TEST_F(ConfigTest, TheCommandLineAdministrates) {
  Write(StrCat("listen = 127.0.0.1:0\nmetrics = 127.0.0.1:0\ncpu-memory = 268435456\n",
               "cpu-devices = 2\ncompile-workers = 1\nlog-level = error\nadmin-listen = unix:",
               admin_socket_, "\n[local]\nsessions = 9\n"));
  daemon_ =
      std::make_unique<testing::Process>(TELEGRADD, std::vector<std::string>{"--config", file_});
  address_ = daemon_->Line("listening on ");
  connection_ = Connect(address_);
  ASSERT_NE(connection_, nullptr);
  const auto ask = [&](std::vector<std::string> words, int expected = 0) {
    words.insert(words.end(), {"--address", "unix:" + admin_socket_});
    const testing::Output out = testing::RunProgram(TELEGRAD, words);
    EXPECT_EQ(out.exit_code, expected) << out.text;
    return out.text;
  };
  RawSession session(connection_->channel());
  ASSERT_EQ(session.Ask(AllocRequest(1, 1 << 20)), absl::OkStatus());
  EXPECT_THAT(ask({"admin", "sessions"}), ContainsRegex("\n +[0-9]+ local +[0-9]+ +no -"));
  EXPECT_THAT(ask({"admin", "tenants"}), ContainsRegex("local +sessions +1 +9 +0\n"));
  EXPECT_THAT(ask({"admin", "queues"}), ContainsRegex("CPU:1 +compute +ok +- +0 +0.000"));
  EXPECT_THAT(ask({"admin", "threads"}), HasSubstr("telegradd"));
  EXPECT_THAT(ask({"admin", "caches"}), HasSubstr("   0 kernels compiled\n"));
  EXPECT_THAT(ask({"top"}), ContainsRegex("local +1 +1 +0 +1.0 +0\n"));
  EXPECT_THAT(ask({"admin", "log-level", "error"}), "");
  EXPECT_THAT(ask({"admin", "log-level", "loud"}, 2), HasSubstr("\"loud\" is not one of"));
  EXPECT_EQ(ask({"admin", "reload"}), "reloaded\n");
  EXPECT_THAT(ask({"admin", "nonsense"}, 2), HasSubstr("is not one of sessions [TENANT], close"));
  EXPECT_THAT(ask({"admin"}, 2), HasSubstr("expected one of"));
  EXPECT_THAT(ask({"admin", "drain-device", "CPU:9"}, 1), HasSubstr("unknown device \"CPU:9\""));

  // A device that is drained takes nothing new; what it has is read. Who names none gets another.
  EXPECT_THAT(ask({"admin", "drain-device", "CPU:0"}),
              HasSubstr("CPU:0 takes no new work; 0 runs"));
  EXPECT_THAT(ask({"admin", "queues"}), ContainsRegex("CPU:0 +compute +drained"));
  v1::ExecuteRequest named = AllocRequest(2, 8);
  named.mutable_alloc()->set_device("CPU:0");
  EXPECT_EQ(session.Ask(named).code(), Code::kUnavailable);
  EXPECT_EQ(session.Ask(AllocRequest(3, 8)), absl::OkStatus());
  EXPECT_THAT(ask({"admin", "undrain-device", "CPU:0"}), HasSubstr("takes work"));
  named.mutable_alloc()->set_handle(4);
  EXPECT_EQ(session.Ask(named), absl::OkStatus());

  EXPECT_EQ(ask({"admin", "close", "local"}), "closed 1 sessions\n");
  EXPECT_EQ(session.Finish().code(), Code::kAborted);
  const testing::Output wrong = testing::RunProgram(TELEGRAD, {"top", "--address", address_});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.text, HasSubstr("--admin-listen"));
  ask({"admin", "drain"});
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

// What the page has of durations: as many as there were calls and works. A call is counted once the
// server is through with it, which may be a moment after its client has the answer.
TEST_F(ConfigTest, DurationsAreOnThePage) {
  Start({});
  RawSession session(connection_->channel());
  ASSERT_EQ(session.Ask(AllocRequest(1, 8)), absl::OkStatus());
  Stat("telegrad_sessions");
  const std::string counted =
      "telegrad_call_seconds_count{method=\"/telegrad.v1.Session/Hello\",listener=\"compute\"} 1\n";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string page;
  do {
    page = testing::RunProgram(
               "/bin/bash",
               {"-c", StrCat("exec 3<>/dev/tcp/127.0.0.1/", std::atoi(metrics_.c_str()),
                             "; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")})
               .text;
  } while (page.find(counted) == std::string::npos && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(page, HasSubstr(counted));
  EXPECT_THAT(page, HasSubstr("# TYPE telegrad_call_seconds histogram\n"));
  EXPECT_THAT(page,
              HasSubstr("telegrad_queue_wait_seconds_bucket{device=\"CPU:0\",queue=\"compute\""));
  EXPECT_THAT(page, HasSubstr("telegrad_tenant_run_latency_seconds_count{tenant=\"local\"} 0\n"));
}

// What it prints is what its own samples say.
TEST_F(ConfigTest, TheLoadGeneratorIsItsSamples) {
  Start({});
  for (const std::vector<std::string>& loop :
       {std::vector<std::string>{"--depth", "3"}, std::vector<std::string>{"--rate", "200"}}) {
    std::vector<std::string> args = {"bench",      "--address", address_,    "--seconds", "1",
                                     "--sessions", "4",         "--samples", file_};
    args.insert(args.end(), loop.begin(), loop.end());
    const double before = Stat("telegrad_runs_total");
    const testing::Output out = testing::RunProgram(TELEGRAD, args);
    ASSERT_EQ(out.exit_code, 0) << out.text;
    std::ifstream csv(file_);
    std::string line;
    std::getline(csv, line);
    EXPECT_EQ(line, "tenant,session,due_ns,end_ns,ok");
    std::vector<double> ms;
    std::map<long, int> by_session;
    while (std::getline(csv, line)) {
      long session = 0, due = 0, end = 0, ok = 0;
      ASSERT_EQ(std::sscanf(line.c_str(), "local,%ld,%ld,%ld,%ld", &session, &due, &end, &ok), 4);
      EXPECT_EQ(ok, 1);
      EXPECT_GT(end, due);
      ++by_session[session];
      ms.push_back(static_cast<double>(end - due) / 1e6);
    }
    EXPECT_EQ(by_session.size(), 4u);
    if (loop[0] == "--rate") {
      EXPECT_EQ(ms.size(), 200u) << "as many as were due in a second";
    }
    EXPECT_EQ(Stat("telegrad_runs_total") - before, static_cast<double>(ms.size() + 4));
    std::ranges::sort(ms);
    char row[128];
    std::snprintf(row, sizeof(row), "%10zu        0 ", ms.size());
    EXPECT_THAT(out.text, HasSubstr(row));
    std::snprintf(row, sizeof(row), " %10.3f %10.3f ", ms[(ms.size() + 1) / 2 - 1],
                  ms[(ms.size() * 9 + 9) / 10 - 1]);
    EXPECT_THAT(out.text, HasSubstr(row)) << "the median, and nine tenths";
  }
}

// All operations are traced: what a run waited for and did is a child of it, in that order. One
// whose caller has a trace of its own is of that trace, and one that is not sampled there is not
// traced.
TEST_F(ConfigTest, OperationsAreTraced) {
  Start({"--trace-one-in", "1", "--admin-listen", "unix:" + admin_socket_});
  const auto session = Session();
  const FrozenGraph graph = DoubleGraph(8);
  const uint64_t handles[] = {session->NewHandle(), session->NewHandle()};
  for (const uint64_t handle : handles) session->Alloc(handle, 32);
  const std::vector<float> x(8, 3);
  session->WriteCopy(handles[1], 0, Bytes(x));
  ASSERT_TRUE(session->Put(graph.root()).Get().ok());
  ASSERT_TRUE(session->Run(ContentHash(graph.root()), handles).Get().ok());

  RawSession raw(connection_->channel());
  v1::ExecuteRequest marked = AllocRequest(1, 8), unmarked = AllocRequest(2, 8),
                     garbage = AllocRequest(3, 8);
  marked.set_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  unmarked.set_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00");
  garbage.set_traceparent("garbage");
  for (const v1::ExecuteRequest& request : {marked, unmarked, garbage}) {
    ASSERT_EQ(raw.Ask(request), absl::OkStatus());
  }

  const testing::Output out =
      testing::RunProgram(TELEGRAD, {"admin", "trace", "--address", "unix:" + admin_socket_});
  ASSERT_EQ(out.exit_code, 0) << out.text;
  std::string run_thread;
  int of_caller = 0;
  const auto events = testing::ParseTimeline(out.text);
  for (const auto& event : events) {
    if (event.name == "run" && event.args.fields().contains("parent") &&
        testing::String(event.args, "parent") == "0000000000000000") {
      run_thread = event.thread;
    }
    if (testing::String(event.args, "parent") == "00f067aa0ba902b7") {
      ++of_caller;
      EXPECT_EQ(event.name, "alloc");
      EXPECT_EQ(testing::String(event.args, "trace"), "4bf92f3577b34da6a3ce929d0e0e4736");
    }
    EXPECT_NE(testing::String(event.args, "parent"), "00f067aa0ba902b8");
  }
  EXPECT_EQ(of_caller, 1);
  ASSERT_FALSE(run_thread.empty()) << out.text;
  std::string root;
  std::vector<testing::CompleteEvent> children;
  for (const auto& event : events) {
    if (event.thread != run_thread) continue;
    if (testing::String(event.args, "parent") == "0000000000000000") {
      root = testing::String(event.args, "span");
    } else {
      children.push_back(event);
    }
  }
  std::ranges::sort(children, {}, &testing::CompleteEvent::end);
  std::vector<std::string> names;
  for (const auto& event : children) {
    names.push_back(event.name);
    EXPECT_EQ(testing::String(event.args, "parent"), root);
    EXPECT_EQ(testing::String(event.args, "tenant"), "local");
  }
  EXPECT_THAT(names, ElementsAre("queue", "lower", "compile", "admit", "schedule", "run"));
}

// Every operation is traced and has a line; the collector is not there; clients send trace headers
// of garbage; and the configuration is read again all the time, every other time with a mistake. No
// call fails, and every span and line is accounted for.
TEST_F(ConfigTest, NothingIsLostWhileItIsReadAgainUnderLoad) {
  const std::string good = "[*]\nweight = 2\n", bad = "[*]\nweight = 0\n";
  const std::string log = file_ + ".access";
  Write(good);
  Start({"--config", file_, "--trace-one-in", "1", "--otlp", "127.0.0.1:9", "--access-log", log,
         "--admin-listen", "unix:" + admin_socket_});
  std::atomic<bool> stop{false};
  std::atomic<int64_t> operations{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 3; ++client) {
    clients.emplace_back([&, client] {
      RawSession session(connection_->channel());
      constexpr std::string_view kHeaders[] = {
          "",
          "00",
          "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
          "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          "\n\"}"};
      for (uint64_t i = 1; !stop || i < 50; ++i) {
        v1::ExecuteRequest request = AllocRequest(i, 8);
        request.set_traceparent(std::string(kHeaders[(i + static_cast<uint64_t>(client)) % 6]));
        if (i % 7 == 0) request.set_traceparent(std::string(100'000, '0'));
        EXPECT_EQ(session.Ask(request), absl::OkStatus());
        ++operations;
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    Write(i % 2 == 0 ? bad : good);
    const auto reloaded = Reload();
    EXPECT_EQ(reloaded.ok(), i % 2 == 1) << reloaded.status();
    daemon_->Signal(SIGHUP);
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
  EXPECT_EQ(Stat("telegrad_operation_errors_total"), 0);
  const auto all = 2 * static_cast<double>(operations.load());  // each with a sync
  EXPECT_EQ(Stat("telegrad_operations_total"), all);
  const auto becomes = [&](const char* name, const char* other, double value) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (Stat(name) + Stat(other) != value) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  };
  // Of each operation, its own span and that of its wait.
  EXPECT_TRUE(becomes("telegrad_spans_dropped_total", "telegrad_spans_exported_total", 2 * all));
  EXPECT_EQ(Stat("telegrad_spans_exported_total"), 0);
  EXPECT_TRUE(
      becomes("telegrad_access_log_lines_total", "telegrad_access_log_lost_total", all + 3));
  std::ifstream lines(log);
  int64_t whole = 0, sessions = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool operation = line.find(" INFO operation name=") != std::string::npos;
    const bool session = line.find(" INFO session session=") != std::string::npos;
    EXPECT_TRUE(operation != session) << line;
    ++(operation ? whole : sessions);
  }
  EXPECT_EQ(static_cast<double>(whole + sessions), Stat("telegrad_access_log_lines_total"));
  EXPECT_EQ(sessions, 3);
  std::filesystem::remove(log);
}

// A reader that asks for OpenMetrics gets it, with the trace of a run.
TEST_F(ConfigTest, OpenMetricsHasExemplars) {
  Start({"--trace-one-in", "1"});
  const auto session = Session();
  const FrozenGraph graph = DoubleGraph(8);
  const uint64_t handles[] = {session->NewHandle(), session->NewHandle()};
  for (const uint64_t handle : handles) session->Alloc(handle, 32);
  session->WriteCopy(handles[1], 0, Bytes(std::vector<float>(8, 3)));
  ASSERT_TRUE(session->Put(graph.root()).Get().ok());
  ASSERT_TRUE(session->Run(ContentHash(graph.root()), handles).Get().ok());
  Stat("telegrad_sessions");
  const testing::Output page = testing::RunProgram(
      "/bin/bash",
      {"-c", StrCat("exec 3<>/dev/tcp/127.0.0.1/", std::atoi(metrics_.c_str()),
                    "; printf 'GET /metrics HTTP/1.1\\r\\nACCEPT: application/openmetrics-text; "
                    "version=1.0.0\\r\\n\\r\\n' >&3; cat <&3")});
  EXPECT_THAT(page.text, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(page.text, ContainsRegex("telegrad_tenant_run_latency_seconds_bucket\\{[^}]*\\} 1 # "
                                       "\\{trace_id=\"[0-9a-f]{32}\"\\} [0-9.e-]+ [0-9.]+\n"));
  EXPECT_TRUE(page.text.ends_with("\n# EOF\n")) << page.text.substr(page.text.size() - 40);
}

}  // namespace
}  // namespace telegrad
