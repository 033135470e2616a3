// f16 and bf16 arithmetic, alone and in pairs.
#include <gtest/gtest.h>

#include "tests/fakes/cuda/ptx/rounding_judge.h"
#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

TEST(HalfTest, ArithmeticRoundsOnce) {
  for (const bool brain : {false, true}) {
    const HalfTable table(brain);
    const std::string type = brain ? "bf16" : "f16";
    std::mt19937_64 random(5);
    std::vector<std::vector<uint64_t>> values(3);
    for (int i = 0; i < 20000; ++i) {
      for (auto& v : values) v.push_back(random() & 0xffff);
      if (i % 2 == 0) values[1].back() = (values[0].back() & 0xfc00) | (random() & 0x83ff);
    }
    const std::map<std::string, Quad (*)(Quad, Quad, Quad)> ops = {
        {"add.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a + b; }},
        {"sub.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a - b; }},
        {"mul.rn." + type + " d, a, b;", [](Quad a, Quad b, Quad) { return a * b; }},
        {"fma.rn." + type + " d, a, b, c;", [](Quad a, Quad b, Quad c) { return a * b + c; }}};
    for (const auto& [instruction, op] : ops) {
      SCOPED_TRACE(instruction);
      std::string error;
      const bool three = instruction.starts_with("fma");
      auto operands = values;
      if (!three) operands.pop_back();
      const auto results = Evaluate(instruction, three ? "hhhh" : "hhh", operands, &error);
      ASSERT_EQ(error, "");
      for (size_t i = 0; i < results.size(); ++i) {
        const double a = table.ValueOf(values[0][i]);
        const double b = table.ValueOf(values[1][i]);
        const double c = table.ValueOf(values[2][i]);
        const Quad exact = Odd([&] { return op(a, b, c); });
        const uint64_t expected = table.Nearest(exact, std::signbit(static_cast<double>(exact)));
        if (exact == 0) {
          EXPECT_EQ(results[i] & 0x7fff, 0u);
          continue;
        }
        ASSERT_EQ(results[i], expected) << a << " " << b << " " << c;
      }
    }
  }
}

TEST(HalfTest, PairsAreTwoOfTheSame) {
  std::mt19937_64 random(9);
  std::vector<std::vector<uint64_t>> low(3);
  std::vector<std::vector<uint64_t>> high(3);
  std::vector<std::vector<uint64_t>> both(3);
  for (int i = 0; i < 1000; ++i) {
    for (size_t k = 0; k < 3; ++k) {
      low[k].push_back(random() & 0xffff);
      high[k].push_back(random() & 0xffff);
      both[k].push_back(high[k].back() << 16 | low[k].back());
    }
  }
  for (const std::string type : {"f16", "bf16"}) {
    std::string error;
    const auto pairs = Evaluate("fma.rn." + type + "x2 d, a, b, c;", "wwww", both, &error);
    ASSERT_EQ(error, "");
    const auto first = Evaluate("fma.rn." + type + " d, a, b, c;", "hhhh", low, &error);
    const auto second = Evaluate("fma.rn." + type + " d, a, b, c;", "hhhh", high, &error);
    ASSERT_EQ(error, "");
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(pairs[i], second[i] << 16 | first[i]);
    }
  }
}

}  // namespace
}  // namespace fakecuda
