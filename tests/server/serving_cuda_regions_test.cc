// Inputs and outputs in memory of GPUs that clients share: on the fake driver, whose memory another
// process allocates and exports, see foreign_memory.h.
#include "absl/strings/escaping.h"
#include "server/serving/device_regions.h"
#include "tests/fakes/foreign_memory.h"
#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

inference::CudaSharedMemoryRegisterRequest RegionOf(const std::string& name,
                                                    const std::string& handle, uint64_t bytes,
                                                    int64_t device_id = 0) {
  inference::CudaSharedMemoryRegisterRequest request;
  request.set_name(name);
  request.set_raw_handle(handle);
  request.set_device_id(device_id);
  request.set_byte_size(bytes);
  return request;
}

template <typename Tensor>
void PutIn(const std::string& region, int64_t bytes, int64_t offset, Tensor* tensor) {
  auto& parameters = *tensor->mutable_parameters();
  parameters["shared_memory_region"].set_string_param(region);
  parameters["shared_memory_byte_size"].set_int64_param(bytes);
  parameters["shared_memory_offset"].set_int64_param(offset);
}

class ServingCudaRegionsTest : public ServingTest {
 protected:
  static std::vector<std::string> OnFake(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--cuda-library", TELEGRAD_FAKE_CUDA, "--hip-devices", "0",
                             "--models-cuda-shared-memory", "local"});
    return more;
  }
  void Serve(const std::vector<std::string>& devices, std::vector<std::string> more = {}) {
    WriteModel("add", AddModel(1));
    for (const std::string& device : devices) {
      more.insert(more.end(), {"--models-device", device});
    }
    StartServing(OnFake(std::move(more)));
    ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  }
  absl::Status Register(const inference::CudaSharedMemoryRegisterRequest& request) {
    grpc::ClientContext context;
    inference::CudaSharedMemoryRegisterResponse response;
    return FromGrpc(stub_->CudaSharedMemoryRegister(&context, request, &response));
  }
  absl::Status Unregister(const std::string& name) {
    grpc::ClientContext context;
    inference::CudaSharedMemoryUnregisterRequest request;
    inference::CudaSharedMemoryUnregisterResponse response;
    request.set_name(name);
    return FromGrpc(stub_->CudaSharedMemoryUnregister(&context, request, &response));
  }
  inference::CudaSharedMemoryStatusResponse Regions() {
    grpc::ClientContext context;
    inference::CudaSharedMemoryStatusResponse response;
    const grpc::Status status = stub_->CudaSharedMemoryStatus(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // `rows` rows of four floats at `from` of region "r", and what is asked for of y at `to`.
  static inference::ModelInferRequest Within(const std::string& model, int64_t rows, int64_t from,
                                             int64_t to) {
    auto request = Floats(model, {rows, 4}, {});
    request.clear_raw_input_contents();
    PutIn("r", rows * 16, from, request.mutable_inputs(0));
    auto* const output = request.add_outputs();
    output->set_name("y");
    PutIn("r", rows * 16, to, output);
    return request;
  }
  void ExpectAnswer(const std::string& model, ForeignMemory& foreign) {
    foreign.Write(0, FloatBytes({1, 2, 3, 4}) + std::string(16, '\0'));
    const auto response = Infer(Within(model, 1, 0, 16));
    ASSERT_TRUE(response.ok()) << model << ": " << response.status();
    EXPECT_THAT(response->raw_output_contents(), ElementsAre(""));
    const auto& parameters = response->outputs(0).parameters();
    EXPECT_EQ(parameters.at("shared_memory_region").string_param(), "r");
    EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), 16);
    EXPECT_THAT(FloatsOf(foreign.Read(0, 32)), ElementsAre(1, 2, 3, 4, 2, 3, 4, 5)) << model;
  }
};

// No copy between the device and the host is large enough for a tensor, see the fake's knob.
TEST_F(ServingCudaRegionsTest, TensorsStayOnTheDevice) {
  constexpr int64_t kRows = 32, kBytes = kRows * 16;
  setenv("FAKE_CUDA_LARGEST_HOST_COPY", "256", 1);
  Serve({"CUDA:0"});
  unsetenv("FAKE_CUDA_LARGEST_HOST_COPY");
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 2 * kBytes + 8);
  ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 2 * kBytes + 8)).ok());
  std::vector<float> values(4 * kRows), expected;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const float value : values) expected.push_back(value + 1);
  foreign.Write(4, FloatBytes(values));
  const auto response = Infer(Within("add", kRows, 4, kBytes + 4));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(FloatsOf(foreign.Read(kBytes + 4, kBytes)), expected);
  EXPECT_EQ(foreign.Read(2 * kBytes + 4, 4), std::string(4, '\xcd'));  // as it was
  // One that comes with its request does not get there.
  const absl::Status by_host = Infer(Floats("add", {kRows, 4}, values)).status();
  EXPECT_FALSE(by_host.ok());
}

TEST_F(ServingCudaRegionsTest, ModelsOnOtherDevices) {
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"CPU:0"}, {"CUDA:1"}, {"CUDA:0", "CPU:0"}}) {
    Serve(devices);
    if (HasFatalFailure()) return;
    ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
    ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 64)).ok());
    for (int i = 0; i < 4; ++i) ExpectAnswer("add", foreign);
  }
}

// A batch of requests of both kinds, and an output that one wants and another has sent.
TEST_F(ServingCudaRegionsTest, ABatchOfDeviceAndHost) {
  WriteModel("add", AddModel(1),
             "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 6 ] "
             "max_queue_delay_microseconds: 60000000 }");
  StartServing(OnFake({"--models-device", "CUDA:0"}));
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 128);
  ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 128)).ok());
  foreign.Write(0, FloatBytes({1, 2, 3, 4, 5, 6, 7, 8}));
  std::thread first([&] {
    const auto answer = Infer(Floats("add", {2, 4}, {10, 20, 30, 40, 50, 60, 70, 80}));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_THAT(Values<float>(*answer), ElementsAre(11, 21, 31, 41, 51, 61, 71, 81));
  });
  std::thread second([&] {
    const auto answer = Infer(Within("add", 2, 0, 64));
    ASSERT_TRUE(answer.ok()) << answer.status();
  });
  // The input from the device, the output with the answer.
  auto third = Within("add", 2, 0, 96);
  third.clear_outputs();
  const auto answer = Infer(third);
  first.join();
  second.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(Values<float>(*answer), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(FloatsOf(foreign.Read(64, 32)), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(Statistics("add").execution_count(), 1u);
}

// Where requests are looked at before they run, or answers after it, tensors pass the host.
TEST_F(ServingCudaRegionsTest, ModelsThatNeedTheHost) {
  WriteModel("cached", AddModel(1), "max_batch_size: 8 response_cache { enable: true }");
  WriteModel("ragged", AddModel(1, {-1, -1}),
             "max_batch_size: 8 dynamic_batching {} input { name: 'x' data_type: TYPE_FP32 "
             "dims: -1 allow_ragged_batch: true }");
  Serve({"CUDA:0"}, {"--models-response-cache", "1000000"});
  for (const char* const model : {"cached", "ragged"}) {
    ASSERT_TRUE(BecomesReady(model)) << ReasonOf(model);
  }
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 64)).ok());
  for (const char* const model : {"cached", "cached", "ragged"}) ExpectAnswer(model, foreign);
  // A class instead of the values: "5.000000:3" with its length.
  auto request = Within("add", 1, 0, 16);
  PutIn("r", 48, 16, request.mutable_outputs(0));
  (*request.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(1);
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(foreign.Read(16, 14), HasSubstr("5.000000:3"));
}

TEST_F(ServingCudaRegionsTest, PartsThatAreNotThere) {
  Serve({"CUDA:0"});
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{65}, uint64_t{1} << 62, UINT64_MAX}) {
    const absl::Status status = Register(RegionOf("r", foreign.handle(), bytes));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bytes << ": " << status;
  }
  for (const std::string& handle : {std::string(), std::string(64, 'x'), foreign.handle() + "x"}) {
    const absl::Status status = Register(RegionOf("r", handle, 64));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  for (const int64_t device : {int64_t{-1}, int64_t{2}, INT64_MAX}) {
    const absl::Status status = Register(RegionOf("r", foreign.handle(), 64, device));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("it has CUDA:0, CUDA:1"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Register(RegionOf("", foreign.handle(), 64))));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Register(RegionOf(std::string(256, 'r'), foreign.handle(), 64))));
  ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 48)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Register(RegionOf("r", foreign.handle(), 48))));
  EXPECT_EQ(Regions().regions().at("r").byte_size(), 48u);
  EXPECT_EQ(Regions().regions().at("r").device_id(), 0u);
  const auto expect_refused = [&](const inference::ModelInferRequest& request,
                                  const std::string& part) {
    const absl::Status status = Infer(request).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  for (const auto& [bytes, offset] : {std::pair<int64_t, int64_t>{49, 0},
                                      {16, 33},
                                      {16, INT64_MAX},
                                      {INT64_MAX, 16},
                                      {-16, 0},
                                      {16, -1}}) {
    auto input = Within("add", 1, 0, 16);
    PutIn("r", bytes, offset, input.mutable_inputs(0));
    expect_refused(input, "region 'r' has 48 bytes");
    auto output = Within("add", 1, 0, 16);
    PutIn("r", bytes, offset, output.mutable_outputs(0));
    expect_refused(output, "region 'r' has 48 bytes");
  }
  auto input = Within("add", 1, 0, 16);
  PutIn("r", 12, 0, input.mutable_inputs(0));
  expect_refused(input, "has 12 bytes, expected 16");
  auto output = Within("add", 1, 0, 16);
  PutIn("r", 12, 16, output.mutable_outputs(0));
  foreign.Write(16, std::string(16, 'k'));
  expect_refused(output, "room for 12");
  EXPECT_EQ(foreign.Read(16, 16), std::string(16, 'k'));
  auto unknown = Within("add", 1, 0, 16);
  PutIn("s", 16, 0, unknown.mutable_inputs(0));
  expect_refused(unknown, "shared memory");
  ASSERT_TRUE(Unregister("r").ok());
  EXPECT_EQ(Regions().regions_size(), 0);
  expect_refused(Within("add", 1, 0, 16), "shared memory");
  EXPECT_TRUE(Unregister("r").ok());
}

TEST_F(ServingCudaRegionsTest, RegionsOfOneTenantAreLimited) {
  Serve({"CUDA:0"});
  const ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  for (size_t i = 0; i < DeviceRegions::kMost; ++i) {
    ASSERT_TRUE(Register(RegionOf(StrCat("r", i), foreign.handle(), 16)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Register(RegionOf("more", foreign.handle(), 16))));
  ASSERT_TRUE(Unregister("").ok());
  EXPECT_TRUE(Register(RegionOf("more", foreign.handle(), 16)).ok());
}

// The request has its part of the region for as long as it takes.
TEST_F(ServingCudaRegionsTest, ARegionThatGoesWhileARequestWaits) {
  WriteModel("add", AddModel(1),
             "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 2 ] "
             "max_queue_delay_microseconds: 60000000 }");
  StartServing(OnFake({"--models-device", "CUDA:0"}));
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  ASSERT_TRUE(Register(RegionOf("r", foreign.handle(), 64)).ok());
  foreign.Write(0, FloatBytes({1, 2, 3, 4}));
  absl::Status first;
  std::thread client([&] { first = Infer(Within("add", 1, 0, 16)).status(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto waits = [&] {
    return testing::RunProgram(
               "/bin/bash",
               {"-c", StrCat("exec 3<>/dev/tcp/127.0.0.1/", metrics_.substr(0, metrics_.find('/')),
                             "; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3;"
                             " cat <&3")})
               .text.find("nv_inference_pending_request_count{model=\"add\",version=\"1\"} 1") !=
           std::string::npos;
  };
  while (!waits()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  ASSERT_TRUE(Unregister("r").ok());
  EXPECT_EQ(Regions().regions_size(), 0);
  EXPECT_TRUE(Infer(Floats("add", {1, 4}, {0, 0, 0, 0})).ok());  // completes the batch
  client.join();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_THAT(FloatsOf(foreign.Read(16, 16)), ElementsAre(2, 3, 4, 5));
}

TEST_F(ServingCudaRegionsTest, WithoutAGpuOrWithoutTheFlag) {
  WriteModel("add", AddModel(1));
  StartServing({"--cuda-devices", "0", "--hip-devices", "0", "--models-cuda-shared-memory", "*"});
  const absl::Status no_gpu = Register(RegionOf("r", std::string(64, 'x'), 64));
  EXPECT_TRUE(absl::IsFailedPrecondition(no_gpu)) << no_gpu;
  EXPECT_THAT(std::string(no_gpu.message()), HasSubstr("has no CUDA device"));
  EXPECT_EQ(Regions().regions_size(), 0);
  StartServing({"--cuda-library", TELEGRAD_FAKE_CUDA, "--hip-devices", "0"});
  const absl::Status no_flag = Register(RegionOf("r", std::string(64, 'x'), 64));
  EXPECT_TRUE(absl::IsUnimplemented(no_flag)) << no_flag;
  EXPECT_THAT(std::string(no_flag.message()), HasSubstr("--models-cuda-shared-memory"));
}

class ServingCudaTenantsTest : public ServingTenantsTest {
 protected:
  std::vector<std::string> More() const override {
    return {"--cuda-library",
            TELEGRAD_FAKE_CUDA,
            "--hip-devices",
            "0",
            "--models-device",
            "CUDA:0",
            "--models-shared-memory",
            StrCat("tg", getpid(), "-"),
            "--models-cuda-shared-memory",
            "alice",
            "--models-cuda-shared-memory",
            "bob"};
  }
  std::string Registered(const std::string& token, const std::string& name,
                         const std::string& handle, uint64_t bytes) {
    std::string base64;
    absl::Base64Escape(handle, &base64);
    return Http(token, "POST", StrCat("/v2/cudasharedmemory/region/", name, "/register"),
                StrCat(R"({"raw_handle":{"b64":")", base64, R"("},"device_id":0,"byte_size":)",
                       bytes, "}"));
  }
};

TEST_F(ServingCudaTenantsTest, RegionsOverHttpAreTheTenants) {
  const std::string alice = Token("alice"), bob = Token("bob");
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 64);
  EXPECT_THAT(Registered("", "r", foreign.handle(), 64), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Registered(Token("carol"), "r", foreign.handle(), 64), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Registered(token_, "r", foreign.handle(), 64), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Registered(alice, "r", foreign.handle(), 65), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Registered(alice, "r", "short", 64), StartsWith("HTTP/1.1 400"));
  const std::string wrong[] = {"",
                               "{}",
                               R"({"raw_handle":"AAAA","device_id":0,"byte_size":64})",
                               R"({"raw_handle":{"b64":"*"},"device_id":0,"byte_size":64})",
                               R"({"raw_handle":{"b64":"AAAA"},"device_id":-1,"byte_size":64})",
                               R"({"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":-1})",
                               R"({"raw_handle":{"b64":"AAAA"},"device_id":0})"};
  for (const std::string& body : wrong) {
    EXPECT_THAT(Http(alice, "POST", "/v2/cudasharedmemory/region/r/register", body),
                StartsWith("HTTP/1.1 400"))
        << body;
  }
  EXPECT_THAT(Registered(alice, "r", foreign.handle(), 64), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Http(alice, "GET", "/v2/cudasharedmemory/status"),
              HasSubstr(R"([{"name":"r","device_id":0,"byte_size":64}])"));
  // What is another tenant's is not there, and stays.
  EXPECT_THAT(Http(bob, "GET", "/v2/cudasharedmemory/status"), HasSubstr("\r\n\r\n[]"));
  EXPECT_THAT(Http(bob, "GET", "/v2/cudasharedmemory/region/r/status"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Http(bob, "POST", "/v2/cudasharedmemory/region/r/unregister"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Http(bob, "POST", "/v2/cudasharedmemory/unregister"), StartsWith("HTTP/1.1 200"));
  const std::string within =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"parameters":{)"
      R"("shared_memory_region":"r","shared_memory_byte_size":16}}],"outputs":[{"name":"y",)"
      R"("parameters":{"shared_memory_region":"r","shared_memory_byte_size":16,)"
      R"("shared_memory_offset":16}}]})";
  EXPECT_THAT(Http(bob, "POST", "/v2/models/add/infer", within), StartsWith("HTTP/1.1 404"));
  foreign.Write(0, FloatBytes({1, 2, 3, 4}));
  EXPECT_THAT(Http(alice, "POST", "/v2/models/add/infer", within), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(FloatsOf(foreign.Read(16, 16)), ElementsAre(2, 3, 4, 5));
  // The name of one kind of region is taken for the other.
  EXPECT_THAT(Http(alice, "POST", "/v2/systemsharedmemory/region/r/register",
                   StrCat(R"({"key":"/tg)", getpid(), R"(-alice@x","byte_size":16})")),
              HasSubstr("already"));
  EXPECT_THAT(Http(alice, "POST", "/v2/cudasharedmemory/region/r/unregister"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Http(alice, "GET", "/v2/cudasharedmemory/status"), HasSubstr("\r\n\r\n[]"));
  EXPECT_THAT(Http(alice, "POST", "/v2/models/add/infer", within), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Http(alice, "GET", "/v2"), HasSubstr("\"cuda_shared_memory\""));
}

// What does not pass the host is not charged as if it did.
class ServingCudaStagingTest : public ServingCudaTenantsTest {
 protected:
  static constexpr int64_t kColumns = 300'000;
  void WriteMore() override { WriteModel("wide", AddModel(1, {-1, kColumns})); }
};

TEST_F(ServingCudaStagingTest, TensorsOnTheDeviceTakeNoStaging) {
  constexpr int64_t kBytes = kColumns * 4;  // more than bob's host_staging
  const std::string bob = Token("bob");
  ForeignMemory foreign(TELEGRAD_FAKE_CUDA, "cuda", 2 * kBytes);
  ASSERT_THAT(Registered(bob, "r", foreign.handle(), 2 * kBytes), StartsWith("HTTP/1.1 200"));
  foreign.Write(0, FloatBytes(std::vector<float>(kColumns, 2)));
  const std::string input = StrCat(
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,)", kColumns,
      R"(],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":)", kBytes, "}}]");
  const std::string output =
      StrCat(R"(,"outputs":[{"name":"y","parameters":{"shared_memory_region":"r",)"
             R"("shared_memory_byte_size":)",
             kBytes, R"(,"shared_memory_offset":)", kBytes, "}}]");
  EXPECT_THAT(Http(bob, "POST", "/v2/models/wide/infer", StrCat(input, output, "}")),
              StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(FloatsOf(foreign.Read(kBytes, kBytes)), std::vector<float>(kColumns, 3));
  // Through the host it is.
  auto request = Floats("wide", {1, kColumns}, std::vector<float>(kColumns, 2));
  grpc::ClientContext context;
  As(&context, bob);
  inference::ModelInferResponse response;
  const absl::Status refused = FromGrpc(stub_->ModelInfer(&context, request, &response));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("host_staging"));
}

}  // namespace
}  // namespace telegrad
