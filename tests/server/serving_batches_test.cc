// Which requests become a batch, and which wait, leave or are refused before it.
#include <chrono>
#include <deque>
#include <future>
#include <numeric>
#include <thread>

#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One request runs and holds the others up, so that they meet in the queue.
TEST_F(ServingTest, RequestsThatMeetAreOneBatchAndGetTheirOwnRows) {
  WriteModel("add", AddModel(10), R"(
    max_batch_size: 8
    dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 60000000 })");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  std::vector<std::future<absl::StatusOr<inference::ModelInferResponse>>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [this, i] {
      const auto v = static_cast<float>(i);
      return Infer(Floats("add", {1, 4}, {v, v + 0.25f, v + 0.5f, v + 0.75f}));
    }));
  }
  for (int i = 0; i < 8; ++i) {
    const auto answer = answers[static_cast<size_t>(i)].get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    const auto v = static_cast<float>(i);
    EXPECT_THAT(Values<float>(*answer), ElementsAre(v + 10, v + 10.25, v + 10.5, v + 10.75));
    EXPECT_THAT(answer->outputs(0).shape(), ElementsAre(1, 4));
  }
  const inference::ModelStatistics statistics = Statistics("add");
  EXPECT_EQ(statistics.inference_count(), 8);
  EXPECT_EQ(statistics.execution_count(), 1);
  ASSERT_EQ(statistics.batch_stats_size(), 1);
  EXPECT_EQ(statistics.batch_stats(0).batch_size(), 8);
  EXPECT_EQ(statistics.inference_stats().success().count(), 8);
}

// Of requests that come at once, the first runs alone; no other one is put behind it alone, where
// it would take no more in. The model takes long, however few rows it has.
TEST_F(ServingTest, RequestsBehindALongBatchAreOneBatch) {
  constexpr int kAtOnce = 5, kTurns = 10;
  WriteModel("long",
             onnx::test::ModelWriter()
                 .Input("x", DType::kFloat32, {-1, 4})
                 .Output("y", DType::kFloat32, {-1, 4})
                 .Initializer("zero", HostTensor::Of<float>({}, {0}))
                 .Initializer("many", HostTensor::Of<float>({}, {16 << 20}))
                 .Initializer("one", HostTensor::Of<float>({}, {1}))
                 .Node("Range", {"zero", "many", "one"}, {"range"})
                 .Node("ReduceMax", {"x"}, {"most"}, {{"keepdims", int64_t{0}}})
                 .Node("Mul", {"range", "most"}, {"product"})
                 .Node("Sin", {"product"}, {"sine"})
                 .Node("ReduceMean", {"sine"}, {"mean"}, {{"keepdims", int64_t{0}}})
                 .Node("Add", {"x", "mean"}, {"y"})
                 .File(13),
             "max_batch_size: 4 dynamic_batching {}");
  StartServing();
  ASSERT_TRUE(BecomesReady("long"));
  const auto turn = [&] {
    const uint64_t before = Statistics("long").execution_count();
    std::vector<std::future<absl::Status>> answers;
    for (int i = 0; i < kAtOnce; ++i) {
      answers.push_back(std::async(std::launch::async, [this] {
        return Infer(Floats("long", {1, 4}, {0, 0, 0, 0})).status();
      }));
    }
    for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
    return Statistics("long").execution_count() - before;
  };
  // Sizes are compiled and tried first, so that it is known that four rows are as fast as one.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  std::deque<uint64_t> executions;
  while (executions.size() < kTurns ||
         std::accumulate(executions.begin(), executions.end(), uint64_t{0}) > 2.4 * kTurns) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "of three batches each";
    executions.push_back(turn());
    if (executions.size() > kTurns) executions.pop_front();
  }
}

// Callers leave at any moment, some while their batch runs: the others of it get their answers.
TEST_F(ServingTest, CallersThatLeaveHarmNobodyInTheirBatch) {
  constexpr int kCallers = 6, kRequests = 40;
  WriteModel("add", AddModel(10), R"(
    max_batch_size: 8
    dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 2000 })");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  std::vector<std::future<int>> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(std::async(std::launch::async, [this, caller] {
      int right = 0;
      for (int i = 0; i < kRequests; ++i) {
        const auto v = static_cast<float>(caller * kRequests + i);
        grpc::ClientContext context;
        grpc::CompletionQueue queue;
        inference::ModelInferResponse response;
        grpc::Status status;
        const auto call =
            stub_->AsyncModelInfer(&context, Floats("add", {1, 4}, {v, 0, 0, v}), &queue);
        call->Finish(&response, &status, &queue);
        const bool leaves = (caller + i) % 3 == 0;
        if (leaves) context.TryCancel();
        void* tag = nullptr;
        bool ok = false;
        queue.Next(&tag, &ok);
        if (leaves && !status.ok()) {
          right += status.error_code() == grpc::StatusCode::CANCELLED ? 1 : 0;
        } else {
          right +=
              status.ok() && Values<float>(response) == std::vector<float>{v + 10, 10, 10, v + 10}
                  ? 1
                  : 0;
        }
      }
      return right;
    }));
  }
  for (auto& caller : callers) EXPECT_EQ(caller.get(), kRequests);
}

// Nobody else comes, and the request is over when its caller's time is.
TEST_F(ServingTest, ADeadlineHoldsInTheQueue) {
  WriteModel("add", AddModel(1), R"(
    max_batch_size: 8
    dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 86400000000 })");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  inference::ModelInferResponse response;
  const grpc::Status status =
      stub_->ModelInfer(&context, Floats("add", {1, 4}, {0, 0, 0, 0}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Statistics("add").inference_stats().fail().count() == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(Statistics("add").execution_count(), 0);
}

// A batch of a size that is not compiled for is padded, and nobody sees the padding.
TEST_F(ServingTest, ABatchOfAnySizeIsServed) {
  WriteModel("add", AddModel(1), "max_batch_size: 6");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  for (int rows = 1; rows <= 6; ++rows) {
    std::vector<float> values(static_cast<size_t>(rows) * 4), expected;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i);
      expected.push_back(static_cast<float>(i) + 1);
    }
    const auto response = Infer(Floats("add", {rows, 4}, values));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(Values<float>(*response), expected);
  }
  const absl::Status over = Infer(Floats("add", {7, 4}, std::vector<float>(28))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(over)) << over;
  EXPECT_THAT(std::string(over.message()), HasSubstr("expected 1 to 6"));
}

TEST_F(ServingTest, AFullQueueAndALongWaitAreUnavailable) {
  WriteModel("add", AddModel(1), R"(
    max_batch_size: 4
    dynamic_batching {
      preferred_batch_size: [ 4 ]
      max_queue_delay_microseconds: 3600000000
      default_queue_policy { default_timeout_microseconds: 1000000 max_queue_size: 2 }
    })");
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  std::vector<std::future<absl::Status>> answers;
  for (int i = 0; i < 3; ++i) {
    answers.push_back(std::async(std::launch::async, [this] {
      return Infer(Floats("add", {1, 4}, {0, 0, 0, 0})).status();
    }));
  }
  int full = 0, late = 0;
  for (auto& answer : answers) {
    const absl::Status status = answer.get();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    full += status.message().find("Exceeds maximum queue size") != absl::string_view::npos;
    late += status.message().find("Request timeout expired") != absl::string_view::npos;
  }
  EXPECT_EQ(full, 1);
  EXPECT_EQ(late, 2);
}

}  // namespace
}  // namespace telegrad
