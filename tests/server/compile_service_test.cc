// A daemon and its compile workers: killed, crashing, hanging, absent; and its cache on disk.
#include <dirent.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/double_run.h"
#include "tests/server/process.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Output;
using testing::Process;
using testing::RunProgram;

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The state of a process as /proc says it ('R', 'Z', ...) and its parent; 0 where there is none.
struct ProcessState {
  char state = 0;
  int parent = 0;
};
ProcessState StateOf(int pid) {
  const std::string stat = Slurp(StrCat("/proc/", pid, "/stat"));
  ProcessState out;
  if (const size_t name = stat.rfind(')'); name != std::string::npos) {
    std::istringstream(stat.substr(name + 1)) >> out.state >> out.parent;
  }
  return out;
}

class CompileServiceTest : public ::testing::Test {
 protected:
  CompileServiceTest()
      : folder_(StrCat(::testing::TempDir(), "compile_service_", getpid(), "_",
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/bin");
  }
  ~CompileServiceTest() override {
    daemon_.reset();
    fs::remove_all(folder_);
  }

  // The daemon, installed somewhere, with a worker of its name beside it.
  void Install(const std::string& worker) {
    fs::copy_file(TELEGRADD, Bin("telegradd"));
    if (!worker.empty()) fs::copy_file(worker, Bin("telegrad-compile-worker"));
  }
  std::string Bin(const std::string& name) const { return folder_ + "/bin/" + name; }
  void Order(const std::string& what) { std::ofstream(Bin("orders")) << what << "\n"; }

  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"--listen", "127.0.0.1:0", "--cpu-memory", "1073741824", "--cpu-threads", "1"});
    return more;
  }
  void Start(std::vector<std::string> more) {
    daemon_.reset();
    daemon_ = std::make_unique<Process>(Bin("telegradd"), Arguments(std::move(more)));
    const std::string address = daemon_->Line("listening on ");
    ASSERT_FALSE(address.empty());
    daemon_->ReadOn();
    connection_ = *Connection::Connect(address);
  }
  // What the log says, once the daemon has ended.
  std::string Log() {
    daemon_->Signal(SIGTERM);
    connection_.reset();
    return daemon_->Wait().text;
  }
  std::string Refusal(const std::vector<std::string>& more) {
    const Output output = RunProgram(Bin("telegradd"), Arguments(more));
    EXPECT_EQ(output.exit_code, 1) << output.text;
    return output.text;
  }

  // Compiles and runs a graph that is the same for the same number of elements.
  absl::Status Run(int64_t elements) { return RunDouble(*connection_, elements); }
  double Stat(const std::string& name) { return connection_->Stats()->at("telegrad_" + name); }

  std::vector<int> Workers() const {
    std::vector<int> pids;
    DIR* folder = opendir("/proc");
    while (const dirent* entry = readdir(folder)) {
      const int pid = std::atoi(entry->d_name);
      const ProcessState process = pid > 0 ? StateOf(pid) : ProcessState{};
      if (process.parent == daemon_->pid() && process.state != 'Z') pids.push_back(pid);
    }
    closedir(folder);
    return pids;
  }

  const std::string folder_;
  std::unique_ptr<Process> daemon_;
  std::shared_ptr<Connection> connection_;
};

// The worker is stopped first, so that the kill surely meets it at work.
TEST_F(CompileServiceTest, AKilledWorkerCostsNobodyAnything) {
  Install(REAL_WORKER);
  Start({"--compile-workers", "1", "--log-level", "warning"});
  ASSERT_TRUE(Run(10).ok());
  const std::vector<int> workers = Workers();
  ASSERT_EQ(workers.size(), 1u);
  ASSERT_EQ(kill(workers[0], SIGSTOP), 0);
  absl::Status status;
  std::thread client([&] { status = Run(20); });
  while (Stat("compiling") == 0) {
  }
  ASSERT_EQ(kill(workers[0], SIGKILL), 0);
  client.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Run(30).ok());
  EXPECT_EQ(Stat("compile_worker_deaths_total"), 1);
  EXPECT_EQ(Stat("compile_retries_total"), 1);
  EXPECT_EQ(Stat("kernel_failures_total"), 0);
  EXPECT_THAT(Log(), HasSubstr("compile_worker_ended kernel=k_"));
}

TEST_F(CompileServiceTest, ACrashIsAnErrorOfTheGraphAndLeavesAReproducer) {
  Install(FAKE_WORKER);
  Order("segfault");
  const std::string kept = folder_ + "/failed";
  Start({"--compile-workers", "2", "--reproducers", kept, "--log-level", "error"});
  const absl::Status status = Run(1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernel k_"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("signal 11"));
  EXPECT_EQ(Run(1000), status) << "the next client is told the same";
  EXPECT_EQ(Stat("kernel_failures_total"), 2);
  EXPECT_EQ(Stat("compile_worker_deaths_total"), 4);
  EXPECT_EQ(Stat("devices_healthy"), 1);
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("ERROR kernel_failed kernel=k_"));
  EXPECT_THAT(log, HasSubstr("telegrad-opt --passes=lower --emit=object"));

  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(kept)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(log, HasSubstr(files[0]));
  // The command that the file names compiles it, in a telegrad-opt whose LLVM is in order.
  const std::string text = Slurp(files[0]);
  const size_t key = text.find("--target=");
  const std::string target = text.substr(key, text.find('\'', key) - key);
  for (const auto& [form, content] : {std::pair("llvm", "define void @"), {"object", "ELF"}}) {
    const Output replay =
        RunProgram(TELEGRAD_OPT, {"--passes=lower", StrCat("--emit=", form), target, files[0]});
    EXPECT_EQ(replay.exit_code, 0) << replay.text;
    EXPECT_THAT(replay.text, HasSubstr(content));
  }
}

TEST_F(CompileServiceTest, WithoutAFolderTheLogHasTheKernel) {
  Install(FAKE_WORKER);
  Order("error");
  Start({"--compile-workers", "1", "--log-level", "error"});
  EXPECT_THAT(std::string(Run(1000).message()), HasSubstr("no such op"));
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("kernel_failed kernel=k_"));
  EXPECT_THAT(log, HasSubstr("%0 = param f32 [1000] slot=0"));
}

TEST_F(CompileServiceTest, AHangEndsAtItsDeadline) {
  Install(FAKE_WORKER);
  Order("hang");
  Start({"--compile-workers", "1", "--kernel-time", "100", "--log-level", "off"});
  const absl::Status status = Run(1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("took longer than 100 ms"));
  EXPECT_EQ(Stat("compile_worker_deaths_total"), 1);
}

TEST_F(CompileServiceTest, WorkersGoWithTheDaemon) {
  Install(REAL_WORKER);
  for (const int signal : {SIGKILL, SIGTERM}) {
    Start({"--compile-workers", "3", "--log-level", "off"});
    ASSERT_TRUE(Run(10).ok());
    while (Stat("compile_workers") < 3) {
    }
    const std::vector<int> workers = Workers();
    EXPECT_EQ(workers.size(), 3u);
    // One that is in the midst of something cannot see that its socket closes.
    if (signal == SIGKILL) kill(workers[0], SIGSTOP);
    connection_.reset();
    daemon_->Signal(signal);
    daemon_->Wait();
    for (const int pid : workers) {
      while (kill(pid, 0) == 0 && StateOf(pid).state != 'Z') {
      }
    }
  }
}

TEST_F(CompileServiceTest, CompilesWithoutWorkersToo) {
  Install("");
  EXPECT_THAT(Refusal({}), HasSubstr("telegrad-compile-worker"));
  Start({"--compile-workers", "0", "--log-level", "off"});
  EXPECT_TRUE(Run(10).ok());
  EXPECT_EQ(Stat("compile_workers"), 0);
}

TEST_F(CompileServiceTest, TheNextDaemonCompilesNothing) {
  Install(REAL_WORKER);
  const std::vector<std::string> flags = {"--compile-workers", "1",           "--kernel-cache",
                                          folder_ + "/cache",  "--log-level", "off"};
  Start(flags);
  EXPECT_TRUE(Run(10).ok());
  EXPECT_TRUE(Run(20).ok());
  EXPECT_EQ(Stat("kernels_compiled_total"), 2);
  EXPECT_EQ(Stat("kernel_store_misses_total"), 2);
  daemon_->Signal(SIGKILL);
  Start(flags);
  EXPECT_GT(Stat("kernel_store_bytes"), 0);
  EXPECT_TRUE(Run(10).ok());
  EXPECT_TRUE(Run(20).ok());
  EXPECT_EQ(Stat("kernels_compiled_total"), 0);
  EXPECT_EQ(Stat("kernels_loaded_total"), 2);
  // All files are damaged: everything is compiled again, and right.
  for (const auto& entry : fs::directory_iterator(folder_ + "/cache")) {
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(entry.path()) / 2));
    file.put('!').put('?');
  }
  Start(flags);
  EXPECT_TRUE(Run(10).ok());
  EXPECT_TRUE(Run(20).ok());
  EXPECT_EQ(Stat("kernels_compiled_total"), 2);
  EXPECT_EQ(Stat("kernel_store_rejected_total"), 2);
}

TEST_F(CompileServiceTest, RefusesFoldersThatOthersMayWrite) {
  Install(REAL_WORKER);
  const std::string open = folder_ + "/open";
  fs::create_directory(open);
  ASSERT_EQ(chmod(open.c_str(), 0777), 0);
  for (const char* flag : {"--kernel-cache", "--reproducers"}) {
    EXPECT_THAT(Refusal({flag, open}), HasSubstr(open + " can be written by others (mode 0777)"));
  }
}

}  // namespace
}  // namespace telegrad
