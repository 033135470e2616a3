// What tests of attention share: operands, targets, and what programs take.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/reference/tensor_eval.h"
#include "engine/types/target.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {

inline UOp Root(const absl::StatusOr<Plan>& plan) { return plan->graph.root(); }

// So many normally distributed f32.
std::vector<uint8_t> Floats(int64_t n, std::mt19937& random);
// A processor with the registers of AVX-512 or, with vectors of 32 bytes, of AVX2.
Target Cpu(int vector_bytes, int threads = 2);

// What the programs of a target take for a graph.
struct Cost {
  size_t launches = 0;
  int64_t arena = 0, kept = 0;  // bytes: of all temporaries, and that a thread keeps
  int bounded = 0;              // loops whose end is computed
};
Cost CostOf(UOp root, const Target& target);

class AttentionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto runner = CpuRunner::Open();
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = runner->release();
  }
  static void TearDownTestSuite() { delete runner_; }

  // The output in slot `out` of a run on the CPU, against the evaluator's.
  static void ExpectEvaluated(UOp root, const Slots& operands, size_t out) {
    Slots want = operands, got = operands;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(root, want, &budget).ok());
    const absl::Status status = runner_->Run(root, {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Difference(DType::kFloat32, false, want[out], got[out]), "");
  }

  static inline CpuRunner* runner_ = nullptr;
};

}  // namespace telegrad::testing
