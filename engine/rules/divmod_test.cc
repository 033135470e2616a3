// Index arithmetic of reshapes, windows, strides, flips and pads simplifies to the expected
// forms, and values that wrap are left alone.
#include "engine/rules/divmod.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/base/strings.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"

namespace telegrad {
namespace {

// Index expressions of i64, built through the rules.
struct IndexTest : ::testing::Test {
  struct E {
    IndexTest* t;
    UOp u;
    friend E operator+(E a, E b) { return {a.t, a.t->b_.Make(Op::kAdd, {a.u, b.u})}; }
    friend E operator-(E a, E b) { return {a.t, a.t->b_.Make(Op::kSub, {a.u, b.u})}; }
    friend E operator*(E a, E b) { return {a.t, a.t->b_.Make(Op::kMul, {a.u, b.u})}; }
    friend E operator/(E a, E b) { return {a.t, a.t->b_.Make(Op::kFloorDiv, {a.u, b.u})}; }
    friend E operator%(E a, E b) { return {a.t, a.t->b_.Make(Op::kFloorMod, {a.u, b.u})}; }
    friend E operator<(E a, E b) { return {a.t, a.t->b_.Make(Op::kCmpLt, {a.u, b.u})}; }
    friend E operator&(E a, E b) { return {a.t, a.t->b_.Make(Op::kAnd, {a.u, b.u})}; }
    friend E operator!(E a) { return {a.t, a.t->b_.Make(Op::kXor, {a.u, a.t->graph_.True()})}; }
    friend E operator+(int64_t k, E a) { return a.t->K(k) + a; }
    friend E operator*(int64_t k, E a) { return a.t->K(k) * a; }
    friend E operator+(E a, int64_t k) { return a + a.t->K(k); }
    friend E operator-(E a, int64_t k) { return a - a.t->K(k); }
    friend E operator*(E a, int64_t k) { return a * a.t->K(k); }
    friend E operator/(E a, int64_t k) { return a / a.t->K(k); }
    friend E operator%(E a, int64_t k) { return a % a.t->K(k); }
    friend E operator<(E a, int64_t k) { return a < a.t->K(k); }
    friend E operator<(int64_t k, E a) { return a.t->K(k) < a; }
    friend bool operator==(const E& a, const E& b) { return a.u == b.u; }
    friend void PrintTo(const E& e, std::ostream* os) { *os << e.t->Print(e.u); }
  };

  E K(int64_t k) { return {this, graph_.Index(k)}; }
  E Range(int64_t n) { return {this, graph_.Range(next_++, AxisType::kLoop, graph_.Index(n))}; }

  static std::string Print(UOp u) {
    if (!u.valid()) return "invalid";
    if (u.is_const()) return std::to_string(u.const_word());
    if (u.is(Op::kRange)) return StrCat("r", u.range_id());
    std::string text = StrCat(Name(u.op()), "(");
    for (int i = 0; i < u.num_src(); ++i) StrAppend(&text, i > 0 ? ", " : "", Print(u.src(i)));
    return text + ")";
  }

  int64_t next_ = 0;
  Graph graph_;
  Budget budget_;
  Rewriter b_{&graph_, {&kAlgebra, &kDivMod}, &budget_};
};

TEST_F(IndexTest, SumsAreOneNode) {
  E a = Range(10), b = Range(10), c = Range(10);
  EXPECT_EQ((a + b) + c, c + (b + a));
  EXPECT_EQ(a + 3 + b - 1, b + (a + 2));
  EXPECT_EQ((a + b) * 4 - b * 4, a * 4);
  EXPECT_EQ(a - a, K(0));
  EXPECT_EQ((a * 2 + b) * 3, a * 6 + b * 3);
}

TEST_F(IndexTest, ReshapeMergesAndSplits) {
  E i = Range(4), j = Range(6), k = Range(5);
  E flat = (i * 6 + j) * 5 + k;
  EXPECT_EQ(flat / 30, i);
  EXPECT_EQ(flat / 5 % 6, j);
  EXPECT_EQ(flat % 5, k);
  EXPECT_EQ(flat / 5, i * 6 + j);
  EXPECT_EQ(flat % 30, j * 5 + k);
  E n = Range(120);
  EXPECT_EQ(n / 5 * 5 + n % 5, n);
  EXPECT_EQ(n / 30 * 30 + n / 5 % 6 * 5 + n % 5, n);
  EXPECT_EQ(n / 5 % 6 * 5 + n % 5, n % 30);
  EXPECT_EQ((n % 30) / 5, n / 5 % 6);
  // [4, 6, 5] -> [8, 15] -> [4, 6, 5]
  EXPECT_EQ((flat / 15 * 15 + flat % 15), flat);
  EXPECT_EQ((flat / 15 * 15 + flat % 15) / 5 % 6, j);
}

TEST_F(IndexTest, Windows) {
  // The convolution trick: repeat, cut to k*(H+d), fold: (k*(H+d) + o) % H = k*d + o in range.
  constexpr int64_t kH = 28, kD = 1;
  E k = Range(3), o = Range(26);
  E flat = k * (kH + kD) + o;
  EXPECT_EQ(flat % kH, k * kD + o);
  EXPECT_EQ(flat / kH, k);
  EXPECT_EQ(flat / (kH + kD), k);
  EXPECT_EQ(flat % (kH + kD), o);
}

TEST_F(IndexTest, StridesAndFlips) {
  E i = Range(8), j = Range(3);
  EXPECT_EQ((i * 3 + j) / 3, i);
  EXPECT_EQ((K(7) - i) + i, K(7));
  EXPECT_EQ(((K(7) - i) * 3 + j) / 3, K(7) - i);
  EXPECT_EQ(((K(7) - i) * 3 + (K(2) - j)) % 3, K(2) - j);
  EXPECT_EQ((i * 16 + j * 4) / 4, i * 4 + j);
  EXPECT_EQ((i * 4 + j) / 8, i / 2);
  EXPECT_EQ((i * 4 + j) % 8, i % 2 * 4 + j);
  EXPECT_EQ((i / 2) / 2, i / 4);
}

TEST_F(IndexTest, Pads) {
  E i = Range(10), j = Range(4);
  EXPECT_EQ(i + 2 < 5, i < 3);
  EXPECT_EQ(1 < i + 2, K(0) < K(1));
  EXPECT_EQ(i * 4 < 10, i < 3);
  EXPECT_EQ(i * 4 + j < 8, i < 2);
  EXPECT_EQ(!(i - 1 < 0), 0 < i);
  EXPECT_EQ((i < 3) & (i < 5), i < 3);
  EXPECT_EQ((i < 3) & ((j < 2) & (i < 5)), (j < 2) & (i < 3));
  EXPECT_EQ(i / 2 < 3, i < 6);
}

// An index decomposed along the axes of one shape and composed again, through two others, is
// itself.
TEST_F(IndexTest, RandomReshapesAreUndone) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  const auto split = [&](int64_t n) {
    std::vector<int64_t> dims;
    while (n > 1) {
      int64_t d = 1;
      for (int64_t p = 2; p <= n; ++p) {
        while (n % p == 0 && (d == 1 || random() % 2 == 0)) {
          d *= p;
          n /= p;
        }
        if (d > 1 && random() % 2 == 0) break;
      }
      dims.push_back(d);
    }
    std::ranges::shuffle(dims, random);
    return dims;
  };
  const auto reshape = [&](E flat, const std::vector<int64_t>& dims) {
    E out = K(0);
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      out = out + flat / stride % dims[i] * stride;
      stride *= dims[i];
    }
    return out;
  };
  for (int i = 0; i < 300; ++i) {
    static constexpr int64_t kSizes[] = {12, 24, 36, 60, 64, 90, 210, 720};
    const int64_t n = kSizes[random() % std::size(kSizes)];
    E flat = K(0);
    for (int64_t d : split(n)) flat = flat * d + Range(d);
    const std::vector<int64_t> a = split(n), b = split(n);
    EXPECT_EQ(reshape(flat, a), flat);
    EXPECT_EQ(reshape(reshape(flat, a), b), flat);
    const E whole = Range(n);
    EXPECT_EQ(reshape(whole, a), whole) << ToString(a);
  }
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
}

TEST_F(IndexTest, VectorIndicesStayContiguous) {
  // ADD(scalar, IOTA) is how a program says that the lanes lie side by side.
  const E i = Range(8), lanes{this, graph_.Make(Op::kIota, DType::kInt64, {}, {4})};
  for (E index : {lanes + i * 4 + 3, (i * 4 + lanes) + 3, 3 + (lanes + 4 * i)}) {
    ASSERT_EQ(index.u.op(), Op::kAdd);
    EXPECT_EQ(index.u.src(0), (i * 4 + 3).u);
    EXPECT_EQ(index.u.src(1), lanes.u);
  }
  EXPECT_EQ((lanes + 3).u.src(1), lanes.u);
}

TEST_F(IndexTest, WrappingValuesAreLeftAlone) {
  // Loaded indices may be anything: (x * 4) / 4 is not x, x + 1 < 5 is not x < 4.
  const E x{this, b_.Make(Op::kLoad, {b_.Make(Op::kIndex, {graph_.Param(0, DType::kInt64, Shape{8}),
                                                           graph_.Index(0)})})};
  EXPECT_EQ((x * 4 / 4).u.op(), Op::kFloorDiv);
  EXPECT_EQ((x + 1 < 5).u.src(0), (x + 1).u);
  EXPECT_EQ((x + 8) % 8 == x % 8, false);
}

TEST_F(IndexTest, LongSumsKeepTheirForm) {
  // A client's own sum of thousands of terms is not an index; the rules must stay linear in it.
  E sum = Range(4);
  for (int i = 0; i < 3000; ++i) sum = sum + Range(4);
  ASSERT_TRUE(graph_.status().ok());
  EXPECT_LT(budget_.rewrites_spent(), 100'000);
  EXPECT_LT(graph_.size(), 50'000u);
}

}  // namespace
}  // namespace telegrad
