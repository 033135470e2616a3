// A list of problems, each with the arguments of a program and the result that a plain loop
// computes.
#include "tests/programs/problems.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/ir/text.h"

namespace telegrad::testing {
namespace {

template <typename T>
std::vector<uint8_t> Bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Small integers, different for every element, whose products and sums are exact everywhere.
std::vector<int> Integers(size_t count, int seed) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int>((i * 2654435761u + static_cast<size_t>(seed) * 40503u) >> 7) % 17;
    values[i] -= 8;
  }
  return values;
}

// An integer as a 16-bit float with that many mantissa bits and that bias.
uint16_t Encode16(int value, int mantissa, int bias) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent) * 2 - 1;  // in [0, 1)
  const int bits =
      (exponent - 1 + bias) << mantissa | static_cast<int>(std::ldexp(fraction, mantissa));
  return static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0));
}

std::vector<uint8_t> Encode(const std::vector<int>& values, DType dtype) {
  if (dtype == DType::kFloat32) return Bytes(std::vector<float>(values.begin(), values.end()));
  std::vector<uint16_t> out;
  for (int v : values) {
    out.push_back(dtype == DType::kFloat16 ? Encode16(v, 10, 15) : Encode16(v, 7, 127));
  }
  return Bytes(out);
}

Problem Gemm(std::string_view name, DType dtype, size_t m, size_t n, size_t k) {
  const std::vector<int> a = Integers(m * k, 1), b = Integers(k * n, 2);
  Problem p{.name = name, .want = std::vector<double>(m * n)};
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) p.want[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  p.arguments = {Encode(a, dtype), Encode(b, dtype), Bytes(std::vector<float>(m * n, -77))};
  return p;
}

Problem TreeReduction() {
  const std::vector<int> x = Integers(128, 3);
  Problem p{.name = "tree_reduction", .floats = false, .want = {0, 0}};
  for (size_t i = 0; i < x.size(); ++i) p.want[i / 64] += x[i];
  p.arguments = {Bytes(x), Bytes(std::vector<int>(2, -77))};
  return p;
}

// Of each thread four matrices, two transposed and one; row r of a warp's matrix m is named by its
// lane 8 m + r and lies in piece 5 (8 m + r) % 32 of its memory.
Problem LoadMatrix() {
  constexpr size_t kWarps = 2, kLanes = 32, kSide = 8;
  std::vector<int> x(kWarps * kLanes * kSide);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i * 97 % 4001) - 2000;
  Problem p{.name = "load_matrix", .floats = false};
  for (size_t warp = 0; warp < kWarps; ++warp) {
    const auto at = [&](size_t matrix, size_t row, size_t column) {
      const size_t piece = 5 * (kSide * matrix + row) % kLanes;
      return x[(warp * kLanes + piece) * kSide + column];
    };
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t row = lane / 4, column = 2 * (lane % 4);
      for (size_t matrix : {0, 1, 2, 3}) {
        p.want.push_back(at(matrix, row, column));
        p.want.push_back(at(matrix, row, column + 1));
      }
      for (size_t matrix : {0, 1}) {
        p.want.push_back(at(matrix, column, row));
        p.want.push_back(at(matrix, column + 1, row));
      }
      p.want.push_back(at(0, row, column));
      p.want.push_back(at(0, row, column + 1));
    }
  }
  p.arguments = {Bytes(x), Bytes(std::vector<int>(p.want.size(), -77))};
  return p;
}

// One query for each sequence; pages of 4 tokens of 8 dims. Tokens on a page that does not exist
// are left out.
Problem PagedAttention() {
  constexpr size_t kSequences = 3, kPages = 10, kPage = 4, kDims = 8, kTable = 4;
  const auto floats = [](const std::vector<int>& values, float scale) {
    std::vector<float> out;
    for (int v : values) out.push_back(static_cast<float>(v) * scale);
    return out;
  };
  const std::vector<float> q = floats(Integers(kSequences * kDims, 4), 0.125f);
  const std::vector<float> keys = floats(Integers(kPages * kPage * kDims, 5), 0.25f);
  const std::vector<float> values = floats(Integers(kPages * kPage * kDims, 6), 1.0f);
  const std::vector<int> table = {7, 2, 9, 0, 4, -1, 1000, -5, 1, 1000, 5, 12345};
  const std::vector<int> lengths = {15, 3, 12};
  Problem p{.name = "paged_attention", .variables = {8}, .tolerance = 1e-5};
  for (size_t s = 0; s < kSequences; ++s) {
    std::vector<double> sums(kDims);
    double total = 0;
    for (size_t t = 0; t < static_cast<size_t>(lengths[s]); ++t) {
      const auto page = static_cast<size_t>(table[s * kTable + t / kPage]);
      if (page >= kPages) continue;
      const size_t at = (page * kPage + t % kPage) * kDims;
      double score = 0;
      for (size_t d = 0; d < kDims; ++d) score += double{q[s * kDims + d]} * keys[at + d];
      total += std::exp(score);
      for (size_t d = 0; d < kDims; ++d) sums[d] += std::exp(score) * values[at + d];
    }
    for (double sum : sums) p.want.push_back(sum / total);
  }
  p.arguments = {Bytes(q),     Bytes(keys),    Bytes(values),
                 Bytes(table), Bytes(lengths), Bytes(std::vector<float>(p.want.size(), -77))};
  return p;
}

}  // namespace

std::vector<Problem> AllProblems() {
  return {TreeReduction(),
          LoadMatrix(),
          Gemm("tiled_gemm", DType::kFloat32, 32, 24, 16),
          Gemm("mma_gemm", DType::kFloat16, 32, 32, 64),
          Gemm("wgmma_gemm", DType::kFloat16, 64, 128, 128),
          Gemm("amx_gemm", DType::kBFloat16, 32, 32, 64),
          PagedAttention()};
}

Problem FindProblem(std::string_view name) {
  for (const Problem& problem : AllProblems()) {
    if (problem.name == name) return problem;
  }
  return {.name = "of no such name"};
}

std::string ReadData(std::string_view name) {
  // Elsewhere than where it was built, the files are elsewhere, too.
  const char* folder = std::getenv("TELEGRAD_PROGRAMS");
  const auto text = ReadFile(StrCat(folder != nullptr ? folder : PROGRAMS_DIR, "/", name));
  return text.ok() ? *text : StrCat("# ", text.status().ToString());
}

absl::Status RunProblem(const Problem& problem, std::string_view text,
                        reference::RunOptions options) {
  TG_ASSIGN_OR_RETURN(const Program program, ParseProgram(text));
  std::vector<std::vector<uint8_t>> arguments = problem.arguments;
  std::vector<std::span<uint8_t>> buffers(arguments.begin(), arguments.end());
  options.variables = problem.variables;
  TG_RETURN_IF_ERROR(reference::Run(program, buffers, 0, program.iterations, options));
  const std::vector<uint8_t>& got = arguments.back();
  if (got.size() != 4 * problem.want.size()) return Internal("the result has another size");
  for (size_t i = 0; i < problem.want.size(); ++i) {
    float number = 0;
    int32_t integer = 0;
    std::memcpy(&number, &got[4 * i], 4);
    std::memcpy(&integer, &got[4 * i], 4);
    const double x = problem.floats ? double{number} : integer, want = problem.want[i];
    if (std::abs(x - want) <= problem.tolerance * (1 + std::abs(want))) continue;
    return absl::DataLossError(StrCat("element ", i, " is ", x, ", expected ", want));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::testing
