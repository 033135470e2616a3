// The command line against a real daemon: what explain says a model would take is what a run of it
// takes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_split.h"
#include "client/cc/connection.h"
#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/json.h"
#include "tests/server/process.h"
#include "tests/server/trace_events.h"

namespace telegrad {
namespace {

using testing::At;
using testing::CompleteEvent;
using ::testing::HasSubstr;
using testing::Number;
using testing::Output;
using testing::ParseJson;
using testing::ParseTimeline;
using testing::Process;
using testing::RunProgram;
using testing::Struct;

constexpr char kMnist[] = "tests/data/onnx/mnist_8/";
constexpr char kSuperResolution[] = "tests/data/onnx/super_resolution_10/";

// Of lines that begin with `prefix`, the word number `word`.
std::vector<std::string> Words(const std::string& text, std::string_view prefix, size_t word) {
  std::vector<std::string> out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!ToStd(line).starts_with(prefix)) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    EXPECT_GT(words.size(), word) << line;
    if (words.size() > word) out.push_back(words[word]);
  }
  return out;
}

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void Start(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--listen",   "127.0.0.1:0", "--cpu-memory",
                                     "1073741824", "--log-level", "off"};
    args.insert(args.end(), more.begin(), more.end());
    daemon_ = std::make_unique<Process>(TELEGRADD, args);
    address_ = daemon_->Line("listening on ");
    ASSERT_FALSE(address_.empty());
    daemon_->ReadOn();
  }
  Output Cli(std::vector<std::string> args) {
    args.insert(args.end(), {"--address", address_});
    return RunProgram(TELEGRAD, args);
  }
  double Launches() {
    const auto connection = Connection::Connect(address_);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return (*connection)->Stats()->at("telegrad_kernel_launches_total");
  }

  std::string address_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(CliTest, ExplainCountsTheLaunchesOfARun) {
  for (const auto& [folder, dims] : {std::pair<std::string, std::vector<std::string>>{kMnist, {}},
                                     {kSuperResolution, {"--dim", "batch_size=1"}}}) {
    SCOPED_TRACE(folder);
    std::vector<std::string> args = {"explain", folder + "model.onnx"};
    args.insert(args.end(), dims.begin(), dims.end());
    const Output explained = Cli(args);
    ASSERT_EQ(explained.exit_code, 0) << explained.text;
    const double before = Launches();
    const Output ran =
        Cli({"run", folder + "model.onnx", "-i", folder + "test_data_set_0/input_0.pb", "--expect",
             folder + "test_data_set_0/output_0.pb", "--atol", "1e-2"});
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    const double launches = Launches() - before;
    EXPECT_GT(launches, 0);
    EXPECT_EQ(Words(explained.text, "kernel ", 1).size(), launches) << explained.text;
    EXPECT_THAT(ran.text, HasSubstr(StrCat(": ", launches, " kernels, ")));
  }
}

TEST_F(CliTest, CheckAndVerifySayWhoseFaultItIs) {
  const std::string model = StrCat(kMnist, "model.onnx"), folder(kMnist);
  const Output checked = Cli({"check", StrCat(kSuperResolution, "model.onnx")});
  EXPECT_EQ(checked.exit_code, 0) << checked.text;
  EXPECT_THAT(checked.text, HasSubstr("assumed: batch_size = 1"));
  EXPECT_THAT(checked.text, HasSubstr("the model is supported"));
  const Output verified = Cli({"run", model, "--verify", folder, "--atol", "1e-2"});
  EXPECT_EQ(verified.exit_code, 0) << verified.text;
  EXPECT_THAT(verified.text, HasSubstr("3 data sets match, 1 imports"));
  const Output strict = Cli({"run", model, "--verify", folder, "--rtol", "0", "--atol", "0"});
  EXPECT_EQ(strict.exit_code, 1) << strict.text;
  EXPECT_THAT(strict.text, HasSubstr("data sets differ"));
  // A file that is no model is not wrong usage; it is named.
  const std::string image = folder + "test_data_set_0/input_0.pb";
  for (const char* command : {"check", "explain"}) {
    const Output bad = Cli({command, image});
    EXPECT_EQ(bad.exit_code, 1) << bad.text;
    EXPECT_THAT(bad.text, HasSubstr(image));
  }
  EXPECT_EQ(Cli({"run", model}).exit_code, 2);
  EXPECT_EQ(Cli({"run", model, "--verify", "tests"}).exit_code, 2);
  EXPECT_EQ(Cli({"run", model, "--verify", std::string(5000, 'x')}).exit_code, 2);
  EXPECT_EQ(Cli({"check", model, "--dim", "nope=3"}).exit_code, 2);
}

// A command whose output is not all there has failed.
TEST_F(CliTest, OutputThatCannotBeWrittenIsAnError) {
  for (const std::string& words :
       {StrCat("explain ", kMnist, "model.onnx"), StrCat("devices --address ", address_),
        std::string("--help"), std::string("devices --help")}) {
    const Output full =
        RunProgram("/bin/bash", {"-c", StrCat(TELEGRAD, " ", words, " > /dev/full")});
    EXPECT_EQ(full.exit_code, 1) << words;
    EXPECT_THAT(full.text, HasSubstr("cannot write to the standard output")) << words;
  }
}

TEST_F(CliTest, ExplainTakesShapesAndSaysTheSameAsJson) {
  const std::string model = StrCat(kSuperResolution, "model.onnx");
  const std::vector<std::string> shape = {"--shape", "input=3x1x224x224"};
  const Output text = Cli({"explain", model, shape[0], shape[1]});
  const Output json = Cli({"explain", model, shape[0], shape[1], "--json"});
  ASSERT_EQ(text.exit_code, 0) << text.text;
  ASSERT_EQ(json.exit_code, 0) << json.text;
  const Struct all = ParseJson(json.text);
  const auto& kernels = At(all, "kernels").list_value().values();
  const std::vector<std::string> names = Words(text.text, "kernel ", 2);
  ASSERT_EQ(static_cast<size_t>(kernels.size()), names.size());
  EXPECT_EQ(Number(all, "launches"), names.size());
  double flops = 0;
  for (int i = 0; i < kernels.size(); ++i) {
    const Struct& kernel = kernels[i].struct_value();
    EXPECT_EQ(At(kernel, "name").string_value(), names[i]);
    EXPECT_GT(At(kernel, "reasons").list_value().values_size(), 0);
    flops += Number(kernel, "flops");
  }
  EXPECT_EQ(Number(all, "flops"), flops);
  const Struct& memory = At(all, "memory").struct_value();
  EXPECT_EQ(static_cast<size_t>(At(memory, "temporaries").list_value().values_size()),
            Words(text.text, "temporary ", 1).size());
}

// The launches are those that explain lists, one after another inside the run, inside the client's
// phase; the reasons are explain's. Beside them are those that copy weights into panels, once: of
// no node of the graph, so that they have no reasons.
TEST_F(CliTest, TimelineOfARun) {
  const std::string file = StrCat(::testing::TempDir(), "timeline_", getpid(), ".json");
  for (const bool cached : {false, true}) {
    SCOPED_TRACE(cached);
    const double before = Launches();
    const Output ran = Cli({"run", StrCat(kMnist, "model.onnx"), "-i",
                            StrCat(kMnist, "test_data_set_0/input_0.pb"), "--timeline", file});
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    const double launches = Launches() - before;
    std::ifstream in(file);
    const std::string json{std::istreambuf_iterator<char>(in), {}};
    const std::vector<CompleteEvent> events = ParseTimeline(json);
    std::map<std::string, CompleteEvent> phases;  // by process and name
    for (const CompleteEvent& e : events) {
      if (e.category == "phase") phases[e.process + " " + e.name] = e;
    }
    EXPECT_EQ(phases.contains("telegradd compile"), !cached);
    for (const char* name : {"telegrad read files", "telegrad import", "telegrad connect",
                             "telegrad send model and inputs", "telegrad run",
                             "telegrad read results", "telegradd run"}) {
      EXPECT_TRUE(phases.contains(name)) << name;
    }
    const CompleteEvent &asked = phases["telegrad run"], &served = phases["telegradd run"];
    EXPECT_LE(asked.begin, served.begin);
    EXPECT_LE(served.end, asked.end);

    const Output explained = Cli({"explain", StrCat(kMnist, "model.onnx"), "--json"});
    const Struct all = ParseJson(explained.text);
    const auto& kernels = At(all, "kernels").list_value().values();
    double last = served.begin;
    int i = 0;
    for (const CompleteEvent& e : events) {
      if (e.category != "launch") continue;
      if (At(e.args, "reasons").list_value().values().empty()) {
        EXPECT_EQ(Number(e.args, "flops"), 0);
        continue;
      }
      ASSERT_LT(i, kernels.size());
      const Struct& kernel = kernels[i++].struct_value();
      EXPECT_EQ(e.thread, "CPU:0 compute");
      EXPECT_EQ(e.name, At(kernel, "name").string_value());
      EXPECT_EQ(Number(e.args, "flops"), Number(kernel, "flops"));
      EXPECT_EQ(Number(e.args, "bytes"), Number(kernel, "bytes"));
      EXPECT_EQ(At(e.args, "reasons").DebugString(), At(kernel, "reasons").DebugString());
      EXPECT_GE(e.begin, last - 0.001);  // a queue runs one after another
      EXPECT_LE(e.end, served.end + 0.001);
      last = e.end;
    }
    EXPECT_EQ(i, launches);
    EXPECT_EQ(i, kernels.size());
  }
  std::filesystem::remove(file);
}

TEST_F(CliTest, TimelinesAreBounded) {
  const std::string file = StrCat(::testing::TempDir(), "bounded_", getpid(), ".json");
  // Of a new daemon, how many launches the timeline has and how many it has dropped.
  const auto run = [&](const std::string& limit) {
    Start({"--trace-events", limit});
    const Output ran = Cli({"run", StrCat(kMnist, "model.onnx"), "-i",
                            StrCat(kMnist, "test_data_set_0/input_0.pb"), "-t", file});
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    std::ifstream in(file);
    const std::string json{std::istreambuf_iterator<char>(in), {}};
    const auto launches =
        std::ranges::count(ParseTimeline(json), "launch", &CompleteEvent::category);
    return std::pair<double, double>(
        launches, Number(At(ParseJson(json), "otherData").struct_value(), "dropped_events"));
  };
  const auto [all, none] = run("1000");
  EXPECT_GE(all, Launches());  // and those that pack weights
  EXPECT_EQ(none, 0);
  EXPECT_EQ(run("2"), std::pair(2.0, all - 2));
  std::filesystem::remove(file);
}

// What a command writes at its end is checked before it connects: no server answers here.
TEST_F(CliTest, AFileThatCannotBeWrittenIsNamedBeforeTheWork) {
  const std::string model = StrCat(kMnist, "model.onnx");
  const std::string input = StrCat(kMnist, "test_data_set_0/input_0.pb");
  const std::vector<std::vector<std::string>> commands = {
      {"run", model, "-i", input, "-o", "absent/y.npy"},
      {"run", model, "-i", input, "-o", "absent/y.pb"},
      {"run", model, "-i", input, "--timeline", "absent/t.json"},
      {"run", model, "--verify", kMnist, "--timeline", "absent/t.json"},
      {"train", "digits", "--save", "absent/w.safetensors"},
      {"bench", "--samples", "absent/s.csv"},
      {"explain", model, "--html", "absent/page.html"}};
  for (std::vector<std::string> args : commands) {
    const std::string path = args.back();
    args.push_back("--address");
    args.push_back("127.0.0.1:1");
    const Output out = RunProgram(TELEGRAD, args);
    EXPECT_EQ(out.exit_code, 1) << out.text;
    EXPECT_THAT(out.text, HasSubstr(StrCat("cannot write ", path,
                                           ": there is no folder absent/; make it, or name "
                                           "another file")));
  }
  const Output folder = RunProgram(TELEGRAD, {"explain", model, "--html", "tests"});
  EXPECT_EQ(folder.exit_code, 1) << folder.text;
  EXPECT_THAT(folder.text, HasSubstr("cannot write tests: it is a folder; name a file in it"));
}

// Of both kinds of files, and with nothing beside them.
TEST_F(CliTest, ResultsAreWrittenAndReadAgain) {
  const std::string folder = StrCat(::testing::TempDir(), "results_", getpid());
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  for (const char* name : {"/y.npy", "/y.pb"}) {
    const std::string model = StrCat(kMnist, "model.onnx"), file = folder + name;
    const std::string input = StrCat(kMnist, "test_data_set_0/input_0.pb");
    const Output ran = Cli({"run", model, "-i", input, "-o", file});
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    const Output same = Cli({"run", model, "-i", input, "--expect", file});
    EXPECT_EQ(same.exit_code, 0) << same.text;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  std::filesystem::remove_all(folder);
}

TEST_F(CliTest, ExplainRefusals) {
  const std::string model = StrCat(kSuperResolution, "model.onnx");
  const auto refused = [&](std::vector<std::string> args, int exit_code, const char* text) {
    args.insert(args.begin(), "explain");
    const Output output = RunProgram(TELEGRAD, args);
    EXPECT_EQ(output.exit_code, exit_code) << output.text;
    EXPECT_THAT(output.text, HasSubstr(text));
  };
  refused({model}, 2, "batch_size");
  refused({model, "--shape", "input=1x-1"}, 2, "\"-1\" is not a size");
  refused({model, "--shape", "=1"}, 2, "expected NAME=VALUE");
  refused({model, "--shape", "other=1x1"}, 2, "no input 'other'");
  refused({model, "--dim", "batch_size=many"}, 2, "\"many\" is not a size");
  refused({}, 2, "expected one ONNX file");
  refused({"tests/data/onnx/NOTICE"}, 1, "tests/data/onnx/NOTICE: ONNX");
  refused({"tests/data/onnx/nobody"}, 1, "nobody");
}

}  // namespace
}  // namespace telegrad
