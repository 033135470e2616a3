// The layout of matrix fragments among the lanes of a warp: each covers its matrix once, and
// some elements are where the manuals say.
#include "engine/reference/fragments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace telegrad::reference {
namespace {

// The fragments of a scope's threads together are the matrix, every element once, or as often as
// the row says.
TEST(Fragments, CoverTheirMatrix) {
  using Fragment = Element (*)(const MmaInfo&, int, int);
  for (const MmaInfo& mma : AllMmas()) {
    struct Matrix {
      Fragment fragment;
      int rows, columns, held, copies;
    };
    std::vector<Matrix> matrices = {{FragmentC, mma.m, mma.n, mma.c_size(), 1}};
    if (!mma.async) {
      matrices.push_back({FragmentA, mma.m, mma.k, mma.a_size(), mma.copies});
      matrices.push_back({FragmentB, mma.k, mma.n, mma.b_size(), mma.copies});
    }
    for (const Matrix& matrix : matrices) {
      std::vector<int> seen(matrix.rows * matrix.columns);
      for (int t = 0; t < mma.threads; ++t) {
        for (int i = 0; i < matrix.held; ++i) {
          const Element e = matrix.fragment(mma, t, i);
          ASSERT_TRUE(e.row >= 0 && e.row < matrix.rows && e.column >= 0 &&
                      e.column < matrix.columns)
              << std::string(mma.name) << " thread " << t << " element " << i;
          ++seen[e.row * matrix.columns + e.column];
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), matrix.copies)) << std::string(mma.name);
    }
  }
}

void ExpectAt(Element e, int row, int column) {
  EXPECT_EQ(e.row, row);
  EXPECT_EQ(e.column, column);
}

// Elements read off the figures of the manuals.
TEST(Fragments, SpotChecks) {
  const MmaInfo& sm80 = AllMmas()[static_cast<size_t>(MmaKind::kSm80F16)];
  ExpectAt(FragmentA(sm80, 5, 1), 1, 3);
  ExpectAt(FragmentA(sm80, 5, 2), 9, 2);
  ExpectAt(FragmentA(sm80, 5, 4), 1, 10);
  ExpectAt(FragmentA(sm80, 31, 7), 15, 15);
  ExpectAt(FragmentB(sm80, 5, 1), 3, 1);
  ExpectAt(FragmentB(sm80, 5, 2), 10, 1);
  ExpectAt(FragmentC(sm80, 5, 1), 1, 3);
  ExpectAt(FragmentC(sm80, 5, 3), 9, 3);
  const MmaInfo& wide = AllMmas()[static_cast<size_t>(MmaKind::kSm80WideF16)];
  ExpectAt(FragmentA(wide, 5, 4), 1, 10);
  ExpectAt(FragmentB(wide, 5, 6), 10, 9);
  ExpectAt(FragmentC(wide, 5, 7), 9, 11);
  const MmaInfo& sm90 = AllMmas()[static_cast<size_t>(MmaKind::kSm90F16)];
  ExpectAt(FragmentC(sm90, 0, 4), 0, 8);
  ExpectAt(FragmentC(sm90, 37, 3), 25, 3);
  ExpectAt(FragmentC(sm90, 127, 31), 63, 63);
  const MmaInfo& mfma = AllMmas()[static_cast<size_t>(MmaKind::kMfmaF16)];
  ExpectAt(FragmentA(mfma, 37, 3), 5, 11);
  ExpectAt(FragmentB(mfma, 63, 0), 12, 15);
  ExpectAt(FragmentC(mfma, 37, 3), 11, 5);
  const MmaInfo& rdna3 = AllMmas()[static_cast<size_t>(MmaKind::kRdna3F16)];
  ExpectAt(FragmentA(rdna3, 21, 9), 5, 9);
  ExpectAt(FragmentB(rdna3, 5, 9), 9, 5);
  ExpectAt(FragmentC(rdna3, 21, 3), 7, 5);
  const MmaInfo& rdna4 = AllMmas()[static_cast<size_t>(MmaKind::kRdna4F16)];
  ExpectAt(FragmentA(rdna4, 21, 3), 5, 11);
  ExpectAt(FragmentC(rdna4, 21, 3), 11, 5);
  const MmaInfo& amx = AllMmas()[static_cast<size_t>(MmaKind::kAmxBF16)];
  ExpectAt(FragmentA(amx, 0, 33), 1, 1);
  ExpectAt(FragmentB(amx, 0, 1), 1, 0);
  ExpectAt(FragmentB(amx, 0, 2), 0, 1);
  ExpectAt(FragmentB(amx, 0, 32), 2, 0);
}

// The same, as the manuals put it in words and formulas.
Element PairOfM16N8(int lane, int i) {
  return {.row = lane / 4 + ((i & 2) != 0 ? 8 : 0), .column = 2 * (lane % 4) + (i & 1)};
}

TEST(Fragments, AreThoseOfTheManuals) {
  const auto same = [](Element a, Element b) { return a.row == b.row && a.column == b.column; };
  for (const MmaInfo& mma : AllMmas()) {
    for (int t = 0; t < mma.threads; ++t) {
      const int column = t % 16, group = t / 16;
      for (int i = 0; i < mma.c_size(); ++i) {
        const Element c = FragmentC(mma, t, i), pair = PairOfM16N8(t % 32, i & 3);
        Element wanted = c;
        if (mma.unit == MatrixUnit::kSm80 || mma.unit == MatrixUnit::kSm90) {
          wanted = {16 * (t / 32) + pair.row, 8 * (i / 4) + pair.column};
        }
        if (mma.unit == MatrixUnit::kMfma) wanted = {4 * group + i, column};
        if (mma.unit == MatrixUnit::kRdna3) wanted = {2 * i + group, column};
        if (mma.unit == MatrixUnit::kRdna4) wanted = {8 * group + i, column};
        if (mma.unit == MatrixUnit::kAmx) wanted = {i / 16, i % 16};
        EXPECT_TRUE(same(c, wanted)) << mma.name << " c " << t << " " << i;
      }
      for (int i = 0; !mma.async && i < mma.a_size(); ++i) {
        const Element a = FragmentA(mma, t, i), pair = PairOfM16N8(t, i);
        Element wanted = a;
        if (mma.unit == MatrixUnit::kSm80) wanted = {pair.row, pair.column + (i >= 4 ? 8 : 0)};
        if (mma.unit == MatrixUnit::kMfma) wanted = {column, 4 * group + i};
        if (mma.unit == MatrixUnit::kRdna3) wanted = {column, i};
        if (mma.unit == MatrixUnit::kRdna4) wanted = {column, 8 * group + i};
        if (mma.unit == MatrixUnit::kAmx) wanted = {i / 32, i % 32};
        EXPECT_TRUE(same(a, wanted)) << mma.name << " a " << t << " " << i;
      }
      for (int i = 0; !mma.async && i < mma.b_size(); ++i) {
        const Element b = FragmentB(mma, t, i);
        Element wanted = b;
        if (mma.unit == MatrixUnit::kSm80) {
          wanted = {2 * (t % 4) + (i & 1) + ((i & 2) != 0 ? 8 : 0), t / 4 + 8 * (i / 4)};
        }
        if (mma.unit == MatrixUnit::kMfma) wanted = {4 * group + i, column};
        if (mma.unit == MatrixUnit::kRdna3) wanted = {i, column};
        if (mma.unit == MatrixUnit::kRdna4) wanted = {8 * group + i, column};
        if (mma.unit == MatrixUnit::kAmx) wanted = {2 * (i / 32) + i % 2, i % 32 / 2};
        EXPECT_TRUE(same(b, wanted)) << mma.name << " b " << t << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::reference
