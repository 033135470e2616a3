// The PTX of programs for GPUs: what is in it, what is not, and what NVIDIA's assembler makes of
// it, where that is installed.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/devices/tensor_map_programs.h"
#include "tests/nvptx/ptx_kernels.h"
#include "tests/nvptx/ptxas.h"
#include "tests/nvptx/sass.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSeed = 1;  // texts do not depend on the inputs

std::string Ptx(const Program& program, const Target& target) {
  const auto image = CompileKernel(program, target);
  EXPECT_TRUE(image.ok()) << image.status();
  return image.ok() ? image->binary : "";
}

// The instructions with their modifiers.
std::set<std::string> Opcodes(const std::string& ptx) {
  std::set<std::string> opcodes;
  const std::regex instruction("^\\s+(@!?%p[0-9]+\\s+)?([a-z][a-zA-Z0-9_.:]*)[\\s;]");
  for (const absl::string_view line : absl::StrSplit(ptx, '\n')) {
    std::smatch match;
    const std::string text(line);
    if (std::regex_search(text, match, instruction)) opcodes.insert(match[2]);
  }
  return opcodes;
}

// Nothing but EXP2 is approximated, flushed to zero, contracted behind the IR's back, or called.
void ExpectExact(const std::string& ptx) {
  for (const std::string& opcode : Opcodes(ptx)) {
    if (opcode == "ex2.approx.f32") continue;
    for (const char* never :
         {"call", "approx", "ftz", "full", "ex2", "lg2", "sin", "cos", "tanh", "rsqrt"}) {
      EXPECT_THAT(opcode, Not(HasSubstr(never)));
    }
    static const std::regex contractible("(add|sub|mul|mad)\\.f(32|64)");
    EXPECT_FALSE(std::regex_match(opcode, contractible)) << opcode;
  }
}

// The programs by which devices are tested with tensor maps.
TEST(TensorMaps, AreAssembled) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: TELEGRAD_PTXAS names none, and PATH has none";
  for (const auto& image : {CudaBox(), CudaUnbox()}) {
    const auto assembled = Assemble(ptxas, image->binary, "sm_90a");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->spill_stores + assembled->spill_loads, 0);
  }
}

class Programs : public ::testing::TestWithParam<const char*> {};

struct Facts {
  std::vector<const char*> texts;
  int64_t most_registers;
  int64_t local_bytes;
  int32_t threads;
  std::map<int, int> instructions;  // at least so many
};

// By program; limits are what ptxas 12.8 needs, and some room for another one.
const std::map<std::string, Facts>& KnownFacts() {
  static const auto* const facts = new std::map<std::string, Facts>{
      {"tiled_gemm", {{"bar.sync", "ld.shared.v4.f32", "fma.rn.f32"}, 40, 512, 64, {}}},
      {"tree_reduction", {{"bar.sync", "ld.shared.u32"}, 24, 256, 64, {}}},
      {"paged_attention", {{"shfl.sync.idx.b32", "ld.global.nc.f32"}, 56, 96, 16, {}}},
      {"mma_gemm",
       {{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "cp.async.cg.shared.global",
         "cp.async.wait_group 1", "st.global.v2.f32", "ld.shared.b32"},
        56,
        3072,
        64,
        {{sass::kHmma, 2}, {sass::kLdgsts, 4}}}},
      {"load_matrix",
       {{"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x1.shared.b16",
         "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"},
        40,
        1024,
        64,
        {{sass::kLdsm, 3}}}},
  };
  return *facts;
}

TEST_P(Programs, SayWhatTheyShould) {
  const Facts& facts = KnownFacts().at(GetParam());
  for (const Target& target : {Ampere(), Hopper()}) {
    const PtxKernel kernel = ProgramKernel(GetParam(), target);
    const auto image = CompileKernel(kernel.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->signature.local_bytes, facts.local_bytes);
    EXPECT_EQ(image->signature.group.x, facts.threads);
    EXPECT_THAT(image->binary, HasSubstr(StrCat(".reqntid ", facts.threads, ", 1, 1")));
    EXPECT_THAT(image->binary,
                HasSubstr(StrCat(".extern .shared .align 16 .b8 ", GetParam(), "_local[]")));
    for (const char* text : facts.texts) EXPECT_THAT(image->binary, HasSubstr(text));
    ExpectExact(image->binary);
    // Registers are registers.
    EXPECT_THAT(image->binary, Not(HasSubstr(".local")));
  }
}

TEST_P(Programs, AreAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: TELEGRAD_PTXAS names none, and PATH has none";
  const Facts& facts = KnownFacts().at(GetParam());
  for (const Target& target : {Ampere(), Hopper()}) {
    const std::string ptx = Ptx(ProgramKernel(GetParam(), target).program, target);
    const auto assembled = Assemble(ptxas, ptx, target.arch);
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_LE(assembled->registers, facts.most_registers) << target.arch;
    EXPECT_EQ(assembled->spill_stores, 0);
    EXPECT_EQ(assembled->spill_loads, 0);
    EXPECT_EQ(assembled->stack, 0);
    auto counts = CountInstructions(assembled->code, GetParam());
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ((*counts)[sass::kLdl] + (*counts)[sass::kStl], 0);
    for (const auto& [code, least] : facts.instructions) {
      EXPECT_GE((*counts)[code], least) << std::hex << code << " on " << target.arch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Programs,
                         ::testing::Values("tiled_gemm", "tree_reduction", "paged_attention",
                                           "mma_gemm", "load_matrix"),
                         [](const auto& info) { return std::string(info.param); });

class Elementwise : public ::testing::TestWithParam<DType> {};

TEST_P(Elementwise, IsExactAndAssembled) {
  const std::string ptxas = FindPtxas();
  for (int64_t lanes : {1, 4}) {
    const PtxKernel kernel = ElementwiseKernel(GetParam(), lanes, Ampere(), kSeed);
    const std::string ptx = Ptx(kernel.program, Ampere());
    ExpectExact(ptx);
    EXPECT_THAT(ptx, Not(HasSubstr(".local")));
    if (lanes == 4 && ByteSize(GetParam()) == 4) {
      EXPECT_THAT(ptx, HasSubstr("ld.global.nc.v4"));
    }
    if (ptxas.empty()) continue;
    const auto assembled = Assemble(ptxas, ptx, "sm_80");
    ASSERT_TRUE(assembled.ok()) << assembled.status();
    EXPECT_EQ(assembled->spill_stores, 0);
    auto counts = CountInstructions(assembled->code, kernel.program.name);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ((*counts)[sass::kStl], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Elementwise, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The kernels that lowering makes of the graphs of the golden files.
class Lowered : public ::testing::TestWithParam<std::string> {};

TEST_P(Lowered, IsExactAndAssembledWithoutSpills) {
  const std::string ptxas = FindPtxas();
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  Graph graph;
  const auto root = Parse(std::string_view(*file).substr(0, file->find("--- programs")), &graph);
  ASSERT_TRUE(root.ok()) << root.status();
  Budget budget;
  const auto schedule = ScheduleGraph(*root, &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const Target& target : {Ampere(), Hopper()}) {
    for (size_t k = 0; k < schedule->kernels.size(); ++k) {
      const std::string name = StrCat("kernel", k);
      SCOPED_TRACE(StrCat(name, " for ", target.arch));
      const auto program = Lower(schedule->kernels[k].graph, target, name, &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      const std::string ptx = Ptx(*program, target);
      ExpectExact(ptx);
      EXPECT_THAT(ptx, Not(HasSubstr(".local")));
      if (ptxas.empty()) continue;
      const auto assembled = Assemble(ptxas, ptx, target.arch);
      ASSERT_TRUE(assembled.ok()) << assembled.status();
      EXPECT_EQ(assembled->spill_stores + assembled->spill_loads, 0);
      EXPECT_EQ(assembled->stack, 0);
      auto counts = CountInstructions(assembled->code, name);
      ASSERT_TRUE(counts.ok()) << counts.status();
      EXPECT_EQ((*counts)[sass::kLdl] + (*counts)[sass::kStl], 0);
      EXPECT_EQ((*counts)[sass::kHmma] > 0, GetParam().find("_f16") != std::string::npos);
    }
  }
}

std::vector<std::string> GoldenFiles() {
  std::vector<std::string> files;
  for (const char* directory : {GOLDEN_DIR, GOLDEN_DIR "/workgroups"}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".uop") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Golden, Lowered, ::testing::ValuesIn(GoldenFiles()), [](const auto& info) {
  const std::filesystem::path path(info.param);
  return StrCat(path.parent_path().filename().string(), "_", path.stem().string());
});

}  // namespace
}  // namespace telegrad::testing
