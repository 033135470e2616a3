// Where a layout puts the elements of a tile: each at a place of its own, inside of the buffer, and
// what is accessed together in different banks.
#include "engine/lowering/layout.h"

#include <set>

#include "engine/base/budget.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

class LayoutTest : public ::testing::Test {
 protected:
  int64_t At(const Layout& layout, int64_t row, int64_t column) {
    const UOp place[] = {g_.Index(row), g_.Index(column)};
    const UOp number = layout.At(b_, place);
    EXPECT_TRUE(number.is_const());
    return number.const_word();
  }

  void ExpectPlaces(const Layout& layout) {
    std::set<int64_t> places;
    for (int64_t row = 0; row < layout.axes[0].size; ++row) {
      for (int64_t column = 0; column < layout.axes[1].size; ++column) {
        const int64_t at = At(layout, row, column);
        EXPECT_GE(at, 0);
        EXPECT_LT(at, layout.elements());
        EXPECT_TRUE(places.insert(at).second) << row << ", " << column;
      }
    }
  }

  Graph g_;
  Budget budget_;
  Rewriter b_{&g_, {&kAlgebra, &kDivMod}, &budget_};
};

TEST_F(LayoutTest, GapsAreBehindEachRow) {
  const Layout layout{.axes = {{.size = 6}, {.size = 12, .gap = 4}}};
  EXPECT_EQ(layout.elements(), 6 * 16);
  EXPECT_EQ(At(layout, 0, 11), 11);
  EXPECT_EQ(At(layout, 2, 3), 2 * 16 + 3);
  ExpectPlaces(layout);
}

// Eight rows of which one chunk of 8 elements each is read at once fall onto all eight banks of a
// chunk's width, and a chunk's elements stay neighbours.
TEST_F(LayoutTest, ExchangedChunksOfEightRowsFallOntoAllBanks) {
  constexpr int64_t kChunk = 8, kBanks = 8;
  for (const int64_t columns : {16, 32, 64, 128, 256}) {
    SCOPED_TRACE(columns);
    const std::optional<Swizzle> swizzle = SwizzleOf(columns, kChunk, kBanks);
    ASSERT_TRUE(swizzle.has_value());
    const Layout layout{.axes = {{.size = 24}, {.size = columns}}, .swizzle = *swizzle};
    EXPECT_EQ(layout.elements(), 24 * columns);
    ExpectPlaces(layout);
    for (int64_t first = 0; first < 24; first += 8) {
      for (int64_t column = 0; column < columns; column += kChunk) {
        std::set<int64_t> banks;
        for (int64_t row = first; row < first + 8; ++row) {
          const int64_t at = At(layout, row, column);
          EXPECT_EQ(At(layout, row, column + kChunk - 1), at + kChunk - 1);
          banks.insert(at / kChunk % kBanks);
        }
        EXPECT_EQ(banks.size(), 8u);
      }
    }
  }
  EXPECT_FALSE(SwizzleOf(48, kChunk, kBanks).has_value());
  EXPECT_FALSE(SwizzleOf(20, kChunk, kBanks).has_value());
}

// As many threads as there are banks each store a chunk, or twice as many half of one, of rows in
// their order: no two of them fall onto the same bank.
TEST_F(LayoutTest, RowsThatAreStoredAtOnceFallOntoAllBanks) {
  constexpr int64_t kHalf = 4;  // elements
  for (const int64_t banks : {4, 8, 16, 32}) {
    for (int64_t row_chunks = 2; row_chunks < banks; row_chunks *= 2) {
      for (const int64_t gap : {2 * kHalf, kHalf}) {
        SCOPED_TRACE(testing::Message() << banks << " " << row_chunks << " " << gap);
        const RowOrder order = OrderOf(row_chunks, 2 * kHalf, gap, banks);
        if (gap == kHalf && 2 * row_chunks != banks) {
          EXPECT_EQ(order.group, 1);  // there is no such order
          continue;
        }
        ASSERT_GT(order.group, 1);
        const Layout layout{
            .axes = {{.size = 4 * order.group}, {.size = row_chunks * 2 * kHalf, .gap = gap}}};
        const int64_t unit = gap;  // elements that a thread stores
        const int64_t together = banks * 2 * kHalf / unit, threads_of_row = row_chunks;
        for (int64_t first = 0; first < 2 * order.group; first += together / threads_of_row) {
          std::set<int64_t> taken;
          for (int64_t thread = 0; thread < together; ++thread) {
            const UOp row = order.RowAt(b_, g_.Index(first + thread / threads_of_row));
            ASSERT_TRUE(row.is_const());
            const int64_t at = At(layout, row.const_word(), thread % threads_of_row * 2 * kHalf);
            taken.insert(at / unit % together);
          }
          EXPECT_EQ(static_cast<int64_t>(taken.size()), together);
        }
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
