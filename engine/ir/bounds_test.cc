// Random small expressions over ranges, evaluated for every value of the ranges with arithmetic of
// the test's own: each value of each node lies within the node's interval.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/base/strings.h"
#include "engine/ir/graph.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

using Wide = __int128;

// The value of `dtype` that `v` wraps to; u64 as itself.
Wide Wrap(DType dtype, Wide v) {
  if (IsBool(dtype)) return v != 0;
  const int bits = Info(dtype).bits;
  const Wide modulus = Wide{1} << bits;
  Wide r = v % modulus;
  if (r < 0) r += modulus;
  if (IsSigned(dtype) && r >= modulus / 2) r -= modulus;
  return r;
}

Wide Floor(Wide x, Wide y) {
  const Wide q = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

// Modulo 2^128, which every type's modulus divides.
Wide Multiply(Wide x, Wide y) {
  return static_cast<Wide>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y));
}

Wide Shift(Op op, int bits, Wide x, Wide y) {
  const bool oversized = y < 0 || y >= bits;
  if (op == Op::kShl) return oversized ? 0 : x * (Wide{1} << static_cast<int>(y));
  if (oversized) return x < 0 ? -1 : 0;
  return Floor(x, Wide{1} << static_cast<int>(y));
}

Wide Evaluate(UOp u, const std::vector<Wide>& values) {
  const auto v = [&](int i) { return values[u.src(i).id()]; };
  switch (u.op()) {
    case Op::kNeg:
      return -v(0);
    case Op::kAdd:
      return v(0) + v(1);
    case Op::kSub:
      return v(0) - v(1);
    case Op::kMul:
      return Multiply(v(0), v(1));
    case Op::kMulAcc:
      return Wrap(u.dtype(), Multiply(v(0), v(1))) + v(2);
    case Op::kMax:
      return v(0) > v(1) ? v(0) : v(1);
    case Op::kFloorDiv:
      return v(1) == 0 ? Wide{0} : Floor(v(0), v(1));
    case Op::kFloorMod:
      return v(1) == 0 ? Wide{0} : v(0) - Floor(v(0), v(1)) * v(1);
    case Op::kCmpLt:
      return v(0) < v(1);
    case Op::kCmpEq:
      return v(0) == v(1);
    case Op::kCmpNe:
      return v(0) != v(1);
    case Op::kAnd:
      return v(0) & v(1);
    case Op::kOr:
      return v(0) | v(1);
    case Op::kXor:
      return v(0) ^ v(1);
    case Op::kShl:
    case Op::kShr:
      return Shift(u.op(), Info(u.dtype()).bits, v(0), v(1));
    case Op::kWhere:
      return v(0) != 0 ? v(1) : v(2);
    case Op::kCast:
      return v(0);
    default:
      ADD_FAILURE() << "no meaning for " << std::string(Name(u.op()));
      return 0;
  }
}

constexpr DType kTypes[] = {DType::kBool,  DType::kInt8,   DType::kUInt8, DType::kInt16,
                            DType::kInt32, DType::kUInt32, DType::kInt64, DType::kUInt64};
constexpr Op kOps[] = {Op::kNeg,   Op::kAdd,   Op::kSub,      Op::kMul,      Op::kMulAcc,
                       Op::kMax,   Op::kCmpLt, Op::kFloorDiv, Op::kFloorMod, Op::kCmpEq,
                       Op::kCmpNe, Op::kAnd,   Op::kOr,       Op::kXor,      Op::kShl,
                       Op::kShr,   Op::kWhere, Op::kCast};

class Expressions {
 public:
  explicit Expressions(uint32_t seed) : random_(seed) {}

  // A graph of ranges, constants and about `size` random nodes.
  void Build(Graph& g, int size) {
    nodes_.clear();
    ranges_.clear();
    for (int i = 0; i < 3; ++i) {
      const DType dtype = kTypes[1 + Pick(std::size(kTypes) - 2)];  // an integer, not u64
      const UOp r = g.Range(i, AxisType::kLoop, g.Const(dtype, 1 + Pick(6)));
      ranges_.push_back(r);
      nodes_.push_back(r);
    }
    constexpr int64_t kEdges[] = {0, 1,  -1,  2,    3,   -3,        7,
                                  8, 63, 127, -128, 255, INT64_MAX, INT64_MIN};
    for (DType dtype : kTypes) {
      nodes_.push_back(g.Const(dtype, kEdges[Pick(std::size(kEdges))]));
      nodes_.push_back(g.Const(dtype, Pick(10)));
    }
    for (int i = 0; i < size; ++i) {
      if (const UOp u = RandomNode(g); u.valid()) nodes_.push_back(u);
      g.TakeStatus().IgnoreError();  // not every op is allowed on every type
    }
  }
  const std::vector<UOp>& ranges() const { return ranges_; }

 private:
  int64_t Pick(size_t n) { return static_cast<int64_t>(random_() % n); }
  UOp Any() { return nodes_[Pick(nodes_.size())]; }
  // A recent node of that type more often than not.
  UOp OfType(Graph& g, DType dtype) {
    const UOp u = Any();
    return u.dtype() == dtype ? u : g.Make(Op::kCast, dtype, {u});
  }
  UOp RandomNode(Graph& g) {
    const Op op = kOps[Pick(std::size(kOps))];
    const UOp x = Any();
    if (op == Op::kCast) return g.Make(op, kTypes[Pick(std::size(kTypes))], {x});
    if (op == Op::kNeg) return g.Make(op, {x});
    const UOp y = OfType(g, x.dtype());
    if (op == Op::kWhere) return g.Make(op, {OfType(g, DType::kBool), x, y});
    if (op == Op::kMulAcc) return g.Make(op, {x, y, OfType(g, x.dtype())});
    return g.Make(op, {x, y});
  }

  std::mt19937 random_;
  std::vector<UOp> nodes_, ranges_;
};

TEST(Bounds, HoldForEveryValueOfTheRanges) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  Expressions expressions(seed);
  int64_t known = 0;
  for (int round = 0; round < 1500; ++round) {
    Graph g;
    expressions.Build(g, 25);
    std::vector<int64_t> at(expressions.ranges().size(), 0);
    std::vector<Wide> values(g.size());
    for (bool more = true; more;) {
      for (uint32_t id = 0; id < g.size(); ++id) {
        const UOp u = g.at(id);
        if (u.is(Op::kRange)) {
          values[id] = at[u.range_id()];
        } else if (u.is_const()) {
          values[id] = Wrap(u.dtype(), u.const_word());
        } else {
          values[id] = Wrap(u.dtype(), Evaluate(u, values));
        }
        const Interval b = u.bounds();
        if (u.dtype() == DType::kUInt64) {
          ASSERT_FALSE(b.known()) << Print(u);
          continue;
        }
        ASSERT_LE(b.lo, b.hi) << Print(u);
        ASSERT_TRUE(b.lo <= values[id] && values[id] <= b.hi)
            << static_cast<int64_t>(values[id]) << " is outside of [" << b.lo << ", " << b.hi
            << "] of the last of\n"
            << Print(u);
        known += b.known();
      }
      more = false;
      for (size_t i = 0; i < at.size() && !more; ++i) {
        more = ++at[i] < expressions.ranges()[i].src(0).vmax();
        if (!more) at[i] = 0;
      }
    }
  }
  EXPECT_GT(known, 0);
}

// Tight where index arithmetic needs it.
TEST(Bounds, AreTightOnIndexArithmetic) {
  Graph g;
  const auto range = [&](int64_t id, int64_t n) {
    return g.Range(id, AxisType::kLoop, g.Index(n));
  };
  const UOp i = range(0, 10), j = range(1, 7);
  const UOp flat = g.Make(Op::kAdd, {g.Make(Op::kMul, {i, g.Index(7)}), j});
  EXPECT_EQ(flat.bounds(), (Interval{0, 69}));
  EXPECT_EQ(g.Make(Op::kFloorDiv, {flat, g.Index(7)}).bounds(), (Interval{0, 9}));
  EXPECT_EQ(g.Make(Op::kFloorMod, {flat, g.Index(7)}).bounds(), (Interval{0, 6}));
  EXPECT_EQ(g.Make(Op::kFloorMod, {j, g.Index(7)}).bounds(), (Interval{0, 6}));
  EXPECT_EQ(g.Make(Op::kSub, {i, j}).bounds(), (Interval{-6, 9}));
  EXPECT_EQ(g.Make(Op::kCmpLt, {flat, g.Index(70)}).bounds(), (Interval{1, 1}));
  EXPECT_EQ(g.Make(Op::kCmpLt, {flat, g.Index(0)}).bounds(), (Interval{0, 0}));
  EXPECT_EQ(g.Make(Op::kCmpLt, {flat, g.Index(69)}).bounds(), (Interval{0, 1}));
  const UOp unknown = g.Make(Op::kReshape, {g.Param(0, DType::kInt64, Shape{1})}, Shape{});
  EXPECT_EQ(g.Make(Op::kAnd, {unknown, g.Index(15)}).bounds(), (Interval{0, 15}));
  EXPECT_FALSE(g.Make(Op::kAdd, {unknown, g.Index(1)}).bounds().known());
  EXPECT_EQ(g.Make(Op::kShr, {flat, g.Index(3)}).bounds(), (Interval{0, 8}));
  // The least int64 has no neighbour to round down to.
  const UOp least = g.Index(INT64_MIN);
  EXPECT_EQ(g.Make(Op::kFloorMod, {least, g.Index(3)}).bounds(), (Interval{1, 1}));
  EXPECT_FALSE(g.Make(Op::kFloorDiv, {least, g.Index(-1)}).bounds().known());
  // Rounding up, as -(x // -n): 1 to 10 elements in steps of 1 to 3.
  const UOp step = g.Make(Op::kVar, {}, std::array<int64_t, 4>{1, -3, -1, 1});
  EXPECT_EQ(g.Make(Op::kFloorDiv, {flat, step}).bounds(), (Interval{-69, 0}));
  EXPECT_EQ(g.Make(Op::kFloorMod, {flat, step}).bounds(), (Interval{-2, 0}));
  ASSERT_TRUE(g.status().ok()) << g.status();
}

}  // namespace
}  // namespace telegrad
