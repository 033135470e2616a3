// The order of loops: what iterations share in lines counts as read again where the cache does not
// keep it as long.
#include "engine/lowering/loop_order.h"

#include <gtest/gtest.h>

#include <optional>

namespace telegrad {
namespace {

constexpr int64_t kRows = 64, kColumns = 4096, kLine = 16;  // elements of f32

// The ids of the ranges, outermost first.
std::vector<int64_t> OrderOf(const FrozenGraph& kernel, int64_t cache_bytes) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.threads = 1;
  target.cache_bytes = cache_bytes;
  const std::optional<KernelShape> shape = ReadShape(kernel.root(), target);
  EXPECT_TRUE(shape.has_value());
  if (!shape) return {};
  const std::vector<int64_t> tile(shape->size.size(), 1);
  std::vector<int64_t> ids;
  for (const int loop : OrderLoops(*shape, tile, target, /*vectors=*/0, /*blocked=*/-1).loops) {
    ids.push_back(shape->d.ranges[static_cast<size_t>(loop)].range_id());
  }
  return ids;
}

// c[i, j] = a[j, i]. Elements of `a` with neighbouring i share lines, and each element of `c` has a
// line of its own, so that only what is read makes a difference.
FrozenGraph Transpose() {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(kRows));
  const UOp j = g.Range(1, AxisType::kLoop, g.Index(kColumns));
  const auto at = [&](int64_t slot, int64_t of_i, int64_t of_j) {
    const UOp memory = g.Param(slot, DType::kFloat32, Shape{kRows * kColumns * kLine});
    const UOp row = g.Make(Op::kMul, {i, g.Index(of_i)}),
              column = g.Make(Op::kMul, {j, g.Index(of_j)});
    return g.Make(Op::kIndex, {memory, g.Make(Op::kAdd, {row, column})});
  };
  const UOp value = g.Make(Op::kLoad, {at(1, 1, kRows)});
  const UOp store = g.Make(Op::kStore, {at(0, kColumns * kLine, kLine), value});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i, j}, {})}));
}

std::vector<int64_t> OrderWithCache(int64_t bytes) { return OrderOf(Transpose(), bytes); }

// c[i, j] = a[j, i] of 1,024 x 1,024, or c[j, i] = a[i, j].
FrozenGraph Square(bool reads_on) {
  constexpr int64_t kSide = 1024;
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(kSide));
  const UOp j = g.Range(1, AxisType::kLoop, g.Index(kSide));
  const auto at = [&](int64_t slot, UOp row, UOp column) {
    const UOp memory = g.Param(slot, DType::kFloat32, Shape{kSide * kSide});
    const UOp begin = g.Make(Op::kMul, {row, g.Index(kSide)});
    return g.Make(Op::kIndex, {memory, g.Make(Op::kAdd, {begin, column})});
  };
  const UOp value = g.Make(Op::kLoad, {reads_on ? at(1, i, j) : at(1, j, i)});
  const UOp store = g.Make(Op::kStore, {reads_on ? at(0, j, i) : at(0, i, j), value});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i, j}, {})}));
}

// Both orders touch as many lines; only loads wait for them.
TEST(LoopOrderTest, OfAlikeOrdersTheOneThatLoadsOn) {
  EXPECT_EQ(OrderOf(Square(false), int64_t{1} << 20), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(OrderOf(Square(true), int64_t{1} << 20), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(OrderOf(Square(false), int64_t{16} << 20), (std::vector<int64_t>{0, 1}));
}

// One i walks 4,096 lines, of which the next i reads the next elements.
TEST(LoopOrderTest, LinesThatTheCacheDoesNotKeepAreReadTogether) {
  EXPECT_EQ(OrderWithCache(int64_t{256} << 10), (std::vector<int64_t>{1, 0}));
}

TEST(LoopOrderTest, LinesThatTheCacheKeepsLeaveTheOrderAsItIs) {
  EXPECT_EQ(OrderWithCache(int64_t{16} << 20), (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace telegrad
