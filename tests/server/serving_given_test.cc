// Loads that bring a configuration or files along: what they serve, what takes their place, which
// paths are refused, and who is charged.
#include <atomic>
#include <thread>

#include "absl/strings/escaping.h"
#include "engine/base/json.h"
#include "tests/server/ensemble_config.h"
#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using GivenParameters = std::map<std::string, std::string>;  // "config" is text, others are bytes

inference::RepositoryModelLoadRequest LoadOf(const std::string& model,
                                             const GivenParameters& parameters) {
  inference::RepositoryModelLoadRequest request;
  request.set_model_name(model);
  for (const auto& [name, value] : parameters) {
    auto& parameter = (*request.mutable_parameters())[name];
    if (name == "config") {
      parameter.set_string_param(value);
    } else {
      parameter.set_bytes_param(value);
    }
  }
  return request;
}

class ServingGivenTest : public ServingTest {
 protected:
  void Serve(std::vector<std::string> more = {}) {
    WriteModel("add", AddModel(1));
    StartServing(std::move(more));
    ASSERT_TRUE(BecomesReady("add"));
  }
  absl::Status LoadRequest(const inference::RepositoryModelLoadRequest& request) {
    grpc::ClientContext context;
    inference::RepositoryModelLoadResponse response;
    return FromGrpc(stub_->RepositoryModelLoad(&context, request, &response));
  }
  absl::Status LoadWith(const std::string& model, const GivenParameters& parameters) {
    return LoadRequest(LoadOf(model, parameters));
  }
  // What is added to 0 by which version, "1 2" for 2 by version 1.
  std::string Answer(const std::string& model = "add") {
    const auto response = Infer(Floats(model, {1, 4}, {0, 0, 0, 0}));
    if (!response.ok()) return std::string(response.status().message());
    return StrCat(response->model_version(), " ", static_cast<int>(Values<float>(*response)[0]));
  }
  bool ServerIsReady() {
    grpc::ClientContext context;
    inference::ServerReadyResponse response;
    return stub_->ServerReady(&context, {}, &response).ok() && response.ready();
  }
  std::vector<std::string> Index() {
    grpc::ClientContext context;
    inference::RepositoryIndexResponse index;
    EXPECT_TRUE(stub_->RepositoryIndex(&context, {}, &index).ok());
    std::vector<std::string> out;
    for (const auto& row : index.models()) out.push_back(row.name());
    return out;
  }
};

TEST_F(ServingGivenTest, AConfigurationReplacesTheOneOnTheDisk) {
  WriteModel("add", AddModel(1), "max_batch_size: 4");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  EXPECT_EQ(ConfigOf("add").max_batch_size(), 4);
  const absl::Status loaded = LoadWith("add", {{"config", R"({
    "name": "add", "max_batch_size": 7, "backend": "onnxruntime", "optimization": {},
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
    "dynamicBatching": {"preferred_batch_size": [2], "max_queue_delay_microseconds": "100"},
    "parameters": {"mode": {"string_value": "fast"}}, "a_field_of_another_server": [{}]})"}});
  ASSERT_TRUE(loaded.ok()) << loaded;
  const inference::ModelConfig config = ConfigOf("add");
  EXPECT_EQ(config.max_batch_size(), 7);
  EXPECT_THAT(config.dynamic_batching().preferred_batch_size(), ElementsAre(2));
  EXPECT_EQ(config.dynamic_batching().max_queue_delay_microseconds(), 100u);
  EXPECT_EQ(config.parameters().at("mode").string_value(), "fast");
  EXPECT_EQ(Answer(), "1 1");  // with the file on the disk
  // 0 is as good a number as any, while nothing said lets the model tell.
  ASSERT_TRUE(LoadWith("add", {{"config", R"({"max_batch_size": 0})"}}).ok());
  EXPECT_EQ(ConfigOf("add").max_batch_size(), 0);
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}}).ok());
  EXPECT_EQ(ConfigOf("add").max_batch_size(), 32);
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(ConfigOf("add").max_batch_size(), 4);
}

TEST_F(ServingGivenTest, FilesReplaceTheFolderUntilTheNextLoad) {
  Serve();
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:2/model.onnx", AddModel(5)}}).ok());
  EXPECT_EQ(Answer(), "2 5");
  EXPECT_FALSE(IsReady("add", "1"));
  // Another content under the same name.
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:2/model.onnx", AddModel(6)}}).ok());
  EXPECT_EQ(Answer(), "2 6");
  // Further shapes are made of the files that were given.
  const auto wide = Infer(Floats("add", {3, 4}, std::vector<float>(12)));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(Values<float>(*wide)[11], 6);
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(Answer(), "1 1");
  EXPECT_FALSE(IsReady("add", "2"));
  // An unload forgets them, too.
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:2/model.onnx", AddModel(5)}}).ok());
  ASSERT_TRUE(Unload("add").ok());
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(Answer(), "1 1");
}

// The file of labels is beside the folders of the versions; another name is the model's.
TEST_F(ServingGivenTest, FilesBesideTheModel) {
  Serve();
  const absl::Status loaded =
      LoadWith("add", {{"config", R"({"default_model_filename": "net.bin", "max_batch_size": 8,
                  "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4],
                              "label_filename": "names.txt"}]})"},
                       {"file:1/net.bin", AddModel(5)},
                       {"file:1/model.onnx", "this is no model"},
                       {"file:names.txt", "zero\none\ntwo\nthree\n"}});
  ASSERT_TRUE(loaded.ok()) << loaded;
  auto request = Floats("add", {1, 4}, {0, 3, 1, 2});
  auto* const output = request.add_outputs();
  output->set_name("y");
  (*output->mutable_parameters())["classification"].set_int64_param(1);
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->raw_output_contents(0), HasSubstr("8.000000:1:one"));
}

// y = x + w, of three floats in another file, which is in a folder of the version's.
TEST_F(ServingGivenTest, WeightsInAFileOfTheirOwn) {
  std::string location, weight;
  onnx::PutBytesField(onnx::field::kEntryKey, "location", &location);
  onnx::PutBytesField(onnx::field::kEntryValue, "data/w.bin", &location);
  onnx::PutVarintField(onnx::field::kDims, 3, &weight);
  onnx::PutVarintField(onnx::field::kDataType, 1, &weight);
  onnx::PutBytesField(onnx::field::kTensorName, "w", &weight);
  onnx::PutBytesField(onnx::field::kExternalData, location, &weight);
  onnx::PutVarintField(onnx::field::kDataLocation, 1, &weight);
  const std::string model = onnx::test::ModelWriter()
                                .RawInitializer(weight)
                                .Input("x", DType::kFloat32, {3})
                                .Node("Add", {"x", "w"}, {"y"})
                                .Output("y", DType::kFloat32, {3})
                                .File(13);
  Serve();
  for (const float first : {1.0f, 4.0f}) {  // under the same model
    const float values[] = {first, 2, 3};
    const std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
    const absl::Status loaded = LoadWith(
        "w", {{"config", "{}"}, {"file:1/model.onnx", model}, {"file:1/data/w.bin", bytes}});
    ASSERT_TRUE(loaded.ok()) << loaded;
    const auto answer = Infer(Floats("w", {3}, {10, 20, 30}));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_THAT(Values<float>(*answer), ElementsAre(10 + first, 22, 33));
  }
  const absl::Status none = LoadWith("w", {{"config", "{}"}, {"file:1/model.onnx", model}});
  EXPECT_THAT(std::string(none.message()), HasSubstr("1/data/w.bin' is not among the files"));
}

TEST_F(ServingGivenTest, AModelThatIsInNoFolder) {
  Serve();
  EXPECT_FALSE(LoadWith("new", {{"config", "{}"}}).ok());  // has no files
  EXPECT_FALSE(LoadWith("new", {{"config", "{}"}, {"file:1/model.onnx", "no model"}}).ok());
  EXPECT_FALSE(LoadWith("new", {{"config", "{]"}, {"file:1/model.onnx", AddModel(5)}}).ok());
  // What did not load is not waited for, and leaves nothing behind.
  EXPECT_TRUE(ServerIsReady());
  EXPECT_THAT(Index(), ElementsAre("add"));
  ASSERT_TRUE(LoadWith("new", {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}}).ok());
  EXPECT_EQ(Answer("new"), "1 5");
  EXPECT_THAT(Index(), ElementsAre("add", "new"));
  EXPECT_TRUE(absl::IsNotFound(Load("new")));  // there is no folder to go back to
  EXPECT_EQ(Answer("new"), "1 5");
  ASSERT_TRUE(Unload("new").ok());
  EXPECT_FALSE(IsReady("new"));
  EXPECT_THAT(Index(), ElementsAre("add"));
  const absl::Status name = LoadWith("../new", {{"config", "{}"}, {"file:1/m", AddModel(5)}});
  EXPECT_TRUE(absl::IsInvalidArgument(name)) << name;
}

TEST_F(ServingGivenTest, WhatDoesNotLoadLeavesThePreviousVersionServing) {
  Serve();
  const std::string model = AddModel(5);
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:2/model.onnx", model}}).ok());
  const std::pair<GivenParameters, std::string> wrong[] = {
      {{{"config", "{}"}, {"file:2/model.onnx", "this is no model"}}, "version 2"},
      {{{"config", "{}"}, {"file:2/other.bin", model}}, "model.onnx"},
      {{{"config", "{}"}, {"file:model.onnx", model}}, "none is to be served"},
      {{{"config", R"({"max_batch_size": "four"})"}, {"file:2/model.onnx", model}}, "config: "},
      {{{"config", R"({"name": "other"})"}, {"file:2/model.onnx", model}},
       "config names the model"},
      {{{"config", R"({"max_batch_size": 4} )" + std::string(20, '}')}}, "config: byte "},
      {{{"config", std::string(100'000, '[')}}, "expected an object in JSON"},
      {{{"config", "{\"x\":" + std::string(100'000, '[')}}, "nested at most"},
      {{{"config", ""}}, "expected an object in JSON"},
      {{{"config", std::string(2 << 20, ' ')}}, "1048576 are allowed"},
      {{{"config", R"({"model_transaction_policy": {"decoupled": true}})"}}, "decoupled"},
      {{{"file:2/model.onnx", model}}, "no 'config'"},
      {{{"configuration", "{}"}}, "'configuration' is not known"}};
  for (const auto& [parameters, part] : wrong) {
    const absl::Status status = LoadWith("add", parameters);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_EQ(Answer(), "2 5") << part;
  }
  // Parameters of another type.
  auto request = LoadOf("add", {{"config", "{}"}});
  (*request.mutable_parameters())["file:2/model.onnx"].set_string_param("text");
  EXPECT_THAT(std::string(LoadRequest(request).message()), HasSubstr("is not a bytes_param"));
  (*request.mutable_parameters())["config"].set_bytes_param("{}");
  EXPECT_FALSE(LoadRequest(request).ok());
  // Still those files, of which further shapes are made.
  const auto wide = Infer(Floats("add", {3, 4}, std::vector<float>(12)));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(Values<float>(*wide)[0], 5);
}

TEST_F(ServingGivenTest, PathsThatLeadElsewhere) {
  Serve();
  const std::string paths[] = {"",
                               ".",
                               "..",
                               "/",
                               "1",
                               "1/",
                               "/1/model.onnx",
                               "1//model.onnx",
                               "1/../1/model.onnx",
                               "../add/1/model.onnx",
                               "1/../../other/1/model.onnx",
                               "1/./model.onnx",
                               "1/.hidden",
                               "1\\..\\model.onnx",
                               "x/model.onnx",
                               "01/model.onnx",
                               "-1/model.onnx",
                               "99999999999999999999/model.onnx",
                               std::string("1/model.onnx\0", 13),
                               "1/a b",
                               "1/" + std::string(256, 'a'),
                               "1/a/b/c/d/e/f/g/h/i/j"};
  for (const std::string& path : paths) {
    const absl::Status status = LoadWith(
        "add", {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}, {"file:" + path, "x"}});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path << ": " << status;
    EXPECT_EQ(Answer(), "1 1") << path;
  }
  const absl::Status both = LoadWith(
      "add",
      {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}, {"file:1/model.onnx/weights", "x"}});
  EXPECT_THAT(std::string(both.message()), HasSubstr("is a file and a folder"));
  GivenParameters many = {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}};
  for (int i = 0; i < 256; ++i) many[StrCat("file:1/", i)] = "x";
  const absl::Status refused = LoadWith("add", many);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(Answer(), "1 1");
  many.erase("file:1/0");
  EXPECT_TRUE(LoadWith("add", many).ok());
  EXPECT_EQ(Answer(), "1 5");
}

// What is asked of one name at the same time is done in some order, and the last one counts.
TEST_F(ServingGivenTest, LoadsThatRaceWithUnloads) {
  Serve();
  const auto given = [](float addend) {
    return GivenParameters{{"config", "{}"}, {"file:1/model.onnx", AddModel(addend)}};
  };
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20; ++i) {
        const absl::Status loaded = LoadWith("raced", given(static_cast<float>(5 + thread)));
        wrong += loaded.ok() ? 0 : 1;
        (void)Unload("raced");
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto answer = Infer(Floats("raced", {1, 4}, {0, 0, 0, 0}));
        if (!answer.ok()) continue;
        const float value = Values<float>(*answer)[0];
        wrong += value == 5 || value == 6 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(Index(), ElementsAre("add"));
  ASSERT_TRUE(LoadWith("raced", given(7)).ok());
  EXPECT_EQ(Answer("raced"), "1 7");
}

// However many files come along, the descriptors are there for connections.
TEST_F(ServingGivenTest, FilesTakeNoDescriptors) {
  Serve();
  const auto descriptors = [&] {
    const std::filesystem::directory_iterator all(StrCat("/proc/", daemon_->pid(), "/fd"));
    return std::distance(begin(all), end(all));
  };
  GivenParameters given = {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}};
  ASSERT_TRUE(LoadWith("add", given).ok());
  EXPECT_EQ(Answer(), "1 5");
  const auto before = descriptors();
  for (int i = 0; i < 255; ++i) given[StrCat("file:1/", i)] = "x";
  given["file:1/model.onnx"] = AddModel(6);
  for (const char* const model : {"add", "new", "newer"}) {
    ASSERT_TRUE(LoadWith(model, given).ok());
    EXPECT_EQ(Answer(model), "1 6");
  }
  EXPECT_LT(descriptors() - before, 64);
}

TEST_F(ServingGivenTest, EnsemblesAreMadeOfWhatTheirPartsWereGiven) {
  WriteModel("add", AddModel(1));
  std::filesystem::create_directories(models_.path() / "twice" / "1");
  WriteFile("twice/config.pbtxt",
            StrCat("platform: 'ensemble' max_batch_size: 8"
                   " input { name: 'in' data_type: TYPE_FP32 dims: 4 }"
                   " output { name: 'out' data_type: TYPE_FP32 dims: 4 }"
                   " ensemble_scheduling { ",
                   Step("add", "in", "between"), Step("add", "between", "out"), "}"));
  StartServing();
  ASSERT_TRUE(BecomesReady("twice"));
  const auto twice = [&] {
    auto request = Floats("twice", {1, 4}, {0, 0, 0, 0});
    request.mutable_inputs(0)->set_name("in");
    const auto response = Infer(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? Values<float>(*response)[0] : -1;
  };
  EXPECT_EQ(twice(), 2);
  // A load of a part loads its ensembles behind it, of which no call tells.
  const auto becomes = [&](float value) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (twice() != value && std::chrono::steady_clock::now() < deadline) {
    }
    return twice();
  };
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}}).ok());
  EXPECT_EQ(becomes(10), 10);
  // A configuration that the ensemble was given outlasts that.
  ASSERT_TRUE(LoadWith("twice", {{"config", R"({
    "platform": "ensemble", "max_batch_size": 8,
    "input": [{"name": "in", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "out", "data_type": "TYPE_FP32", "dims": [4]}],
    "ensemble_scheduling": {"step": [{"model_name": "add", "model_version": "-1",
      "input_map": {"x": "in"}, "output_map": {"y": "out"}}]}})"}})
                  .ok());
  EXPECT_EQ(twice(), 5);
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(becomes(1), 1);
  ASSERT_TRUE(Load("twice").ok());
  EXPECT_EQ(twice(), 2);
}

// Whoever follows the folder lets models alone that were given something.
TEST_F(ServingGivenTest, AFollowedFolderLeavesGivenModelsAsTheyAre) {
  Serve({"--models-control", "poll", "--models-poll", "1"});
  ASSERT_TRUE(LoadWith("add", {{"config", "{}"}, {"file:1/model.onnx", AddModel(5)}}).ok());
  ASSERT_TRUE(LoadWith("new", {{"config", "{}"}, {"file:1/model.onnx", AddModel(6)}}).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  WriteModel("add", AddModel(2));
  for (const char* const later : {"later", "latest"}) {  // two looks at the folder
    WriteModel(later, AddModel(7));
    while (!IsReady(later)) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(Answer("add"), "1 5");
  EXPECT_EQ(Answer("new"), "1 6");
  ASSERT_TRUE(Load("add").ok());
  EXPECT_EQ(Answer("add"), "1 2");
}

TEST_F(ServingGivenTest, AnEvictedModelComesBackWithItsFiles) {
  WriteModel("add", AddModel(1));
  const auto heavy = [](float value) {
    std::vector<float> weights(1 << 20, value);
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, {1})
        .Initializer("w", HostTensor::Of<float>({1 << 20}, weights))
        .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
        .Node("ReduceMax", {"w", "axes"}, {"most"})
        .Node("Add", {"x", "most"}, {"y"})
        .Output("y")
        .File(18);
  };
  WriteModel("b", heavy(3));
  StartServing({"--models-control", "explicit", "--models-memory", "6000000", "--models-evict"});
  ASSERT_TRUE(LoadWith("a", {{"config", "{}"}, {"file:1/model.onnx", heavy(2)}}).ok());
  ASSERT_TRUE(Load("b").ok());
  EXPECT_FALSE(IsReady("a"));
  const auto answer = Infer(Floats("a", {1}, {0}));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(Values<float>(*answer), ElementsAre(2));
}

// What a load keeps is charged to the tenant that asked for it, and given back.
TEST_F(ServingGivenTest, FilesAreChargedWhileTheyAreKept) {
  Serve({"--default-quota", "host_memory=4MiB"});
  const auto with = [&](const std::string& name, size_t bytes) {
    return LoadWith(name, {{"config", "{}"},
                           {"file:1/model.onnx", AddModel(5)},
                           {"file:1/weights", std::string(bytes, 'x')}});
  };
  const absl::Status large = with("large", 5 << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(large)) << large;
  EXPECT_THAT(std::string(large.message()), HasSubstr("host_memory"));
  for (int i = 0; i < 4; ++i) {  // each takes the place of the one before it once it is there
    const absl::Status loaded = with("add", 3 << 19);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  ASSERT_TRUE(with("second", 3 << 19).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(with("third", 3 << 19)));
  ASSERT_TRUE(Unload("second").ok());
  EXPECT_TRUE(with("third", 3 << 19).ok());
  ASSERT_TRUE(Load("add").ok());
  EXPECT_TRUE(with("fourth", 3 << 19).ok());
}

class ServingGivenTenantsTest : public ServingTenantsTest {
 protected:
  static std::string Json(const GivenParameters& parameters) {
    std::string out = "{\"parameters\":{";
    for (const auto& [name, value] : parameters) {
      std::string text = value;
      if (name.starts_with("file:")) absl::Base64Escape(value, &text);
      StrAppend(&out, out.ends_with('{') ? "" : ",", JsonQuote(name), ":", JsonQuote(text));
    }
    return out + "}}";
  }
  std::string LoadOverHttp(const std::string& token, const std::string& body) {
    return Http(token, "POST", "/v2/repository/models/add/load", body);
  }
  std::string Answer() {
    grpc::ClientContext context;
    As(&context, Token("alice"));
    inference::ModelInferResponse response;
    const auto status = stub_->ModelInfer(&context, Floats("add", {1, 4}, {0, 0, 0, 0}), &response);
    if (!status.ok()) return status.error_message();
    return StrCat(response.model_version(), " ", static_cast<int>(Values<float>(response)[0]));
  }
};

TEST_F(ServingGivenTenantsTest, FilesOverHttp) {
  const GivenParameters given = {{"config", R"({"max_batch_size": 3})"},
                                 {"file:2/model.onnx", AddModel(5)}};
  EXPECT_THAT(LoadOverHttp(token_, Json(given)), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Answer(), "2 5");
  EXPECT_THAT(Http(token_, "GET", "/v2/models/add/config"), HasSubstr("\"max_batch_size\":3"));
  const std::string wrong[] = {R"({"parameters":{"config":"{}","file:2/model.onnx":"*"}})",
                               R"({"parameters":{"config":{},"file:2/model.onnx":""}})",
                               R"({"parameters":{"config":"{}","config":"{}"}})",
                               R"({"parameters":{"config":"{}","file:1/m":"","file:1/m":""}})",
                               R"({"parameters":{"file:2/model.onnx":""}})",
                               R"({"parameters":{"config":"{}","file:../model.onnx":""}})",
                               R"({"parameters":{"config":"{}","else":""}})",
                               R"({"parameters":{"config":"{}")",
                               R"({"parameters":"config"})"};
  for (const std::string& body : wrong) {
    EXPECT_THAT(LoadOverHttp(token_, body), StartsWith("HTTP/1.1 400")) << body;
    EXPECT_EQ(Answer(), "2 5") << body;
  }
  EXPECT_THAT(LoadOverHttp(token_, ""), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Answer(), "1 1");
}

TEST_F(ServingGivenTenantsTest, OnlyAdministratorsGiveFiles) {
  const GivenParameters given = {{"config", "{}"}, {"file:2/model.onnx", AddModel(5)}};
  EXPECT_THAT(LoadOverHttp(Token("alice"), Json(given)), StartsWith("HTTP/1.1 403"));
  // Of others not even the body is taken.
  const std::string large = Json({{"config", "{}"}, {"file:2/x", std::string(1 << 20, 'x')}});
  EXPECT_THAT(LoadOverHttp(Token("alice"), large), StartsWith("HTTP/1.1 429"));
  const auto load = [&](const std::string& token) {
    grpc::ClientContext context;
    As(&context, token);
    inference::RepositoryModelLoadResponse response;
    return FromGrpc(stub_->RepositoryModelLoad(&context, LoadOf("add", given), &response));
  };
  EXPECT_TRUE(absl::IsPermissionDenied(load(Token("alice"))));
  EXPECT_EQ(Answer(), "1 1");
  // An administrator of a small tenant is refused what does not fit its staging.
  EXPECT_THAT(LoadOverHttp(Token("bob", /*admin=*/true), large), StartsWith("HTTP/1.1 429"));
  EXPECT_TRUE(load(Token("bob", /*admin=*/true)).ok());
  EXPECT_EQ(Answer(), "2 5");
}

}  // namespace
}  // namespace telegrad
