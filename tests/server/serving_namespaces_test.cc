// Models of the same name in several repositories, each with a namespace: a tenant's request
// goes to the model in the tenant's own.
#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ServingNamespacesTest : public ServingTenantsTest {
 protected:
  std::vector<std::string> More() const override {
    return {"--models", StrCat("a-team=", spaces_.path().string(), "/a"), "--models",
            StrCat("b-team=", spaces_.path().string(), "/b")};
  }
  void WriteMore() override {
    const auto write = [this](const std::string& name, std::string_view content) {
      const auto path = spaces_.path() / name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << content;
    };
    write("a/net/1/model.onnx", AddModel(100));
    write("b/net/1/model.onnx", AddModel(200));
    write("b/net/config.pbtxt", "name: 'net' max_batch_size: 4");
    write("a/only/1/model.onnx", AddModel(300));
    // Its own net, and what all have.
    std::filesystem::create_directories(spaces_.path() / "a" / "both" / "1");
    write("a/both/config.pbtxt", R"(
      platform: "ensemble"
      max_batch_size: 4
      input { name: "x" data_type: TYPE_FP32 dims: 4 }
      output { name: "y" data_type: TYPE_FP32 dims: 4 }
      ensemble_scheduling { step [
        { model_name: "net" input_map { key: "x" value: "x" } output_map { key: "y" value: "t" } },
        { model_name: "add" input_map { key: "x" value: "t" } output_map { key: "y" value: "y" } }
      ] })");
  }
  absl::StatusOr<std::vector<float>> Ask(const std::string& tenant, const std::string& model) {
    grpc::ClientContext context;
    As(&context, Token(tenant));
    inference::ModelInferResponse response;
    TG_RETURN_IF_ERROR(
        FromGrpc(stub_->ModelInfer(&context, Floats(model, {1, 4}, {0, 1, 2, 3}), &response)));
    return Values<float>(response);
  }
  static std::vector<float> From(float first) { return {first, first + 1, first + 2, first + 3}; }

  TemporaryFolder spaces_;
};

TEST_F(ServingNamespacesTest, ATenantMeansItsOwn) {
  const auto is = [&](const std::string& tenant, const std::string& model, float first) {
    const auto answer = Ask(tenant, model);
    ASSERT_TRUE(answer.ok()) << tenant << " " << model << ": " << answer.status();
    EXPECT_EQ(*answer, From(first)) << tenant << " " << model;
  };
  is("a", "net", 100);
  is("b", "net", 200);
  is("a", "a-team.net", 100);
  is("a", "only", 300);
  is("a", "both", 101);
  is("ops", "b-team.net", 200);
  is("ops", "only", 300);
  is("ops", "add", 1);
  const auto several = Ask("ops", "net");
  EXPECT_TRUE(absl::IsInvalidArgument(several.status())) << several.status();
  EXPECT_THAT(std::string(several.status().message()), HasSubstr("a-team.net, b-team.net"));
  for (const char* const model : {"b-team.net", "b-team.nothing", "nothing"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(Ask("a", model).status())) << model;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(Ask("b", "only").status()));
}

TEST_F(ServingNamespacesTest, OverHttpToo) {
  EXPECT_THAT(Http(Token("a"), "POST", "/v2/models/net/infer", kBody), HasSubstr("100"));
  EXPECT_THAT(Http(Token("b"), "POST", "/v2/models/net/infer", kBody), HasSubstr("200"));
  EXPECT_THAT(Http(Token("b"), "POST", "/v2/models/only/infer", kBody), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Http(token_, "POST", "/v2/models/net/infer", kBody), StartsWith("HTTP/1.1 400"));
  const std::string about = Http(Token("b"), "GET", "/v2/models/net");
  EXPECT_THAT(about, HasSubstr(R"("name":"b-team.net","versions":["1"])"));
  const std::string statistics = Http(Token("b"), "GET", "/v2/models/net/stats");
  EXPECT_THAT(statistics, HasSubstr("b-team.net"));
  const std::string index = Http(Token("b"), "POST", "/v2/repository/index");
  EXPECT_THAT(index, HasSubstr("b-team.net"));
  EXPECT_THAT(index, Not(HasSubstr("a-team")));
  EXPECT_THAT(Http(token_, "POST", "/v2/repository/models/a-team.only/unload"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(absl::IsUnavailable(Ask("a", "only").status()));
}

}  // namespace
}  // namespace telegrad
