// Mistakes planted in the programs are found, whatever the order in which threads take turns, and
// are called by their name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "engine/base/strings.h"
#include "tests/programs/problems.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  std::string_view name;
  std::string_view program;
  // The edit: this text, which is there once, by that one.
  std::string_view from, to;
  std::string_view message;  // of the run without a seed
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << std::string(mistake.name); }

constexpr Mistake kMistakes[] = {
    {"missing_barrier", "tree_reduction", "%27 = barrier %26 scope=workgroup",
     "%27 = barrier %26 scope=thread",
     "writes element 1 of buffer 0, which thread 0 reads at node 24"},
    {"barrier_in_a_divergent_loop", "tree_reduction", "%15 = range i64 %14 ", "%15 = range i64 %3 ",
     "node 27 (barrier): thread 1 of workgroup [0], deadlock: waits for thread 0, which has ended"},
    {"threads_write_one_element", "tree_reduction", "%35 = index i32 %5 %1 %30",
     "%35 = index i32 %5 %1", "writes element 0 of argument 1, which thread 57 writes at node 36"},
    {"workgroups_write_one_element", "tree_reduction", "%35 = index i32 %5 %1 %30",
     "%35 = index i32 %5 %32 %30",
     "writes element 0 of argument 1, which workgroup [0] writes at node 36"},
    {"past_the_end_of_an_argument", "tree_reduction", "%8 = add i64 %7 %3", "%8 = add i64 %7 %7",
     "node 10 (load): thread 0 of workgroup [1], lane 0 reads element 128 of argument 0, which has "
     "128"},
    {"past_the_end_of_local_memory", "tree_reduction", "%23 = index i32 %19 %22 %18",
     "%23 = index i32 %19 %22", "lane 0 reads element 95 of buffer 0, which has 64"},
    {"tiles_not_full", "tiled_gemm", "%44 = barrier %33 %43 scope=workgroup",
     "%44 = barrier %33 %43 scope=thread",
     "reads element 1 of buffer 0, which has not been written"},
    {"tiles_overwritten", "tiled_gemm", "%61 = barrier %60 scope=workgroup",
     "%61 = barrier %60 scope=thread",
     "reads element 0 of buffer 0, which thread 0 writes at node 33"},
    {"accumulator_not_cleared", "tiled_gemm", "%16 = store %15 %13", "%16 = barrier scope=thread",
     "reads element 0 of buffer 2, which has not been written"},
    {"missing_wait", "mma_gemm", "%90 = wait %80 %88 n=1\n", "",
     "still under way, writes at node 80"},
    {"pending_too_large", "mma_gemm", "%90 = wait %80 %88 n=1", "%90 = wait %80 %88 n=2",
     "still under way, writes at node 80"},
    {"barrier_of_a_smaller_scope", "mma_gemm", "%91 = barrier %80 %88 scope=workgroup",
     "%91 = barrier %80 %88 scope=warp", "buffer 1"},
    {"stage_overwritten", "mma_gemm", "%117 = barrier %116 scope=workgroup",
     "%117 = barrier %116 scope=warp", "buffer 1"},
    {"one_of_two_copies_not_awaited", "mma_gemm", "%89 = wait %42 %45 n=0", "%89 = wait %42 n=0",
     "still under way, writes at node 45"},
    {"full_phase_not_awaited", "wgmma_gemm", "%27 = wait_phase %26 %25",
     "%27 = barrier scope=thread",
     "node 34 (mma_async): thread 0 of workgroup [0], reads element 0 of buffer 0, which has not "
     "been written"},
    {"wrong_parity_of_the_consumer", "wgmma_gemm", "%27 = wait_phase %26 %25",
     "%100 = const i64 1\n%27 = wait_phase %26 %100",
     "reads element 0 of buffer 0, which has not been written"},
    {"wrong_parity_of_the_producer", "wgmma_gemm", "%78 = sub i64 %72 %77", "%78 = mul i64 %72 %77",
     "node 27 (wait_phase): thread 0 of workgroup [0], deadlock: waits for phase 0 of mbarrier "
     "2[0], which lacks 1 of 1 arrivals and 0 bytes; thread 128 at node 80 waits for phase 0 of "
     "mbarrier 3[0], which lacks 128 of 128 arrivals and 0 bytes"},
    {"too_few_arrivals", "wgmma_gemm", "arrivals=128", "arrivals=127",
     "writes element 0 of buffer 0, which the mma_async of thread 0 reads at node 34"},
    {"too_many_arrivals", "wgmma_gemm", "arrivals=128", "arrivals=129", "deadlock: waits for"},
    {"too_few_bytes", "wgmma_gemm", "%82 = arrive %81 n=8192", "%82 = arrive %81 n=4096",
     "of buffer 1, which the copy_async of thread 128, still under way, writes at node 94"},
    {"too_many_bytes", "wgmma_gemm", "%82 = arrive %81 n=8192", "%82 = arrive %81 n=8256",
     "deadlock: waits for phase 0 of mbarrier 2[0], which lacks 0 of 1 arrivals and 64 bytes"},
    {"missing_wait_for_the_products", "wgmma_gemm", "%42 = wait %34 %41 n=0\n", "",
     "writes element 0 of buffer 0, which the mma_async of thread 0, still under way, reads at "
     "node 34"},
    {"accumulator_read_before_the_wait", "wgmma_gemm", "%42 = wait %34 %41 n=0",
     "%100 = load f32 [32] %19\n%42 = wait %34 %41 n=0",
     "node 42 (load): thread 126 of workgroup [0], lane 0 reads element 0 of buffer 4, to which "
     "the "
     "mma_async of node 34, still under way, adds"},
    {"wait_for_what_was_never_started", "wgmma_gemm", "%95 = end %74",
     "%100 = wait %34 n=0\n%95 = end %74",
     "waits for node 34 (mma_async), which this thread has never started"},
    {"stage_not_empty", "wgmma_gemm", "%80 = wait_phase %79 %78\n", "",
     "node 81 (arrive): thread 128 of workgroup [0], is one arrival too many at mbarrier 2[0]"},
    {"accumulator_not_cleared_amx", "amx_gemm", "%28 = store %27 %26", "%28 = barrier scope=thread",
     "lane 0 reads element 0 of buffer 0, which has not been written"},
    {"missing_barrier_of_two_warps", "paged_attention",
     "%110 = barrier %103 %105 %109 scope=workgroup", "%110 = barrier %103 %105 %109 scope=warp",
     "reads element 1 of buffer 1, which has not been written"},
    {"barrier_inside_of_a_role", "paged_attention",
     "%110 = barrier %103 %105 %109 scope=workgroup\n%111 = role first=0 count=1",
     "%111 = role first=0 count=1\n%110 = barrier %103 %105 %109 scope=workgroup",
     "reads element 1 of buffer 1, which has not been written"},
    {"page_not_checked", "paged_attention", "%49 = and bool %46 %48", "%49 = and bool %46 %46",
     "of argument 1, which has 320"},
    {"shuffle_in_a_divergent_loop", "paged_attention", "%34 = range i64 %0 ", "%34 = range i64 %6 ",
     "deadlock: waits for thread 1, which is at node 60 (shuffle)"},
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreFound) {
  const Mistake& m = GetParam();
  std::string text = ReadProgramText(m.program);
  const size_t at = text.find(m.from);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(text.find(m.from, at + 1), std::string::npos) << "there twice";
  text.replace(at, m.from.size(), m.to);
  for (const Problem& problem : AllProblems()) {
    if (problem.name != m.program) continue;
    const absl::Status status = RunProblem(problem, text, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(m.message)));
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      EXPECT_EQ(RunProblem(problem, text, {.seed = seed}).code(), absl::StatusCode::kInternal)
          << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mistakes, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace telegrad::testing
