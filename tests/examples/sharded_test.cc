// A step over four devices of one daemon: rows of a batch on each, weights on all. Loss and
// gradients must be those of one device; both are sums in another order, of integers, so exactly.
#include <gtest/gtest.h>

#include "client/cc/connection.h"
#include "client/cc/remote_plan.h"
#include "client/cc/remote_session.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/server/process.h"

namespace telegrad::testing {
namespace {

// Inputs "x" [8, 16] and "w" [16, 4]; outputs "loss", "dx" and "dw".
absl::StatusOr<Plan> Step(bool sharded) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {8, 16}, "x");
  const Tensor w = b.Param(DType::kFloat32, {16, 4}, "w");
  const std::vector<int64_t> devices = {0, 1, 2, 3};
  const Tensor rows = sharded ? x.Shard(devices, 0) : x;
  const Tensor weight = sharded ? w.Shard(devices) : w;
  const Tensor loss = rows.MatMul(weight).Relu().Sum().To(0);
  const Tensor wrt[] = {x, w};
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  b.Output(loss, "loss");
  b.Output(grads[0].To(0), "dx");
  b.Output(grads[1].To(0), "dw");
  return b.Finish();
}

HostTensor Small(const Shape& shape, int period) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i) % period - period / 2);
  }
  return HostTensor::Of<float>(shape, std::span<const float>(values));
}

TEST(ShardedTest, AStepIsThatOfOneDevice) {
  Process daemon(TELEGRADD, {"--listen", "127.0.0.1:0", "--cpu-devices", "4"});
  const std::string address = daemon.Line("listening on ");
  daemon.ReadOn();
  const auto connection = Connection::Connect(address);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const auto session = (*connection)->OpenSession();
  ASSERT_TRUE(session.ok()) << session.status();
  RemoteState state(session->get());
  const std::map<std::string, HostTensor> inputs = {{"x", Small({8, 16}, 7)},
                                                    {"w", Small({16, 4}, 5)}};
  std::map<std::string, HostTensor> results[2];
  for (const bool sharded : {false, true}) {
    const auto plan = Step(sharded);
    ASSERT_TRUE(plan.ok()) << plan.status();
    auto got = Evaluate(session->get(), &state, *plan, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    results[sharded] = *std::move(got);
  }
  EXPECT_GT(results[0]["loss"].AsDoubles()[0], 0);
  for (const char* name : {"loss", "dx", "dw"}) {
    EXPECT_TRUE(results[0][name] == results[1][name]) << name;
  }
}

}  // namespace
}  // namespace telegrad::testing
