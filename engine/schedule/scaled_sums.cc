#include "engine/schedule/scaled_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/scalar.h"
#include "engine/rewrite/copier.h"
#include "engine/schedule/access.h"
#include "engine/schedule/byte_products.h"
#include "engine/schedule/drafts.h"

namespace telegrad {
namespace {

constexpr size_t kMostScaleViews = 16;

// views(CAST(whole) * scale)
struct ScaledFactor {
  std::vector<UOp> views;  // from the factor down
  UOp whole;               // i32
  UOp scale;               // f32
};

bool IsView(UOp u) { return Is(u.op(), kMovement) && u.num_src() == 1; }

// The value of one element that is repeated; invalid where there are several.
UOp RepeatedElement(UOp u) {
  for (size_t i = 0; i < kMostScaleViews; ++i) {
    if (u.symbolic()) return {};
    if (NumElements(u.shape()) == 1) return u;
    if (!IsView(u) || u.is(Op::kPad)) return {};
    u = u.src(0);
  }
  return {};
}

std::optional<ScaledFactor> ScaledFactorOf(UOp u) {
  ScaledFactor out;
  for (; IsView(u); u = u.src(0)) {
    if (u.symbolic() || out.views.size() == kMostScaleViews) return std::nullopt;
    out.views.push_back(u);
  }
  if (!u.is(Op::kMul)) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    const UOp cast = u.src(i);
    if (!cast.is(Op::kCast) || cast.src(0).dtype() != DType::kInt32) continue;
    if (!std::ranges::equal(cast.shape(), u.shape())) continue;
    out.whole = cast.src(0);
    out.scale = u.src(1 - i);
    return out;
  }
  return std::nullopt;
}

class SumScaler {
 public:
  explicit SumScaler(FrozenGraph graph) : graph_(std::move(graph)), copier_(graph_) {}

  absl::StatusOr<FrozenGraph> Run(Budget* budget) {
    bool changed = false;
    const auto scaled = [&](UOp u) {
      const UOp node = Scaled(u);
      changed |= node.valid();
      return node.valid() ? node : copier_.Same(u);
    };
    TG_ASSIGN_OR_RETURN(FrozenGraph all, copier_.Run(budget, scaled));
    return changed ? std::move(all) : graph_;
  }

 private:
  UOp Through(const std::vector<UOp>& views, UOp value) {
    for (size_t i = views.size(); i-- > 0;) {
      value = MakeLike(out_, views[i], std::array{value});
    }
    return value;
  }

  // The scale of each result of the REDUCE; invalid where it is not the same for all terms.
  UOp ScaleOf(UOp reduce, const ScaledFactor& f) {
    if (const UOp one = RepeatedElement(f.scale); one.valid()) {
      const UOp made = copier_.Made(one);
      return made.shape().empty() ? made : out_->Make(Op::kReshape, {made}, Shape{});
    }
    const auto pads = [](UOp view) { return view.is(Op::kPad); };
    if (std::ranges::any_of(f.views, pads)) return {};
    // Repeated along all that is reduced: as the views tell, from the top down.
    std::vector<UOp> views = f.views;
    UOp scale = f.scale;
    for (; IsView(scale) && !scale.is(Op::kPad); scale = scale.src(0)) views.push_back(scale);
    Access access = LoopAccess(reduce.src(0).shape());
    for (const UOp view : views) access = AccessSource(view, access);
    if ((access.ranges() & SummedAxes(reduce)) != 0) return {};
    const UOp all = Through(views, copier_.Made(scale));
    const ShapeView shape = reduce.shape();
    std::vector<int64_t> first;
    for (const int64_t size : shape) first.insert(first.end(), {0, size});
    return all.valid() ? out_->Make(Op::kShrink, {all}, first) : all;
  }

  // Whether no two results share its elements but through a window: what is computed of them is
  // computed in each term.
  static bool IsReadByEachResult(UOp reduce, const ScaledFactor& f) {
    Access access = LoopAccess(reduce.src(0).shape());
    const RangeSet all = access.ranges();
    for (const UOp view : f.views) access = AccessSource(view, access);
    return ((access.ranges() | SummedAxes(reduce)) & all) == all;
  }

  static bool IsModerate(UOp scale) {
    if (!scale.is_const()) return false;
    const double size = std::abs(ScalarAsDouble(DType::kFloat32, scale.const_word()));
    return size > 0x1p-60 && size < 0x1p60;
  }

  UOp Magnitude(UOp x) { return out_->Make(Op::kMax, {x, out_->Make(Op::kNeg, {x})}); }

  UOp Scaled(UOp u) {
    const bool sums = u.is(Op::kReduce) && u.dtype() == DType::kFloat32 &&
                      u.reduce_kind() == ReduceKind::kAdd && u.src(0).is(Op::kMul) &&
                      !u.symbolic() && !u.src(0).symbolic();
    if (!sums) return {};
    std::array<ScaledFactor, 2> factors;
    std::array<UOp, 2> scale;
    for (size_t i = 0; i < 2; ++i) {
      std::optional<ScaledFactor> f = ScaledFactorOf(u.src(0).src(static_cast<int>(i)));
      if (!f) return {};
      scale[i] = ScaleOf(u, *f);
      if (!scale[i].valid()) return {};
      factors[i] = *std::move(f);
    }
    const auto sum_in = [&](DType dtype) {
      std::array<UOp, 2> x;
      for (size_t i = 0; i < 2; ++i) {
        UOp whole = copier_.Made(factors[i].whole);
        if (dtype != DType::kInt32) whole = out_->Make(Op::kCast, dtype, {whole}, {});
        x[i] = Through(factors[i].views, whole);
      }
      return MakeLike(out_, u, std::array{out_->Make(Op::kMul, {x[0], x[1]})});
    };
    const UOp sum = sum_in(DType::kInt32);
    if (!sum.valid()) return {};
    UOp floats;
    if (AddsBytes(sum)) {
      floats = out_->Make(Op::kCast, DType::kFloat32, {sum}, {});
    } else if (IsExactInFloat(sum) && std::ranges::any_of(factors, [&](const ScaledFactor& f) {
                 return IsReadByEachResult(u, f);
               })) {
      floats = sum_in(DType::kFloat32);
    } else {
      return {};
    }
    // By a scale that is known first, where no integer times it overflows or vanishes.
    for (size_t i = 0; i < 2; ++i) {
      if (!IsModerate(scale[i])) continue;
      return out_->Make(Op::kMul, {out_->Make(Op::kMul, {floats, scale[i]}), scale[1 - i]});
    }
    // The one nearer to 0 first: neither overflows nor vanishes what the result does not. Their
    // product could.
    const UOp less = out_->Make(Op::kCmpLt, {Magnitude(scale[0]), Magnitude(scale[1])});
    const UOp near = out_->Make(Op::kWhere, {less, scale[0], scale[1]});
    const UOp far = out_->Make(Op::kWhere, {less, scale[1], scale[0]});
    return out_->Make(Op::kMul, {out_->Make(Op::kMul, {floats, near}), far});
  }

  const FrozenGraph graph_;
  Copier copier_;
  Graph* const out_ = copier_.out();
};

}  // namespace

absl::StatusOr<FrozenGraph> ScaleSums(FrozenGraph graph, Budget* budget) {
  return SumScaler(std::move(graph)).Run(budget);
}

}  // namespace telegrad
