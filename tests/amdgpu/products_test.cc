// Products of 16-bit floats as lowering makes them for AMD's matrix instructions, executed by
// tests/fakes/amd: the results of the reference interpreter, and how the accesses of local memory
// fall onto its banks.
#include <cstring>
#include <ostream>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/render/llvm.h"
#include "engine/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/amdgpu/run_on_machine.h"
#include "tests/nvptx/ptx_kernels.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kRows = 64, kColumns = 128, kDepth = 128;

// With this many processors a workgroup has 32 x 32 of the result, with one 64 x 128.
constexpr int64_t kSmallTiles = 8, kLargeTiles = 1;

struct ProductForm {
  const char* processor;
  DType dtype;
  bool a_turned, b_turned;
};

// a[rows, depth] and b[depth, columns], each as it is or as a transposed view.
UOp ProductGraph(Graph& g, const ProductForm& form, int64_t depth = kDepth) {
  const auto make = [&](Op op, UOp x, const Shape& arg) {
    return g.Make(op, DType::kVoid, {&x, 1}, arg);
  };
  const auto operand = [&](int64_t slot, bool turned, int64_t rows, int64_t columns) {
    const UOp x = g.Param(slot, form.dtype, turned ? Shape{columns, rows} : Shape{rows, columns});
    return g.Make(Op::kCast, DType::kFloat32, {turned ? make(Op::kPermute, x, {1, 0}) : x});
  };
  const Shape all{kRows, depth, kColumns};
  const UOp a = operand(1, form.a_turned, kRows, depth);
  const UOp b = operand(2, form.b_turned, depth, kColumns);
  const UOp x = make(Op::kExpand, make(Op::kReshape, a, {kRows, depth, 1}), all);
  const UOp y = make(Op::kExpand, make(Op::kReshape, b, {1, depth, kColumns}), all);
  const UOp sum =
      make(Op::kReduce, g.Make(Op::kMul, {x, y}), {static_cast<int64_t>(ReduceKind::kAdd), 1});
  const UOp out = g.Param(0, DType::kFloat32, Shape(sum.shape().begin(), sum.shape().end()));
  return g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})});
}

// *counts is what a launch of the product takes on a GPU of so many processors; its result is
// checked.
void RunProduct(const ProductForm& form, int64_t processors, fakeamd::Counts* counts) {
  const Target target = AmdTarget(*FindAmdProcessor(form.processor), processors);
  Graph graph;
  const UOp sink = ProductGraph(graph, form);
  ASSERT_TRUE(sink.valid()) << graph.status();
  Budget budget;
  const auto schedule = ScheduleGraph(sink, &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->kernels.size(), 1u);
  const auto program = Lower(schedule->kernels[0].graph, target, "product", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->iterations, processors);
  PtxKernel kernel{.program = *program, .arguments = {}, .names = {}};
  for (const Program::Argument& argument : program->arguments) {
    const auto size = static_cast<size_t>(ByteSize(argument.dtype));
    std::vector<uint8_t> bytes(static_cast<size_t>(argument.elements) * size);
    // Small integers, whose sums are exact in any order.
    for (int64_t i = 0; argument.read && i < argument.elements; ++i) {
      const auto value = static_cast<double>((i * 7919 + i / 5) % 9 - 4);
      const int64_t word = ScalarToMemory(argument.dtype, ScalarFromDouble(argument.dtype, value));
      std::memcpy(&bytes[static_cast<size_t>(i) * size], &word, size);
    }
    kernel.names.push_back(StrCat("argument ", kernel.arguments.size()));
    kernel.arguments.push_back(std::move(bytes));
  }
  std::vector<std::vector<uint8_t>> want = kernel.arguments, got = kernel.arguments;
  const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
  ASSERT_EQ(reference::Run(*program, buffers, 0, program->iterations), absl::OkStatus());
  const auto image = CompileKernel(*program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  RunOnMachine(*image, target, 0, program->iterations, &got, counts);
  EXPECT_EQ(Difference(kernel, got, want), "");
  EXPECT_GT(counts->matrix_instructions, 0u);
}

void PrintTo(const ProductForm& form, std::ostream* out) { *out << form.processor; }

class ProductsOnAmd : public ::testing::TestWithParam<ProductForm> {};

// Operands lie in local memory in rows along the axis that is contiguous in the operand, with a gap
// between rows. Only on gfx1201 loads meet in a bank, of operands whose rows run across the depth:
// the second half of the lanes loads 2 bytes each of the row that is eight further on, and eight
// rows with a gap of 16 bytes are a multiple of all banks.
TEST_P(ProductsOnAmd, AreExactAndMeetInNoBank) {
  const ProductForm& form = GetParam();
  const bool meets = std::string_view(form.processor) == "gfx1201";
  struct Known {
    int64_t processors;
    uint64_t a, b;  // cycles that loads of the operand add if its rows run across the depth
  };
  for (const Known& known : {Known{kSmallTiles, 2048, 2048}, Known{kLargeTiles, 512, 1024}}) {
    SCOPED_TRACE(StrCat(known.processors, " processors"));
    fakeamd::Counts counts;
    RunProduct(form, known.processors, &counts);
    EXPECT_EQ(counts.store_conflicts, 0u);
    // A lane of MFMA stores four neighbours at once, of gfx1201 eight in two halves of 16 bytes;
    // of gfx1100 rows are two apart, and what is stored at once are 4 bytes.
    const std::string_view processor = form.processor;
    const uint64_t lanes = processor.starts_with("gfx9") ? 64 : 32;
    const uint64_t at_once = processor == "gfx1100" ? 1 : 4;
    EXPECT_EQ(counts.global_stores, kRows * kColumns / lanes / at_once);
    const uint64_t met = (form.a_turned ? known.a : 0) + (form.b_turned ? 0 : known.b);
    EXPECT_EQ(counts.load_conflicts, meets ? met : 0);
  }
}

// The instructions of `assembly` from its last barrier up to the end of the loop that it is in.
std::vector<std::string> BehindTheBarrier(const std::string& assembly) {
  const std::string text = assembly.substr(assembly.rfind("s_barrier"));
  return absl::StrSplit(text.substr(0, text.find("s_cbranch")), '\n');
}

// In an iteration, the loads of the next tile come first, and nothing waits for them before all
// products have begun.
TEST_P(ProductsOnAmd, LoadTheNextTileMeanwhile) {
  constexpr int64_t kManyTiles = 2048;
  const Target target = AmdTarget(*FindAmdProcessor(GetParam().processor), kLargeTiles);
  Graph graph;
  Budget budget;
  const auto schedule = ScheduleGraph(ProductGraph(graph, GetParam(), kManyTiles), &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto program = Lower(schedule->kernels[0].graph, target, "product", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto ir = RenderLlvm(*program, target);
  ASSERT_TRUE(ir.ok()) << ir.status();
  const auto assembly = CompileToAssembly(*ir, "product", target);
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  int loads = 0, products = 0, reads = 0;
  for (const std::string& line : BehindTheBarrier(*assembly)) {
    const bool waits = absl::StrContains(line, "vmcnt") || absl::StrContains(line, "loadcnt");
    EXPECT_FALSE(waits && loads > 0 && products < 16) << line;
    if (absl::StrContains(line, "global_load")) {
      EXPECT_EQ(reads, 0) << line;
      ++loads;
    }
    reads += absl::StrContains(line, "ds_read") || absl::StrContains(line, "ds_load") ? 1 : 0;
    products += absl::StrContains(line, "v_mfma") || absl::StrContains(line, "v_wmma") ? 1 : 0;
  }
  EXPECT_GE(loads, 3);
  EXPECT_GE(products, 16);
}

std::vector<ProductForm> ProductForms() {
  std::vector<ProductForm> forms;
  for (const char* processor : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    for (const int turned : {0, 1, 2, 3}) {
      forms.push_back({processor, turned % 2 == 0 ? DType::kFloat16 : DType::kBFloat16,
                       (turned & 1) != 0, (turned & 2) != 0});
    }
  }
  return forms;
}

INSTANTIATE_TEST_SUITE_P(All, ProductsOnAmd, ::testing::ValuesIn(ProductForms()),
                         [](const auto& info) {
                           const ProductForm& form = info.param;
                           return StrCat(form.processor, form.a_turned ? "_turned" : "_plain",
                                         form.b_turned ? "_turned" : "_plain");
                         });

}  // namespace
}  // namespace telegrad::testing
