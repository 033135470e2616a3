// One training step of the digits network, at a small batch: every slot after the step, on the CPU
// device, against the tensor evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/nn/datasets.h"
#include "engine/frontend/nn/models.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad {
namespace {

TEST(Training, OneStepAgreesWithTheTensorEvaluator) {
  constexpr int64_t kBatch = 4;
  const auto digits = ReadDigits("tests/data/digits/digits.csv.gz");
  ASSERT_TRUE(digits.ok()) << digits.status();
  const auto plan = DigitsCnn{}.TrainStep(kBatch);
  ASSERT_TRUE(plan.ok()) << plan.status();

  const Examples batch = Batch(digits->train, 1, 0, kBatch);
  std::vector<std::vector<uint8_t>> want;
  for (const Slot& slot : plan->slots) {
    std::string bytes(NumElements(slot.shape) * ByteSize(slot.dtype), '\0');
    if (slot.name == "images") bytes = batch.images.bytes;
    if (slot.name == "labels") bytes = batch.labels.bytes;
    if (slot.role == SlotRole::kState) bytes = InitialValue(slot)->bytes;
    want.emplace_back(bytes.begin(), bytes.end());
  }

  CpuOptions options;
  options.target = HostTarget(0);
  const auto device = OpenCpu(options);
  ASSERT_TRUE(device.ok()) << device.status();
  ExecutableCache cache({});
  Budget budget;
  const auto built = cache.Get(ContentHash(plan->graph.root()), plan->graph, **device, &budget);
  ASSERT_TRUE(built.ok()) << built.status();
  std::vector<BufferView> bindings;
  for (const auto& bytes : want) {
    const auto memory = (*device)->Alloc(static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(memory.ok());
    std::memcpy((*memory)->host(), bytes.data(), bytes.size());
    bindings.push_back({*memory, 0, static_cast<int64_t>(bytes.size())});
  }
  const auto done = built->executable->Submit(bindings, {});
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_TRUE(done->Wait(absl::Seconds(60)).ok());

  ASSERT_TRUE(reference::Evaluate(plan->graph.root(), want, &budget).ok());
  for (size_t i = 0; i < want.size(); ++i) {
    if (plan->slots[i].dtype != DType::kFloat32) continue;
    for (size_t j = 0; j < want[i].size() / 4; ++j) {
      float x, y;
      std::memcpy(&x, want[i].data() + 4 * j, 4);
      std::memcpy(&y, static_cast<const char*>(bindings[i].memory->host()) + 4 * j, 4);
      // Adam's first step is lr * g / |g|: an element whose gradient is all rounding may go either
      // way, so weights are compared within one step of the optimizer and everything else tightly.
      const double tolerance = plan->slots[i].role == SlotRole::kState ? 4.1e-3 : 1e-4;
      ASSERT_NEAR(x, y, tolerance * std::max(1.0, std::abs(double{x})))
          << plan->slots[i].name << " element " << j;
    }
  }
}

}  // namespace
}  // namespace telegrad
