// Models served over gRPC: answers, the choice of a version, metadata and statistics.
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ServingTest, AModelIsAddedToAFolderAndAnswers) {
  WriteModel("add", AddModel(1.5f));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  inference::ModelInferRequest request = Floats("add", {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  request.set_id("seven");
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->model_name(), "add");
  EXPECT_EQ(response->model_version(), "1");
  EXPECT_EQ(response->id(), "seven");
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).name(), "y");
  EXPECT_EQ(response->outputs(0).datatype(), "FP32");
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(2, 4));
  EXPECT_THAT(Values<float>(*response), ElementsAre(1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5));
}

TEST_F(ServingTest, TheServerAndItsModelsDescribeThemselves) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  grpc::ClientContext live, ready, server, model, config;
  inference::ServerLiveResponse is_live;
  EXPECT_TRUE(stub_->ServerLive(&live, {}, &is_live).ok() && is_live.live());
  inference::ServerReadyResponse is_ready;
  EXPECT_TRUE(stub_->ServerReady(&ready, {}, &is_ready).ok() && is_ready.ready());
  inference::ServerMetadataResponse about;
  ASSERT_TRUE(stub_->ServerMetadata(&server, {}, &about).ok());
  EXPECT_EQ(about.name(), "telegrad");
  EXPECT_THAT(about.extensions(), ::testing::Contains("statistics"));
  inference::ModelMetadataRequest name;
  name.set_name("add");
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(stub_->ModelMetadata(&model, name, &metadata).ok());
  EXPECT_THAT(metadata.versions(), ElementsAre("1"));
  ASSERT_EQ(metadata.inputs_size(), 1);
  EXPECT_EQ(metadata.inputs(0).datatype(), "FP32");
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 4));
  inference::ModelConfigRequest of;
  of.set_name("add");
  inference::ModelConfigResponse configuration;
  ASSERT_TRUE(stub_->ModelConfig(&config, of, &configuration).ok());
  EXPECT_EQ(configuration.config().max_batch_size(), 32);  // by the name of its first dimension
  EXPECT_TRUE(configuration.config().has_dynamic_batching());
  EXPECT_THAT(configuration.config().input(0).dims(), ElementsAre(4));
}

// How often each thread of the daemon has slept, by its name.
std::map<std::string, int64_t> SleepsByThread(pid_t daemon) {
  std::map<std::string, int64_t> out;
  const std::string tasks = StrCat("/proc/", daemon, "/task");
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "status");
    std::string name;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      constexpr std::string_view kSleeps = "voluntary_ctxt_switches:\t";
      if (line.starts_with(kSleeps)) out[name] += std::stoll(line.substr(kSleeps.size()));
    }
  }
  return out;
}

// A small request is answered by the thread that it arrives on: neither its run, nor the request
// behind it, nor the end of its call wakes another one.
TEST_F(ServingTest, SmallRequestsWakeNoOtherThread) {
  constexpr int kRequests = 400;
  WriteModel("plain", IdentityModel(DType::kFloat32, {4}));
  StartServing();
  ASSERT_TRUE(BecomesReady("plain"));
  const auto request = Request<float>("plain", "FP32", {4}, {1, 2, 3, 4});
  ASSERT_TRUE(Infer(request).ok());
  const auto before = SleepsByThread(daemon_->pid());
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(Infer(request).ok());
  int64_t calls = 0, others = 0;
  std::string who;
  for (const auto& [name, sleeps] : SleepsByThread(daemon_->pid())) {
    const auto known = before.find(name);
    const int64_t more = sleeps - (known == before.end() ? 0 : known->second);
    (name == "calls" ? calls : others) += more;
    if (more > 0) StrAppend(&who, name, ": ", more, "; ");
  }
  EXPECT_GT(calls, 0) << who;
  EXPECT_LT(others, kRequests / 2) << who;
}

// Each datatype there and back, raw and, where the protocol has a field for it, typed.
TEST_F(ServingTest, EveryDatatypeTravelsRawAndTyped) {
  const std::pair<std::string, DType> types[] = {
      {"BOOL", DType::kBool},     {"UINT8", DType::kUInt8},   {"UINT16", DType::kUInt16},
      {"UINT32", DType::kUInt32}, {"UINT64", DType::kUInt64}, {"INT8", DType::kInt8},
      {"INT16", DType::kInt16},   {"INT32", DType::kInt32},   {"INT64", DType::kInt64},
      {"FP16", DType::kFloat16},  {"BF16", DType::kBFloat16}, {"FP32", DType::kFloat32},
      {"FP64", DType::kFloat64}};
  for (const auto& [name, dtype] : types) WriteModel(name, IdentityModel(dtype, {3}));
  StartServing();
  for (const auto& [name, dtype] : types) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(BecomesReady(name));
    std::string bytes(static_cast<size_t>(3 * ByteSize(dtype)), '\0');
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(ByteSize(dtype))) {
      bytes[i] = dtype == DType::kBool ? static_cast<char>(i % 2) : static_cast<char>(i + 1);
    }
    inference::ModelInferRequest raw = Request<char>(name, name, {3}, {bytes.begin(), bytes.end()});
    const auto response = Infer(raw);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->raw_output_contents(0), bytes);
    EXPECT_EQ(response->outputs(0).datatype(), name);

    inference::ModelInferRequest typed = raw;
    typed.clear_raw_input_contents();
    auto* contents = typed.mutable_inputs(0)->mutable_contents();
    std::string expected;
    const auto add = [&]<typename T>(T, auto put) {
      for (const int value : {1, 0, 1}) {
        put(value);
        const T as = static_cast<T>(value);
        expected.append(reinterpret_cast<const char*>(&as), sizeof(T));
      }
    };
    const auto ints = [&](int v) { contents->add_int_contents(v); };
    const auto uints = [&](int v) { contents->add_uint_contents(static_cast<uint32_t>(v)); };
    if (name == "BOOL") add(bool{}, [&](int v) { contents->add_bool_contents(v != 0); });
    if (name == "INT8") add(int8_t{}, ints);
    if (name == "INT16") add(int16_t{}, ints);
    if (name == "INT32") add(int32_t{}, ints);
    if (name == "INT64") add(int64_t{}, [&](int v) { contents->add_int64_contents(v); });
    if (name == "UINT8") add(uint8_t{}, uints);
    if (name == "UINT16") add(uint16_t{}, uints);
    if (name == "UINT32") add(uint32_t{}, uints);
    if (name == "UINT64") {
      add(uint64_t{}, [&](int v) { contents->add_uint64_contents(static_cast<uint64_t>(v)); });
    }
    if (name == "FP32") {
      add(float{}, [&](int v) { contents->add_fp32_contents(static_cast<float>(v)); });
    }
    if (name == "FP64") add(double{}, [&](int v) { contents->add_fp64_contents(v); });
    if (expected.empty()) {  // FP16 and BF16 are raw only
      contents->add_fp32_contents(1);
      EXPECT_THAT(std::string(Infer(typed).status().message()), HasSubstr("raw contents only"));
      continue;
    }
    const auto of_typed = Infer(typed);
    ASSERT_TRUE(of_typed.ok()) << of_typed.status();
    EXPECT_EQ(of_typed->raw_output_contents(0), expected);
  }
}

// An input without dimensions has none of a batch either.
TEST_F(ServingTest, ScalarsAreInputsAndOutputs) {
  WriteModel("scalar", IdentityModel(DType::kFloat32, {}));
  StartServing();
  ASSERT_TRUE(BecomesReady("scalar"));
  const auto response = Infer(Floats("scalar", {}, {2.5f}));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), IsEmpty());
  EXPECT_THAT(Values<float>(*response), ElementsAre(2.5f));
}

TEST_F(ServingTest, ClassificationNamesTheHighest) {
  WriteModel("scores", IdentityModel(DType::kFloat32, {-1, 4}),
             "max_batch_size: 2 output { name: 'y' data_type: TYPE_FP32 dims: [ 4 ] "
             "label_filename: 'labels.txt' }");
  WriteFile("scores/labels.txt", "cat\ndog\nbird\nfish\n");
  StartServing();
  ASSERT_TRUE(BecomesReady("scores"));
  inference::ModelInferRequest request = Floats("scores", {1, 4}, {0.5, 2, -1, 2.5});
  auto* output = request.add_outputs();
  output->set_name("y");
  (*output->mutable_parameters())["classification"].set_int64_param(2);
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs(0).datatype(), "BYTES");
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(1, 2));
  const std::string first = "2.500000:3:fish", second = "2.000000:1:dog";
  const auto length = [](const std::string& s) {
    return std::string{static_cast<char>(s.size()), 0, 0, 0};
  };
  EXPECT_EQ(response->raw_output_contents(0), length(first) + first + length(second) + second);
}

// The same request is run once, and again where anything of it or of the model is another.
TEST_F(ServingTest, AnswersAreKept) {
  const std::string config = "max_batch_size: 4 response_cache { enable: true }";
  WriteModel("add", AddModel(1), config);
  StartServing({"--models-response-cache", "1000000"});
  ASSERT_TRUE(BecomesReady("add"));
  const auto first = [&](const Shape& shape, const std::vector<float>& values) {
    const auto response = Infer(Floats("add", shape, values));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? Values<float>(*response)[0] : -1;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first({1, 4}, {5, 0, 0, 0}), 6);
  EXPECT_EQ(Statistics("add").execution_count(), 1);
  EXPECT_EQ(Statistics("add").inference_stats().cache_hit().count(), 2);
  EXPECT_EQ(Statistics("add").inference_stats().cache_miss().count(), 1);
  EXPECT_EQ(Statistics("add").inference_stats().success().count(), 3);
  EXPECT_EQ(first({1, 4}, {6, 0, 0, 0}), 7);
  EXPECT_EQ(first({2, 4}, {5, 0, 0, 0, 0, 0, 0, 0}), 6);
  EXPECT_EQ(Statistics("add").execution_count(), 3);
  auto classes = Floats("add", {1, 4}, {5, 0, 0, 0});
  auto* output = classes.add_outputs();
  output->set_name("y");
  (*output->mutable_parameters())["classification"].set_int64_param(1);
  const auto response = Infer(classes);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs(0).datatype(), "BYTES");
  WriteModel("add", AddModel(2));
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(first({1, 4}, {5, 0, 0, 0}), 7);
  // More answers than there is room for.
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(first({1, 4}, {static_cast<float>(i), 0, 0, 0}), i + 2);
  EXPECT_EQ(first({1, 4}, {0, 0, 0, 0}), 2);
  EXPECT_EQ(Statistics("add").execution_count(), 2001);
}

TEST_F(ServingTest, AnswersAreNotKeptWithoutRoom) {
  WriteModel("add", AddModel(1), "response_cache { enable: true }");
  StartServing();
  ASSERT_FALSE(BecomesReady("add"));
  EXPECT_THAT(std::string(Load("add").message()), HasSubstr("--models-response-cache"));
}

// Whole numbers are compared and written with all of their digits.
TEST_F(ServingTest, ClassificationOfLargeNumbers) {
  WriteModel("large", IdentityModel(DType::kUInt64, {3}));
  WriteModel("signed", IdentityModel(DType::kInt64, {3}));
  StartServing();
  ASSERT_TRUE(BecomesReady("large"));
  ASSERT_TRUE(BecomesReady("signed"));
  const auto first = [&](inference::ModelInferRequest request) {
    auto* output = request.add_outputs();
    output->set_name("y");
    (*output->mutable_parameters())["classification"].set_int64_param(1);
    const auto response = Infer(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->raw_output_contents(0).substr(4) : "";
  };
  EXPECT_EQ(first(Request<uint64_t>("large", "UINT64", {3}, {UINT64_MAX - 2, UINT64_MAX, 5})),
            "18446744073709551615:1");
  EXPECT_EQ(first(Request<int64_t>("signed", "INT64", {3}, {INT64_MIN, INT64_MAX - 1, INT64_MAX})),
            "9223372036854775807:2");
}

TEST_F(ServingTest, AStreamIsAnsweredInOrderAndErrorsAreAnswers) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kRequests = 40;
  for (int i = 0; i < kRequests; ++i) {
    auto request = Floats(i % 10 == 9 ? "nothing" : "add", {1, 4}, std::vector<float>(4, i));
    request.set_id(std::to_string(i));
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  int next = 0;
  while (stream->Read(&response)) {
    EXPECT_EQ(response.infer_response().id(), std::to_string(next));
    EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
    if (next % 10 == 9) {
      EXPECT_THAT(response.error_message(), HasSubstr("unknown model"));
    } else {
      EXPECT_THAT(response.error_message(), IsEmpty());
      EXPECT_EQ(Values<float>(response.infer_response())[0], static_cast<float>(next) + 1);
    }
    ++next;
  }
  EXPECT_EQ(next, kRequests);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ServingTest, AStreamThatAsksForItEndsWithTheFirstError) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  grpc::ClientContext context;
  context.AddMetadata("triton_grpc_error", "true");
  const auto stream = stub_->ModelStreamInfer(&context);
  stream->Write(Floats("nothing", {1, 4}, {0, 0, 0, 0}));
  inference::ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServingTest, TheCommandLineListsTriesAndUnloads) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  const auto models = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "models");
    words.insert(words.end(), {"--address", address_});
    return testing::RunProgram(TELEGRAD, words);
  };
  EXPECT_THAT(models({}).text, ::testing::ContainsRegex("add +1 +READY"));
  EXPECT_THAT(models({"status", "add"}).text, HasSubstr("input    x FP32 [-1, 4]"));
  EXPECT_THAT(models({"try", "add"}).text, HasSubstr("y f32 [1, 4] 1 1 1 1"));
  EXPECT_THAT(models({"statistics"}).text, ::testing::ContainsRegex("add +1 +1 +1 +0 "));
  EXPECT_EQ(models({"unload", "add"}).exit_code, 0);
  EXPECT_THAT(models({"list"}).text, HasSubstr("UNAVAILABLE  unloaded"));
  EXPECT_EQ(models({"load", "add"}).exit_code, 0);
  const testing::Output unknown = models({"load", "nothing"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.text, HasSubstr("in no folder of --models"));
  EXPECT_EQ(models({"dance"}).exit_code, 2);
  const testing::Output far =
      testing::RunProgram(TELEGRAD, {"models", "--address", "unix:" + std::string(200, 'x')});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_THAT(far.text, ::testing::StartsWith("telegrad models: \"unix:xx"));
  EXPECT_THAT(far.text, HasSubstr("1 to 107 bytes"));
}

// A model's names are any text, and whoever looks at a model need not trust it: what controls a
// terminal is not sent there, neither with the answers of commands nor with their errors.
TEST_F(ServingTest, NamesOfAModelDoNotControlTheTerminal) {
  const std::string evil = "x\x1b[2J\xc2\x9bz", shown = "x\\x1b[2J\\xc2\\x9bz";
  const auto model = [&](const std::string& operation) {
    return onnx::test::ModelWriter()
        .Input(evil, DType::kFloat32, {2})
        .Output("y\n" + evil, DType::kFloat32, {2})
        .Node(operation, {evil}, {"y\n" + evil})
        .File(13);
  };
  WriteModel("evil", model("Neg"));
  WriteModel("unknown", model("No" + evil));
  StartServing();
  ASSERT_TRUE(BecomesReady("evil"));
  const std::string file = models_.path() / "evil/1/model.onnx";
  const std::string unknown = models_.path() / "unknown/1/model.onnx";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"check", file},
           {"check", unknown},
           {"explain", file},
           {"run", file, "--address", address_},
           {"models", "--address", address_},
           {"models", "status", "evil", "--address", address_},
           {"models", "try", "evil", "--address", address_},
           {"models", "load", "unknown", "--address", address_}}) {
    const std::string text = testing::RunProgram(TELEGRAD, words).text;
    EXPECT_THAT(text, HasSubstr(words.size() == 3 ? "unknown" : shown));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\xc2\x9b")));
  }
}

TEST_F(ServingTest, ADaemonWithoutModelsSaysSo) {
  DaemonTest::Start({});
  stub_ = inference::GRPCInferenceService::NewStub(
      grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  const absl::Status status = Infer(Floats("add", {1, 4}, {0, 0, 0, 0})).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--models DIR"));
}

TEST_F(ServingTest, AnInferenceIsCountedByTheNamesOfTriton) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  ASSERT_TRUE(Infer(Floats("add", {3, 4}, std::vector<float>(12))).ok());
  EXPECT_FALSE(Infer(Floats("add", {3, 5}, std::vector<float>(15))).ok());
  const inference::ModelStatistics statistics = Statistics("add");
  EXPECT_EQ(statistics.inference_count(), 3);
  EXPECT_EQ(statistics.execution_count(), 1);
  EXPECT_EQ(statistics.inference_stats().success().count(), 1);
  EXPECT_EQ(statistics.inference_stats().fail().count(), 1);
  EXPECT_GT(statistics.inference_stats().compute_infer().ns(), 0u);
  EXPECT_THAT(statistics.memory_usage(), SizeIs(1));
}

}  // namespace
}  // namespace telegrad
