// Quantized GGUF tensors on the device: what the graph of Dequantize makes of the blocks, on the
// tensor evaluator, the lowered programs and the CPU device, against the values that the package
// gguf decodes (tests/data/state).
#include "engine/frontend/io/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/strings.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {
namespace {

std::vector<uint8_t> Vector(const std::string& bytes) { return {bytes.begin(), bytes.end()}; }

class DequantizeTest : public ::testing::TestWithParam<GgufTypeInfo> {
 protected:
  static void SetUpTestSuite() {
    auto runner = CpuRunner::Open();
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = runner->release();
  }
  static void TearDownTestSuite() { delete runner_; }
  static inline CpuRunner* runner_ = nullptr;
};

TEST_P(DequantizeTest, GivesTheValuesOfAnIndependentDecoder) {
  const auto file = OpenTensorFile("tests/data/state/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto expected = OpenTensorFile("tests/data/state/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  const TensorEntry* entry = (*file)->Find(GetParam().name);
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->quantized, GetParam().type);
  const auto blocks = (*file)->Load(*entry);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  const auto want = (*expected)->Load(StrCat("quants.gguf/", GetParam().name));
  ASSERT_TRUE(want.ok()) << want.status();

  Builder builder;
  const Tensor values = StateFromFile(&builder, *entry);
  EXPECT_EQ(Shape(values.shape().begin(), values.shape().end()), want->shape);
  builder.Output(values, "values");
  const auto plan = builder.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const UOp sink = plan->graph.root();
  const Slots before = {Vector(blocks->bytes), std::vector<uint8_t>(want->bytes.size())};

  Budget budget;
  const auto schedule = ScheduleGraph(sink, {}, &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->kernels.size(), 1u);  // nothing is materialized between bytes and floats

  Slots slots = before;
  ASSERT_TRUE(reference::Evaluate(sink, slots, &budget).ok());
  EXPECT_EQ(slots[1], Vector(want->bytes))
      << Difference(DType::kFloat32, true, Vector(want->bytes), slots[1]);
  for (const int vector_bytes : {4, 64}) {
    slots = before;
    const absl::Status status = RunLowered(sink, vector_bytes, {}, &slots);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Difference(DType::kFloat32, true, Vector(want->bytes), slots[1]), "");
  }
  slots = before;
  const absl::Status status = runner_->Run(sink, {}, &slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Difference(DType::kFloat32, true, Vector(want->bytes), slots[1]), "");
}

std::vector<GgufTypeInfo> Quantized() {
  std::vector<GgufTypeInfo> out;
  for (const GgufTypeInfo& info : kGgufTypes) {
    if (info.quantized()) out.push_back(info);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Types, DequantizeTest, ::testing::ValuesIn(Quantized()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Dequantize, RefusesOtherSizesAndTypes) {
  const auto error = [](GgufType type, DType dtype, int64_t bytes, const Shape& shape) {
    Builder b;
    b.Output(Dequantize(type, b.Param(dtype, {bytes}, "x"), shape), "y");
    return b.Finish().status();
  };
  EXPECT_TRUE(error(GgufType::kQ4_0, DType::kUInt8, 36, {2, 32}).ok());
  EXPECT_TRUE(error(GgufType::kQ4_0, DType::kUInt8, 0, {0, 32}).ok());
  for (const auto& [type, dtype, bytes, shape] :
       {std::tuple<GgufType, DType, int64_t, Shape>{GgufType::kQ4_0, DType::kUInt8, 35, {2, 32}},
        {GgufType::kQ4_0, DType::kInt8, 36, {2, 32}},
        {GgufType::kQ4_0, DType::kUInt8, 36, {2, 33}},
        {GgufType::kQ4_0, DType::kUInt8, 36, {-2, 32}},
        {GgufType::kQ4_K, DType::kUInt8, 36, {2, 32}},
        {GgufType::kF32, DType::kUInt8, 4, {1}}}) {
    EXPECT_EQ(error(type, dtype, bytes, shape).code(), absl::StatusCode::kInvalidArgument)
        << Info(type).name << " " << bytes;
  }
}

}  // namespace
}  // namespace telegrad::testing
