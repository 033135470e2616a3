// Methods that change where or whether a value is, and not the value: each row's result must be its
// input (or what the row says), on the reference interpreter, whatever the devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/frontend/autograd/gradient.h"
#include "tests/frontend/cases.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* method;
  Tensor (*run)(Builder& b, const Tensor& x);
  std::vector<int64_t> devices;  // of the result
};

const Row kRows[] = {
    {"Contiguous", [](Builder&, const Tensor& x) { return x.Contiguous(); }, {0}},
    {"Detach", [](Builder&, const Tensor& x) { return x.Detach(); }, {0}},
    {"To", [](Builder&, const Tensor& x) { return x.To(3); }, {3}},
    {"To", [](Builder&, const Tensor& x) { return x.To(0); }, {0}},
    {"To", [](Builder&, const Tensor& x) { return x.Shard({1, 2}).To(2); }, {2}},
    {"To", [](Builder&, const Tensor& x) { return x.Shard({1, 2}, 0).To(5); }, {5}},
    {"Shard", [](Builder&, const Tensor& x) { return x.Shard({1, 2}); }, {1, 2}},
    {"Shard", [](Builder&, const Tensor& x) { return x.Shard({2, 0}, 1); }, {2, 0}},
    {"Shard", [](Builder&, const Tensor& x) { return x.Shard({1, 2, 3, 4}, -2); }, {1, 2, 3, 4}},
    {"Shard", [](Builder&, const Tensor& x) { return x.Shard({7}, 0); }, {7}},
    {"ShardLike",
     [](Builder&, const Tensor& x) { return x.ShardLike(x.Shard({1, 2}, 1)); },
     {1, 2}},
    {"ShardLike", [](Builder&, const Tensor& x) { return x.ShardLike(x.Shard({1, 2})); }, {1, 2}},
    {"ShardLike", [](Builder&, const Tensor& x) { return x.ShardLike(x.To(4)); }, {4}},
    {"Gradients",  // of the sum of squares, halved
     [](Builder&, const Tensor& x) { return Gradients((x * x).Sum(), std::span(&x, 1))[0] / 2; },
     {0}},
    {"Gradients",
     [](Builder&, const Tensor& x) {
       const Tensor parts = x.Shard({0, 1}, 0);
       return Gradients((parts * parts).Sum().To(0), std::span(&x, 1))[0] / 2;
     },
     {0}},
    {"Builder::Store",
     [](Builder& b, const Tensor& x) {
       const Tensor slot = b.State(x.dtype(), {4, 6}, "slot", Init::Constant(0));
       b.Store(slot.Flip({1}), x);
       return x;
     },
     {0}},
};

TEST(PlaceTest, ValuesStayWhereverTheyGo) {
  const Shape shape = {4, 6};
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 7.5f;
  const HostTensor in = HostTensor::Of<float>(shape, std::span<const float>(values));
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.method);
    Builder b;
    const Tensor out = row.run(b, b.Param(DType::kFloat32, shape, "x"));
    ASSERT_TRUE(b.status().ok()) << b.status();
    const std::span<const int64_t> devices = out.uop().devices();
    EXPECT_EQ(std::vector<int64_t>(devices.begin(), devices.end()), row.devices);
    b.Output(out.To(0), "out");
    const auto plan = b.Finish();
    ASSERT_TRUE(plan.ok()) << plan.status();
    Named state;
    const auto got = RunPlan(*plan, {{"x", in}}, nullptr, &state);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(got->at("out") == in);
    if (state.contains("slot")) {
      EXPECT_EQ(state["slot"].AsDoubles()[5], values[0]);  // flipped
    }
  }
}

TEST(PlaceTest, MistakesHaveTheirMessages) {
  const auto message = [](auto make) {
    Builder b;
    make(b.Param(DType::kFloat32, {4, 6}, "x"));
    return std::string(b.status().message());
  };
  EXPECT_THAT(message([](Tensor x) { x.To(-1); }), HasSubstr("to: device -1 is negative"));
  EXPECT_THAT(message([](Tensor x) { x.Shard({}); }), HasSubstr("shard: expects devices"));
  EXPECT_THAT(message([](Tensor x) { x.Shard({0, -2}); }), HasSubstr("shard: device -2"));
  EXPECT_THAT(message([](Tensor x) { x.Shard({0, 1, 2, 3}, 1); }),
              HasSubstr("shard: axis 1 of [4, 6] does not divide into 4 equal parts"));
  EXPECT_THAT(message([](Tensor x) { x.Shard({0, 1}, 2); }), HasSubstr("shard: axis 2"));
}

}  // namespace
}  // namespace telegrad::testing
