// What is traced and logged, by the calls of the protocol: which requests have spans, what is
// refused, and that tenants change nothing.
#include <fcntl.h>
#include <sys/socket.h>

#include "client/cc/admin.h"
#include "engine/net/tcp.h"
#include "server/serving/trace_settings.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TraceSettingsTest, OneInSoManyAndSoManyInAll) {
  TraceSettings settings;
  EXPECT_FALSE(settings.Takes("m"));
  ASSERT_TRUE(
      settings
          .Set("", {{"trace_level", {"TIMESTAMPS"}}, {"trace_rate", {"3"}}, {"trace_count", {"2"}}})
          .ok());
  std::string taken;
  for (int i = 0; i < 12; ++i) taken += settings.Takes("m") ? '1' : '0';
  EXPECT_EQ(taken, "100100000000");
  EXPECT_EQ(settings.Get("")["trace_count"], std::vector<std::string>{"0"});
  ASSERT_TRUE(settings.Set("", {{"trace_count", {}}, {"trace_rate", {"1"}}}).ok());
  EXPECT_EQ(settings.Get("")["trace_count"], std::vector<std::string>{"-1"});
  EXPECT_TRUE(settings.Takes("m"));
}

TEST(TraceSettingsTest, AModelHasItsOwn) {
  TraceSettings settings;
  ASSERT_TRUE(settings.Set("m", {{"trace_level", {"TIMESTAMPS"}}, {"trace_rate", {"1"}}}).ok());
  EXPECT_TRUE(settings.Takes("m"));
  EXPECT_FALSE(settings.Takes("other"));
  EXPECT_EQ(settings.Get("other")["trace_level"], std::vector<std::string>{"OFF"});
  ASSERT_TRUE(settings.Set("", {{"trace_rate", {"7"}}}).ok());
  EXPECT_EQ(settings.Get("m")["trace_rate"], std::vector<std::string>{"1"});
  ASSERT_TRUE(settings.Set("m", {{"trace_level", {}}, {"trace_rate", {}}}).ok());
  EXPECT_EQ(settings.Get("m")["trace_rate"], std::vector<std::string>{"7"});
  EXPECT_FALSE(settings.Takes("m"));
}

TEST(TraceSettingsTest, RefusesAllOrNothing) {
  TraceSettings settings;
  const TraceValues wrong[] = {{{"trace_level", {"TIMESTAMPS", "OFF"}}},
                               {{"trace_level", {"ALL"}}},
                               {{"trace_level", {"TENSORS"}}},
                               {{"trace_rate", {"0"}}},
                               {{"trace_rate", {"1", "2"}}},
                               {{"trace_rate", {"1x"}}},
                               {{"trace_count", {"-2"}}},
                               {{"trace_file", {"/etc/passwd"}}},
                               {{"trace_mode", {"triton"}}},
                               {{"nothing", {"1"}}}};
  for (TraceValues values : wrong) {
    values.insert({"trace_level", {"TIMESTAMPS"}});
    EXPECT_FALSE(settings.Set("", values).ok()) << values.rbegin()->first;
    EXPECT_FALSE(settings.Takes("m")) << values.rbegin()->first;
  }
}

class ServingSettingsTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    admin_ = "unix:" + (models_.path() / "admin.sock").string();
    StartServing({"--admin-listen", admin_, "--http", "127.0.0.1:0"});
    ASSERT_TRUE(BecomesReady("add"));
  }
  absl::StatusOr<inference::TraceSettingResponse> Trace(const std::string& model,
                                                        const TraceValues& values) {
    grpc::ClientContext context;
    inference::TraceSettingRequest request;
    request.set_model_name(model);
    for (const auto& [name, value] : values) {
      (*request.mutable_settings())[name].mutable_value()->Add(value.begin(), value.end());
    }
    inference::TraceSettingResponse response;
    TG_RETURN_IF_ERROR(FromGrpc(stub_->TraceSetting(&context, request, &response)));
    return response;
  }
  void InferOnce() {
    const auto answer = Infer(Floats("add", {1, 4}, {0, 1, 2, 3}));
    EXPECT_TRUE(answer.ok()) << answer.status();
  }
  int Spans(std::string_view name) {
    const auto json = AdminClient(Connect(admin_)).Spans();
    EXPECT_TRUE(json.ok()) << json.status();
    const std::string wanted = StrCat("\"name\":\"", name, "\"");
    int count = 0;
    for (size_t at = 0; (at = json->find(wanted, at)) != std::string::npos; ++at) ++count;
    return count;
  }
  std::string Http(std::string_view method, std::string_view path, std::string_view body = "") {
    const auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_TRUE(fd.ok()) << fd.status();
    fcntl(fd->get(), F_SETFL, 0);  // to wait in recv
    const std::string request =
        StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
               "Content-Length: ", body.size(), "\r\n\r\n", body);
    send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string out;
    char bytes[4096];
    for (ssize_t n = 0; (n = recv(fd->get(), bytes, sizeof(bytes), 0)) > 0;) {
      out.append(bytes, static_cast<size_t>(n));
    }
    return out;
  }

  std::string admin_;
};

TEST_F(ServingSettingsTest, TracesAsManyAsAreAskedFor) {
  InferOnce();
  EXPECT_EQ(Spans("infer add"), 0);
  const auto set =
      Trace("", {{"trace_level", {"TIMESTAMPS"}}, {"trace_rate", {"1"}}, {"trace_count", {"2"}}});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->settings().at("trace_level").value(0), "TIMESTAMPS");
  for (int i = 0; i < 4; ++i) InferOnce();
  EXPECT_EQ(Spans("infer add"), 2);
  for (const char* const phase : {"queue", "input", "infer", "output"}) {
    EXPECT_EQ(Spans(phase), 2) << phase;
  }
  EXPECT_EQ(Trace("", {})->settings().at("trace_count").value(0), "0");
  EXPECT_EQ(Trace("nothing", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Trace("", {{"trace_file", {"x"}}}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ServingSettingsTest, ACallerMarksItsRequest) {
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  inference::ModelInferResponse response;
  ASSERT_TRUE(stub_->ModelInfer(&context, Floats("add", {1, 4}, {0, 1, 2, 3}), &response).ok());
  EXPECT_EQ(Spans("infer add"), 1);
}

TEST_F(ServingSettingsTest, OverHttp) {
  EXPECT_THAT(Http("GET", "/v2/trace/setting"), HasSubstr(R"("trace_level":["OFF"])"));
  EXPECT_THAT(Http("POST", "/v2/models/add/trace/setting",
                   R"({"trace_level":["TIMESTAMPS"],"trace_rate":"1","trace_count":null})"),
              HasSubstr(R"("trace_level":["TIMESTAMPS"])"));
  EXPECT_THAT(Http("GET", "/v2/trace/setting"), HasSubstr(R"("trace_level":["OFF"])"));
  InferOnce();
  EXPECT_EQ(Spans("infer add"), 1);
  for (const char* const wrong :
       {"[]", "{", R"({"trace_rate":{}})", R"({"trace_rate":"1","trace_rate":"2"})",
        R"({"trace_rate":"0"})", R"({"trace_rate":true})", R"({"x":"1"})", "{} {}"}) {
    EXPECT_THAT(Http("POST", "/v2/trace/setting", wrong), StartsWith("HTTP/1.1 400")) << wrong;
  }
  EXPECT_THAT(Http("GET", "/v2/models/nothing/trace/setting"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Http("DELETE", "/v2/trace/setting"), StartsWith("HTTP/1.1 405"));
}

TEST_F(ServingSettingsTest, TheLogHasALeastSeverity) {
  EXPECT_THAT(Http("GET", "/v2/logging"), HasSubstr(R"("log_error":false)"));  // --log-level off
  EXPECT_THAT(Http("POST", "/v2/logging", R"({"log_warning":true,"log_error":true})"),
              HasSubstr(R"("log_info":false,"log_verbose_level":0,"log_warning":true)"));
  EXPECT_THAT(Http("POST", "/v2/logging", R"({"log_error":false})"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Http("POST", "/v2/logging", R"({"log_file":"/etc/passwd"})"),
              StartsWith("HTTP/1.1 501"));
  EXPECT_THAT(Http("POST", "/v2/logging", R"({"log_info":1})"), StartsWith("HTTP/1.1 400"));
  grpc::ClientContext context;
  inference::LogSettingsRequest request;
  for (const char* const name : {"log_warning", "log_error"}) {
    (*request.mutable_settings())[name].set_bool_param(false);
  }
  inference::LogSettingsResponse response;
  const grpc::Status status = stub_->LogSettings(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(response.settings().at("log_error").bool_param());
  EXPECT_EQ(response.settings().at("log_format").string_param(), "default");
}

}  // namespace
}  // namespace telegrad
