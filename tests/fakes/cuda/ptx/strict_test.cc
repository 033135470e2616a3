// A correct kernel passes; the same kernel with one thing taken away is refused: barriers, waits,
// bounds, alignment, member masks.
#include <gtest/gtest.h>

#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

RunResult RunOn(const std::string& text, uint32_t threads,
                std::vector<std::vector<uint8_t>>* buffers, uint64_t shared = 0,
                uint32_t groups = 1, uint64_t budget = 10'000'000) {
  return RunPtx(text, {.grid = {groups, 1, 1}, .block = {threads, 1, 1}, .dynamic_shared = shared},
                buffers, {}, budget);
}

const char kShared[] = ".extern .shared .align 16 .b8 smem[];";

// out[t] = in[n - 1 - t] through shared memory, twice, so that reads and writes alternate.
std::string Reverse() {
  return Module(2, R"(
  .reg .b32 %r<8>; .reg .b64 %x<8>; .reg .pred %p<2>;
  ld.param.u64 %x0, [p0];
  ld.param.u64 %x1, [p1];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ntid.x;
  mul.wide.u32 %x2, %r0, 4;
  add.s64 %x3, %x0, %x2;
  ld.global.u32 %r2, [%x3];
  mov.u64 %x4, smem;
  add.s64 %x5, %x4, %x2;
  st.shared.u32 [%x5], %r2;
  bar.sync 0;
  sub.s32 %r3, %r1, %r0;
  mul.wide.u32 %x6, %r3, 4;
  add.s64 %x6, %x4, %x6;
  ld.shared.u32 %r4, [%x6+-4];
  bar.sync 1;
  st.shared.u32 [%x5], %r4;
  add.s64 %x7, %x1, %x2;
  st.global.u32 [%x7], %r4;
  ret;)",
                kShared);
}

std::vector<std::vector<uint8_t>> Numbers(uint32_t count) {
  std::vector<uint32_t> in(count);
  for (uint32_t i = 0; i < count; ++i) in[i] = 100 + i;
  return {BytesOf(in), std::vector<uint8_t>(4 * count)};
}

TEST(BarrierTest, OrdersSharedMemory) {
  for (const uint32_t threads : {32u, 96u, 256u}) {
    auto buffers = Numbers(threads);
    const RunResult run = RunOn(Reverse(), threads, &buffers, 4 * threads);
    ASSERT_EQ(run.error + run.fault.message, "");
    const auto out = ValuesOf<uint32_t>(buffers[1]);
    for (uint32_t t = 0; t < threads; ++t) EXPECT_EQ(out[t], 100 + threads - 1 - t);
  }
}

TEST(BarrierTest, MissingOnesAreFound) {
  for (const uint32_t threads : {32u, 256u}) {  // within a warp and between warps
    auto buffers = Numbers(threads);
    const RunResult first =
        RunOn(Without(Reverse(), "bar.sync 0;"), threads, &buffers, 4 * threads);
    EXPECT_EQ(first.fault.code, FaultCode::kLaunchFailed);
    EXPECT_TRUE(first.fault.message.find("race") != std::string::npos ||
                first.fault.message.find("nobody has written") != std::string::npos)
        << first.fault.message;
    const RunResult second =
        RunOn(Without(Reverse(), "bar.sync 1;"), threads, &buffers, 4 * threads);
    EXPECT_EQ(second.fault.code, FaultCode::kLaunchFailed);
    EXPECT_NE(second.fault.message.find("race"), std::string::npos) << second.fault.message;
    EXPECT_NE(second.fault.message.find("kernel k, line "), std::string::npos);
  }
}

TEST(BarrierTest, WarpsOrderTheirLanesByThemselves) {
  const std::string text = Without(Without(Reverse(), "bar.sync 0;", "bar.warp.sync -1;"),
                                   "bar.sync 1;", "bar.warp.sync 0xffffffff;");
  auto buffers = Numbers(32);
  EXPECT_EQ(RunOn(text, 32, &buffers, 128).fault.message, "");
  auto two = Numbers(64);  // of two warps it is not enough
  EXPECT_EQ(RunOn(text, 64, &two, 256).fault.code, FaultCode::kLaunchFailed);
}

TEST(BarrierTest, CountsThreads) {
  const std::string counted = Without(Reverse(), "bar.sync 0;", "bar.sync 3, 64;");
  auto buffers = Numbers(64);
  EXPECT_EQ(RunOn(counted, 64, &buffers, 256).fault.message, "");
  // Half of the threads never come.
  const std::string more = Without(Reverse(), "bar.sync 0;", "bar.sync 3, 128;");
  const RunResult stuck = RunOn(more, 64, &buffers, 256);
  EXPECT_EQ(stuck.fault.code, FaultCode::kLaunchTimeout);
  EXPECT_NE(stuck.fault.message.find("wait for each other"), std::string::npos);
}

TEST(BarrierTest, InOneArmOfABranchOnlyIsADeadlock) {
  const std::string text =
      Without(Reverse(), "bar.sync 0;", "setp.lt.u32 %p0, %r0, 7; @%p0 bar.sync 0;");
  auto buffers = Numbers(32);
  // Lanes 0 to 6 wait at the first barrier, the others at the next.
  const RunResult run = RunOn(text, 32, &buffers, 128);
  EXPECT_NE(run.fault.code, FaultCode::kNone);
}

TEST(SharedTest, UnwrittenBytesAreNotRead) {
  auto buffers = Numbers(32);
  const RunResult run = RunOn(Without(Reverse(), "st.shared.u32 [%x5], %r2;"), 32, &buffers, 128);
  EXPECT_EQ(run.fault.code, FaultCode::kLaunchFailed);
  EXPECT_NE(run.fault.message.find("nobody has written"), std::string::npos);
}

TEST(SharedTest, HasAnEnd) {
  auto buffers = Numbers(32);
  const RunResult run = RunOn(Reverse(), 32, &buffers, 124);
  EXPECT_EQ(run.fault.code, FaultCode::kIllegalAddress);
}

TEST(GlobalTest, BoundsAndAlignment) {
  auto buffers = Numbers(32);
  buffers[0].resize(124);
  EXPECT_EQ(RunOn(Reverse(), 32, &buffers, 128).fault.code, FaultCode::kIllegalAddress);
  buffers = Numbers(32);
  const RunResult odd =
      RunOn(Without(Reverse(), "ld.global.u32 %r2, [%x3];", "ld.global.u32 %r2, [%x3+2];"), 32,
            &buffers, 128);
  EXPECT_EQ(odd.fault.code, FaultCode::kMisalignedAddress);
  const RunResult null = RunOn(
      Without(Reverse(), "ld.global.u32 %r2, [%x3];", "mov.u64 %x3, 0; ld.global.u32 %r2, [%x3];"),
      32, &buffers, 128);
  EXPECT_EQ(null.fault.code, FaultCode::kIllegalAddress);
}

// p0[0] += by every thread of every workgroup, by the given instruction.
std::string Sum(const std::string& instruction) {
  return Module(1, R"(
  .reg .b32 %r<3>; .reg .b64 %x<2>;
  ld.param.u64 %x0, [p0];
  )" + instruction + " ret;");
}

TEST(GlobalTest, RacesWithinAndBetweenWorkgroups) {
  const std::string atomic = Sum("red.global.add.u32 [%x0], 1;");
  const std::string plain =
      Sum("ld.global.u32 %r0, [%x0]; add.s32 %r0, %r0, 1; st.global.u32 [%x0], %r0;");
  std::vector<std::vector<uint8_t>> buffers = {std::vector<uint8_t>(4)};
  EXPECT_EQ(RunOn(atomic, 64, &buffers, 0, 3).fault.message, "");
  EXPECT_EQ(ValuesOf<uint32_t>(buffers[0])[0], 192u);
  EXPECT_EQ(RunOn(plain, 64, &buffers).fault.code, FaultCode::kLaunchFailed);
  const RunResult groups = RunOn(plain, 1, &buffers, 0, 2);
  EXPECT_EQ(groups.fault.code, FaultCode::kLaunchFailed);
  EXPECT_NE(groups.fault.message.find("another workgroup"), std::string::npos);
  EXPECT_EQ(RunOn(plain, 1, &buffers, 0, 1).fault.message, "");
}

TEST(GlobalTest, AtomicsAreNoRaceAmongThemselvesOnly) {
  const std::string text = Module(1, R"(
  .reg .b32 %r<3>; .reg .b64 %x<2>; .reg .pred %p<2>;
  ld.param.u64 %x0, [p0]; mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
  @%p0 st.global.u32 [%x0], 10;
  bar.sync 0;
  red.global.add.u32 [%x0], 1;
  bar.sync 1;
  @%p0 ld.global.u32 %r1, [%x0];
  @%p0 st.global.u32 [%x0+4], %r1;
  ret;)");
  std::vector<std::vector<uint8_t>> buffers = {std::vector<uint8_t>(8)};
  ASSERT_EQ(RunOn(text, 96, &buffers).fault.message, "");
  EXPECT_EQ(ValuesOf<uint32_t>(buffers[0])[1], 106u);
  EXPECT_EQ(RunOn(Without(text, "bar.sync 0;"), 96, &buffers).fault.code, FaultCode::kLaunchFailed);
  EXPECT_EQ(RunOn(Without(text, "bar.sync 1;"), 96, &buffers).fault.code, FaultCode::kLaunchFailed);
}

TEST(GlobalTest, NeighbouringBytesAreNoRace) {
  const std::string text = Module(1, R"(
  .reg .b32 %r<3>; .reg .b64 %x<3>;
  ld.param.u64 %x0, [p0];
  mov.u32 %r0, %tid.x;
  cvt.u64.u32 %x1, %r0;
  add.s64 %x2, %x0, %x1;
  st.global.u8 [%x2], %r0;
  ret;)");
  std::vector<std::vector<uint8_t>> buffers = {std::vector<uint8_t>(64)};
  ASSERT_EQ(RunOn(text, 64, &buffers).fault.message, "");
  for (uint8_t i = 0; i < 64; ++i) EXPECT_EQ(buffers[0][i], i);
}

// out[t] = in[t], copied to shared memory asynchronously, in two groups, the second one waited for
// last.
std::string CopyAsync() {
  return Module(2, R"(
  .reg .b32 %r<8>; .reg .b64 %x<8>;
  ld.param.u64 %x0, [p0];
  ld.param.u64 %x1, [p1];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %x2, %r0, 8;
  add.s64 %x3, %x0, %x2;
  mov.u64 %x4, smem;
  add.s64 %x5, %x4, %x2;
  add.s64 %x6, %x1, %x2;
  cp.async.ca.shared.global [%x5], [%x3], 4;
  cp.async.commit_group;
  cp.async.ca.shared.global [%x5+4], [%x3+4], 4, 2;
  cp.async.commit_group;
  cp.async.wait_group 1;
  ld.shared.u32 %r1, [%x5];
  st.global.u32 [%x6], %r1;
  cp.async.wait_group 0;
  ld.shared.u32 %r2, [%x5+4];
  st.global.u32 [%x6+4], %r2;
  ret;)",
                kShared);
}

TEST(AsyncTest, ArrivesAtTheWait) {
  auto buffers = Numbers(64);
  ASSERT_EQ(RunOn(CopyAsync(), 32, &buffers, 256).fault.message, "");
  const auto out = ValuesOf<uint32_t>(buffers[1]);
  // Of the odd ones only two bytes are copied; the rest is zero.
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 100 + i);
  buffers = {BytesOf(std::vector<uint32_t>(64, 0x12345678)), std::vector<uint8_t>(256)};
  ASSERT_EQ(RunOn(CopyAsync(), 32, &buffers, 256).fault.message, "");
  EXPECT_EQ(ValuesOf<uint32_t>(buffers[1])[0], 0x12345678u);
  EXPECT_EQ(ValuesOf<uint32_t>(buffers[1])[1], 0x5678u);
}

TEST(AsyncTest, MissingWaitsAreFound) {
  for (const std::string wait : {"cp.async.wait_group 1;", "cp.async.wait_group 0;"}) {
    auto buffers = Numbers(64);
    const RunResult run = RunOn(Without(CopyAsync(), wait), 32, &buffers, 256);
    EXPECT_EQ(run.fault.code, FaultCode::kLaunchFailed) << wait;
    EXPECT_NE(run.fault.message.find("cp.async in flight"), std::string::npos) << run.fault.message;
  }
  // One group too many left in flight.
  auto buffers = Numbers(64);
  const RunResult late = RunOn(
      Without(CopyAsync(), "cp.async.wait_group 0;", "cp.async.wait_group 1;"), 32, &buffers, 256);
  EXPECT_EQ(late.fault.code, FaultCode::kLaunchFailed);
  // A wait of one's own copies says nothing about another lane's.
  const RunResult other = RunOn(Without(CopyAsync(), "ld.shared.u32 %r1, [%x5];",
                                        "xor.b64 %x7, %x2, 8; add.s64 %x7, %x7, %x4; "
                                        "ld.shared.u32 %r1, [%x7];"),
                                32, &buffers, 256);
  EXPECT_EQ(other.fault.code, FaultCode::kLaunchFailed);
}

// Warp 0 writes, warp 1 waits for its 32 arrivals and reads; a second phase goes back.
std::string Phases() {
  return Module(2, R"(
  .reg .b32 %r<8>; .reg .b64 %x<10>; .reg .pred %p<4>;
  ld.param.u64 %x1, [p1];
  mov.u32 %r0, %tid.x;
  mov.u64 %x4, smem;
  setp.eq.s32 %p0, %r0, 0;
  @%p0 mbarrier.init.shared.b64 [%x4], 32;
  bar.sync 0;
  and.b32 %r1, %r0, 31;
  mul.wide.u32 %x2, %r1, 4;
  add.s64 %x5, %x4, %x2;
  setp.lt.u32 %p1, %r0, 32;
  @!%p1 bra $reader;
  st.shared.u32 [%x5+16], %r0;
  mbarrier.arrive.shared.b64 %x6, [%x4];
  bra $end;
$reader:
  mbarrier.test_wait.parity.shared.b64 %p2, [%x4], 0;
  @!%p2 bra $reader;
  xor.b32 %r2, %r1, 5;
  mul.wide.u32 %x7, %r2, 4;
  add.s64 %x7, %x4, %x7;
  ld.shared.u32 %r3, [%x7+16];
  add.s64 %x8, %x1, %x2;
  st.global.u32 [%x8], %r3;
$end:
  ret;)",
                kShared);
}

TEST(PhaseBarrierTest, OrdersWhatArrived) {
  auto buffers = Numbers(32);
  ASSERT_EQ(RunOn(Phases(), 64, &buffers, 256).fault.message, "");
  const auto out = ValuesOf<uint32_t>(buffers[1]);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i ^ 5);
  const RunResult unwaited = RunOn(Without(Phases(), "@!%p2 bra $reader;"), 64, &buffers, 256);
  EXPECT_EQ(unwaited.fault.code, FaultCode::kLaunchFailed);
  const RunResult never = RunOn(Without(Phases(), "[%x4], 32;", "[%x4], 33;"), 64, &buffers, 256);
  EXPECT_EQ(never.fault.code, FaultCode::kLaunchTimeout);
  const RunResult unordered = RunOn(Without(Phases(), "bar.sync 0;"), 64, &buffers, 256);
  EXPECT_NE(unordered.fault.code, FaultCode::kNone);
}

TEST(ShuffleTest, MasksMustHold) {
  const std::string text = Module(2, R"(
  .reg .b32 %r<8>; .reg .b64 %x<4>; .reg .pred %p<2>;
  ld.param.u64 %x1, [p1];
  mov.u32 %r0, %tid.x;
  shfl.sync.bfly.b32 %r1, %r0, 3, 31, -1;
  mul.wide.u32 %x2, %r0, 4;
  add.s64 %x3, %x1, %x2;
  st.global.u32 [%x3], %r1;
  ret;)");
  auto buffers = Numbers(32);
  ASSERT_EQ(RunOn(text, 32, &buffers).fault.message, "");
  const auto out = ValuesOf<uint32_t>(buffers[1]);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i ^ 3);
  const std::string shfl = "shfl.sync.bfly.b32 %r1, %r0, 3, 31, -1;";
  // Lanes that do not exist, a lane outside of the mask, a lane that is not in its own.
  EXPECT_EQ(RunOn(text, 16, &buffers).fault.code, FaultCode::kLaunchFailed);
  const std::string pair = "setp.lt.u32 %p0, %r0, 2; @%p0 shfl.sync.bfly.b32 %r1, %r0, 3, 31, 3;";
  EXPECT_EQ(RunOn(Without(text, shfl, pair), 32, &buffers).fault.code, FaultCode::kLaunchFailed);
  EXPECT_EQ(RunOn(Without(text, shfl, "shfl.sync.bfly.b32 %r1, %r0, 3, 31, 15;"), 32, &buffers)
                .fault.code,
            FaultCode::kLaunchFailed);
  // Half of the mask's lanes never come.
  const std::string half = "setp.lt.u32 %p0, %r0, 16; @%p0 " + shfl;
  EXPECT_NE(RunOn(Without(text, shfl, half), 32, &buffers).fault.code, FaultCode::kNone);
}

TEST(BudgetTest, EndlessLoopsEnd) {
  auto buffers = Numbers(32);
  const RunResult run = RunOn(Module(2, "$again: bra $again; ret;"), 32, &buffers, 0, 1, 1'000'000);
  EXPECT_EQ(run.fault.code, FaultCode::kLaunchTimeout);
}

TEST(TrapTest, IsAFault) {
  auto buffers = Numbers(1);
  EXPECT_EQ(RunOn(Module(2, "trap; ret;"), 1, &buffers).fault.code, FaultCode::kLaunchFailed);
}

TEST(AssembleTest, ErrorsNameTheirLine) {
  const struct {
    const char* body;
    const char* part;
  } rows[] = {
      {".reg .b32 %r<3>;\nfrobnicate.b32 %r1, %r2;", "line 8: frobnicate.b32: unknown instruction"},
      {".reg .b32 %r<3>;\nadd.s32 %r1, %r2;", "line 8: add.s32: expected 3 operands"},
      {".reg .b32 %r<3>; .reg .b64 %x<2>;\nadd.s32 %r1, %r2, %x1;", "register %x1"},
      {".reg .b32 %r<3>;\nadd.s32.fast %r1, %r2, 1;", "unknown modifier .fast"},
      {".reg .b32 %r<3>;\nadd.s32 %r1, %r2, %r9;", "unknown name %r9"},
      {".reg .f32 %f<3>;\ndiv.f32 %f1, %f2, %f2;", "a rounding is missing"},
      {".reg .f32 %f<3>;\nadd.rn.f32 %f1, %f2, 1;", "an integer where a float is expected"},
      {"bra $nowhere;", "unknown label $nowhere"},
      {".reg .b32 %r<3>; .reg .b64 %x<2>;\nld.global.v2.u32 %r1, [%x1];", "as many registers"},
      {".reg .b32 %r<3>;\nmov.u32 %r1, %clock;", "unknown name %clock"},
      {"add.s32", "line 8"},
  };
  for (const auto& row : rows) {
    std::vector<std::vector<uint8_t>> none;
    const RunResult run = RunOn(Module(0, row.body), 1, &none);
    EXPECT_NE(run.error.find(row.part), std::string::npos) << row.body << ": " << run.error;
  }
}

TEST(AssembleTest, TargetsAndVersionsAreChecked) {
  const auto error = [](const std::string& version, const std::string& target, int major,
                        int minor) {
    return ReadModule(".version " + version + "\n.target " + target + "\n.address_size 64\n",
                      {.major = major, .minor = minor})
        .error;
  };
  EXPECT_EQ(error("7.1", "sm_80", 8, 0), AssembleError::kNone);
  EXPECT_EQ(error("7.1", "sm_80", 9, 0), AssembleError::kNone);
  EXPECT_EQ(error("7.1", "sm_80", 7, 5), AssembleError::kNoBinaryForGpu);
  EXPECT_EQ(error("8.0", "sm_90a", 9, 0), AssembleError::kNone);
  EXPECT_EQ(error("8.0", "sm_90a", 10, 0), AssembleError::kNoBinaryForGpu);
  EXPECT_EQ(error("8.0", "sm_9x", 9, 0), AssembleError::kInvalidPtx);
  EXPECT_EQ(error("9.9", "sm_80", 9, 0), AssembleError::kUnsupportedPtxVersion);
}

}  // namespace
}  // namespace fakecuda
