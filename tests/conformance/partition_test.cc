// Random graphs on several devices: the parts of a partition, evaluated one by one with the
// transfers between them, leave what the whole graph does. Every order of the steps that their
// waits allow must do, so the steps run in a random one.
#include "engine/schedule/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "engine/rewrite/generalize.h"
#include "engine/schedule/shard.h"
#include "engine/schedule/size_words.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/random_values.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/spread_graph.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

constexpr int64_t kDevices = 4;

Placement EachItsOwn(AllReduceAlgorithm algorithm) {
  Placement placement;
  for (int64_t i = 0; i < kDevices; ++i) placement.device_of.push_back(i);
  placement.all_reduce = algorithm;
  return placement;
}

// A step that may run next: all it waits for have run.
size_t PickNext(const Partition& p, const std::vector<bool>& done, std::mt19937_64& rng) {
  std::vector<size_t> ready;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const auto waits = [&](int32_t w) { return !done[w]; };
    if (!done[i] && std::ranges::none_of(p.steps[i].waits, waits)) ready.push_back(i);
  }
  return ready[rng() % ready.size()];
}

reference::Variables VariablesFor(UOp sink, std::span<const VarValue> values) {
  reference::Variables out;
  for (const VarRange& range : RangesOf(sink)) {
    for (const VarValue& v : values) {
      if (v.id == range.id) out[v.id] = v.value;
    }
  }
  return out;
}

absl::Status RunPart(const PartitionStep& step, std::span<const VarValue> values, Slots* slots,
                     Slots* buffers) {
  TG_RETURN_IF_ERROR(Verify(step.graph.root(), kTensorLevel));
  const auto memory = [&](PartMemory m) -> std::vector<uint8_t>& {
    return m.kind == PartMemory::Kind::kSlot ? (*slots)[m.index] : (*buffers)[m.index];
  };
  for (const uint32_t id : PostOrder(step.graph.root())) {
    for (const int64_t device : step.graph.graph->devices(id)) {
      if (device != 0) return Internal("a part with a device number: ", Print(step.graph.root()));
    }
  }
  Slots bound;
  for (const PartMemory m : step.slots) bound.push_back(memory(m));
  Budget budget;
  TG_RETURN_IF_ERROR(reference::Evaluate(step.graph.root(), bound, &budget,
                                         VariablesFor(step.graph.root(), values)));
  for (size_t i = 0; i < bound.size(); ++i) memory(step.slots[i]) = bound[i];
  return absl::OkStatus();
}

// `values`: of a partition for all of them; sorted.
absl::Status RunPartition(const Partition& p, std::mt19937_64& rng, Slots* slots,
                          std::span<const VarValue> values = {}, int64_t* sent = nullptr) {
  Slots buffers;  // what no step has put there is a NaN, and no index of anything
  for (const PartBuffer& b : p.buffers) buffers.emplace_back(b.bytes, 0xcd);
  std::vector<bool> done(p.steps.size(), false);
  for (size_t n = 0; n < p.steps.size(); ++n) {
    const size_t i = PickNext(p, done, rng);
    const PartitionStep& step = p.steps[i];
    done[i] = true;
    if (step.kind == PartitionStep::Kind::kPart) {
      TG_RETURN_IF_ERROR(RunPart(step, values, slots, &buffers));
      continue;
    }
    const std::vector<uint8_t>& from = step.from.kind == PartMemory::Kind::kSlot
                                           ? (*slots)[step.from.index]
                                           : buffers[step.from.index];
    std::vector<uint8_t>& to = buffers[step.to];
    if (step.from_offset + step.bytes > static_cast<int64_t>(from.size()) ||
        step.bytes != static_cast<int64_t>(to.size())) {
      return Internal("step ", i, " leaves its memory");
    }
    const int64_t needed = BytesNeeded(step, values);
    if (needed < 0 || needed > step.bytes) return Internal("step ", i, " needs ", needed);
    std::copy_n(from.begin() + step.from_offset, needed, to.begin());
    if (sent != nullptr) *sent += needed;
  }
  return absl::OkStatus();
}

// A device has one part for each stage, and what a part waits for comes before it.
absl::Status CheckShape(const Partition& p) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const PartitionStep& step = p.steps[i];
    if (step.kind == PartitionStep::Kind::kPart) parts.emplace_back(step.device, step.stage);
    if (!step.waits.empty() && step.waits.back() >= static_cast<int32_t>(i)) {
      return Internal("step ", i, " waits for a later one");
    }
  }
  std::ranges::sort(parts);
  if (std::ranges::adjacent_find(parts) != parts.end()) return Internal("a stage with two parts");
  return absl::OkStatus();
}

// What the partition of `random` on several devices does, compared with what the graph does.
void ExpectAgrees(uint64_t seed, const RandomGraph& random, const std::vector<VarValue>& values,
                  AllReduceAlgorithm algorithm, std::mt19937_64& rng, Partition* out) {
  reference::Variables variables;
  for (const VarValue& v : values) variables[v.id] = v.value;
  Slots want = random.slots, got = random.slots;
  Budget budget;
  if (!reference::Evaluate(random.sink, want, &budget, variables).ok()) return;
  const Placement placement = EachItsOwn(algorithm);
  auto partition = PartitionGraph(random.sink, values, placement, &budget);
  ASSERT_TRUE(partition.ok()) << "seed " << seed << ": " << partition.status() << "\n"
                              << Print(random.sink);
  ASSERT_TRUE(CheckShape(*partition).ok()) << "seed " << seed << CheckShape(*partition);
  const auto again = PartitionGraph(random.sink, values, placement, &budget);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(Print(*partition), Print(*again));
  const auto status = RunPartition(*partition, rng, &got);
  ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << "\n"
                           << Print(random.sink) << "\n"
                           << Print(*partition);
  for (size_t i = 0; i < want.size(); ++i) {
    const bool exact = random.exact[i] && algorithm != AllReduceAlgorithm::kRing;
    const std::string difference = testing::Difference(random.dtypes[i], exact, want[i], got[i]);
    ASSERT_EQ(difference, "") << "seed " << seed << ", slot " << i << "\n"
                              << Print(random.sink) << "\n"
                              << Print(*partition);
  }
  *out = *std::move(partition);
}

// How often the partition for all values was compared, and what it sent of what it may.
struct ForAll {
  int graphs = 0, none = 0, runs = 0;
  int64_t sent = 0, most = 0;
};

// One partition for all values does what the graph does, and bit for bit what the partition with
// the values put in does.
void ExpectOneForAll(uint64_t seed, const RandomGraph& random, const std::vector<VarValue>& given,
                     AllReduceAlgorithm algorithm, std::mt19937_64& rng, ForAll* counts) {
  const std::vector<VarRange> ranges = RangesOf(random.sink);
  if (ranges.empty()) return;
  Budget budget;
  const Placement placement = EachItsOwn(algorithm);
  const auto all = PartitionForAll(random.sink, placement, &budget);
  if (absl::IsUnimplemented(all.status())) {
    ++counts->none;
    return;
  }
  ASSERT_TRUE(all.ok()) << "seed " << seed << ": " << all.status() << "\n" << Print(random.sink);
  ASSERT_TRUE(CheckShape(*all).ok()) << "seed " << seed << CheckShape(*all);
  ++counts->graphs;
  std::vector<VarValue> values = given;
  std::ranges::sort(values);
  for (int set = 0; set < 4; ++set, values = testing::RandomValues(ranges, rng)) {
    reference::Variables variables;
    for (const VarValue& v : values) variables[v.id] = v.value;
    Slots want = random.slots, got = random.slots, one = random.slots;
    if (!reference::Evaluate(random.sink, want, &budget, variables).ok()) continue;
    const auto status = RunPartition(*all, rng, &got, values, &counts->sent);
    std::string text;
    for (const VarValue& v : values) text = StrCat(text, " ", v.id, "=", v.value);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << text << "\n"
                             << Print(random.sink) << "\n"
                             << Print(*all);
    for (const int64_t bytes : all->BytesSent(kDevices)) counts->most += bytes;
    ++counts->runs;
    const auto put_in = PartitionGraph(random.sink, values, placement, &budget);
    ASSERT_TRUE(put_in.ok()) << "seed " << seed << ": " << put_in.status();
    ASSERT_TRUE(RunPartition(*put_in, rng, &one).ok());
    for (size_t i = 0; i < want.size(); ++i) {
      const bool exact = random.exact[i] && algorithm != AllReduceAlgorithm::kRing;
      const std::string difference = testing::Difference(random.dtypes[i], exact, want[i], got[i]);
      ASSERT_EQ(difference, "") << "seed " << seed << text << ", slot " << i << "\n"
                                << Print(random.sink) << "\n"
                                << Print(*all);
      if (algorithm == AllReduceAlgorithm::kRing) continue;
      ASSERT_EQ(got[i], one[i]) << "seed " << seed << text << ", slot " << i;
    }
  }
}

class PartitionDifferential : public ::testing::TestWithParam<AllReduceAlgorithm> {};

TEST_P(PartitionDifferential, PartsAgreeWithTheWhole) {
  int several = 0, transfers = 0;
  for (uint64_t seed = 1; seed <= 1200; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph, spread;
    const auto vocabulary = seed % 4 == 0 ? testing::Vocabulary::kPlain : testing::Vocabulary::kAll;
    RandomGraph random =
        testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 40), &graph, vocabulary);
    if (!random.sink.valid()) continue;
    const UOp sink = testing::Spread(random.sink, kDevices, rng, &spread);
    if (!sink.valid() || !Verify(sink, kTensorLevel).ok()) continue;
    const std::vector<VarValue> values = testing::VariablesOf(sink, random.variables);
    random.sink = sink;
    Partition partition;
    ExpectAgrees(seed, random, values, GetParam(), rng, &partition);
    if (HasFatalFailure()) return;
    several += partition.num_parts() > 1;
    transfers += static_cast<int>(partition.steps.size()) - partition.num_parts();
  }
  EXPECT_GT(several, 200);
  EXPECT_GT(transfers, 1000);
}

TEST_P(PartitionDifferential, OnePartitionIsForAllValues) {
  ForAll all;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph, spread;
    RandomGraph random = testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 40), &graph,
                                                  testing::Vocabulary::kAll);
    if (!random.sink.valid() || random.variables.empty()) continue;
    random.sink = testing::Spread(random.sink, kDevices, rng, &spread);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    const std::vector<VarValue> values = testing::VariablesOf(random.sink, random.variables);
    ExpectOneForAll(seed, random, values, GetParam(), rng, &all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(all.graphs, 300);
  EXPECT_LT(all.none, all.graphs / 10);
  EXPECT_LT(all.sent, all.most) << "a run sends what it has";
  RecordProperty("graphs", all.graphs);
  RecordProperty("none", all.none);
  RecordProperty("runs", all.runs);
}

// Chains of in-place STOREs on few slots, whose old and new contents are all read again, here and
// on other devices.
RandomGraph MakeUpdates(std::mt19937_64& rng, int size, Graph* g) {
  RandomGraph out;
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  const auto slot = [&](int64_t device) {
    std::vector<uint8_t> bytes(4 * sizeof(int32_t));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
    out.slots.push_back(bytes);
    out.dtypes.push_back(DType::kInt32);
    out.exact.push_back(true);
    return g->Param(static_cast<int64_t>(out.slots.size()) - 1, DType::kInt32, Shape{4}, device);
  };
  const auto to = [&](UOp x, UOp like) {
    if (x.place() == like.place()) return x;
    return g->Make(Op::kCopy, DType::kVoid, {x}, {like.devices()[0]});
  };
  std::vector<UOp> params, latest, pool, stores;
  for (int64_t i = 0; i < 4; ++i) params.push_back(slot(i % 3));
  latest = pool = params;
  for (int i = 0; i < size; ++i) {
    const UOp x = pool[below(pool.size())], y = pool[below(pool.size())];
    if (rng() % 3 != 0) {
      UOp z = g->Make(rng() % 2 == 0 ? Op::kAdd : Op::kMul, {x, to(y, x)});
      if (rng() % 3 == 0) z = g->Make(Op::kFlip, {z}, Shape{0});
      pool.push_back(z);
      continue;
    }
    const size_t p = below(params.size());
    UOp target = latest[p], value = to(x, target);
    if (rng() % 2 == 0) {
      const Shape half{static_cast<int64_t>(rng() % 3), 2};
      target = g->Make(Op::kShrink, {target}, half);
      value = g->Make(Op::kShrink, {value}, half);
    }
    stores.push_back(g->Make(Op::kStore, {target, value}));
    latest[p] = g->Make(Op::kAfter, {params[p], stores.back()});
    pool.push_back(latest[p]);
  }
  for (int i = 0; i < 3; ++i) {
    const UOp value = pool[pool.size() - 1 - below(pool.size() / 2)];
    stores.push_back(g->Make(Op::kStore, {slot(value.devices()[0]), value}));
  }
  out.sink = g->Make(Op::kSink, DType::kVoid, stores);
  return out;
}

TEST(PartitionHazards, InPlaceStoresBetweenDevices) {
  for (uint64_t seed = 1; seed <= 1200; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph;
    const RandomGraph random = MakeUpdates(rng, 4 + static_cast<int>(seed % 30), &graph);
    ASSERT_TRUE(Verify(random.sink, kTensorLevel).ok()) << Verify(random.sink, kTensorLevel);
    Partition partition;
    ExpectAgrees(seed, random, {}, AllReduceAlgorithm::kBySize, rng, &partition);
    if (HasFatalFailure()) return;
  }
}

// Values sharded over all devices under ops that work shard by shard, and some that do not.
// `variables`: some have sizes that a run gives.
RandomGraph MakeSharded(std::mt19937_64& rng, int size, Graph* g, bool variables = false) {
  RandomGraph out;
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  const int64_t n = 2 + below(3);
  const DType dtype = below(2) == 0 ? DType::kInt32 : DType::kFloat16;
  const auto slot = [&](ShapeView dims, int64_t device, DType type) {
    std::vector<uint8_t> bytes(BytesOf(type, NumElements(dims)));
    for (size_t i = 0; i < bytes.size(); ++i) {  // small numbers: of f16, from 1 to 2
      bytes[i] = static_cast<uint8_t>(type == DType::kFloat16 ? (i % 2 == 0 ? rng() : 0x3c)
                                      : i % 4 == 0            ? rng() % 5
                                                              : 0);
    }
    out.slots.push_back(bytes);
    out.dtypes.push_back(type);
    out.exact.push_back(type != DType::kFloat16);
    return g->Param(static_cast<int64_t>(out.slots.size()) - 1, type, dims, device);
  };
  std::vector<int64_t> devices(n);
  for (int64_t d = 0; d < n; ++d) devices[d] = d;
  const auto whole = [&](ShapeView dims, DType type) {
    return g->Make(Op::kCopy, {slot(dims, below(n), type)}, devices);
  };
  const auto sharded = [&](ShapeView dims, DType type, int64_t axis) {
    Shape local(dims.begin(), dims.end());
    local[axis] /= n;
    std::vector<UOp> parts;
    for (int64_t d = 0; d < n; ++d) parts.push_back(slot(local, d, type));
    return g->Make(Op::kUnshard, {g->Make(Op::kMStack, DType::kVoid, parts)}, Shape{axis});
  };
  const Shape square{2 * n, 2 * n};
  std::vector<UOp> pool{sharded(square, dtype, 0), sharded(square, dtype, 1), whole(square, dtype)};
  for (int i = 0; i < size; ++i) {
    const UOp x = pool[pool.size() - 1 - below(std::min<int64_t>(pool.size(), 4))];
    const Shape dims(x.shape().begin(), x.shape().end());  // new nodes may move the graph's shapes
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t axis = rank > 0 ? below(rank) : 0;
    UOp y;
    const auto length = [&](int64_t most) {
      return g->Make(Op::kVar, DType::kVoid, {}, {most, 0, most, 1});
    };
    switch (below(variables ? 13 : 10)) {
      case 0:
        y = g->Make(Op::kAdd, {x, g->Const(DType::kInt32, 1)});
        if (x.dtype() != DType::kInt32) y = g->Make(Op::kMax, {x, g->ConstFloat(dtype, 1.5)});
        break;
      case 1: {
        const UOp z = pool[below(static_cast<int64_t>(pool.size()))];
        const UOp other = SameShape(x, z) ? z : whole(dims, dtype);
        y = g->Make(Op::kMax, {x, other});
        break;
      }
      case 2: {
        Shape order(rank);
        for (int64_t k = 0; k < rank; ++k) order[k] = k;
        std::shuffle(order.begin(), order.end(), rng);
        y = g->Make(Op::kPermute, {x}, order);
        break;
      }
      case 3:
        if (rank > 0) y = g->Make(Op::kFlip, {x}, Shape{axis});
        break;
      case 4:
        if (rank > 0) y = g->Make(Op::kReduce, {x}, Shape{2 * below(2), axis});
        break;
      case 5: {  // split or join
        Shape to(dims.begin(), dims.end());
        if (rank > 0 && dims[axis] % 2 == 0) {
          to[axis] /= 2;
          to.insert(to.begin() + axis + below(2), 2);
        } else {
          to = {NumElements(dims)};
        }
        y = g->Make(Op::kReshape, {x}, to);
        break;
      }
      case 6: {  // a matrix times another by way of three axes
        if (rank != 2 || NumElements(dims) > 80) break;
        const UOp other = below(2) == 0
                              ? whole(Shape{dims[1], n}, dtype)
                              : sharded(Shape{dims[1], n}, dtype, dims[1] % n == 0 ? 0 : 1);
        const Shape all{dims[0], dims[1], n};
        const UOp a =
            g->Make(Op::kExpand, {g->Make(Op::kReshape, {x}, Shape{dims[0], dims[1], 1})}, all);
        const UOp b =
            g->Make(Op::kExpand, {g->Make(Op::kReshape, {other}, Shape{1, dims[1], n})}, all);
        y = g->Make(Op::kReduce, {g->Make(Op::kMul, {a, b})}, Shape{0, 1});
        y = g->Make(Op::kReshape, {y}, Shape{dims[0], n});
        break;
      }
      case 7: {  // rows
        if (rank == 0) break;
        const UOp index =
            below(2) == 0 ? whole(Shape{n}, DType::kInt32) : sharded(Shape{n}, DType::kInt32, 0);
        y = g->Make(Op::kGather, {x, index});
        break;
      }
      case 8: {
        if (rank == 0) break;
        Shape pairs;
        for (int64_t k = 0; k < rank; ++k) {
          const int64_t begin = k == axis ? below(dims[k]) : 0;
          pairs.insert(pairs.end(), {begin, k == axis ? 1 + below(dims[k] - begin) : dims[k]});
        }
        y = g->Make(Op::kShrink, {x}, pairs);
        break;
      }
      case 10:
      case 11: {  // as many as the run says, from some place on
        if (rank == 0 || x.dim(static_cast<int>(axis)).valid() || dims[axis] == 0) break;
        SizeWords words(x);
        Shape pairs;
        for (int64_t k = 0; k < rank; ++k) {
          const bool here = k == axis;
          pairs.push_back(!here || below(2) == 0 ? 0
                          : below(2) == 0        ? below(dims[k])
                                                 : words.Of(0, length(dims[k])));
          pairs.push_back(here ? words.Of(0, length(dims[k])) : words.Dim(x, k));
        }
        y = g->Make(Op::kShrink, DType::kVoid, words.sources(), pairs);
        break;
      }
      case 12: {  // an axis more, a column or a row for each element of it
        if (rank == 0 || rank > 3) break;
        SizeWords same(x);
        Shape to;
        for (int64_t k = 0; k < rank; ++k) to.push_back(same.Dim(x, k));
        to.insert(to.begin() + axis, 1);
        const UOp more = g->Make(Op::kReshape, DType::kVoid, same.sources(), to);
        SizeWords words(more);
        for (int64_t k = 0; k <= rank; ++k) to[k] = words.Dim(more, k);
        to[axis] = below(2) == 0 ? 2 : words.Of(0, length(3));
        y = g->Make(Op::kExpand, DType::kVoid, words.sources(), to);
        break;
      }
      default:
        if (rank > 0) y = g->Make(Op::kCat, DType::kVoid, {x, x}, {axis});
        break;
    }
    (void)g->TakeStatus();
    if (y.valid() && NumElements(y.shape()) <= 400) pool.push_back(y);
  }
  std::vector<UOp> stores;
  for (int64_t d = 0; d < n; ++d) {
    const UOp value = pool[pool.size() - 1 - below(std::min<int64_t>(pool.size(), 3))];
    const UOp one = g->Make(Op::kMSelect, DType::kVoid, {value}, {d});
    const UOp all = slot(one.shape(), d, one.dtype());
    stores.push_back(g->Make(Op::kStore, {ShrinkLike(g, all, one), one}));
  }
  out.sink = g->Make(Op::kSink, DType::kVoid, stores);
  return out;
}

TEST_P(PartitionDifferential, OnePartitionOfShardsIsForAllValues) {
  ForAll all;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph;
    const RandomGraph random = MakeSharded(rng, 3 + static_cast<int>(seed % 12), &graph, true);
    ASSERT_TRUE(random.sink.valid()) << "seed " << seed << ": " << graph.status();
    ASSERT_TRUE(Verify(random.sink, kTensorLevel).ok()) << Verify(random.sink, kTensorLevel);
    Budget budget;
    const auto by_shard = ShardGraph(random.sink, &budget);
    ASSERT_TRUE(by_shard.ok()) << "seed " << seed << ": " << by_shard.status();
    const absl::Status verified = Verify(by_shard->root(), kTensorLevel);
    ASSERT_TRUE(verified.ok()) << "seed " << seed << ": " << verified;
    const std::vector<VarValue> values = testing::RandomValues(RangesOf(random.sink), rng);
    ExpectOneForAll(seed, random, values, GetParam(), rng, &all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(all.graphs, 800);
  EXPECT_EQ(all.none, 0);
  EXPECT_LT(all.sent, all.most);
  RecordProperty("graphs", all.graphs);
  RecordProperty("runs", all.runs);
}

TEST(PartitionSharding, ShardByShardAgreesWithTheWhole) {
  int moved = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    std::mt19937_64 rng(seed);
    Graph graph;
    const RandomGraph random = MakeSharded(rng, 2 + static_cast<int>(seed % 12), &graph);
    ASSERT_TRUE(random.sink.valid()) << graph.status();
    ASSERT_TRUE(Verify(random.sink, kTensorLevel).ok()) << Verify(random.sink, kTensorLevel);
    Budget budget;
    const auto by_shard = ShardGraph(random.sink, &budget);
    ASSERT_TRUE(by_shard.ok()) << "seed " << seed << ": " << by_shard.status();
    const absl::Status verified = Verify(by_shard->root(), kTensorLevel);
    ASSERT_TRUE(verified.ok()) << "seed " << seed << ": " << verified;
    moved += Print(by_shard->root()) != Print(random.sink);
    Partition partition;
    ExpectAgrees(seed, random, {}, AllReduceAlgorithm::kBySize, rng, &partition);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(moved, 1000);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, PartitionDifferential,
                         ::testing::Values(AllReduceAlgorithm::kBySize,
                                           AllReduceAlgorithm::kAllToAll,
                                           AllReduceAlgorithm::kRing));

}  // namespace
}  // namespace telegrad
