// docs/numerics.md: factors that are multiplied with a sum in place of its terms. Where one is
// infinite, the terms alone may give a NaN and the sum an infinity; nothing else differs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>

#include "engine/frontend/tensor/builder.h"
#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/exchange_sums.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kRows = 64;

std::vector<float> Floats(const std::vector<uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

void Put(const std::vector<float>& values, std::vector<uint8_t>* slot) {
  ASSERT_EQ(slot->size(), values.size() * sizeof(float));
  std::memcpy(slot->data(), values.data(), slot->size());
}

// The first row's factor is infinite.
std::vector<float> Factors() {
  std::vector<float> out(kRows, 2);
  out[0] = kInf;
  return out;
}

// `terms` is what the graph says, `sums` what may come of it.
void ExpectInfinityForNan(const std::vector<float>& terms, const std::vector<float>& sums) {
  ASSERT_EQ(terms.size(), sums.size());
  const size_t columns = terms.size() / kRows;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool as_said = i < columns
                             ? std::isnan(terms[i]) && std::isinf(sums[i])
                             : std::abs(terms[i] - sums[i]) <= 1e-4 * std::abs(terms[i]) + 1e-4;
    ASSERT_TRUE(as_said) << "element " << i << ": " << terms[i] << ", " << sums[i];
  }
}

Target Processor(bool deterministic) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.dots = true;
  target.deterministic = deterministic;
  return target;
}

// Bytes times a scale for each row, multiplied by bytes.
TEST(InfiniteFactors, OfRowsOfDequantizedBytes) {
  constexpr int64_t kTerms = 64, kColumns = 128;
  Builder b;
  const Tensor x =
      b.Param(DType::kInt8, {kRows, kTerms}, "x").Cast(DType::kInt32).Cast(DType::kFloat32);
  const Tensor scale = b.Param(DType::kFloat32, {kRows, 1}, "scale");
  const Tensor w =
      b.Param(DType::kUInt8, {kTerms, kColumns}, "w").Cast(DType::kInt32).Cast(DType::kFloat32);
  b.Output((x * scale).MatMul(w * 0.5), "out");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const UOp root = plan->graph.root();
  Slots given = testing::EmptySlots(root);
  for (size_t i = 0; i < given[0].size(); ++i) given[0][i] = i % 4 == 0 ? 0xff : 1;  // -1, 1, 1, 1
  Put(Factors(), &given[1]);
  std::ranges::fill(given[2], 3);
  Slots terms = given;
  Budget budget;
  ASSERT_TRUE(reference::Evaluate(root, terms, &budget).ok());
  for (const bool deterministic : {false, true}) {
    Slots got = given;
    const absl::Status status = testing::RunLowered(root, Processor(deterministic), {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    if (deterministic) {
      EXPECT_EQ(testing::Difference(DType::kFloat32, false, terms.back(), got.back()), "");
    } else {
      ExpectInfinityForNan(Floats(terms.back()), Floats(got.back()));
    }
  }
}

// What the gradient of a softmax subtracts from each row, whose factor is %9.
TEST(InfiniteFactors, OfRowsOfExchangedSums) {
  constexpr std::string_view kText = R"(%0 = param f32 [64, 64, 1] slot=0
%1 = param f32 [1, 64, 16] slot=1
%2 = param f32 [64, 1, 16] slot=2
%3 = expand f32 [64, 64, 16] %1
%4 = expand f32 [64, 64, 16] %0
%5 = mul f32 [64, 64, 16] %4 %3
%6 = reduce f32 [64, 1, 16] %5 kind=add axes=[1]
%7 = expand f32 [64, 64, 16] %2
%8 = mul f32 [64, 64, 16] %7 %3
%9 = param f32 [64, 1, 1] slot=3
%10 = expand f32 [64, 64, 1] %9
%11 = reduce f32 [64, 64, 1] %8 kind=add axes=[2]
%12 = mul f32 [64, 64, 1] %11 %0
%13 = mul f32 [64, 64, 1] %12 %10
%14 = reduce f32 [64, 1, 1] %13 kind=add axes=[1]
%15 = param f32 [64, 1, 16] slot=4
%16 = store %15 %6
%17 = param f32 [64, 1, 1] slot=5
%18 = store %17 %14
%19 = sink %16 %18
)";
  auto graph = std::make_shared<Graph>();
  const auto root = Parse(kText, graph.get());
  ASSERT_TRUE(root.ok()) << root.status();
  Budget budget;
  const auto exchanged = ExchangeSums(FrozenGraph{graph, root->id()}, &budget);
  ASSERT_TRUE(exchanged.ok()) << exchanged.status();
  ASSERT_NE(Print(exchanged->root()), Print(*root));
  Slots terms = testing::EmptySlots(*root);
  std::mt19937 random(1);
  for (size_t slot = 0; slot < 3; ++slot) {
    std::vector<float> values(terms[slot].size() / sizeof(float));
    for (float& x : values) x = static_cast<float>(random() % 1000) / 500 - 1;
    Put(values, &terms[slot]);
  }
  Put(Factors(), &terms[3]);
  Slots sums = terms;
  ASSERT_TRUE(reference::Evaluate(*root, terms, &budget).ok());
  ASSERT_TRUE(reference::Evaluate(exchanged->root(), sums, &budget).ok());
  EXPECT_EQ(terms[4], sums[4]);
  ExpectInfinityForNan(Floats(terms[5]), Floats(sums[5]));
}

}  // namespace
}  // namespace telegrad
