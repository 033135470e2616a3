// Which accesses are done row by row, and where the order of a program forbids it.
#include "engine/render/transposes.h"

#include <limits>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kRowStep = 64, kColumnLanes = 16, kLeastStep = 5;

// A program of loads and stores whose lanes are rows of kRowStep elements apart.
class TransposesTest : public testing::Test {
 protected:
  TransposesTest() {
    SetLanes(kColumnLanes);
    target_.vector_bytes = 64;
    program_.graph = graph_;
    program_.arguments.resize(2);
  }

  void SetLanes(int64_t lanes) {
    const UOp iota =
        Add(graph_->Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {lanes}));
    rows_ = Add(graph_->Make(Op::kMul, {iota, graph_->Index(kRowStep)}));
  }
  UOp Add(UOp u) {
    program_.order.push_back(u.id());
    return u;
  }
  // Element `column` of each row, beyond what `term` tells.
  UOp At(int64_t slot, int64_t column, UOp term = {}, UOp gate = {}, UOp after = {}) {
    Graph& g = *graph_;
    UOp memory = g.Param(slot, DType::kFloat32, Shape{1 << 20});
    if (after.valid()) memory = g.Make(Op::kAfter, {memory, after});
    UOp index = g.Make(Op::kAdd, {g.Index(column), rows_});
    if (term.valid()) index = g.Make(Op::kAdd, {term, index});
    return gate.valid() ? g.Make(Op::kIndex, {memory, index, gate})
                        : g.Make(Op::kIndex, {memory, index});
  }
  UOp Load(UOp address) { return Add(graph_->Make(Op::kLoad, {address})); }
  UOp Store(UOp address, UOp value) { return Add(graph_->Make(Op::kStore, {address, value})); }
  UOp Some() { return Load(At(1, 1000 * ++others_)); }

  std::vector<Transpose> Find() const { return FindTransposes(program_, target_, kLeastStep); }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  Program program_;
  Target target_;
  UOp rows_;
  int64_t others_ = 0;
};

TEST_F(TransposesTest, ElementsThatAreReplacedAreARectangleEachWay) {
  std::vector<UOp> loads, stores;
  for (int64_t i = 0; i < 7; ++i) {
    loads.push_back(Load(At(0, i)));
    stores.push_back(Store(At(0, i), loads.back()));
  }
  EXPECT_EQ(Find(), (std::vector<Transpose>{loads, stores}));
}

// With AVX2, rows that are shorter than a vector are loaded with masks and not stored so; with SSE
// neither.
TEST_F(TransposesTest, ShortRowsAreATargetsChoice) {
  for (const int bytes : {16, 32}) {
    program_.order.clear();
    SetLanes(bytes / 4);
    target_.vector_bytes = bytes;
    for (int64_t i = 0; i < 13; ++i) Store(At(0, i), Load(At(1, i)));
    std::vector<size_t> loads, stores;
    for (const Transpose& t : Find()) (t[0].is(Op::kLoad) ? loads : stores).push_back(t.size());
    EXPECT_EQ(loads, bytes == 32 ? (std::vector<size_t>{8, 5}) : (std::vector<size_t>{4, 4, 4}));
    EXPECT_EQ(stores, bytes == 32 ? (std::vector<size_t>{8}) : (std::vector<size_t>{4, 4, 4}));
  }
}

TEST_F(TransposesTest, LongRowsAreCut) {
  for (int64_t i = 30; i-- > 0;) Load(At(1, i));
  const std::vector<Transpose> found = Find();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].size(), 16u);
  EXPECT_EQ(found[1].size(), 14u);
}

TEST_F(TransposesTest, WhatHasBeenStoredIsLoadedThere) {
  for (int64_t i = 0; i < 8; ++i) {
    const UOp store = Store(At(0, i), Some());
    Load(At(0, i, {}, {}, store));
  }
  EXPECT_TRUE(Find().empty());
}

TEST_F(TransposesTest, StoresThatMayMeetKeepTheirOrder) {
  const UOp i = graph_->Range(0, AxisType::kLoop, graph_->Index(8));
  const UOp term = Add(graph_->Make(Op::kMul, {i, graph_->Index(8)}));
  for (int64_t c = 0; c < 8; ++c) {
    Store(At(0, c), Some());
    Store(At(0, c, term), Some());
  }
  EXPECT_TRUE(Find().empty()) << "other terms";
}

TEST_F(TransposesTest, RowsOfOneStoreAreNoRowsOfAnother) {
  for (const int64_t rows : {kColumnLanes - 1, kColumnLanes}) {
    program_.order.clear();
    Add(rows_);
    for (int64_t c = 0; c < 8; ++c) {
      Store(At(0, c), Some());
      Store(At(0, c + rows * kRowStep), Some());
    }
    EXPECT_EQ(Find().size(), rows == kColumnLanes ? 2u : 0u) << rows;
  }
}

// Indices are sums modulo 2^64, so that constants may have any value.
TEST_F(TransposesTest, ConstantsOfAnySize) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (int64_t c = 0; c < 5; ++c) {
    Store(At(0, kLeast + c), Some());
    Store(At(0, kMost - c), Some());
  }
  for (const Transpose& t : Find()) EXPECT_EQ(t.size(), 5u);
  EXPECT_EQ(Find().size(), 2u) << "the greatest and the least are no neighbours";
}

TEST_F(TransposesTest, LoopsAndGatesEndThem) {
  const UOp i = graph_->Range(0, AxisType::kLoop, graph_->Index(8));
  const UOp gate = graph_->Make(Op::kCmpLt, {i, graph_->Index(5)});
  for (int64_t c = 0; c < 8; ++c) Load(At(1, c, {}, gate));
  EXPECT_TRUE(Find().empty()) << "gates";
  for (int64_t c = 0; c < 3; ++c) Load(At(1, c));
  const UOp last = Load(At(1, 3));
  EXPECT_EQ(Find().size(), 1u);
  program_.order.pop_back();
  Add(i);
  Add(last);
  EXPECT_TRUE(Find().empty()) << "a loop begins";
}

}  // namespace
}  // namespace telegrad
