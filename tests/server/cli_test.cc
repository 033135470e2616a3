// The command line against a real daemon: what explain says a model would take is what a run of it
// takes.
#include <filesystem>

#include "absl/strings/str_split.h"
#include "client/cc/connection.h"
#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/server/process.h"

namespace telegrad {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using ::testing::HasSubstr;
using testing::Output;
using testing::Process;
using testing::RunProgram;

constexpr char kMnist[] = "tests/data/onnx/mnist_8/";
constexpr char kSuperResolution[] = "tests/data/onnx/super_resolution_10/";

Struct ParseJson(const std::string& text) {
  Struct out;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &out);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text.substr(0, 1000);
  return out;
}

const Value& At(const Struct& s, const std::string& name) {
  const auto it = s.fields().find(name);
  EXPECT_NE(it, s.fields().end()) << name;
  static const Value nothing;
  return it == s.fields().end() ? nothing : it->second;
}
double Number(const Struct& s, const std::string& name) { return At(s, name).number_value(); }

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
  void SetUp() override {
    daemon_ = std::make_unique<Process>(
        TELEGRADD, std::vector<std::string>{"--listen", "127.0.0.1:0", "--cpu-memory", "1073741824",
                                            "--log-level", "off"});
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

TEST_F(CliTest, ExplainRefusals) {
  const std::string model = StrCat(kSuperResolution, "model.onnx");
  const auto refused = [&](std::vector<std::string> args, int exit_code, const char* text) {
    args.insert(args.begin(), "explain");
    const Output output = RunProgram(TELEGRAD, args);
    EXPECT_EQ(output.exit_code, exit_code) << output.text;
    EXPECT_THAT(output.text, HasSubstr(text));
  };
  refused({model}, 2, "batch_size");
  refused({model, "--shape", "input=1x-1"}, 2, "\"-1\" is no size");
  refused({model, "--shape", "=1"}, 2, "expected NAME=VALUE");
  refused({model, "--shape", "other=1x1"}, 2, "no input 'other'");
  refused({model, "--dim", "batch_size=many"}, 2, "\"many\" is no size");
  refused({}, 2, "expected one ONNX file");
  refused({"tests/data/onnx/NOTICE"}, 2, "ONNX");
  refused({"tests/data/onnx/nobody"}, 1, "nobody");
}

}  // namespace
}  // namespace telegrad
