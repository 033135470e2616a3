#include "engine/execution/run_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace telegrad {
namespace {

using ::testing::ElementsAre;

uint64_t Bits(double share) { return std::bit_cast<uint64_t>(share); }

class RunPartsTest : public ::testing::Test {
 protected:
  // Kernel 1 has a quarter of its work at 0 and ceil(n / 2) workgroups, kernel 2 has all of it.
  RunPartsTest() {
    parts_.variables = {{.id = 3, .min = 0, .max = 1024}};
    Graph g;
    const UOp n =
        g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(5, DType::kInt64, Shape{1}), g.Index(0)})});
    const UOp up = g.Make(Op::kAdd, {n, g.Index(1)});
    parts_.kernels = {{.kernel = 1,
                       .least_share = 0.25,
                       .groups = Freeze(g.Make(Op::kFloorDiv, {up, g.Index(2)}))},
                      {.kernel = 2}};
  }
  std::vector<uint64_t> At(int64_t n) {
    const std::vector<VarValue> values{{3, n}};
    return parts_.Scalars(values, std::vector<int64_t>{7, 512, 9});
  }

  RunParts parts_;
};

TEST_F(RunPartsTest, ScalarsFollowTheValues) {
  EXPECT_THAT(At(0), ElementsAre(0, Bits(0.25), 9, Bits(1)));
  EXPECT_THAT(At(13), ElementsAre(7, Bits(0.25 + 0.75 * 13 / 1024), 9, Bits(1)));
  EXPECT_THAT(At(512), ElementsAre(256, Bits(0.625), 9, Bits(1)));
  EXPECT_THAT(At(1024), ElementsAre(512, Bits(1), 9, Bits(1)));
}

// Of a graph that a GPU replays each change has a cost.
TEST_F(RunPartsTest, WorkgroupsAreRoundedUp) {
  int changes = 0;
  uint64_t before = 0;
  for (int64_t n = 1; n <= 1024; ++n) {
    const uint64_t groups = At(n)[0], least = static_cast<uint64_t>(n + 1) / 2;
    EXPECT_GE(groups, least);
    EXPECT_LE(groups, least + least / 8);
    changes += groups != before ? 1 : 0;
    before = groups;
  }
  EXPECT_LE(changes, 64);
}

TEST_F(RunPartsTest, WithoutValuesARunDoesAll) {
  EXPECT_THAT(parts_.Scalars({}, std::vector<int64_t>{7, 512, 9}),
              ElementsAre(512, Bits(1), 9, Bits(1)));
}

TEST_F(RunPartsTest, LaunchesTakeTheirOwn) {
  Launch none, first, second;
  parts_.Mark(0, &none);
  parts_.Mark(1, &first);
  parts_.Mark(2, &second);
  EXPECT_EQ(none.groups, -1);
  EXPECT_EQ(none.share, -1);
  EXPECT_EQ(first.groups, 0);
  EXPECT_EQ(first.share, 1);
  EXPECT_EQ(second.groups, -1);
  EXPECT_EQ(second.share, 3);
}

}  // namespace
}  // namespace telegrad
