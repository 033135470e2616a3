// What a launch counts: instructions of warps by kind, and how accesses suit the memories.
#include "tests/fakes/cuda/ptx/counts.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/fakes/cuda/ptx/banks.h"
#include "tests/fakes/cuda/ptx/code.h"
#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

using Function = std::function<uint64_t(uint64_t lane)>;

std::vector<uint64_t> Addresses(const Function& address) {
  std::vector<uint64_t> addresses;
  for (uint64_t lane = 0; lane < kLanes; ++lane) addresses.push_back(address(lane));
  return addresses;
}

uint64_t Conflicts(uint32_t bytes, const Function& address, uint32_t lanes = kAllLanes) {
  return BankConflicts(Addresses(address).data(), 1024, lanes, bytes);
}

TEST(BanksTest, NeighboursFillThem) {
  for (const uint32_t bytes : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(Conflicts(bytes, [&](uint64_t lane) { return lane * bytes; }), 0u) << bytes;
  }
}

TEST(BanksTest, StridesMeet) {
  EXPECT_EQ(Conflicts(4, [](uint64_t lane) { return lane * 8; }), 1u);
  EXPECT_EQ(Conflicts(4, [](uint64_t lane) { return lane * 128; }), 31u);
  EXPECT_EQ(Conflicts(4, [](uint64_t lane) { return lane * 132; }), 0u);
  // Of 16 and of 8 lanes at once.
  EXPECT_EQ(Conflicts(8, [](uint64_t lane) { return lane * 128; }), 2 * 15u);
  EXPECT_EQ(Conflicts(16, [](uint64_t lane) { return lane * 128; }), 4 * 7u);
  EXPECT_EQ(Conflicts(16, [](uint64_t lane) { return lane * 144; }), 0u);
  EXPECT_EQ(Conflicts(16, [](uint64_t lane) { return lane * 128; }, 0x80000001), 0u);
}

TEST(BanksTest, OneWordServesAllLanes) {
  EXPECT_EQ(Conflicts(4, [](uint64_t) { return 40; }), 0u);
  EXPECT_EQ(Conflicts(2, [](uint64_t lane) { return lane % 2 * 2; }), 0u);
  EXPECT_EQ(Conflicts(4, [](uint64_t lane) { return lane % 12 * 128; }), 11u);
}

TEST(SectorsTest, AreThoseThatAWarpTouches) {
  const auto sectors = [](uint32_t bytes, const Function& address, uint32_t lanes = kAllLanes) {
    return Sectors(Addresses(address).data(), 0, lanes, bytes);
  };
  EXPECT_EQ(sectors(4, [](uint64_t lane) { return lane * 4; }), 4u);
  EXPECT_EQ(sectors(4, [](uint64_t lane) { return 16 + lane * 4; }), 5u);
  EXPECT_EQ(sectors(16, [](uint64_t lane) { return lane * 16; }), 16u);
  EXPECT_EQ(sectors(4, [](uint64_t lane) { return lane * 4096; }), 32u);
  EXPECT_EQ(sectors(4, [](uint64_t lane) { return lane * 4096; }, 7), 3u);
}

// One warp, one of each kind.
TEST(CountsTest, AreOfTheWholeLaunch) {
  std::vector<std::vector<uint8_t>> buffers = {std::vector<uint8_t>(4096)};
  const RunResult run = RunPtx(Module(1, R"(
    .reg .b32 %r<16>; .reg .b64 %x<4>; .reg .f32 %f<8>;
    ld.param.u64 %x0, [p0];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 3;
    mov.u32 %r2, s;
    add.s32 %r2, %r2, %r1;
    st.shared.u32 [%r2], %r0;
    st.shared.u32 [%r2+4], %r0;
    bar.warp.sync -1;
    ld.shared.v2.u32 {%r3, %r4}, [%r2];
    shl.b32 %r5, %r0, 4;
    mov.u32 %r6, s;
    and.b32 %r5, %r5, 255;
    add.s32 %r6, %r6, %r5;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r7, %r8}, [%r6];
    mov.f32 %f0, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r7, %r8, %r7, %r8}, {%r7, %r8}, {%f0, %f0, %f0, %f0};
    bar.warp.sync -1;
    mul.wide.u32 %x1, %r0, 128;
    add.s64 %x1, %x0, %x1;
    cp.async.ca.shared.global [%r2], [%x1], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    st.global.f32 [%x1], %f1;
    ret;)",
                                      ".shared .align 16 .b8 s[256];"),
                               {.block = {32, 1, 1}}, &buffers);
  EXPECT_EQ(run.error + run.fault.message, "");
  const auto count = [&](InstructionKind kind) {
    return run.counts.instructions[static_cast<size_t>(kind)];
  };
  EXPECT_EQ(count(InstructionKind::matrix_instructions), 1u);
  EXPECT_EQ(count(InstructionKind::shared_loads), 2u);
  EXPECT_EQ(count(InstructionKind::shared_stores), 2u);
  EXPECT_EQ(count(InstructionKind::global_loads), 0u);
  EXPECT_EQ(count(InstructionKind::global_stores), 1u);
  EXPECT_EQ(count(InstructionKind::async_copies), 1u);
  EXPECT_EQ(count(InstructionKind::waits), 4u);
  EXPECT_EQ(count(InstructionKind::branches), 1u);
  EXPECT_EQ(count(InstructionKind::other_instructions), 12u);
  EXPECT_EQ(run.counts.load_conflicts, 0u);
  EXPECT_EQ(run.counts.store_conflicts, 3u);  // words 8 bytes apart, one cycle more each
  EXPECT_EQ(run.counts.global_bytes, 2u * 32 * 4);
  EXPECT_EQ(run.counts.global_sectors, 2u * 32);
}

}  // namespace
}  // namespace fakecuda
