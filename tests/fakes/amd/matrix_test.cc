// Matrix instructions on fragments as each lane holds them, against a product of whole matrices.
// Where an element lies is said here once more, by a formula for each target.
#include <gtest/gtest.h>

#include <random>

#include "tests/fakes/amd/half.h"
#include "tests/fakes/amd/testing/run_kernel.h"

namespace fakeamd {
namespace {

struct MatrixCase {
  std::string processor;
  std::string intrinsic;  // with the types of its operands
  std::string input;      // the type of a lane's part of A and B
  std::string sum;        // of C and D
  std::string flags;      // operands behind C
  uint32_t m, k;          // m columns, too
  uint32_t lanes, held;   // of A and B
  uint32_t sums;
  char element;  // h half, b bfloat16, f float, d double
};

std::vector<MatrixCase> Cases() {
  const std::string flags = ", i32 0, i32 0, i32 0";
  std::vector<MatrixCase> cases;
  for (const char* p : {"gfx90a", "gfx942"}) {
    cases.push_back(
        {p, "mfma.f32.16x16x16f16", "<4 x half>", "<4 x float>", flags, 16, 16, 64, 4, 4, 'h'});
    cases.push_back(
        {p, "mfma.f32.32x32x8f16", "<4 x half>", "<16 x float>", flags, 32, 8, 64, 4, 16, 'h'});
    cases.push_back(
        {p, "mfma.f32.16x16x16bf16.1k", "<4 x i16>", "<4 x float>", flags, 16, 16, 64, 4, 4, 'b'});
    cases.push_back(
        {p, "mfma.f32.32x32x8bf16.1k", "<4 x i16>", "<16 x float>", flags, 32, 8, 64, 4, 16, 'b'});
    cases.push_back(
        {p, "mfma.f32.16x16x4f32", "float", "<4 x float>", flags, 16, 4, 64, 1, 4, 'f'});
    cases.push_back(
        {p, "mfma.f32.32x32x2f32", "float", "<16 x float>", flags, 32, 2, 64, 1, 16, 'f'});
    cases.push_back(
        {p, "mfma.f64.16x16x4f64", "double", "<4 x double>", flags, 16, 4, 64, 1, 4, 'd'});
  }
  cases.push_back({"gfx1100", "wmma.f32.16x16x16.f16.v8f32.v16f16", "<16 x half>", "<8 x float>",
                   "", 16, 16, 32, 16, 8, 'h'});
  cases.push_back({"gfx1100", "wmma.f32.16x16x16.bf16.v8f32.v16i16", "<16 x i16>", "<8 x float>",
                   "", 16, 16, 32, 16, 8, 'b'});
  cases.push_back({"gfx1201", "wmma.f32.16x16x16.f16.v8f32.v8f16", "<8 x half>", "<8 x float>", "",
                   16, 16, 32, 8, 8, 'h'});
  cases.push_back({"gfx1201", "wmma.f32.16x16x16.bf16.v8f32.v8i16", "<8 x i16>", "<8 x float>", "",
                   16, 16, 32, 8, 8, 'b'});
  return cases;
}

class AmdMatrixTest : public testing::TestWithParam<MatrixCase> {};

INSTANTIATE_TEST_SUITE_P(All, AmdMatrixTest, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.processor + "_" + info.param.intrinsic;
  for (char& c : name) {
    if (c == '.') c = '_';
  }
  return name;
});

// The row of D that element e of a lane is.
uint32_t SumRow(const MatrixCase& c, uint32_t lane, uint32_t e) {
  if (c.element == 'd') return 4 * e + lane / 16;
  if (c.processor == "gfx1100") return 2 * e + lane / 16;
  if (c.processor == "gfx1201") return 8 * (lane / 16) + e;
  return c.m == 16 ? 4 * (lane / 16) + e : 8 * (e / 4) + 4 * (lane / 32) + e % 4;
}

void Append(char element, double value, Bytes* bytes) {
  const auto add = [&](auto x) {
    const auto* from = reinterpret_cast<const uint8_t*>(&x);
    bytes->insert(bytes->end(), from, from + sizeof(x));
  };
  if (element == 'h') add(ToHalf(value).bits);
  if (element == 'b') add(ToBrain(value).bits);
  if (element == 'f') add(static_cast<float>(value));
  if (element == 'd') add(value);
}

TEST_P(AmdMatrixTest, IsAProduct) {
  const MatrixCase& c = GetParam();
  std::mt19937 random(5);
  // Small integers, so that every order of the sums gives the same.
  const auto matrix = [&](uint32_t rows, uint32_t columns) {
    std::vector<double> values(rows * columns);
    for (double& x : values) x = static_cast<double>(random() % 17) - 8;
    return values;
  };
  const std::vector<double> a = matrix(c.m, c.k), b = matrix(c.k, c.m), sum = matrix(c.m, c.m);
  Bytes a_lanes, b_lanes, c_lanes;
  for (uint32_t lane = 0; lane < c.lanes; ++lane) {
    for (uint32_t e = 0; e < c.held; ++e) {
      const uint32_t k = c.processor == "gfx1100" ? e : c.held * (lane / c.m) + e;
      Append(c.element, a[lane % c.m * c.k + k], &a_lanes);
      Append(c.element, b[k * c.m + lane % c.m], &b_lanes);
    }
    for (uint32_t e = 0; e < c.sums; ++e) {
      Append(c.element == 'd' ? 'd' : 'f', sum[SumRow(c, lane, e) * c.m + lane % c.m], &c_lanes);
    }
  }
  std::string body = "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n";
  const std::pair<std::string, std::string> operands[] = {
      {"a", c.input}, {"b", c.input}, {"c", c.sum}};
  for (const auto& [name, type] : operands) {
    body += "  %p" + name + " = getelementptr " + type + ", ptr addrspace(1) %in" + name +
            ", i32 %t\n  %" + name + " = load " + type + ", ptr addrspace(1) %p" + name + "\n";
  }
  const std::string signature = c.sum + " @llvm.amdgcn." + c.intrinsic + "(";
  body += "  %r = call " + signature + c.input + " %a, " + c.input + " %b, " + c.sum + " %c" +
          c.flags + ")\n  %pr = getelementptr " + c.sum +
          ", ptr addrspace(1) %out, i32 %t\n  store " + c.sum +
          " %r, ptr addrspace(1) %pr\n  ret void";
  const std::string declared = "declare " + signature + c.input + ", " + c.input + ", " + c.sum +
                               (c.flags.empty() ? "" : ", i32, i32, i32") + ")\n";
  std::vector<Bytes> buffers = {Bytes(c_lanes.size()), a_lanes, b_lanes, c_lanes};
  const TestRun run = RunIr(KernelIr("test",
                                     "ptr addrspace(1) noalias %out, ptr addrspace(1) noalias "
                                     "%ina, ptr addrspace(1) noalias %inb, "
                                     "ptr addrspace(1) noalias %inc",
                                     body, static_cast<int>(c.lanes)) +
                                declared,
                            c.processor, {.groups = 1, .threads = c.lanes}, &buffers);
  ASSERT_EQ(run.error, "");
  ASSERT_EQ(run.fault.message, "");
  EXPECT_EQ(run.counts.matrix_instructions, 1u);
  for (uint32_t lane = 0; lane < c.lanes; ++lane) {
    for (uint32_t e = 0; e < c.sums; ++e) {
      const uint32_t row = SumRow(c, lane, e);
      double expected = sum[row * c.m + lane % c.m];
      for (uint32_t k = 0; k < c.k; ++k) expected += a[row * c.k + k] * b[k * c.m + lane % c.m];
      const size_t at = lane * c.sums + e;
      const double got =
          c.element == 'd' ? FromBytes<double>(buffers[0])[at] : FromBytes<float>(buffers[0])[at];
      ASSERT_EQ(got, expected) << "lane " << lane << ", element " << e;
    }
  }
}

}  // namespace
}  // namespace fakeamd
