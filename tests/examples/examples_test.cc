// The examples at a small size, as a user runs them: programs against a daemon. Networks with given
// weights are held to what PyTorch's functions gave for them (tests/frontend/make_examples.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/tensor_file.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/process.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kData = "tests/data/examples/";

class ExamplesTest : public ::testing::Test {
 protected:
  ExamplesTest() : daemon_(TELEGRADD, {"--listen", "127.0.0.1:0"}) {
    address_ = daemon_.Line("listening on ");
    daemon_.ReadOn();
  }

  Output Run(const std::string& example, std::vector<std::string> args) {
    args.insert(args.begin(), {"--address", address_});
    return Process(EXAMPLES + example, args).Wait();
  }

  std::string File(std::string_view name) const { return (directory_.path() / name).string(); }

  static HostTensor Npy(const std::string& path) {
    const auto file = OpenTensorFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto tensor = (*file)->Load(kOnlyTensor);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.value_or(HostTensor());
  }

  static void ExpectNear(const HostTensor& got, const HostTensor& want, double tolerance) {
    ASSERT_EQ(got.shape, want.shape);
    const std::vector<double> a = got.AsDoubles(), b = want.AsDoubles();
    double largest = 0;
    for (double x : b) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << i;
  }

  TemporaryDirectory directory_;
  Process daemon_;
  std::string address_;
};

TEST_F(ExamplesTest, HelloFitsItsLine) {
  const Output out = Run("hello", {});
  ASSERT_EQ(out.exit_code, 0) << out.text;
  EXPECT_THAT(out.text, HasSubstr("y = 2.00"));
}

// The command line's own example. Four epochs are enough to know most digits.
TEST_F(ExamplesTest, DigitsAreLearned) {
  const Output out =
      Process(TELEGRAD, {"train", "digits", "--address", address_, "--epochs", "4"}).Wait();
  ASSERT_EQ(out.exit_code, 0) << out.text;
  std::smatch accuracy;
  ASSERT_TRUE(std::regex_search(out.text, accuracy, std::regex("held-out accuracy: ([0-9.]+)%")))
      << out.text;
  EXPECT_GT(std::strtod(accuracy[1].str().c_str(), nullptr), 85) << out.text;
}

// A text in which each character tells the next one: the model must learn that and then write it,
// over more characters than its caches hold.
TEST_F(ExamplesTest, CharGptLearnsAndWrites) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnop\n";
  std::string text;
  for (int i = 0; i < 200; ++i) text += kAlphabet;
  ASSERT_TRUE(WriteFile(File("text"), text).ok());
  const Output out =
      Run("char_gpt", {"--text", File("text"), "--steps", "80", "--batch", "8", "--length", "16",
                       "--layers", "2", "--heads", "2", "--width", "32", "--characters", "40"});
  ASSERT_EQ(out.exit_code, 0) << out.text;
  std::smatch loss;
  ASSERT_TRUE(std::regex_search(out.text, loss, std::regex("step +80/80 +loss ([0-9.]+)")))
      << out.text;
  EXPECT_LT(std::strtod(loss[1].str().c_str(), nullptr), 0.1) << out.text;
  EXPECT_THAT(out.text, HasSubstr("---\nbcdefghijklmnop\nabcdefghijklmnop\nabcdefg\n---"))
      << out.text;
}

TEST_F(ExamplesTest, ResNetGivesWhatPyTorchGives) {
  const Output out =
      Run("resnet50", {"--weights", StrCat(kData, "resnet.pth"), "--image",
                       StrCat(kData, "image.npy"), "--logits", File("logits.npy"), "--size", "32",
                       "--classes", "10", "--width", "4", "--depth", "1", "--runs", "2"});
  ASSERT_EQ(out.exit_code, 0) << out.text;
  ExpectNear(Npy(File("logits.npy")), Npy(StrCat(kData, "logits.npy")), 1e-5);
}

TEST_F(ExamplesTest, BertGivesWhatPyTorchGives) {
  const Output out = Run("bert", {"--weights",    StrCat(kData, "bert.safetensors"),
                                  "--tokens",     "3,7,1,49,0,20",
                                  "--hidden",     File("hidden.npy"),
                                  "--layers",     "2",
                                  "--heads",      "2",
                                  "--width",      "16",
                                  "--inner",      "32",
                                  "--vocabulary", "50",
                                  "--positions",  "12",
                                  "--mask",       "1",
                                  "--runs",       "2"});
  ASSERT_EQ(out.exit_code, 0) << out.text;
  EXPECT_THAT(out.text, HasSubstr("place 2:"));
  ExpectNear(Npy(File("hidden.npy")), Npy(StrCat(kData, "hidden.npy")), 1e-5);
}

TEST_F(ExamplesTest, MistakesHaveTheirMessages) {
  struct {
    const char* example;
    std::vector<std::string> args;
    int exit_code;
    const char* message;
  } const cases[] = {
      {"char_gpt", {"--text", "missing"}, 1, "cannot open missing: No such file or directory"},
      {"char_gpt", {}, 2, "--text is missing"},
      {"hello", {"stray"}, 2, "unexpected argument stray"},
      {"char_gpt",
       {"--text", std::string(kData) + "hidden.npy", "--heads", "3"},
       2,
       "--width: 128 does not divide into 3 heads"},
      {"char_gpt", {"--steps", "-1"}, 2, "--steps: -1 is outside of [0, 1000000]"},
      {"char_gpt",
       {"--text", std::string(kData) + "logits.npy", "--length", "8000"},
       2,
       "characters, expected more than 8000"},
      {"resnet50", {"--weights", std::string(kData) + "bert.safetensors"}, 1, "conv1.weight"},
      {"resnet50", {"--image", std::string(kData) + "image.npy"}, 2, "expected f32 [3, 224, 224]"},
      {"bert", {"--tokens", "1,x"}, 2, "--tokens: expected numbers from 0 to 30521"},
      {"bert", {"--tokens", ""}, 2, "--tokens: 0 of them"},
      {"bert", {"--heads", "5"}, 2, "--width: 768 does not divide into 5 heads"},
      {"bert", {"--nonsense"}, 2, "nonsense"},
      {"resnet50", {"--logits", "absent/x.npy"}, 1, "absent/x.npy: there is no folder absent/"},
      {"bert", {"--hidden", "tests"}, 1, "cannot write tests: it is a folder"},
  };
  for (const auto& c : cases) {
    const Output out = Run(c.example, c.args);
    EXPECT_EQ(out.exit_code, c.exit_code) << out.text;
    EXPECT_THAT(out.text, HasSubstr(c.message));
  }
  const Output help = Run("bert", {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, HasSubstr("Predicts the masked token"));
}

TEST_F(ExamplesTest, EveryExampleHasAVersionAndPages) {
  for (const std::string name : {"hello", "char_gpt", "resnet50", "bert"}) {
    const Output version = Run(name, {"--version"});
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_EQ(version.text, StrCat(name, " ", Version(), "\n"));
    EXPECT_THAT(Run(name, {"--generate=man"}).text, HasSubstr(".SH NAME"));
    EXPECT_EQ(Run(name, {"--generate=html"}).exit_code, 2);
  }
}

}  // namespace
}  // namespace telegrad::testing
