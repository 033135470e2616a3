// Batch sizes that are compiled to find out whether they are faster, without a request that needs
// them, displace nothing.
#include "server/serving/alarm.h"
#include "server/serving/served_model.h"
#include "tests/server/forms_fixture.h"

namespace telegrad {
namespace {

class TriedSizesTest : public FormsTest {
 protected:
  TriedSizesTest() {
    config_.max_batch = 4;
    config_.batching = DynamicBatching{.preferred = {},
                                       .delay_us = 86'400'000'000};  // a batch is full when it runs
    model_ =
        *ServedModel::Load({{&maker_, 1}}, &alarm_, config_, "1", source_, {{}}, &room_of_load_);
    room_of_load_.kept.clear();
  }

  std::future<absl::Status> Infer(int64_t rows, int64_t columns) {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    const auto content = std::make_shared<const std::string>(rows * columns * 4, '\0');
    InferRequest request{.model = "copies", .version = "", .inputs = {}, .outputs = {}};
    request.inputs.push_back(
        {.name = "x",
         .datatype = "FP32",
         .shape = {rows, columns},
         .pieces = {{reinterpret_cast<const uint8_t*>(content->data()), content->size()}},
         .bytes = static_cast<int64_t>(content->size())});
    request.owner = content;
    model_->Infer(tenant_, std::move(request), [answered](absl::StatusOr<InferResult> result) {
      answered->set_value(result.status());
    });
    return answered->get_future();
  }
  void InferTwoByTwo() {
    auto first = Infer(2, 2), second = Infer(2, 2);
    EXPECT_TRUE(first.get().ok());
    EXPECT_TRUE(second.get().ok());
  }

  Alarm alarm_;
  LoadRoom room_of_load_;
  std::shared_ptr<ServedModel> model_;
};

TEST_F(TriedSizesTest, ASizeThatIsTriedUnloadsNoModel) {
  InferTwoByTwo();
  AwaitCompilers();
  const int compiled = engine_.compiled;
  engine_.cost.temporary_bytes = kTooMuch;
  // Soon it is known how long a batch of four takes, and of two it is not: that is compiled.
  for (int i = 0; i < 8; ++i) InferTwoByTwo();
  AwaitCompilers();
  EXPECT_EQ(engine_.compiled, compiled + 1);
  EXPECT_EQ(asked_for_room_, 0);
  // A size that a request needs asks for room.
  EXPECT_TRUE(absl::IsResourceExhausted(Infer(4, 3).get()));
  EXPECT_EQ(asked_for_room_, 1);
}

// The size that is compiled is of use to later requests only.
TEST_F(TriedSizesTest, RequestsAreAnsweredWhileASizeIsCompiled) {
  InferTwoByTwo();
  AwaitCompilers();
  const int compiled = engine_.compiled;
  std::promise<void> go, busy;
  compilers_.Post(
      [&, wait = go.get_future().share()] {
        busy.set_value();
        wait.wait();
      },
      tenant_->share);
  busy.get_future().wait();
  for (int i = 0; i < 8; ++i) {
    auto first = Infer(2, 2), second = Infer(2, 2);
    for (auto* answer : {&first, &second}) {
      ASSERT_EQ(answer->wait_for(std::chrono::seconds(30)), std::future_status::ready)
          << "pair " << i << " is held until a batch of two is compiled";
      EXPECT_EQ(answer->get(), absl::OkStatus());
    }
  }
  EXPECT_EQ(engine_.compiled, compiled) << "nothing could be";
  go.set_value();
  AwaitCompilers();
  EXPECT_EQ(engine_.compiled, compiled + 1) << "a batch of two was asked for meanwhile";
}

}  // namespace
}  // namespace telegrad
