// Conflicts in the banks of local memory: what accesses of known patterns add, and that the counts
// of a launch have it.
#include "tests/fakes/amd/banks.h"

#include <functional>

#include "tests/fakes/amd/code.h"
#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

constexpr uint64_t kAllLanes = ~uint64_t{0};

uint64_t Conflicts(uint32_t bytes, const std::function<uint32_t(uint32_t lane)>& address,
                   LaneOrder order = LaneOrder::kNeighbours, uint64_t active = kAllLanes) {
  uint32_t addresses[kMaxLanes];
  for (uint32_t lane = 0; lane < kMaxLanes; ++lane) addresses[lane] = address(lane);
  return BankConflicts(addresses, 0, active, bytes, order);
}

// Sixteen bytes each, in chunks of which each 8 neighbours use all banks; but chunks of the lanes
// 20 to 23 are in the banks of those of lanes 0 to 3.
uint32_t Crossed(uint32_t lane) { return 16 * (lane ^ (lane & 16) >> 2); }

TEST(AmdBanks, NeighboursFillThem) {
  for (const uint32_t bytes : {1, 2, 4, 8, 12, 16}) {
    EXPECT_EQ(Conflicts(bytes, [&](uint32_t lane) { return lane * bytes; }), 0u) << bytes;
  }
}

TEST(AmdBanks, StridesMeet) {
  // In each half of a wave: of 32 lanes, 2, 32 and again none in a bank.
  EXPECT_EQ(Conflicts(4, [](uint32_t lane) { return lane * 8; }), 2u);
  EXPECT_EQ(Conflicts(4, [](uint32_t lane) { return lane * 128; }), 62u);
  EXPECT_EQ(Conflicts(4, [](uint32_t lane) { return lane * 132; }), 0u);
  // Of 16 and of 8 lanes at once.
  EXPECT_EQ(Conflicts(8, [](uint32_t lane) { return lane * 128; }), 4 * 15u);
  EXPECT_EQ(Conflicts(16, [](uint32_t lane) { return lane * 128; }), 8 * 7u);
  EXPECT_EQ(Conflicts(16, [](uint32_t lane) { return lane * 144; }), 0u);
}

TEST(AmdBanks, OneWordServesAllLanes) {
  EXPECT_EQ(Conflicts(4, [](uint32_t) { return 40; }), 0u);
  EXPECT_EQ(Conflicts(1, [](uint32_t lane) { return lane % 4; }), 0u);
  // Words of one bank: as many cycles as there are different ones.
  EXPECT_EQ(Conflicts(4, [](uint32_t lane) { return lane % 12 * 128; }), 2 * 11u);
}

TEST(AmdBanks, OnlyActiveLanesMeet) {
  const auto together = [](uint32_t lane) { return lane * 128; };
  EXPECT_EQ(Conflicts(4, together, LaneOrder::kNeighbours, 0), 0u);
  EXPECT_EQ(Conflicts(4, together, LaneOrder::kNeighbours, 0x100000001), 0u);  // of two halves
  EXPECT_EQ(Conflicts(4, together, LaneOrder::kNeighbours, 0x80000001), 1u);
}

TEST(AmdBanks, LoadsOf16BytesPairOtherLanesOnGfx9) {
  EXPECT_EQ(Conflicts(16, Crossed), 0u);
  EXPECT_EQ(Conflicts(16, Crossed, LaneOrder::kLoadsOf16OnGfx9), 8u);
  EXPECT_EQ(
      Conflicts(16, [](uint32_t lane) { return lane * 16; }, LaneOrder::kLoadsOf16OnGfx9), 0u);
  EXPECT_EQ(
      Conflicts(16, [](uint32_t lane) { return lane * 128; }, LaneOrder::kLoadsOf16OnGfx9), 8 * 7u);
}

class AmdBankCounts : public testing::TestWithParam<std::string> {
 protected:
  // Each of 128 threads stores a value at `place`, which follows from %local, and loads it again.
  Counts CountsOf(const std::string& type, const std::string& value, const std::string& place) {
    const std::string body = "  %local = call i32 @llvm.amdgcn.workitem.id.x()\n" + place +
                             "  %p = getelementptr i8, ptr addrspace(3) @shared, i32 %place\n"
                             "  store volatile " +
                             type + " " + value +
                             ", ptr addrspace(3) %p, align 16\n"
                             "  %x = load volatile " +
                             type + ", ptr addrspace(3) %p, align 16\n  ret void";
    std::vector<Bytes> buffers = {Bytes(4)};
    const TestRun run = RunIr(KernelIr("test", "ptr addrspace(1) %out", body, 128) +
                                  "@shared = external addrspace(3) global [0 x i8], align 16\n",
                              GetParam(), {.threads = 128, .local_bytes = 16384}, &buffers);
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.fault.message, "");
    return run.counts;
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, AmdBankCounts, testing::ValuesIn(Processors()),
                         [](const auto& info) { return info.param; });

TEST_P(AmdBankCounts, Strides) {
  Counts counts = CountsOf("i32", "1", "  %place = mul i32 %local, 16\n");
  EXPECT_EQ(counts.store_conflicts, 4 * 3u);
  EXPECT_EQ(counts.load_conflicts, 4 * 3u);
  counts = CountsOf("i32", "1", "  %place = mul i32 %local, 128\n");
  EXPECT_EQ(counts.store_conflicts, 4 * 31u);
  EXPECT_EQ(counts.load_conflicts, 4 * 31u);
  counts = CountsOf("<4 x i32>", "zeroinitializer", "  %place = mul i32 %local, 16\n");
  EXPECT_EQ(counts.store_conflicts, 0u);
  EXPECT_EQ(counts.load_conflicts, 0u);
}

TEST_P(AmdBankCounts, ChunksOf16Bytes) {
  const Counts counts = CountsOf("<4 x i32>", "zeroinitializer",
                                 "  %bit = and i32 %local, 16\n"
                                 "  %flip = lshr i32 %bit, 2\n"
                                 "  %chunk = xor i32 %local, %flip\n"
                                 "  %place = mul i32 %chunk, 16\n");
  EXPECT_EQ(counts.store_conflicts, 0u);
  EXPECT_EQ(counts.load_conflicts, GetParam().starts_with("gfx9") ? 2 * 8u : 0u);
}

}  // namespace
}  // namespace fakeamd
