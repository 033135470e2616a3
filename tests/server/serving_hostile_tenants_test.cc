// What one tenant may hold of the server's memory by requests, and by answers that it does not
// take: all of it is its own, within its quotas.
#include <optional>
#include <thread>

#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HostileTenantsTest : public ServingTenantsTest {
 protected:
  static constexpr int64_t kMany = 300'000;  // floats, which are more than bob's host_staging
  static constexpr int64_t kClasses = 1 << 16;

  std::vector<std::string> More() const override { return {"--models-response-cache", "67108864"}; }
  void WriteMore() override {
    WriteModel("cached", Wide(kMany), "max_batch_size: 0 response_cache { enable: true }");
    WriteModel("classes", Wide(kClasses), "max_batch_size: 0");
    WriteModel("numbers", IdentityModel(DType::kInt64, {-1}), "max_batch_size: 0");
    WriteModel("sum", SumModel(),
               "max_batch_size: 4 sequence_batching { direct { } "
               "max_sequence_idle_microseconds: 3600000000 state { input_name: 'sum_in' "
               "output_name: 'sum_out' data_type: TYPE_FP32 dims: 1 } }");
  }
  // y = x + `columns` zeros, of one float x.
  static std::string Wide(int64_t columns) {
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {1})
        .Output("y", DType::kFloat32, {columns})
        .Initializer("w", HostTensor{DType::kFloat32,
                                     {columns},
                                     std::string(static_cast<size_t>(columns) * 4, '\0')})
        .Node("Add", {"x", "w"}, {"y"})
        .File(13);
  }
  // y = x + the sum of the x before.
  static std::string SumModel() {
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {-1, 1})
        .Input("sum_in", DType::kFloat32, {-1, 1})
        .Output("y", DType::kFloat32, {-1, 1})
        .Output("sum_out", DType::kFloat32, {-1, 1})
        .Node("Add", {"x", "sum_in"}, {"y"})
        .Node("Identity", {"y"}, {"sum_out"})
        .File(13);
  }
  // The sum, or -1 where the request is refused.
  float Sum(const std::string& token, float x, bool start, bool end) {
    auto request = Floats("sum", {1, 1}, {x});
    (*request.mutable_parameters())["sequence_id"].set_int64_param(7);
    (*request.mutable_parameters())["sequence_start"].set_bool_param(start);
    (*request.mutable_parameters())["sequence_end"].set_bool_param(end);
    grpc::ClientContext context;
    As(&context, token);
    inference::ModelInferResponse response;
    const grpc::Status status = stub_->ModelInfer(&context, request, &response);
    return status.ok() ? Values<float>(response)[0] : -1;
  }
  // Soon a tenant holds nothing any more.
  void ExpectHoldsNothing(const std::string& tenant) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (const char* const quota : {"host_staging", "device_memory"}) {
      std::optional<double> used = Used(tenant, quota);
      while (used != 0.0 && std::chrono::steady_clock::now() < deadline) {
        used = Used(tenant, quota);
      }
      EXPECT_EQ(used.value_or(-1), 0) << quota;
    }
  }
  std::string Ask(const std::string& token, const std::string& model,
                  const std::string& parameters) {
    return Http(token, "POST", StrCat("/v2/models/", model, "/infer"),
                StrCat(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],)"
                       R"("outputs":[{"name":"y","parameters":{"binary_data":true)",
                       parameters, "}}]}"));
  }
  // What a tenant has in use of a quota, as the metrics page has it; none where it has no such row.
  std::optional<double> Used(const std::string& tenant, const std::string& quota) {
    const std::string address = StrCat("127.0.0.1:", metrics_.substr(0, metrics_.find('/')));
    const auto fd =
        ConnectTcp(address, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (!fd.ok()) return std::nullopt;
    fcntl(fd->get(), F_SETFL, 0);
    const std::string_view ask = "GET /metrics HTTP/1.0\r\n\r\n";
    send(fd->get(), ask.data(), ask.size(), MSG_NOSIGNAL);
    std::string page;
    char bytes[4096];
    for (ssize_t n = 0; (n = recv(fd->get(), bytes, sizeof(bytes), 0)) > 0;) {
      page.append(bytes, static_cast<size_t>(n));
    }
    const std::string row =
        StrCat("telegrad_tenant_used{tenant=\"", tenant, "\",quota=\"", quota, "\"} ");
    const size_t at = page.find(row);
    if (at == page.npos) return std::nullopt;
    return std::stod(page.substr(at + row.size(), 32));
  }
};

// An answer from the cache outlasts its place there while nobody takes it.
TEST_F(HostileTenantsTest, AnswersFromTheCacheArePaidFor) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Ask(Token("bob"), "cached", ""), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(Http(token_, "GET", "/v2/models/cached/stats"),
              HasSubstr(R"("cache_hit":{"count":0,)"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Ask(token_, "cached", ""), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(Http(token_, "GET", "/v2/models/cached/stats"),
              HasSubstr(R"("cache_hit":{"count":1,)"));
}

TEST_F(HostileTenantsTest, TextsOfClassesArePaidFor) {
  const std::string classes = StrCat(",\"classification\":", kClasses);
  EXPECT_THAT(Ask(token_, "classes", classes), StartsWith("HTTP/1.1 200"));
  const std::string refused = Ask(Token("bob"), "classes", classes);
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(refused, HasSubstr("host_staging"));
}

// Zeros of a byte each become numbers of eight.
TEST_F(HostileTenantsTest, TypedContentsArePaidForAsTheyAreKept) {
  constexpr int kNumbers = 100'000;
  const auto infer = [&](const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    As(&context, Token("bob"));
    inference::ModelInferResponse response;
    return FromGrpc(stub_->ModelInfer(&context, request, &response));
  };
  auto request = Request<int64_t>("numbers", "INT64", {kNumbers}, std::vector<int64_t>(kNumbers));
  EXPECT_EQ(infer(request), absl::OkStatus());
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->mutable_int64_contents()->Resize(kNumbers, 0);
  const absl::Status refused = infer(request);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

// The answer repeats an id and, where it is an error of a stream, the model's name.
TEST_F(HostileTenantsTest, WhatAnswersRepeatIsShort) {
  const std::string bob = Token("bob");
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  for (const size_t bytes : {size_t{4096}, size_t{4097}}) {
    request.set_id(std::string(bytes, 'i'));
    grpc::ClientContext context;
    As(&context, bob);
    inference::ModelInferResponse response;
    const absl::Status status = FromGrpc(stub_->ModelInfer(&context, request, &response));
    EXPECT_EQ(status.code(),
              bytes > 4096 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk)
        << status;
    if (status.ok()) EXPECT_EQ(response.id(), request.id());
    EXPECT_THAT(Http(bob, "POST", "/v2/models/add/infer",
                     StrCat(R"({"id":")", request.id(), "\",", kBody.substr(1))),
                StartsWith(bytes > 4096 ? "HTTP/1.1 400" : "HTTP/1.1 200"));
  }
  request.clear_id();
  request.set_model_name(std::string(100'000, 'm'));
  grpc::ClientContext context;
  As(&context, bob);
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(request));
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_NE(response.error_message(), "");
  EXPECT_LT(response.ByteSizeLong(), 4096u);
}

TEST_F(HostileTenantsTest, ASequenceOfAnotherTenantIsNotThere) {
  const std::string bob = Token("bob");
  EXPECT_EQ(Sum(token_, 1, /*start=*/true, /*end=*/false), 1);
  EXPECT_EQ(Sum(bob, 10, /*start=*/false, /*end=*/false), -1) << "it has not started one";
  EXPECT_EQ(Sum(bob, 10, /*start=*/true, /*end=*/false), 10);
  EXPECT_EQ(Sum(token_, 2, /*start=*/false, /*end=*/false), 3);
  EXPECT_EQ(Sum(bob, 20, /*start=*/false, /*end=*/true), 30);
  EXPECT_EQ(Sum(token_, 3, /*start=*/false, /*end=*/true), 6) << "it has not ended";
}

// Answers that nobody reads keep what is the reader's own, and go with the stream.
TEST_F(HostileTenantsTest, AStreamThatIsNeverRead) {
  const std::string bob = Token("bob");
  {
    grpc::ClientContext context;
    As(&context, bob);
    const auto stream = stub_->ModelStreamInfer(&context);
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(stream->Write(Floats("classes", {1}, {static_cast<float>(i)})));
    }
    for (int i = 0; i < 8; ++i) {
      EXPECT_THAT(Ask(token_, "classes", ""), StartsWith("HTTP/1.1 200"));
    }
    context.TryCancel();
    inference::ModelStreamInferResponse response;
    while (stream->Read(&response)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectHoldsNothing("bob");
}

// Of calls that end at any time, some before they are read, nothing is left.
TEST_F(HostileTenantsTest, CallsThatAreCancelledAtAnyTime) {
  const std::string bob = Token("bob");
  EXPECT_EQ(InferAs(bob, "add"), absl::OkStatus());  // from now on the page has what he holds
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 40; ++i) {
        grpc::ClientContext context;
        As(&context, bob);
        // Each a shape of its own, so that some are being compiled.
        const int64_t count = 1 + thread * 40 + i;
        const auto request = Request<int64_t>("numbers", "INT64", {count},
                                              std::vector<int64_t>(static_cast<size_t>(count)));
        inference::ModelInferResponse response;
        grpc::CompletionQueue queue;
        const auto call = stub_->AsyncModelInfer(&context, request, &queue);
        grpc::Status status;
        call->Finish(&response, &status, &response);
        void* tag = nullptr;
        bool ok = false, over = false;
        for (int look = 0; look < 50 * i && !over; ++look) {
          over = queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) ==
                 grpc::CompletionQueue::GOT_EVENT;
        }
        context.TryCancel();
        if (!over) EXPECT_TRUE(queue.Next(&tag, &ok));
        queue.Shutdown();
        while (queue.Next(&tag, &ok)) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectHoldsNothing("bob");
  EXPECT_EQ(InferAs(bob, "add"), absl::OkStatus());
}

// A body in chunks of a byte takes no more memory than one that comes at once.
TEST_F(HostileTenantsTest, ABodyInManyChunks) {
  constexpr int kChunks = 400'000;
  const auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(fd.ok()) << fd.status();
  fcntl(fd->get(), F_SETFL, 0);
  std::string text =
      StrCat("POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ",
             Token("alice"), "\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < kChunks; ++i) text += "1\r\n \r\n";
  const double before = Stat("telegrad_heap_bytes");
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t n = send(fd->get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    ASSERT_GT(n, 0);
    rest.remove_prefix(static_cast<size_t>(n));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Used("alice", "host_staging").value_or(0) < kChunks) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_LT(Stat("telegrad_heap_bytes") - before, 6e6);
}

}  // namespace
}  // namespace telegrad
