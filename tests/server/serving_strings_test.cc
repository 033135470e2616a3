// Models whose inputs are read when they are imported: strings, and numbers that decide a shape.
// Requests for them are answered as those for any other, and each with its own values.
#include "server/serving/bytes_tensor.h"
#include "tests/server/serving_fixture.h"
#include "tests/server/word_models.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServingStringsTest : public ServingTest {
 protected:
  void SetUp() override {
    // Words to numbers and back.
    WriteModel("numbers", NumbersOfWords());
    WriteModel("words", WordsOfNumbers());
    WriteModel("where", onnx::test::ModelWriter()
                            .Input("x", DType::kInt32, {4})
                            .Input("w", DType::kFloat32, {4})
                            .Output("y", DType::kInt64, {1, -1})
                            .Output("z", DType::kFloat32, {4})
                            .Initializer("c", HostTensor::Of<float>({1}, {1}))
                            .Node("NonZero", {"x"}, {"y"})
                            .Node("Add", {"w", "c"}, {"z"})
                            .File(13));
    WriteModel("add", AddModel(1));
    StartServing();
    for (const char* const name : {"numbers", "words", "where"}) {
      const auto rows = Loaded(name);
      ASSERT_FALSE(rows.empty());
      ASSERT_TRUE(IsReady(name)) << name << ": " << rows[0].reason();
    }
  }

  static inference::ModelInferRequest Strings(const std::string& model, const Shape& shape,
                                              const std::vector<std::string>& elements) {
    std::string bytes;
    for (const std::string& element : elements) AppendElement(element, &bytes);
    return Request<char>(model, "BYTES", shape, {bytes.begin(), bytes.end()});
  }
  static std::vector<std::string> Elements(const inference::ModelInferResponse& response) {
    EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
    std::string_view rest = response.raw_output_contents(0), element;
    std::vector<std::string> out;
    while (TakeElement(&rest, &element)) out.emplace_back(element);
    EXPECT_EQ(rest, "");
    return out;
  }
  absl::StatusOr<std::vector<int64_t>> Where(const std::vector<int32_t>& x,
                                             const std::vector<float>& w) {
    auto request = Request("where", "INT32", {4}, x);
    auto* input = request.add_inputs();
    input->set_name("w");
    input->set_datatype("FP32");
    input->add_shape(4);
    request.add_raw_input_contents(
        std::string(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float)));
    TG_ASSIGN_OR_RETURN(const auto response, Infer(request));
    const std::string& z = response.raw_output_contents(1);
    for (size_t i = 0; i < w.size(); ++i) {
      float value;
      std::memcpy(&value, z.data() + i * sizeof(float), sizeof(float));
      EXPECT_EQ(value, w[i] + 1);
    }
    EXPECT_EQ(response.outputs(0).shape(1), response.raw_output_contents(0).size() / 8);
    return Values<int64_t>(response);
  }
};

TEST_F(ServingStringsTest, StringsAreInputs) {
  for (int i = 0; i < 2; ++i) {
    const auto response = Infer(Strings("numbers", {3}, {"two", "three", "ten"}));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_THAT(Values<int64_t>(*response), ElementsAre(2, 3, -1));
  }
  const auto other = Infer(Strings("numbers", {3}, {"one", "three", "ten"}));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(Values<int64_t>(*other), ElementsAre(1, 3, -1));
  // The same bytes in another order of lengths are other strings.
  const auto moved = Infer(Strings("numbers", {2}, {std::string("on"), "e"}));
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_THAT(Values<int64_t>(*moved), ElementsAre(-1, -1));
  auto typed = Strings("numbers", {2}, {});
  typed.clear_raw_input_contents();
  typed.mutable_inputs(0)->mutable_contents()->add_bytes_contents("one");
  typed.mutable_inputs(0)->mutable_contents()->add_bytes_contents("two");
  const auto response = Infer(typed);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(Values<int64_t>(*response), ElementsAre(1, 2));
  grpc::ClientContext context;
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse about;
  request.set_name("numbers");
  ASSERT_TRUE(stub_->ModelMetadata(&context, request, &about).ok());
  EXPECT_EQ(about.inputs(0).datatype(), "BYTES");
}

TEST_F(ServingStringsTest, StringsAreOutputs) {
  for (const std::vector<int64_t>& x : {std::vector<int64_t>{3, 2, 1}, {7, 1, 1}, {3, 2, 1}}) {
    const auto response = Infer(Request("words", "INT64", {3}, x));
    ASSERT_TRUE(response.ok()) << response.status();
    if (x[0] == 3) {
      EXPECT_THAT(Elements(*response), ElementsAre("", "two", "one"));
    } else {
      EXPECT_THAT(Elements(*response), ElementsAre("many", "one", "one"));
    }
  }
  auto classes = Request<int64_t>("words", "INT64", {1}, {1});
  auto* output = classes.add_outputs();
  output->set_name("y");
  (*output->mutable_parameters())["classification"].set_int64_param(1);
  EXPECT_THAT(std::string(Infer(classes).status().message()), HasSubstr("no classification"));
}

// The values of what decides a shape make another form of the model, those of the rest do not.
TEST_F(ServingStringsTest, ValuesThatDecideAShape) {
  const auto first = Where({0, 5, 0, 7}, {1, 2, 3, 4});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(*first, ElementsAre(1, 3));
  const auto second = Where({1, 1, 1, 0}, {4, 3, 2, 1});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(*second, ElementsAre(0, 1, 2));
  const auto compiled = [&] {
    grpc::ClientContext context;
    inference::ModelConfigRequest request;
    inference::ModelConfigResponse response;
    request.set_name("where");
    return stub_->ModelConfig(&context, request, &response).ok();
  };
  EXPECT_TRUE(compiled());
  for (int i = 0; i < 20; ++i) {
    const auto again = Where({0, 5, 0, 7}, {static_cast<float>(i), 2, 3, 4});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_THAT(*again, ElementsAre(1, 3));
  }
  const auto none = Where({0, 0, 0, 0}, {1, 2, 3, 4});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(*none, ElementsAre());
}

TEST_F(ServingStringsTest, StringsThatAreNone) {
  const auto refused = [&](inference::ModelInferRequest request, std::string_view raw,
                           const std::string& says) {
    request.set_raw_input_contents(0, std::string(raw));
    const absl::Status status = Infer(request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  const auto request = Strings("numbers", {1}, {"one"});
  using std::string_view_literals::operator""sv;
  refused(request, "\x03\0\0\0on"sv, "ends within element 0");
  refused(request, "\xff\xff\xff\xffone"sv, "ends within element 0");
  refused(request, "\x03\0\0\0oneX"sv, "1 bytes behind");
  refused(request, "", "expected 1 elements");
  refused(Strings("numbers", {int64_t{1} << 40}, {"one"}), "\x03\0\0\0one"sv, "elements");
  refused(Strings("numbers", {INT64_MAX}, {"one"}), "\x03\0\0\0one"sv, "numbers");
  auto mixed = Strings("numbers", {1}, {});
  mixed.clear_raw_input_contents();
  mixed.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_THAT(std::string(Infer(mixed).status().message()), HasSubstr("datatype BYTES"));
  EXPECT_THAT(std::string(Infer(Request<int64_t>("numbers", "INT64", {1}, {1})).status().message()),
              HasSubstr("expected BYTES"));
}

}  // namespace
}  // namespace telegrad
