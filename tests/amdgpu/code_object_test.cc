// The code objects of programs for AMD's processors: the arguments of their kernels, and that no
// register is spilled to memory, for every processor.

#include <algorithm>
#include <filesystem>
#include <regex>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "engine/ir/text.h"
#include "engine/lowering/lower.h"
#include "engine/render/render.h"
#include "engine/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/nvptx/ptx_kernels.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 1;  // code does not depend on the inputs

// The number behind `key` in the assembly's metadata.
int64_t MetadataOf(const std::string& assembly, const std::string& key) {
  std::smatch match;
  if (!std::regex_search(assembly, match, std::regex("\\." + key + ":\\s*([0-9]+)"))) return -1;
  return std::stoll(match[1]);
}

// Nothing is approximated beyond EXP2 and what the exact sequences of division and square root
// need, or contracted behind the IR's back. But integers of 8 and 16 bits are divided as floats on
// gfx90a, exactly, as amd_machine_test shows.
void ExpectExactCode(const std::string& assembly, const Program& program) {
  static const std::regex never(
      "\\b(v_exp_f16|v_log_|v_sin_|v_cos_|v_mac_f32|v_rcp_f16|v_fma_mixlo_f16 .*, "
      "0\\b|s_swappc|s_setpc)");
  std::smatch match;
  EXPECT_FALSE(std::regex_search(assembly, match, never)) << match[0];
  const bool small = std::ranges::any_of(program.arguments, [](const Program::Argument& a) {
    return IsInt(a.dtype) && ByteSize(a.dtype) <= 2;
  });
  if (!small) {
    EXPECT_THAT(assembly, ::testing::Not(HasSubstr("v_mad_f32")));
  }
}

// Checks the kernel, and returns its assembly.
std::string ExpectRegistersOnly(const Program& program, const Target& target,
                                int64_t scalar_spills = 0) {
  SCOPED_TRACE(StrCat(program.name, " for ", target.arch));
  const auto image = CompileKernel(program, target);
  EXPECT_TRUE(image.ok()) << image.status();
  if (!image.ok()) return "";
  EXPECT_LE(image->signature.local_bytes, target.local_bytes);
  const auto text = Render(program, target);
  const auto assembly = CompileToAssembly(text.value_or(""), program.name, target);
  EXPECT_TRUE(assembly.ok()) << assembly.status();
  if (!assembly.ok()) return "";
  EXPECT_EQ(MetadataOf(*assembly, "vgpr_spill_count"), 0);
  EXPECT_LE(MetadataOf(*assembly, "sgpr_spill_count"), scalar_spills);
  EXPECT_EQ(MetadataOf(*assembly, "private_segment_fixed_size"), 0);
  EXPECT_EQ(MetadataOf(*assembly, "kernarg_segment_size"),
            static_cast<int64_t>(8 * (program.arguments.size() + 1)));
  // All of it is given at the launch.
  EXPECT_EQ(MetadataOf(*assembly, "group_segment_fixed_size"), 0);
  EXPECT_EQ(MetadataOf(*assembly, "wavefront_size"), target.warp);
  EXPECT_EQ(MetadataOf(*assembly, "max_flat_workgroup_size"), image->signature.group.x);
  EXPECT_THAT(*assembly, ::testing::Not(HasSubstr("hidden_")));
  ExpectExactCode(*assembly, program);
  return *assembly;
}

std::vector<Target> AmdTargets() {
  std::vector<Target> targets;
  for (const AmdProcessor& each : AmdProcessors()) {
    targets.push_back(AmdTarget(each, each.multiprocessors));
  }
  return targets;
}

TEST(AmdPrograms, HaveNoSpills) {
  for (const Target& target : AmdTargets()) {
    for (const char* name : {"tiled_gemm", "tree_reduction", "paged_attention"}) {
      ExpectRegistersOnly(ProgramKernel(name, target).program, target);
    }
  }
}

class AmdElementwise : public ::testing::TestWithParam<DType> {};

// Some 40 arguments are more addresses than there are scalar registers: some are kept in lanes of
// vector registers.
TEST_P(AmdElementwise, HasNoSpillsToMemory) {
  constexpr int64_t kScalars = 16;
  for (const Target& target : AmdTargets()) {
    ExpectRegistersOnly(ElementwiseKernel(GetParam(), 4, target, kSeed).program, target, kScalars);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AmdElementwise, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The kernels that lowering makes of the graphs of the golden files.
class AmdLowered : public ::testing::TestWithParam<std::string> {};

TEST_P(AmdLowered, HasNoSpills) {
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  Graph graph;
  const auto root = Parse(std::string_view(*file).substr(0, file->find("--- programs")), &graph);
  ASSERT_TRUE(root.ok()) << root.status();
  Budget budget;
  const auto schedule = ScheduleGraph(*root, &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const Target& target : AmdTargets()) {
    for (size_t k = 0; k < schedule->kernels.size(); ++k) {
      const auto program = Lower(schedule->kernels[k].graph, target, StrCat("kernel", k), &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      const std::string assembly = ExpectRegistersOnly(*program, target);
      const std::string matrix = target.matrix == MatrixUnit::kMfma ? "v_mfma_f32_" : "v_wmma_f32_";
      EXPECT_EQ(assembly.find(matrix) != assembly.npos,
                GetParam().find("_f16") != std::string::npos);
    }
  }
}

std::vector<std::string> AmdGoldenFiles() {
  std::vector<std::string> files;
  for (const char* directory : {GOLDEN_DIR, GOLDEN_DIR "/workgroups"}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".uop") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Golden, AmdLowered, ::testing::ValuesIn(AmdGoldenFiles()),
                         [](const auto& info) {
                           const std::filesystem::path path(info.param);
                           return StrCat(path.parent_path().filename().string(), "_",
                                         path.stem().string());
                         });

}  // namespace
}  // namespace telegrad::testing
