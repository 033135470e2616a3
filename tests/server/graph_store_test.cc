// The graphs of a tenant: how many are kept, and what a run of one writes.
#include "server/tenant/graph_store.h"

#include "gtest/gtest.h"
#include "tests/server/copy_graph.h"

namespace telegrad {
namespace {

TEST(GraphStoreTest, EvictsTheLeastRecentlyUsed) {
  Metrics metrics;
  const auto count = std::make_shared<Account>("graphs", 2, ""),
             bytes = std::make_shared<Account>("graph_bytes", 100, "");
  GraphStore store(count, bytes, &metrics);
  const auto put = [&](int64_t elements, int64_t bytes) {
    const FrozenGraph graph = CopyGraph(elements);
    const Digest hash = ContentHash(graph.root());
    EXPECT_TRUE(store.Put({graph, hash}, bytes).ok());
    return hash;
  };
  const Digest a = put(1, 40), b = put(2, 40);
  EXPECT_NE(store.Find(a), nullptr);
  const Digest c = put(3, 40);
  EXPECT_EQ(store.Find(b), nullptr) << "b was used least recently";
  EXPECT_NE(store.Find(a), nullptr);
  const Digest d = put(4, 90);
  EXPECT_EQ(store.Find(a), nullptr) << "d leaves room for no other";
  EXPECT_EQ(store.Find(c), nullptr);
  EXPECT_EQ(metrics.count(Metric::kGraphBytes), 90);
  EXPECT_EQ(bytes->used(), 90);
  EXPECT_EQ(count->used(), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(store.Put({CopyGraph(5), d}, 101).status()));
}

TEST(GraphStoreTest, KnowsWhatARunWrites) {
  const auto effects = SlotEffects(CopyGraph(3));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_TRUE(effects[0].written && effects[0].replaced);
  EXPECT_EQ(effects[0].bytes, 12);
  EXPECT_FALSE(effects[1].written || effects[1].replaced);

  Graph g;  // slot 0 is read and its first half written
  const int64_t dims[] = {4};
  const int64_t half[] = {0, 2};
  const UOp p = g.Param(0, DType::kFloat32, dims);
  const UOp view = g.Make(Op::kShrink, {p}, half);
  const UOp store = g.Make(Op::kStore, {view, g.Make(Op::kNeg, {view})});
  const auto partial = SlotEffects(Freeze(g.Make(Op::kSink, {store})));
  ASSERT_EQ(partial.size(), 1u);
  EXPECT_TRUE(partial[0].written);
  EXPECT_FALSE(partial[0].replaced);
}

}  // namespace
}  // namespace telegrad
