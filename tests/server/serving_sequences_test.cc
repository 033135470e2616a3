// Sequences: what a model keeps between the requests of one id, whom it is kept for, how long, and
// what is refused.
#include <future>
#include <thread>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Mark {
  int64_t id = 0;
  bool start = false, end = false;
  std::string text = {};  // instead of `id`
};

class ServingSequencesTest : public ServingTest {
 protected:
  // y = x + the sum of the x before; and what it was told of the row.
  static std::string SumModel(int64_t rows = -1) {
    const Shape shape{rows, 1};
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, shape)
        .Input("sum_in", DType::kFloat32, shape)
        .Input("start", DType::kInt32, shape)
        .Input("end", DType::kFloat32, shape)
        .Input("who", DType::kUInt64, shape)
        .Output("y", DType::kFloat32, shape)
        .Output("sum_out", DType::kFloat32, shape)
        .Output("started", DType::kInt32, shape)
        .Output("ended", DType::kFloat32, shape)
        .Output("id", DType::kUInt64, shape)
        .Node("Add", {"x", "sum_in"}, {"y"})
        .Node("Identity", {"y"}, {"sum_out"})
        .Node("Identity", {"start"}, {"started"})
        .Node("Identity", {"end"}, {"ended"})
        .Node("Identity", {"who"}, {"id"})
        .File(13);
  }
  // `strategy`: with what stands beside the controls and the state.
  static std::string Config(const std::string& strategy, const std::string& max_batch = "4",
                            const std::string& dims = "1") {
    return StrCat("max_batch_size: ", max_batch, " sequence_batching { ", strategy,
                  " control_input { name: 'start' control { kind: CONTROL_SEQUENCE_START"
                  " int32_false_true: [ 3, 7 ] } }"
                  " control_input { name: 'end' control { kind: CONTROL_SEQUENCE_END"
                  " fp32_false_true: [ 0, 1 ] } }"
                  " control_input { name: 'who' control { kind: CONTROL_SEQUENCE_CORRID"
                  " data_type: TYPE_UINT64 } }"
                  " state { input_name: 'sum_in' output_name: 'sum_out' data_type: TYPE_FP32"
                  " dims: [ ",
                  dims, " ] } }");
  }
  static constexpr const char* kLong = "max_sequence_idle_microseconds: 3600000000";

  static inference::ModelInferRequest Asked(const Mark& mark, float x, int64_t rows = 1) {
    inference::ModelInferRequest request =
        Floats("sum", {rows, 1}, std::vector<float>(static_cast<size_t>(rows), x));
    auto& parameters = *request.mutable_parameters();
    if (!mark.text.empty()) parameters["sequence_id"].set_string_param(mark.text);
    if (mark.id != 0) parameters["sequence_id"].set_int64_param(mark.id);
    if (mark.start) parameters["sequence_start"].set_bool_param(true);
    if (mark.end) parameters["sequence_end"].set_bool_param(true);
    return request;
  }
  absl::StatusOr<float> Sum(const Mark& mark, float x) {
    TG_ASSIGN_OR_RETURN(const auto answer, Infer(Asked(mark, x)));
    return Values<float>(answer)[0];
  }
  void ExpectSum(const Mark& mark, float x, float sum) {
    const auto got = Sum(mark, x);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, sum);
  }
  void ExpectWrong(const inference::ModelInferRequest& request, absl::StatusCode code,
                   const std::string& part) {
    const absl::Status status = Infer(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
};

TEST_F(ServingSequencesTest, EachHasItsOwnState) {
  WriteModel("sum", SumModel(), Config(StrCat("direct { } ", kLong)));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum")) << Loaded("sum")[0].reason();
  ExpectSum({.id = 1, .start = true}, 1, 1);
  ExpectSum({.start = true, .text = "1"}, 100, 100);  // a text is another id than a number
  ExpectSum({.id = 2, .start = true}, 10, 10);
  ExpectSum({.id = 1}, 2, 3);
  ExpectSum({.id = 2}, 20, 30);
  ExpectSum({.text = "1"}, 200, 300);
  ExpectSum({.id = 1, .end = true}, 3, 6);
  ExpectSum({.id = 2, .start = true}, 5, 5);  // started again: from zero
  ExpectSum({.id = 2}, 5, 10);
  ExpectSum({.id = 1, .start = true}, 4, 4);

  const auto answer = Infer(Asked({.id = 2, .end = true}, 1));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->outputs_size(), 4) << "the state is no output";
  EXPECT_THAT(Values<int32_t>(*answer, 1), ElementsAre(3));
  EXPECT_THAT(Values<float>(*answer, 2), ElementsAre(1));
  EXPECT_THAT(Values<uint64_t>(*answer, 3), ElementsAre(2));
  EXPECT_THAT(Values<int32_t>(*Infer(Asked({.id = 9, .start = true, .end = true}, 1)), 1),
              ElementsAre(7));

  grpc::ClientContext context;
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse about;
  request.set_name("sum");
  ASSERT_TRUE(stub_->ModelMetadata(&context, request, &about).ok());
  ASSERT_EQ(about.inputs_size(), 1);
  EXPECT_EQ(about.inputs(0).name(), "x");
}

TEST_F(ServingSequencesTest, WithoutBatchesToo) {
  WriteModel("sum", SumModel(1), Config(StrCat("direct { } ", kLong), "0", "1, 1"));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum")) << Loaded("sum")[0].reason();
  ExpectSum({.id = 1, .start = true}, 1, 1);
  ExpectSum({.id = 2, .start = true}, 10, 10);
  ExpectSum({.id = 1}, 2, 3);
  ExpectSum({.id = 2, .end = true}, 20, 30);
}

// Requests of a sequence are answered in order, whatever batches they are in with others.
TEST_F(ServingSequencesTest, ManyAtATimeShareBatches) {
  WriteModel("sum", SumModel(), Config(StrCat("oldest { } ", kLong)));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum")) << Loaded("sum")[0].reason();
  constexpr int kSequences = 12, kRequests = 40;
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (int c = 1; c <= kSequences; ++c) {
    clients.emplace_back([&, c] {
      float sum = 0;
      for (int i = 0; i < kRequests; ++i) {
        sum += static_cast<float>(c * i);
        const auto got =
            Sum({.id = c, .start = i == 0, .end = i + 1 == kRequests}, static_cast<float>(c * i));
        if (!got.ok() || *got != sum) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Statistics("sum").inference_count(), static_cast<uint64_t>(kSequences * kRequests));
}

// Requests that are sent ahead, over a stream.
TEST_F(ServingSequencesTest, AStreamSendsAhead) {
  WriteModel("sum", SumModel(), Config(StrCat("direct { } ", kLong)));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum"));
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kRequests = 100;
  for (int i = 0; i < kRequests; ++i) {
    for (int64_t id = 1; id <= 2; ++id) {
      ASSERT_TRUE(stream->Write(
          Asked({.id = id, .start = i == 0, .end = i + 1 == kRequests}, static_cast<float>(id))));
    }
  }
  stream->WritesDone();
  inference::ModelStreamInferResponse response;
  for (int i = 1; i <= kRequests; ++i) {
    for (int64_t id = 1; id <= 2; ++id) {
      ASSERT_TRUE(stream->Read(&response));
      ASSERT_EQ(response.error_message(), "");
      EXPECT_EQ(Values<float>(response.infer_response())[0], static_cast<float>(i * id));
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ServingSequencesTest, OthersWaitUntilOneEnds) {
  WriteModel("sum", SumModel(), Config(StrCat("oldest { max_candidate_sequences: 1 } ", kLong)));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum"));
  ExpectSum({.id = 1, .start = true}, 1, 1);
  auto other = std::async(std::launch::async, [&] { return Sum({.id = 2, .start = true}, 5); });
  for (int i = 2; i < 20; ++i) ExpectSum({.id = 1}, 1, static_cast<float>(i));
  ExpectSum({.id = 1, .end = true}, 1, 20);
  const auto sum = other.get();
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(*sum, 5);
}

TEST_F(ServingSequencesTest, WhatIsWrongIsRefused) {
  WriteModel("sum", SumModel(), Config(StrCat("oldest { max_candidate_sequences: 2000 } ", kLong)));
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum"));
  ASSERT_TRUE(BecomesReady("add"));
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ExpectWrong(Asked({}, 1), wrong, "need a sequence_id");
  ExpectWrong(Asked({.id = 5}, 1), wrong, "sequence 5 is not under way");
  ExpectSum({.id = 5, .start = true, .end = true}, 1, 1);
  ExpectWrong(Asked({.id = 5}, 1), wrong, "sequence 5 is not under way");
  ExpectWrong(Asked({.id = 5, .start = true}, 1, 2), wrong, "expected 1");
  ExpectWrong(Asked({.start = true, .text = std::string(129, 'x')}, 1), wrong, "128 are allowed");
  inference::ModelInferRequest typed = Asked({.id = 5}, 1);
  (*typed.mutable_parameters())["sequence_start"].set_int64_param(1);
  ExpectWrong(typed, wrong, "true or false");
  inference::ModelInferRequest stateless = Asked({.id = 5, .start = true}, 1);
  stateless.set_model_name("add");
  stateless.mutable_inputs(0)->mutable_shape()->Set(1, 4);
  stateless.set_raw_input_contents(0, std::string(16, '\0'));
  ExpectWrong(stateless, absl::StatusCode::kUnimplemented, "keeps no state");

  // So many live at a time, and each that ends makes room.
  for (int64_t id = 1; id <= 1024; ++id) ASSERT_TRUE(Sum({.id = id, .start = true}, 1).ok()) << id;
  ExpectWrong(Asked({.id = 2000, .start = true}, 1), absl::StatusCode::kUnavailable,
              "1024 sequences");
  ExpectSum({.id = 700, .end = true}, 1, 2);
  ExpectSum({.id = 2000, .start = true}, 1, 1);
}

TEST_F(ServingSequencesTest, AnIdleOneEndsAndItsMemoryIsFree) {
  const auto memory = [&] { return Stat("telegrad_device_memory_used_bytes"); };
  WriteModel("sum", SumModel(), Config("direct { } max_sequence_idle_microseconds: 20000"));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum"));
  const double before = memory();
  ASSERT_TRUE(Sum({.id = 1, .start = true}, 1).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (memory() > before) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  ExpectWrong(Asked({.id = 1}, 1), absl::StatusCode::kInvalidArgument, "is not under way");
}

// A request that does not run leaves the state behind what its caller believes.
TEST_F(ServingSequencesTest, ADroppedRequestEndsItsSequence) {
  WriteModel("sum", SumModel(), Config(StrCat("oldest { max_candidate_sequences: 1 } ", kLong)));
  StartServing();
  ASSERT_TRUE(BecomesReady("sum"));
  ExpectSum({.id = 1, .start = true}, 1, 1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  inference::ModelInferResponse response;
  EXPECT_FALSE(stub_->ModelInfer(&context, Asked({.id = 2, .start = true}, 1), &response).ok());
  ExpectSum({.id = 1, .end = true}, 1, 2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  absl::Status status;
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    status = Sum({.id = 2}, 1).status();
  } while (status.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsAborted(status)) << status;
}

}  // namespace
}  // namespace telegrad
