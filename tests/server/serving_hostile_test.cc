// Requests that are wrong on purpose: each class of attack that was seen on servers of this
// protocol ends in a status that says what was wrong, and the server goes on.
#include <filesystem>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class HostileInferenceTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    WriteModel("two", onnx::test::ModelWriter()
                          .Input("a", DType::kFloat32, {2})
                          .Input("b", DType::kFloat32, {2})
                          .Output("y", DType::kFloat32, {2})
                          .Node("Add", {"a", "b"}, {"y"})
                          .File(13));
    StartServing();
    ASSERT_TRUE(BecomesReady("add"));
    ASSERT_TRUE(BecomesReady("two"));
  }
  void TearDown() override {
    const auto response = Infer(Floats("add", {1, 4}, {0, 1, 2, 3}));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(Values<float>(*response)[3], 4);
  }
  void ExpectRefused(const inference::ModelInferRequest& request, absl::StatusCode code,
                     const std::string& says) {
    const absl::Status status = Infer(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
};

TEST_F(HostileInferenceTest, RawContentsOfAnotherSize) {
  auto request = Floats("add", {1, 4}, {0, 1, 2});
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has 12 bytes, expected 16");
  request = Floats("add", {1, 4}, {0, 1, 2, 3, 4});
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has 20 bytes, expected 16");
  request = Floats("add", {1, 4}, {});
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has 0 bytes, expected 16");
}

TEST_F(HostileInferenceTest, ShapesThatOverflow) {
  for (const int64_t huge : {INT64_MAX, INT64_MAX / 16, int64_t{1} << 62, int64_t{1} << 48}) {
    ExpectRefused(Floats("add", {huge, 4}, {0, 1, 2, 3}), absl::StatusCode::kInvalidArgument,
                  "add");
  }
  ExpectRefused(Floats("add", {-1, 4}, {0, 1, 2, 3}), absl::StatusCode::kInvalidArgument, "add");
  ExpectRefused(Floats("add", {INT64_MIN, 4}, {}), absl::StatusCode::kInvalidArgument, "add");
  ExpectRefused(Floats("add", {0, 4}, {}), absl::StatusCode::kInvalidArgument, "batch of 0");
  ExpectRefused(Floats("add", Shape(100'000, 1), {0, 1, 2, 3}), absl::StatusCode::kInvalidArgument,
                "has shape");
  ExpectRefused(Floats("add", {}, {0}), absl::StatusCode::kInvalidArgument, "has shape []");
}

TEST_F(HostileInferenceTest, RawAndTypedContents) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "raw_input_contents");
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "several types");
  request.mutable_inputs(0)->mutable_contents()->clear_fp32_contents();
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "not that of datatype FP32");
}

TEST_F(HostileInferenceTest, UnknownAndWrongDatatypes) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  for (const std::string& type :
       {std::string("FP33"), std::string(), std::string("fp32"), std::string(100'000, 'F')}) {
    request.mutable_inputs(0)->set_datatype(type);
    ExpectRefused(request, absl::StatusCode::kInvalidArgument, "there is no datatype");
  }
  for (const char* type : {"BYTES", "INT32"}) {
    request.mutable_inputs(0)->set_datatype(type);
    ExpectRefused(request, absl::StatusCode::kInvalidArgument, "expected FP32");
  }
}

TEST_F(HostileInferenceTest, TensorsThatAreMissingTwiceOrUnknown) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  *request.add_inputs() = request.inputs(0);
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has no raw_input_contents");
  request.add_raw_input_contents(request.raw_input_contents(0));
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "given twice");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.add_raw_input_contents("more");
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "2 raw_input_contents for 1 inputs");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.mutable_inputs(0)->set_name("z");
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has no input 'z'");
  request = Floats("two", {2}, {0, 1});
  request.mutable_inputs(0)->set_name("a");
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "'b' is missing");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.add_outputs()->set_name("z");
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "has no output 'z'");
  ExpectRefused({}, absl::StatusCode::kNotFound, "unknown model");
}

// A small message that would become many objects.
TEST_F(HostileInferenceTest, ManyEmptyTensors) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  for (int i = 0; i < 100'000; ++i) request.add_inputs();
  ExpectRefused(request, absl::StatusCode::kResourceExhausted, "the limit is 1024");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  for (int i = 0; i < 100'000; ++i) request.add_raw_input_contents("");
  ExpectRefused(request, absl::StatusCode::kResourceExhausted, "more than 1024 raw contents");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.set_id(std::string(10 << 20, 'i'));
  ExpectRefused(request, absl::StatusCode::kResourceExhausted, "beside its raw contents");
}

TEST_F(HostileInferenceTest, SharedMemoryIsNotThere) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  auto* parameters = request.mutable_inputs(0)->mutable_parameters();
  (*parameters)["shared_memory_region"].set_string_param("psm_1234");
  (*parameters)["shared_memory_byte_size"].set_int64_param(16);
  request.clear_raw_input_contents();
  ExpectRefused(request, absl::StatusCode::kUnimplemented, "shared memory");
  request = Floats("add", {1, 4}, {0, 1, 2, 3});
  request.mutable_inputs(0)->clear_parameters();
  auto* output = request.add_outputs();
  output->set_name("y");
  (*output->mutable_parameters())["shared_memory_region"].set_string_param("/telegrad");
  (*output->mutable_parameters())["shared_memory_byte_size"].set_int64_param(16);
  ExpectRefused(request, absl::StatusCode::kUnimplemented, "shared memory");
}

TEST_F(HostileInferenceTest, ParametersThatMeanNothingHere) {
  auto request = Floats("add", {1, 4}, {0, 1, 2, 3});
  (*request.mutable_parameters())["triton_secret"].set_bool_param(true);
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "triton_secret");
  request.clear_parameters();
  (*request.mutable_parameters())["sequence_id"].set_int64_param(7);
  ExpectRefused(request, absl::StatusCode::kUnimplemented, "sequence_id");
  request.clear_parameters();
  (*request.mutable_parameters())["priority"].set_string_param("high");
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, "integer");
}

TEST_F(HostileInferenceTest, NamesThatLeaveTheRepository) {
  const auto outside = models_.path().parent_path() / "telegrad_outside_models";
  std::filesystem::create_directories(outside / "1");
  std::ofstream(outside / "1" / "model.onnx", std::ios::binary) << AddModel(7);
  for (const char* const name :
       {"../telegrad_outside_models", "./add", "add/../../telegrad_outside_models", "", ".", "..",
        "/etc", "add/1", "a\nb", ".add.next"}) {
    const absl::Status status = Load(name);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
  }
  const absl::Status zero = Load(std::string("add\0x", 5));
  EXPECT_FALSE(zero.ok());
  std::filesystem::create_directory_symlink(outside, models_.path() / "link");
  const absl::Status link = Load("link");
  EXPECT_TRUE(absl::IsFailedPrecondition(link)) << link;
  std::filesystem::create_directories(models_.path() / "inner");
  std::filesystem::create_directory_symlink(outside / "1", models_.path() / "inner" / "1");
  EXPECT_FALSE(Load("inner").ok());
  std::filesystem::create_directories(models_.path() / "file" / "1");
  std::filesystem::create_symlink(outside / "1" / "model.onnx",
                                  models_.path() / "file" / "1" / "model.onnx");
  EXPECT_FALSE(Load("file").ok());
  EXPECT_TRUE(absl::IsNotFound(Infer(Floats("../add", {1, 4}, {0, 1, 2, 3})).status()));
  std::filesystem::remove_all(outside);
}

// y = x + w, where w, of four floats, is what the file has.
std::string AddWeightOf(const std::string& file) {
  namespace field = onnx::field;
  std::string entry, weight;
  onnx::PutBytesField(field::kEntryKey, "location", &entry);
  onnx::PutBytesField(field::kEntryValue, file, &entry);
  onnx::PutVarintField(field::kDims, 4, &weight);
  onnx::PutVarintField(field::kDataType, 1, &weight);
  onnx::PutBytesField(field::kTensorName, "w", &weight);
  onnx::PutBytesField(field::kExternalData, entry, &weight);
  onnx::PutVarintField(field::kDataLocation, 1, &weight);
  return onnx::test::ModelWriter()
      .RawInitializer(weight)
      .Input("x", DType::kFloat32, {4})
      .Node("Add", {"x", "w"}, {"y"})
      .Output("y")
      .File(13);
}

// A model names other files, of labels and of weights: they are below its own folder.
TEST_F(HostileInferenceTest, FilesThatLeaveTheFolderOfTheModel) {
  const std::string secret(16, 's');
  WriteFile("secret.txt", secret);
  std::filesystem::create_directories(models_.path() / "labels");
  std::filesystem::create_symlink(models_.path() / "secret.txt", models_.path() / "labels" / "l");
  const std::string absolute = (models_.path() / "secret.txt").string();
  for (const std::string& file : {std::string("../secret.txt"), absolute, std::string("l")}) {
    WriteModel("labels", AddModel(1),
               StrCat("max_batch_size: 4 output { name: 'y' data_type: TYPE_FP32 dims: 4 "
                      "label_filename: '",
                      file, "' }"));
    const absl::Status status = Load("labels");
    EXPECT_FALSE(status.ok()) << file;
    EXPECT_FALSE(IsReady("labels")) << file;
  }
  std::filesystem::create_directories(models_.path() / "weights" / "1");
  std::filesystem::create_symlink(models_.path() / "secret.txt",
                                  models_.path() / "weights" / "1" / "l");
  for (const std::string& file : {std::string("../../secret.txt"), absolute, std::string("l")}) {
    WriteModel("weights", AddWeightOf(file));
    const absl::Status status = Load("weights");
    EXPECT_FALSE(status.ok()) << file;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'w'")) << file;
    EXPECT_FALSE(IsReady("weights")) << file;
  }
  // The same from a file that is below it.
  WriteFile("weights/1/below", secret);
  WriteModel("weights", AddWeightOf("below"));
  const absl::Status below = Load("weights");
  EXPECT_TRUE(below.ok()) << below;
}

// A model whose every shape fails, asked by many at once: each gets its error.
// What a file contains is quoted by the reason why it is not served, which a message of the
// protocol could not have: no client could read the index then.
TEST_F(HostileInferenceTest, ReasonsAreUtf8WhateverTheFileContains) {
  WriteModel("wrong", onnx::test::ModelWriter()
                          .Input("x", DType::kFloat32, {2})
                          .Output("y", DType::kFloat32, {2})
                          .Node("No\xff\xc3such", {"x"}, {"y"})
                          .File(13));
  EXPECT_THAT(std::string(Load("wrong").message()), HasSubstr("No??such"));
  grpc::ClientContext context;
  inference::RepositoryIndexResponse index;
  const grpc::Status status = stub_->RepositoryIndex(&context, {}, &index);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::string reason;
  for (const auto& row : index.models()) {
    if (row.name() == "wrong") reason = row.reason();
  }
  EXPECT_THAT(reason, HasSubstr("No??such"));
}

TEST_F(HostileInferenceTest, AModelThatIsALinkIsToldFromOneThatIsMissing) {
  WriteModel("linked", AddModel(1));
  const auto file = models_.path() / "linked/1/model.onnx";
  std::filesystem::remove(file);
  EXPECT_THAT(std::string(Load("linked").message()), HasSubstr("there is no model.onnx"));
  std::filesystem::create_symlink(models_.path() / "add/1/model.onnx", file);
  EXPECT_THAT(std::string(Load("linked").message()), HasSubstr("files without links"));
}

TEST_F(HostileInferenceTest, ALongQueueOfFailures) {
  WriteModel("fails", onnx::test::ModelWriter()
                          .Input("x", DType::kFloat32, {-1})
                          .Output("y", DType::kFloat32, {3})
                          .Initializer("c", HostTensor::Of<float>({3}, {1, 2, 3}))
                          .Node("Add", {"x", "c"}, {"y"})
                          .File(13));
  ASSERT_TRUE(Load("fails").ok());
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(stream->Write(Floats("fails", {2}, {1, 2})));
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  int failed = 0;
  while (stream->Read(&response)) failed += response.error_message().empty() ? 0 : 1;
  EXPECT_EQ(failed, kRequests);
  EXPECT_TRUE(stream->Finish().ok());
}

// A configuration that is wrong is told with its place, and does no harm.
TEST_F(HostileInferenceTest, ConfigurationsThatAreWrong) {
  const std::pair<std::string, std::string> configs[] = {
      {"max_batch_size: four", "1:17"},
      {"max_batch_size: -3", "max_batch_size is -3"},
      {"max_batch_size: 2000000000", "expected 0 to"},
      {"name: 'other'", "names the model 'other'"},
      {"default_model_filename: '../../add/1/model.onnx'", "not a file's name"},
      {"platform: 'python'", "is not served"},
      {"input { name: 'q' }", "does not have"},
      {"max_batch_size: 4 input { name: 'x' data_type: TYPE_INT8 dims: [ 4 ] }", "INT8"},
      {"max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: [ 5 ] }", "dims [5]"},
      {"max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 9 ] }", "preferred"},
      {"dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }", "a day"},
      {"sequence_batching { iterative_sequence: true }", "iterative_sequence"},
      {"sequence_batching { state { input_name: 'q' output_name: 'y' dims: 1 } }", "'q'"},
      {"sequence_batching { state { input_name: 'x' output_name: 'y' dims: -1 } }", "-1"},
      {"sequence_batching { state { input_name: 'x' output_name: 'y' dims: [ 1, 5 ] } }", "[1, 5]"},
      {"sequence_batching { state { input_name: 'x' output_name: 'y' dims: [ 1, 4 ] } }", "beside"},
      {"sequence_batching { control_input { name: 'x' } }", "one control"},
      {"sequence_batching { control_input { name: 'x' control { } } }", "bool_false_true"},
      {"sequence_batching { control_input { name: 'x' control { kind: CONTROL_SEQUENCE_CORRID } } "
       "}",
       "CORRID has a data_type"},
      {"sequence_batching { oldest { max_candidate_sequences: -1 } }", "-1"},
      {std::string(2 << 20, ' '), "bytes"},
      {"parameters { key: '\\377' value { string_value: 'x' } }", "not UTF-8"},
  };
  for (const auto& [config, says] : configs) {
    WriteModel("wrong", AddModel(1), config);
    const absl::Status status = Load("wrong");
    EXPECT_FALSE(status.ok()) << config;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    EXPECT_FALSE(IsReady("wrong"));
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "parameters { value {";
  WriteModel("wrong", AddModel(1), deep);
  EXPECT_FALSE(Load("wrong").ok());
}

}  // namespace
}  // namespace telegrad
