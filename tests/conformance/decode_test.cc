// A text is generated token by token with caches that grow: each step has another size, and all of
// them run what the first one compiled.
#include <gtest/gtest.h>

#include "tests/conformance/decode_text.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {
namespace {

TEST(Decode, AThousandTokensCompileOnce) {
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  uint64_t compiled = 0;
  const auto run = [&](UOp sink, std::span<const VarValue> values, Slots* slots) {
    return (*cpu)->Run(sink, values, slots);
  };
  DecodeText(DecoderShape(), 1000, run, [&](int steps) {
    const ExecutableCache::Stats stats = (*cpu)->stats();
    if (steps == 1) compiled = stats.kernels_compiled;
    ASSERT_GT(compiled, 0u);
    ASSERT_EQ(stats.kernels_compiled, compiled) << steps;
    ASSERT_EQ(stats.misses, 1u) << steps;
  });
}

}  // namespace
}  // namespace telegrad::testing
