// How many parts and transfers a graph for several devices becomes, what they send, and which
// graphs are refused. That they compute the right thing is tests/conformance/partition_test.cc.
#include "engine/schedule/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/schedule/legalize.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

Placement On(int64_t devices, AllReduceAlgorithm algorithm = AllReduceAlgorithm::kBySize) {
  Placement placement;
  for (int64_t i = 0; i < devices; ++i) placement.device_of.push_back(i);
  placement.all_reduce = algorithm;
  return placement;
}

class PartitionTest : public ::testing::Test {
 protected:
  UOp Param(int64_t slot, Shape dims, int64_t device, DType dtype = kF32) {
    return g_.Param(slot, dtype, dims, device);
  }
  UOp Copy(UOp x, std::vector<int64_t> devices) { return g_.Make(Op::kCopy, {x}, devices); }
  UOp Store(UOp to, UOp value) { return g_.Make(Op::kStore, {to, value}); }
  UOp Select(UOp x, int64_t i) { return g_.Make(Op::kMSelect, DType::kVoid, {x}, {i}); }
  UOp Sink(const std::vector<UOp>& stores) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    return sink;
  }
  Partition Run(const std::vector<UOp>& stores, const Placement& placement) {
    Budget budget;
    auto partition = PartitionGraph(Sink(stores), {}, placement, &budget);
    EXPECT_TRUE(partition.ok()) << partition.status();
    return partition.ok() ? *std::move(partition) : Partition{};
  }
  absl::Status Error(const std::vector<UOp>& stores, const Placement& placement,
                     const Budget::Limits& limits = {}) {
    Budget budget(limits);
    return PartitionGraph(Sink(stores), {}, placement, &budget).status();
  }
  // An ALLREDUCE of one input for each device; the result is stored on each.
  std::vector<UOp> AllReduced(int64_t n, int64_t elements, DType dtype = kF32, bool made = false) {
    std::vector<UOp> shards, stores;
    for (int64_t d = 0; d < n; ++d) {
      UOp x = Param(2 * d, {elements}, d, dtype);
      if (made) x = g_.Make(Op::kSqrt, {x});
      shards.push_back(x);
    }
    const UOp sum =
        g_.Make(Op::kAllReduce, DType::kVoid, {g_.Make(Op::kMStack, DType::kVoid, shards)}, {0});
    for (int64_t d = 0; d < n; ++d) {
      stores.push_back(Store(Param(2 * d + 1, {elements}, d, dtype), Select(sum, d)));
    }
    return stores;
  }

  Graph g_;
};

int Transfers(const Partition& p) { return static_cast<int>(p.steps.size()) - p.num_parts(); }

TEST_F(PartitionTest, DevicesThatShareNothingAreOnePartEach) {
  std::vector<UOp> stores;
  for (int64_t d = 0; d < 3; ++d) {
    stores.push_back(Store(Param(2 * d, {8}, d), g_.Make(Op::kNeg, {Param(2 * d + 1, {8}, d)})));
  }
  const Partition p = Run(stores, On(3));
  EXPECT_EQ(p.num_parts(), 3);
  EXPECT_EQ(Transfers(p), 0);
  std::set<std::string> graphs;
  for (const PartitionStep& step : p.steps) {
    graphs.insert(ContentHash(step.graph.root()).Hex());
    EXPECT_TRUE(step.waits.empty());
  }
  EXPECT_EQ(graphs.size(), 1u) << "devices that do the same have equal parts";
}

TEST_F(PartitionTest, NumbersOfOneDeviceAreOnePart) {
  const UOp x = Copy(g_.Make(Op::kNeg, {Param(0, {8}, 0)}), {1});
  Placement placement;
  placement.device_of = {5, 5};
  const std::vector<UOp> stores{Store(Param(1, {8}, 1), x)};
  const Partition p = Run(stores, placement);
  EXPECT_EQ(p.num_parts(), 1);
  EXPECT_EQ(Transfers(p), 0);
  EXPECT_EQ(p.steps[0].device, 5);
}

TEST_F(PartitionTest, AnInputIsSentWithoutAPart) {
  const UOp x = Copy(Param(0, {8}, 0), {1});
  const Partition p = Run({Store(Param(1, {8}, 1), g_.Make(Op::kNeg, {x}))}, On(2));
  EXPECT_EQ(p.num_parts(), 1);
  ASSERT_EQ(Transfers(p), 1);
  EXPECT_EQ(p.steps[0].bytes, 32);
  EXPECT_TRUE(p.steps[0].waits.empty());
  EXPECT_EQ(p.steps[1].waits, std::vector<int32_t>{0});
}

TEST_F(PartitionTest, APieceOfAnInputIsSentFromWhereItLies) {
  const UOp rows = g_.Make(Op::kShrink, {Param(0, {6, 4}, 0)}, Shape{2, 3, 0, 4});
  const Partition p = Run({Store(Param(1, {3, 4}, 1), Copy(rows, {1}))}, On(2));
  ASSERT_EQ(Transfers(p), 1);
  EXPECT_EQ(p.num_parts(), 1);
  EXPECT_EQ(p.steps[0].from_offset, 2 * 4 * 4);
  EXPECT_EQ(p.steps[0].bytes, 3 * 4 * 4);
}

TEST_F(PartitionTest, AColumnIsGatheredBeforeItIsSent) {
  const UOp column = g_.Make(Op::kShrink, {Param(0, {6, 4}, 0)}, Shape{0, 6, 1, 1});
  const Partition p = Run({Store(Param(1, {6, 1}, 1), Copy(column, {1}))}, On(2));
  EXPECT_EQ(p.num_parts(), 2);
  EXPECT_EQ(p.BytesSent(2), (std::vector<int64_t>{6 * 4, 0}));
}

TEST_F(PartitionTest, AViewMovesAsItsSmallestSource) {
  const UOp wide = g_.Make(Op::kExpand, {Param(0, {8, 1}, 0)}, Shape{8, 100});
  const UOp turned = g_.Make(Op::kPermute, {wide}, Shape{1, 0});
  const Partition p = Run({Store(Param(1, {100, 8}, 1), Copy(turned, {1}))}, On(2));
  EXPECT_EQ(p.num_parts(), 1);
  EXPECT_EQ(p.BytesSent(2), (std::vector<int64_t>{32, 0}));
}

TEST_F(PartitionTest, ConstantsAreSentToNobody) {
  const UOp c =
      g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {g_.ConstFloat(kF32, 2)}, Shape{1})}, Shape{8});
  const Partition p = Run({Store(Param(0, {8}, 1), Copy(Copy(c, {0}), {1}))}, On(2));
  EXPECT_EQ(p.num_parts(), 1);
  EXPECT_EQ(Transfers(p), 0);
}

TEST_F(PartitionTest, WorkWaitsForThePartThatNeedsIt) {
  // Device 1 could compute its own half at once, but has to wait for the other half anyway.
  const UOp sent = Copy(g_.Make(Op::kSqrt, {Param(0, {8}, 0)}), {1});
  const UOp own = g_.Make(Op::kSqrt, {Param(1, {8}, 1)});
  const Partition p = Run({Store(Param(2, {8}, 1), g_.Make(Op::kAdd, {own, sent}))}, On(2));
  EXPECT_EQ(p.num_parts(), 2);
  EXPECT_EQ(Transfers(p), 1);
}

TEST_F(PartitionTest, PingPongHasAPartForEachTurn) {
  UOp x = Param(0, {8}, 0);
  for (int turn = 1; turn <= 6; ++turn) x = Copy(g_.Make(Op::kSqrt, {x}), {turn % 2});
  const Partition p = Run({Store(Param(1, {8}, 0), x)}, On(2));
  EXPECT_EQ(p.num_parts(), 7) << "six turns and the store";
  EXPECT_EQ(Transfers(p), 6);
}

TEST_F(PartitionTest, WhatIsStoredAfterItWasSentWaitsForTheTransfer) {
  const UOp w = Param(0, {8}, 0);
  const Partition p =
      Run({Store(Param(1, {8}, 1), Copy(w, {1})), Store(w, g_.Make(Op::kNeg, {w}))}, On(2));
  ASSERT_EQ(p.steps.size(), 3u);
  EXPECT_EQ(p.steps[0].kind, PartitionStep::Kind::kTransfer);
  for (const size_t part : {1, 2}) EXPECT_EQ(p.steps[part].waits, std::vector<int32_t>{0});
}

TEST_F(PartitionTest, AllReduceHasFewParts) {
  // The parts of a device: what it sends, then for all to all its chunk, then the result. The first
  // device of the naive one has only the last.
  EXPECT_EQ(Run(AllReduced(4, 64, kF32, true), On(4, AllReduceAlgorithm::kNaive)).num_parts(),
            1 + 3 * 2);
  EXPECT_EQ(Run(AllReduced(4, 64, kF32, true), On(4, AllReduceAlgorithm::kAllToAll)).num_parts(),
            4 * 3);
  // Three partial sums, and the result.
  EXPECT_EQ(Run(AllReduced(4, 64, kF32, true), On(4, AllReduceAlgorithm::kRing)).num_parts(),
            4 * 5);
}

// What each device sends, by the formulas of collectives.h.
TEST_F(PartitionTest, AllReduceSendsWhatTheoryAsks) {
  int slot_base = 0;
  for (const int64_t n : {2, 3, 4, 7}) {
    for (const int64_t elements : {int64_t{1}, n - 1, n, n + 1, int64_t{64}, int64_t{1001}}) {
      SCOPED_TRACE(StrCat(n, " devices, ", elements, " elements, case ", slot_base++));
      const auto chunk = [&](int64_t c) { return 4 * ChunkOf(elements, n, c % n).size; };
      const int64_t all = 4 * elements;
      std::vector<int64_t> naive, to_all, ring;
      for (int64_t i = 0; i < n; ++i) {
        naive.push_back(i == 0 ? (n - 1) * all : all);
        to_all.push_back(all - chunk(i) + (n - 1) * chunk(i));
        ring.push_back(2 * all - chunk(i + 1) - chunk(i + 2));
      }
      const auto sent = [&](AllReduceAlgorithm algorithm) {
        return Run(AllReduced(n, elements), On(n, algorithm)).BytesSent(n);
      };
      EXPECT_EQ(sent(AllReduceAlgorithm::kNaive), naive);
      EXPECT_EQ(sent(AllReduceAlgorithm::kAllToAll), to_all);
      EXPECT_EQ(sent(AllReduceAlgorithm::kRing), ring);
      if (elements % n != 0) continue;
      EXPECT_EQ(to_all, std::vector<int64_t>(n, 2 * (n - 1) * all / n));
      EXPECT_EQ(ring, to_all);
      g_.TakeStatus().IgnoreError();
    }
  }
}

TEST_F(PartitionTest, PartialSumsOfNarrowFloatsTravelWide) {
  const Partition p = Run(AllReduced(4, 64, DType::kFloat16), On(4, AllReduceAlgorithm::kRing));
  EXPECT_EQ(p.BytesSent(4), std::vector<int64_t>(4, 3 * 16 * 4 + 3 * 16 * 2));
}

TEST_F(PartitionTest, TheAlgorithmIsChosenBySize) {
  using enum AllReduceAlgorithm;
  EXPECT_EQ(ChooseAllReduce(4096, 4), kNaive);
  EXPECT_EQ(ChooseAllReduce(1 << 20, 4), kAllToAll);
  EXPECT_EQ(ChooseAllReduce(int64_t{1} << 30, 4), kRing);
  EXPECT_EQ(ChooseAllReduce(int64_t{1} << 30, 2), kAllToAll);
  EXPECT_EQ(ChooseAllReduce(4096, 4, /*over_links=*/true), kNaive);
  EXPECT_EQ(ChooseAllReduce(1 << 20, 4, /*over_links=*/true), kRing);
  EXPECT_EQ(ChooseAllReduce(1 << 20, 2, /*over_links=*/true), kAllToAll);
  const std::vector<UOp> stores = AllReduced(4, 1 << 18);
  EXPECT_EQ(Print(Run(stores, On(4))), Print(Run(stores, On(4, kAllToAll))));
}

TEST_F(PartitionTest, UnshardSendsEachShardToAllOthers) {
  const UOp shards =
      g_.Make(Op::kMStack, DType::kVoid, {Param(0, {5}, 0), Param(1, {5}, 1), Param(2, {5}, 2)});
  const UOp all = g_.Make(Op::kUnshard, {shards}, Shape{0});
  std::vector<UOp> stores;
  for (int64_t d = 0; d < 3; ++d) stores.push_back(Store(Param(3 + d, {15}, d), Select(all, d)));
  EXPECT_EQ(Run(stores, On(3)).BytesSent(3), std::vector<int64_t>(3, 2 * 20));
}

// --- sharding ---

class ShardTest : public PartitionTest {
 protected:
  // A value of these dims, sharded over n devices along an axis, from slot `slot` on.
  UOp Sharded(int64_t n, int64_t slot, Shape dims, int64_t axis) {
    dims[axis] /= n;
    std::vector<UOp> parts;
    for (int64_t d = 0; d < n; ++d) parts.push_back(Param(slot + d, dims, d));
    return g_.Make(Op::kUnshard, {g_.Make(Op::kMStack, DType::kVoid, parts)}, Shape{axis});
  }
  UOp Everywhere(int64_t n, int64_t slot, Shape dims) {
    std::vector<UOp> parts;
    for (int64_t d = 0; d < n; ++d) parts.push_back(Param(slot + d, dims, d));
    return g_.Make(Op::kMStack, DType::kVoid, parts);
  }
  UOp Matmul(UOp a, UOp b) {
    const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
    const UOp x =
        g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {a}, Shape{m, k, 1})}, Shape{m, k, n});
    const UOp y =
        g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {b}, Shape{1, k, n})}, Shape{m, k, n});
    const UOp sum = g_.Make(Op::kReduce, {g_.Make(Op::kMul, {x, y})}, Shape{0, 1});
    return g_.Make(Op::kReshape, {sum}, Shape{m, n});
  }
  // Bytes sent when each device stores its instance of `x`, or its shard along `axis` of it.
  std::vector<int64_t> Sent(int64_t n, UOp x, int64_t axis = -1) {
    std::vector<UOp> stores;
    for (int64_t d = 0; d < n; ++d) {
      UOp one = Select(x, d);
      if (axis >= 0) {
        std::vector<int64_t> pairs;
        for (size_t i = 0; i < x.shape().size(); ++i) {
          const int64_t size = x.shape()[i], part = size / n;
          const bool cut = static_cast<int64_t>(i) == axis;
          pairs.insert(pairs.end(), {cut ? d * part : 0, cut ? part : size});
        }
        one = g_.Make(Op::kShrink, {one}, pairs);
      }
      const Shape dims(one.shape().begin(), one.shape().end());
      stores.push_back(Store(Param(100 + d, dims, d), one));
    }
    return Run(stores, On(n, AllReduceAlgorithm::kAllToAll)).BytesSent(n);
  }
};

TEST_F(ShardTest, MatmulOfShardedRowsSendsNothing) {
  const UOp c = Matmul(Sharded(4, 0, {16, 8}, 0), Everywhere(4, 10, {8, 12}));
  EXPECT_EQ(Sent(4, c, 0), std::vector<int64_t>(4, 0));
}

TEST_F(ShardTest, MatmulOfShardedColumnsSendsNothing) {
  const UOp c = Matmul(Everywhere(4, 0, {16, 8}), Sharded(4, 10, {8, 12}, 1));
  EXPECT_EQ(Sent(4, c, 1), std::vector<int64_t>(4, 0));
}

TEST_F(ShardTest, MatmulAlongTheShardedAxisSendsAnAllReduce) {
  const UOp c = Matmul(Sharded(4, 0, {16, 8}, 1), Sharded(4, 10, {8, 12}, 0));
  EXPECT_EQ(Sent(4, c), std::vector<int64_t>(4, 2 * 3 * (16 * 12 * 4) / 4));
}

TEST_F(ShardTest, ALayerSplitByColumnsThenRowsSendsOneAllReduce) {
  // The two matmuls of a feed-forward block, split so that nothing travels between them.
  const UOp x = Everywhere(4, 0, {4, 8});
  const UOp hidden = Matmul(x, Sharded(4, 10, {8, 32}, 1));
  const UOp relu = g_.Make(Op::kMax, {hidden, g_.ConstFloat(kF32, 0)});
  const UOp y = Matmul(relu, Sharded(4, 20, {32, 8}, 0));
  EXPECT_EQ(Sent(4, y), std::vector<int64_t>(4, 2 * 3 * (4 * 8 * 4) / 4));
}

TEST_F(ShardTest, ReductionAlongOtherAxesStaysSharded) {
  const UOp sum = g_.Make(Op::kReduce, {Sharded(4, 0, {8, 6}, 0)}, Shape{0, 1});
  EXPECT_EQ(Sent(4, sum, 0), std::vector<int64_t>(4, 0));
}

TEST_F(ShardTest, ReductionAlongTheShardedAxisSendsOneRow) {
  const UOp sum = g_.Make(Op::kReduce, {Sharded(4, 0, {64, 8}, 0)}, Shape{0, 0});
  EXPECT_EQ(Sent(4, sum), std::vector<int64_t>(4, 2 * 3 * (8 * 4) / 4));
}

TEST_F(ShardTest, ABiasAndAReplicatedOperandAreCutWhereTheyLie) {
  const UOp x = Sharded(4, 0, {8, 6}, 0);
  const UOp bias = g_.Make(Op::kExpand, {Everywhere(4, 10, {1, 6})}, Shape{8, 6});
  const UOp y = g_.Make(Op::kAdd, {g_.Make(Op::kAdd, {x, bias}), Everywhere(4, 20, {8, 6})});
  EXPECT_EQ(Sent(4, y, 0), std::vector<int64_t>(4, 0));
}

TEST_F(ShardTest, AnEmbeddingOfShardedTokensSendsNothing) {
  std::vector<UOp> parts;
  for (int64_t d = 0; d < 4; ++d) parts.push_back(Param(d, {3}, d, DType::kInt32));
  const UOp tokens = g_.Make(Op::kUnshard, {g_.Make(Op::kMStack, DType::kVoid, parts)}, Shape{0});
  const UOp rows = g_.Make(Op::kGather, {Everywhere(4, 10, {50, 6}), tokens});
  EXPECT_EQ(Sent(4, rows, 0), std::vector<int64_t>(4, 0));
}

TEST_F(ShardTest, WhatNeedsTheWholeGathersIt) {
  const UOp flipped = g_.Make(Op::kFlip, {Sharded(4, 0, {8, 6}, 0)}, Shape{0});
  EXPECT_EQ(Sent(4, flipped), std::vector<int64_t>(4, 3 * 2 * 6 * 4));
}

TEST_F(ShardTest, UnevenShardsAreRefusedWhereTheyAreMade) {
  EXPECT_FALSE(g_.Make(Op::kMStack, DType::kVoid, {Param(0, {3}, 0), Param(1, {2}, 1)}).valid());
  EXPECT_THAT(g_.status().message(), HasSubstr("source 1 is f32 [2], expected f32 [3]"));
}

TEST_F(PartitionTest, ADeviceThatIsBoundToNoneIsNamed) {
  const std::vector<UOp> stores{Store(Param(0, {8}, 3), Param(1, {8}, 3))};
  EXPECT_THAT(Error(stores, On(2)).message(), HasSubstr("device 3, which is bound to none"));
  Placement hole = On(4);
  hole.device_of[3] = -1;
  EXPECT_THAT(Error(stores, hole).message(), HasSubstr("device 3, which is bound to none"));
}

TEST_F(PartitionTest, WhatItMakesIsPaidFor) {
  Budget::Limits limits;
  limits.nodes = 200;
  EXPECT_EQ(Error(AllReduced(8, 64), On(8, AllReduceAlgorithm::kRing), limits).code(),
            absl::StatusCode::kResourceExhausted);
  // Collectives of more instances than there are devices, n times n pieces.
  const UOp many = Copy(Param(0, {1}, 0), std::vector<int64_t>(2000, 1));
  const UOp all = g_.Make(Op::kUnshard, {many}, Shape{0});
  EXPECT_THAT(Error({Store(Param(1, {2000}, 1), Select(all, 0))}, On(2)).message(),
              HasSubstr("more than"));
}

// x -> x + 1 on device 1 and back, as often as `trips` says.
std::vector<UOp> Looped(Graph& g, UOp trips, UOp x, UOp out) {
  const UOp carried = g.Make(Op::kArg, kF32, {}, std::vector<int64_t>{1, 0, 4});
  const UOp there = g.Make(Op::kCopy, {carried}, std::vector<int64_t>{1});
  const UOp next = g.Make(Op::kAdd, {there, there});
  const UOp body =
      g.Make(Op::kTuple, DType::kVoid, {g.Make(Op::kCopy, {next}, std::vector<int64_t>{0})});
  const UOp loop = g.Make(Op::kLoop, DType::kVoid, {body, trips, x});
  return {g.Make(Op::kStore, {out, g.Make(Op::kGetTuple, DType::kVoid, {loop}, {0})})};
}

// A loop that runs as often as a variable says is not unrolled up to a great bound, of which each
// run would do all: no node is made for it. Small bounds, and what other data says, are.
TEST_F(PartitionTest, ALoopOfManyTripsOfTheRunHasNoPartitionForAllValues) {
  const auto var = [&](int64_t least, int64_t most) {
    return g_.Make(Op::kVar, DType::kVoid, {}, {0, least, most, 1});
  };
  const auto run = [&](UOp trips, Budget* budget) {
    const UOp sink = Sink(Looped(g_, trips, Param(0, {4}, 0), Param(1, {4}, 0)));
    return PartitionForAll(sink, On(2), budget);
  };
  for (const int64_t most : {9000, 2000, 9}) {
    Budget budget;
    const auto made = run(var(0, most), &budget);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented) << most << made.status();
    EXPECT_THAT(made.status().message(), HasSubstr("iterations of a loop")) << most;
    EXPECT_LT(budget.nodes_spent(), 200) << most;
  }
  Budget budget;
  const auto few = run(var(0, 8), &budget);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(Transfers(*few), 2 * 8);
  // Of these, all but two are those of every run.
  const auto most = run(var(20, 22), &budget);
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(Transfers(*most), 2 * 22);
  const UOp data = g_.Make(Op::kReshape, DType::kVoid, {Param(2, {1}, 0, DType::kInt64)}, {});
  const UOp bounded = g_.Make(Op::kVar, DType::kVoid, {data}, {0, 0, 12, 1});
  const auto of_data = run(bounded, &budget);
  ASSERT_TRUE(of_data.ok()) << of_data.status();
  EXPECT_GE(Transfers(*of_data), 2 * 12);
}

// What data says has one bound for all values, also where how much data there is varies, or what a
// run has stored.
TEST_F(PartitionTest, TripsOfDataHaveTheSameBoundForAllValues) {
  const UOp n = g_.Make(Op::kVar, DType::kVoid, {}, {0, 0, 100, 1});
  const UOp memory = Param(2, {100}, 0, DType::kInt64);
  const UOp rows = g_.Make(Op::kShrink, {memory, n}, std::vector<int64_t>{0, -2});
  const UOp most = g_.Make(Op::kReduce, {rows}, std::vector<int64_t>{2, 0});
  const UOp cell = Param(3, {1}, 0, DType::kInt64);
  const UOp stored = Store(cell, g_.Make(Op::kReshape, {n}, Shape{1}));
  const UOp after = g_.Make(Op::kAfter, DType::kVoid, {cell, stored});
  for (const UOp data : {most, after}) {
    const UOp scalar = g_.Make(Op::kReshape, DType::kVoid, {data}, {});
    const UOp trips = g_.Make(Op::kVar, DType::kVoid, {scalar}, {0, 0, 12, 1});
    Budget budget;
    const UOp sink = Sink(Looped(g_, trips, Param(0, {4}, 0), Param(1, {4}, 0)));
    const auto made = PartitionForAll(sink, On(2), &budget);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_GE(Transfers(*made), 2 * 12);
    // What is computed from a variable has not.
    const UOp computed =
        g_.Make(Op::kVar, DType::kVoid, {g_.Make(Op::kMul, {n, g_.Index(3)})}, {0, 0, 12, 1});
    const UOp varying = Sink(Looped(g_, computed, Param(0, {4}, 0), Param(1, {4}, 0)));
    EXPECT_EQ(PartitionForAll(varying, On(2), &budget).status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

// Many loops of few trips are as one of many.
TEST_F(PartitionTest, ManyLoopsOfFewTripsOfTheRunAreLimitedToo) {
  const UOp n = g_.Make(Op::kVar, DType::kVoid, {}, {0, 0, 8, 1});
  std::vector<UOp> stores;
  for (int64_t i = 0; i < 9; ++i) {
    const UOp out = Param(2 * i + 1, {4}, 0);
    stores.push_back(Looped(g_, n, Param(2 * i, {4}, 0), out)[0]);
    Budget budget;
    const auto made = PartitionForAll(Sink(stores), On(2), &budget);
    EXPECT_EQ(made.ok(), i < 8) << i << made.status();
  }
}

// Each device has all of a gathered value, so that their sum is as many times as much: refused on
// one device and on several, also where the UNSHARD has moved to the result of what uses it.
TEST_F(ShardTest, TheSumOfWhatEveryDeviceHasWholeIsRefused) {
  const UOp gathered = Sharded(2, 0, {4}, 0);
  const UOp computed = g_.Make(Op::kSqrt, {gathered});
  const auto stores = [&](UOp x, ReduceKind kind) {
    const UOp all = g_.Make(Op::kAllReduce, DType::kVoid, {x}, {static_cast<int64_t>(kind)});
    return std::vector<UOp>{Store(Param(2, {4}, 0), Select(all, 0))};
  };
  Budget budget;
  for (const ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMul}) {
    for (const absl::Status& status :
         {Error(stores(gathered, kind), On(2)), Error(stores(computed, kind), On(2)),
          Legalize(Sink(stores(gathered, kind)), {}, &budget).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr("allreduce: every one of 2 devices has the whole "
                                              "value of an unshard"));
    }
  }
  EXPECT_EQ(Error(stores(gathered, ReduceKind::kMax), On(2)), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
