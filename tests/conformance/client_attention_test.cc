// Attention as PyTorch and tinygrad send it (tests/data/attention/NOTICE), with gradients: no value
// of queries times keys is in memory, and the results are those of the tensor evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/attention_cases.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kRows = 160, kHeads = 2;
constexpr int64_t kScores = kRows * kRows * 4;  // bytes of those of a head

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("tests/data/attention")) {
    if (file.path().extension() == ".uop") names.push_back(file.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

class ClientAttentionTest : public AttentionTest,
                            public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file("tests/data/attention/" + GetParam() + ".uop");
    std::stringstream text;
    text << file.rdbuf();
    const absl::StatusOr<UOp> root = Parse(text.str(), graph_.get());
    ASSERT_TRUE(root.ok()) << root.status();
    root_ = *root;
  }

  Schedule Scheduled(const Target& target) const {
    Budget budget;
    absl::StatusOr<Schedule> schedule = ScheduleGraph(root_, &budget, ScheduleOptions::For(target));
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    return *std::move(schedule);
  }

  // Normally distributed numbers; maxima and sums of rows that a forward pass has left are from 1
  // on, and what says that a row sees nothing is false.
  Slots Operands() const {
    Slots slots;
    std::mt19937 random(17);
    for (const uint32_t id : PostOrder(root_)) {
      const UOp u = graph_->at(id);
      if (!u.is(Op::kParam)) continue;
      const auto slot = static_cast<size_t>(u.slot());
      const int64_t n = NumElements(u.shape());
      if (slots.size() <= slot) slots.resize(slot + 1);
      if (u.dtype() != DType::kFloat32) {
        slots[slot].assign(static_cast<size_t>(BytesOf(u.dtype(), n)), 0);
        for (uint8_t& byte : slots[slot]) byte = n > kHeads * kRows ? random() % 2 : 0;
        continue;
      }
      slots[slot] = Floats(n, random);
      for (int64_t i = 0; n == kHeads * kRows && i < n; ++i) {
        float x;
        std::memcpy(&x, slots[slot].data() + 4 * i, 4);
        x = 1 + std::abs(x);
        std::memcpy(slots[slot].data() + 4 * i, &x, 4);
      }
    }
    return slots;
  }

  void ExpectEvaluated(const Slots& operands) const {
    Slots want = operands, got = operands;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(root_, want, &budget).ok());
    const absl::Status status = runner_->Run(root_, {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t slot = 0; slot < want.size(); ++slot) {
      if (want[slot] == operands[slot]) continue;  // it is not written
      double most = 0, error = 0;
      int numbers = 0;  // that only one of both has
      for (size_t i = 0; 4 * i + 4 <= want[slot].size(); ++i) {
        float x, y;
        std::memcpy(&x, want[slot].data() + 4 * i, 4);
        std::memcpy(&y, got[slot].data() + 4 * i, 4);
        numbers += std::isfinite(x) != std::isfinite(y) ? 1 : 0;
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        most = std::max(most, std::abs(static_cast<double>(x)));
        error = std::max(error, std::abs(static_cast<double>(x) - y));
      }
      EXPECT_LE(error, 2e-5 * most) << "slot " << slot;
      EXPECT_EQ(numbers, 0) << "slot " << slot;
    }
  }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  UOp root_;
};

TEST_P(ClientAttentionTest, HasNoTemporaryOfQueriesTimesKeys) {
  for (const int vector_bytes : {32, 64}) {
    for (const Temporary& temporary : Scheduled(Cpu(vector_bytes)).temporaries) {
      EXPECT_LT(temporary.bytes, kScores);
    }
  }
}

TEST_P(ClientAttentionTest, AgreesWithTheEvaluator) { ExpectEvaluated(Operands()); }

// What a mask hides is left out only where it makes no difference.
TEST_P(ClientAttentionTest, AgreesWhereAnOperandIsNoNumber) {
  if (GetParam().find("causal") == std::string::npos) return;
  const Slots operands = Operands();
  for (size_t slot = 0; slot < operands.size() && slot < 3; ++slot) {
    SCOPED_TRACE(StrCat("no number in slot ", slot));
    Slots with = operands;
    const float value = slot % 2 == 0 ? std::numeric_limits<float>::infinity()
                                      : std::numeric_limits<float>::quiet_NaN();
    std::memcpy(with[slot].data() + with[slot].size() - 64, &value, 4);
    ExpectEvaluated(with);
  }
}

// All loops over rows of scores end where the causal mask begins.
TEST_P(ClientAttentionTest, LoopsEndWhereAMaskBegins) {
  const std::string& name = GetParam();
  const bool masked = name.find("full") == std::string::npos &&
                      name.find("tinygrad_products") == std::string::npos &&
                      name.find("masked") == std::string::npos;
  Budget budget;
  int rows = 0;
  for (const ScheduledKernel& kernel : Scheduled(Cpu(64)).kernels) {
    const auto program = Lower(kernel.graph, Cpu(64), "k", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::vector<uint32_t> nodes = PostOrder(kernel.graph.root());
    const bool weighs = std::ranges::any_of(
        nodes, [&](uint32_t id) { return kernel.graph.graph->op(id) == Op::kExp2; });
    if (!weighs) continue;
    const auto bounded = std::ranges::count_if(program->order, [&](uint32_t id) {
      const UOp u = program->graph->at(id);
      return u.is(Op::kRange) && !u.src(0).is_const();
    });
    ++rows;
    EXPECT_EQ(bounded > 0, masked) << kernel.reasons.front();
  }
  EXPECT_GT(rows, 0);
}

// Kernels of clients' gradients whose loops end where a mask begins: the test before the loops asks
// for no statistics that the kernel itself writes (column_statistics, sums_in_between), and has
// reductions of its own where vectors do not divide the row (partial_vectors).
TEST(ClientAttentionKernels, AreLowered) {
  for (const auto& file : std::filesystem::directory_iterator("tests/data/attention/kernels")) {
    SCOPED_TRACE(file.path().string());
    std::ifstream in(file.path());
    std::stringstream text;
    text << in.rdbuf();
    const auto graph = std::make_shared<Graph>();
    const absl::StatusOr<UOp> kernel = Parse(text.str(), graph.get());
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    Budget budget;
    const auto program = Lower(FrozenGraph{graph, kernel->id()}, Cpu(64), "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, ClientAttentionTest, ::testing::ValuesIn(Names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace telegrad::testing
