// Comparisons of vectors: a bit of a mask for each lane. Floats compare false with NaN except where
// the name has an n, or u (unordered).
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

// clang-format off
template <class T> constexpr auto kLt = [](T a, T b) { return a < b; };
template <class T> constexpr auto kEq = [](T a, T b) { return a == b; };
template <class T> constexpr auto kLe = [](T a, T b) { return a <= b; };
template <class T> constexpr auto kGt = [](T a, T b) { return a > b; };
template <class T> constexpr auto kNe = [](T a, T b) { return a != b; };
template <class T> constexpr auto kGe = [](T a, T b) { return a >= b; };
template <class T> constexpr auto kLg = [](T a, T b) { return a < b || a > b; };
template <class T> constexpr auto kOrdered = [](T a, T b) { return a == a && b == b; };
template <class T> constexpr auto kUnordered = [](T a, T b) { return a != a || b != b; };
template <class T> constexpr auto kNge = [](T a, T b) { return !(a >= b); };
template <class T> constexpr auto kNlg = [](T a, T b) { return !(a < b || a > b); };
template <class T> constexpr auto kNgt = [](T a, T b) { return !(a > b); };
template <class T> constexpr auto kNle = [](T a, T b) { return !(a <= b); };
template <class T> constexpr auto kNlt = [](T a, T b) { return !(a < b); };

// Halves compare as floats.
template <auto F> constexpr auto kHalf = [](Half a, Half b) { return F(ToFloat(a), ToFloat(b)); };

#define INTEGER_ROWS(prefix, T, type, flags)                \
  LaneRow<kLt<T>>(prefix "lt_" type, flags), LaneRow<kEq<T>>(prefix "eq_" type, flags), \
  LaneRow<kLe<T>>(prefix "le_" type, flags), LaneRow<kGt<T>>(prefix "gt_" type, flags), \
  LaneRow<kNe<T>>(prefix "ne_" type, flags), LaneRow<kGe<T>>(prefix "ge_" type, flags)

#define FLOAT_ROWS(prefix, W, T, type, flags)                                                     \
  LaneRow<W(kLt<T>)>(prefix "lt_" type, flags), LaneRow<W(kEq<T>)>(prefix "eq_" type, flags),      \
  LaneRow<W(kLe<T>)>(prefix "le_" type, flags), LaneRow<W(kGt<T>)>(prefix "gt_" type, flags),      \
  LaneRow<W(kLg<T>)>(prefix "lg_" type, flags), LaneRow<W(kGe<T>)>(prefix "ge_" type, flags),      \
  LaneRow<W(kOrdered<T>)>(prefix "o_" type, flags),                                               \
  LaneRow<W(kUnordered<T>)>(prefix "u_" type, flags),                                             \
  LaneRow<W(kNge<T>)>(prefix "nge_" type, flags), LaneRow<W(kNlg<T>)>(prefix "nlg_" type, flags),  \
  LaneRow<W(kNgt<T>)>(prefix "ngt_" type, flags), LaneRow<W(kNle<T>)>(prefix "nle_" type, flags),  \
  LaneRow<W(kNe<T>)>(prefix "neq_" type, flags), LaneRow<W(kNlt<T>)>(prefix "nlt_" type, flags)

#define PLAIN(f) f
#define HALVES(f) kHalf<f>
// clang-format on

#define ALL_ROWS(prefix, flags)                                                                  \
  INTEGER_ROWS(prefix, int16_t, "i16", flags), INTEGER_ROWS(prefix, uint16_t, "u16", flags),     \
      INTEGER_ROWS(prefix, int32_t, "i32", flags), INTEGER_ROWS(prefix, uint32_t, "u32", flags), \
      INTEGER_ROWS(prefix, int64_t, "i64", flags), INTEGER_ROWS(prefix, uint64_t, "u64", flags), \
      FLOAT_ROWS(prefix, HALVES, float, "f16", flags),                                           \
      FLOAT_ROWS(prefix, PLAIN, float, "f32", flags),                                            \
      FLOAT_ROWS(prefix, PLAIN, double, "f64", flags)

constexpr Row kCompareRows[] = {
    ALL_ROWS("v_cmp_", 0),
    ALL_ROWS("v_cmpx_", kComparesExec),
};

#undef INTEGER_ROWS
#undef FLOAT_ROWS
#undef PLAIN
#undef HALVES
#undef ALL_ROWS

}  // namespace

std::span<const Row> CompareRows() { return kCompareRows; }

}  // namespace fakeamd
