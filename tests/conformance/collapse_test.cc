// Masked reductions and what they collapse to: the same values, in memory and work that grow with
// inputs and outputs, not with their product.
#include "engine/schedule/collapse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/masked.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::Masked;
using testing::Slots;

int Count(UOp root, Op op) {
  int n = 0;
  for (uint32_t id : PostOrder(root)) n += root.graph()->op(id) == op;
  return n;
}

// --- what it costs, from the programs ---

struct Cost {
  size_t kernels = 0;
  double flops = 0, bytes = 0;
  int64_t arena = 0;
};

class CollapseCost : public ::testing::Test {
 protected:
  UOp Param(int64_t slot, DType dtype, Shape dims) { return g_.Param(slot, dtype, dims); }

  Cost Of(UOp to, UOp value) {
    const UOp sink = g_.Make(Op::kSink, {g_.Make(Op::kStore, {to, value})});
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    Cost cost;
    if (!sink.valid()) return cost;
    Budget budget;
    const auto schedule = ScheduleGraph(sink, &budget);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    if (!schedule.ok()) return cost;
    cost.kernels = schedule->kernels.size();
    cost.arena = schedule->arena_bytes;
    Target target;
    target.vector_bytes = 32;
    target.threads = 2;
    for (const ScheduledKernel& kernel : schedule->kernels) {
      const auto program = Lower(kernel.graph, target, "k", &budget);
      EXPECT_TRUE(program.ok()) << program.status();
      if (!program.ok()) continue;
      cost.flops += program->flops;
      cost.bytes += program->bytes;
    }
    return cost;
  }

  Graph g_;
  Masked m_{&g_};
};

constexpr int64_t kMany = 1'000'000;

TEST_F(CollapseCost, TenMillionNumbersAreOneKernel) {
  constexpr int64_t kNumbers = 10'000'000;
  const Cost cost = Of(Param(0, DType::kInt32, {kNumbers}), m_.Arange(DType::kInt32, kNumbers));
  EXPECT_EQ(cost.kernels, 1u);
  EXPECT_EQ(cost.arena, 0);
  EXPECT_LE(cost.flops, 4.0 * kNumbers);
  EXPECT_EQ(cost.bytes, 4.0 * kNumbers);
}

TEST_F(CollapseCost, AMillionRowsAreReadOnce) {
  constexpr int64_t kWidth = 4;
  const UOp x = Param(0, DType::kFloat32, {kMany, kWidth});
  const UOp index = Param(1, DType::kInt32, {kMany});
  const Cost cost = Of(Param(2, DType::kFloat32, {kMany, kWidth}),
                       m_.Rows(x, index, m_.Arange(DType::kInt32, kMany)));
  EXPECT_EQ(cost.kernels, 1u);
  EXPECT_EQ(cost.arena, 0);
  EXPECT_LE(cost.flops, 2.0 * kMany * kWidth);
  EXPECT_EQ(cost.bytes, 4.0 * kMany * (2 * kWidth + 1));
}

TEST_F(CollapseCost, AMillionRowsAreWrittenOnce) {
  constexpr int64_t kWidth = 4;
  const UOp v = Param(0, DType::kFloat32, {kMany, kWidth});
  const UOp index = Param(1, DType::kInt32, {kMany});
  const Cost cost = Of(Param(2, DType::kFloat32, {kMany, kWidth}),
                       m_.Scattered(ReduceKind::kAdd, v, index, m_.Arange(DType::kInt32, kMany)));
  EXPECT_EQ(cost.kernels, 2u) << "zeros, then the rows";
  EXPECT_EQ(cost.arena, 0) << "in the output's memory";
  EXPECT_LE(cost.flops, 2.0 * kMany * kWidth);
}

TEST_F(CollapseCost, AThousandWritesAreOneScatter) {
  constexpr int64_t kRows = 100'000, kWrites = 1000, kWidth = 4;
  const UOp x = Param(0, DType::kFloat32, {kRows, kWidth});
  const UOp v = Param(1, DType::kFloat32, {kWrites, kWidth});
  const UOp index = Param(2, DType::kInt32, {kWrites});
  const Cost cost = Of(Param(3, DType::kFloat32, {kRows, kWidth}),
                       m_.Written(x, v, index, m_.Arange(DType::kInt32, kRows), true));
  EXPECT_EQ(cost.kernels, 2u) << "a copy, then the rows";
  EXPECT_EQ(cost.arena, 0) << "in the output's memory";
  EXPECT_LE(cost.flops, 2.0 * kWrites * kWidth);
}

// --- the same values ---

// Bit for bit, but for which NaN it is.
std::string Differs(DType dtype, const std::vector<uint8_t>& want,
                    const std::vector<uint8_t>& got) {
  const size_t size = static_cast<size_t>(Info(dtype).bits) / 8;
  for (size_t i = 0; i < want.size() / size; ++i) {
    if (std::memcmp(&want[i * size], &got[i * size], size) == 0) continue;
    int64_t a = 0, b = 0;
    std::memcpy(&a, &want[i * size], size);
    std::memcpy(&b, &got[i * size], size);
    const double x = ScalarAsDouble(dtype, ScalarFromMemory(dtype, a));
    const double y = ScalarAsDouble(dtype, ScalarFromMemory(dtype, b));
    if (std::isnan(x) && std::isnan(y)) continue;
    return StrCat("element ", i, ": ", x, " expected, got ", y);
  }
  return "";
}

class RandomSpelling {
 public:
  explicit RandomSpelling(uint32_t seed) : random_(seed) {}

  // SINK(STORE(slot 0, one spelling)).
  UOp Make(Graph* graph) {
    g_ = graph;
    m_.emplace(graph);
    const int64_t which = Number(8);
    const UOp value = which < 2 ? Interval() : which < 4 ? Read() : which < 6 ? Write() : Chain();
    const Shape dims(value.shape().begin(), value.shape().end());
    const UOp out = g_->Param(0, value.dtype(), dims);
    slots_[0] = {value.dtype(), NumElements(dims), 0};
    return g_->Make(Op::kSink, {g_->Make(Op::kStore, {out, value})});
  }

  Slots Fill() {
    Slots out;
    for (const Slot& slot : slots_) {
      const size_t size = static_cast<size_t>(Info(slot.dtype).bits) / 8;
      std::vector<uint8_t> bytes(static_cast<size_t>(slot.elements) * size);
      for (int64_t i = 0; i < slot.elements; ++i) {
        const int64_t word =
            slot.places > 0
                ? ScalarFromInt(slot.dtype, Number(2 * slot.places + 4) - slot.places / 2 - 2)
            : IsFloat(slot.dtype) ? ScalarFromDouble(slot.dtype, Float())
                                  : ScalarFromInt(slot.dtype, Number(200) - 100);
        const int64_t raw = ScalarToMemory(slot.dtype, word);
        std::memcpy(&bytes[static_cast<size_t>(i) * size], &raw, size);
      }
      out.push_back(std::move(bytes));
    }
    return out;
  }

  DType dtype() const { return slots_[0].dtype; }

 private:
  struct Slot {
    DType dtype;
    int64_t elements;
    int64_t places;  // of an index
  };

  int64_t Number(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  template <typename T, size_t n>
  T Any(const T (&of)[n]) {
    return of[Number(n)];
  }
  // Of which every sum is exact: a sum of equal ones collapses to a product.
  double Float() {
    const double edges[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0};
    return Number(4) == 0 ? Any(edges) : static_cast<double>(Number(65) - 32) / 4;
  }
  DType Type() {
    const DType types[] = {DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kFloat64,
                           DType::kInt32,   DType::kInt64,   DType::kInt8,    DType::kUInt16};
    return Any(types);
  }
  UOp New(DType dtype, const Shape& dims, int64_t places = 0) {
    slots_.push_back({dtype, NumElements(dims), places});
    return g_->Param(static_cast<int64_t>(slots_.size()) - 1, dtype, dims);
  }

  // New memory seen through some views.
  UOp Viewed(DType dtype, Shape dims) {
    switch (Number(6)) {
      case 0: {  // backwards along an axis
        const int64_t axis = Number(static_cast<int64_t>(dims.size()));
        return m_->To(Op::kFlip, New(dtype, dims), {axis});
      }
      case 1: {  // transposed
        std::vector<int64_t> axes(dims.size());
        for (size_t d = 0; d < dims.size(); ++d)
          axes[d] = static_cast<int64_t>(dims.size() - 1 - d);
        return m_->To(Op::kPermute, New(dtype, Shape(dims.rbegin(), dims.rend())), axes);
      }
      case 2: {  // a part
        Shape larger = dims;
        std::vector<int64_t> pairs;
        for (size_t d = 0; d < dims.size(); ++d) {
          const int64_t before = Number(3);
          larger[d] += before + Number(3);
          pairs.insert(pairs.end(), {before, dims[d]});
        }
        return m_->To(Op::kShrink, New(dtype, larger), pairs);
      }
      case 3: {  // with zeros around
        Shape smaller = dims;
        std::vector<int64_t> pairs;
        for (size_t d = 0; d < dims.size(); ++d) {
          const int64_t before = Number(dims[d]);
          smaller[d] = 1 + Number(dims[d] - before);
          pairs.insert(pairs.end(), {before, dims[d]});
        }
        return m_->To(Op::kPad, New(dtype, smaller), pairs);
      }
      case 4: {  // the same along an axis
        const Shape whole = dims;
        dims[static_cast<size_t>(Number(static_cast<int64_t>(dims.size())))] = 1;
        return m_->To(Op::kExpand, New(dtype, dims), whole);
      }
      default:
        return New(dtype, dims);
    }
  }

  UOp Places(DType dtype, int64_t n) {
    switch (Number(3)) {
      case 0:
        return m_->Arange(dtype, n);
      case 1:
        return m_->CountedArange(dtype, n);
      default:
        return g_->Make(Op::kIota, dtype, {}, {n});
    }
  }

  // An index of `m` elements into `n` places, as computed from memory.
  UOp Index(DType dtype, int64_t m, int64_t n) {
    const UOp raw = Number(4) == 0 ? Viewed(dtype, {m}) : New(dtype, {m}, n);
    const UOp size = m_->Constant(dtype, static_cast<double>(n), {m});
    switch (Number(4)) {
      case 0: {  // from the end, where it is negative
        const UOp negative = g_->Make(Op::kCmpLt, {raw, m_->Constant(dtype, 0, {m})});
        return g_->Make(Op::kWhere, {negative, g_->Make(Op::kAdd, {raw, size}), raw});
      }
      case 1:
        return g_->Make(Op::kSub, {size, raw});
      case 2:
        return g_->Make(Op::kAdd, {raw, m_->Constant(dtype, 1, {m})});
      default:
        return raw;
    }
  }

  // where(mask, x, the fold's identity), one way or another.
  UOp Select(ReduceKind kind, UOp mask, UOp x) {
    const DType dtype = x.dtype();
    const UOp none = m_->Broadcast(g_->ConstWord(dtype, ReduceIdentity(kind, dtype)),
                                   Shape(x.shape().begin(), x.shape().end()));
    if (kind == ReduceKind::kAdd && IsInt(dtype) && Number(3) == 0) {
      return g_->Make(Op::kMul, {x, g_->Make(Op::kCast, dtype, {mask})});
    }
    switch (Number(3)) {
      case 0:
        return g_->Make(Op::kWhere, {m_->Not(mask), none, x});
      case 1:
        return g_->Make(Op::kWhere, {m_->Not(m_->Not(mask)), x, none});
      default:
        return g_->Make(Op::kWhere, {mask, x, none});
    }
  }

  ReduceKind Kind() {
    const ReduceKind kinds[] = {ReduceKind::kAdd, ReduceKind::kAdd, ReduceKind::kMul,
                                ReduceKind::kMax};
    return Any(kinds);
  }

  // REDUCE over axis 0 or 1 of [m, n, width], with the axes in any order.
  UOp FoldAxis(ReduceKind kind, UOp x, int64_t axis) {
    if (Number(2) == 0) return m_->Fold(kind, x, axis);
    std::vector<int64_t> axes(x.shape().size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    std::shuffle(axes.begin(), axes.end(), random_);
    const auto at = std::ranges::find(axes, axis) - axes.begin();
    return m_->Fold(kind, m_->To(Op::kPermute, x, axes), at);
  }

  UOp Mask(int64_t m, int64_t n, int64_t width) {
    const DType types[] = {DType::kInt32, DType::kInt64, DType::kInt16, DType::kUInt8};
    const DType dtype = Any(types);
    UOp hits = m_->Hits(Index(dtype, m, n), Places(dtype, n));
    hits = m_->To(Op::kExpand, m_->To(Op::kReshape, hits, {m, n, 1}), {m, n, width});
    if (Number(4) != 0) return hits;
    // And another condition on places, or on the data.
    const UOp more =
        Number(2) == 0
            ? g_->Make(Op::kCmpLt, {m_->Broadcast(Places(DType::kInt32, width), {m, n, width}),
                                    m_->Constant(DType::kInt32, 2, {m, n, width})})
            : g_->Make(Op::kCmpLt, {m_->Broadcast(New(DType::kInt32, {n, width}), {m, n, width}),
                                    m_->Constant(DType::kInt32, 30, {m, n, width})});
    return g_->Make(Op::kAnd, {hits, more});
  }

  // Folds over the places: a read.
  UOp Read() {
    const int64_t m = 1 + Number(7), n = 1 + Number(11), width = 1 + Number(4);
    const UOp mask = Mask(m, n, width);
    const UOp x = Number(3) == 0 ? Viewed(Type(), {m, n, width})
                                 : m_->Broadcast(Viewed(Type(), {n, width}), {m, n, width});
    const ReduceKind kind = Kind();
    return FoldAxis(kind, Select(kind, mask, x), 1);
  }

  // Folds over the index: a write.
  UOp Write() {
    const int64_t m = 8 + Number(7), n = 1 + Number(11), width = 1 + Number(4);
    const UOp mask = Mask(m, n, width);
    const UOp v = Number(3) == 0
                      ? Viewed(Type(), {m, n, width})
                      : m_->To(Op::kExpand, Viewed(Type(), {m, 1, width}), Shape{m, n, width});
    const ReduceKind kind = Kind();
    return FoldAxis(kind, Select(kind, mask, v), 0);
  }

  // Writes one after another.
  UOp Chain() {
    const int64_t m = 8 + Number(5), n = 1 + Number(11);
    Shape x{n}, v{m};
    for (int64_t d = Number(3); d > 0; --d) {
      const int64_t width = 1 + Number(4);
      x.push_back(width);
      v.push_back(width);
    }
    const DType types[] = {DType::kInt32, DType::kInt64, DType::kUInt8};
    const DType dtype = Any(types);
    const DType element = Type();
    return m_->Written(Viewed(element, x), Viewed(element, v), Index(dtype, m, n), Places(dtype, n),
                       Number(2) == 0);
  }

  // Folds a constant, or a number for each row, over the places between two bounds.
  UOp Interval() {
    const int64_t m = 1 + Number(9), n = 1 + Number(11);
    const auto linear = [&](int64_t axis) {
      const UOp i = Places(DType::kInt32, axis == 0 ? m : n);
      const UOp at = axis == 0 ? m_->Broadcast(m_->To(Op::kReshape, i, {m, 1}), {m, n})
                               : m_->Broadcast(i, {m, n});
      const double factors[] = {1, 1, 2, -1, -3};
      const UOp scaled =
          g_->Make(Op::kMul, {at, m_->Constant(DType::kInt32, Any(factors), {m, n})});
      return g_->Make(Op::kAdd, {scaled, m_->Constant(DType::kInt32,
                                                      static_cast<double>(Number(9) - 4), {m, n})});
    };
    UOp mask = g_->Make(Op::kCmpLt, {linear(0), linear(1)});
    if (Number(2) == 0) mask = m_->Not(mask);
    if (Number(2) == 0) {
      const UOp bound = m_->Broadcast(m_->To(Op::kReshape, New(DType::kInt8, {m}), {m, 1}), {m, n});
      const UOp more =
          g_->Make(Op::kCmpLt, {linear(1), g_->Make(Op::kCast, DType::kInt32, {bound})});
      mask = g_->Make(Op::kAnd, {mask, Number(2) == 0 ? more : m_->Not(more)});
    }
    // Integers, and floats of which every sum is exact.
    const DType types[] = {DType::kFloat32, DType::kInt32, DType::kUInt16, DType::kInt8};
    const DType dtype = Any(types);
    const UOp each =
        Number(2) == 0
            ? m_->Constant(dtype, static_cast<double>(1 + Number(3)), {m, n})
            : g_->Make(
                  Op::kCast, dtype,
                  {m_->Broadcast(m_->To(Op::kReshape, New(DType::kInt8, {m}), {m, 1}), {m, n})});
    const ReduceKind kind = Number(3) == 0 ? ReduceKind::kMax : ReduceKind::kAdd;
    return FoldAxis(kind, Select(kind, mask, each), 1);
  }

  std::mt19937 random_;
  Graph* g_ = nullptr;
  std::optional<Masked> m_;
  std::vector<Slot> slots_{Slot{}};
};

TEST(Collapse, RandomSpellingsKeepTheirValues) {
  const char* chosen = std::getenv("SEED");
  const uint32_t first = chosen != nullptr ? static_cast<uint32_t>(std::atoi(chosen)) : 1;
  const int kGraphs = chosen != nullptr ? 1 : 1500;
  int collapsed = 0, gathers = 0, scatters = 0;
  for (uint32_t seed = first; seed < first + static_cast<uint32_t>(kGraphs); ++seed) {
    Graph graph;
    RandomSpelling spelling(seed);
    const UOp sink = spelling.Make(&graph);
    ASSERT_TRUE(graph.status().ok()) << graph.status() << ", seed " << seed;
    Budget budget;
    const auto legal = Legalize(sink, {}, &budget);
    ASSERT_TRUE(legal.ok()) << legal.status() << ", seed " << seed;
    const auto other = CollapseReductions(legal->root(), &budget);
    ASSERT_TRUE(other.ok()) << other.status() << ", seed " << seed << "\n" << Print(sink);
    ASSERT_TRUE(Verify(other->root(), kTensorLevel).ok()) << Print(other->root());
    collapsed += Count(other->root(), Op::kReduce) == 0;
    gathers += Count(other->root(), Op::kGather) > 0;
    scatters += Count(other->root(), Op::kScatter) > 0;
    Slots want = spelling.Fill(), got = want;
    ASSERT_TRUE(reference::Evaluate(legal->root(), want, &budget).ok());
    const absl::Status status = reference::Evaluate(other->root(), got, &budget);
    ASSERT_TRUE(status.ok()) << status << ", seed " << seed << "\n" << Print(other->root());
    ASSERT_EQ(Differs(spelling.dtype(), want[0], got[0]), "") << "seed " << seed << "\n"
                                                              << Print(legal->root()) << "\n"
                                                              << Print(other->root());
  }
  std::cout << kGraphs << " graphs, seeds from " << first << ": " << collapsed
            << " without a reduction, " << gathers << " gather, " << scatters << " scatter\n";
  if (chosen != nullptr) return;
  EXPECT_GT(collapsed, kGraphs / 2);
  EXPECT_GT(gathers, kGraphs / 5);
  EXPECT_GT(scatters, kGraphs / 5);
}

}  // namespace
}  // namespace telegrad
