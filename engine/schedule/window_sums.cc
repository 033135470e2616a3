#include "engine/schedule/window_sums.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "engine/rewrite/copier.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/tensor_facts.h"
#include "engine/schedule/window_taps.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// A convolution multiplies so many times as often at most as its taps did: padding counts.
constexpr double kMostRedone = 2;
// Views between an inner sum and its product: each of them is made anew for both factors.
constexpr size_t kMostProductViews = 32;

bool IsSum(UOp u) {
  return u.is(Op::kReduce) && u.reduce_kind() == ReduceKind::kAdd &&
         NumElements(u.src(0).shape()) > 0;
}

// Of all axes, none of which is changed yet: begin and size of each.
std::vector<int64_t> WholePairs(ShapeView dims) {
  std::vector<int64_t> pairs;
  for (const int64_t n : dims) pairs.insert(pairs.end(), {0, n});
  return pairs;
}

// A SHRINK or PAD, where it changes anything.
UOp Changed(Graph* g, Op op, UOp x, const std::vector<int64_t>& pairs) {
  if (!x.valid() || std::ranges::equal(pairs, WholePairs(x.shape()))) return x;
  return g->Make(op, {x}, pairs);
}

UOp Permuted(Graph* g, UOp x, const std::vector<int64_t>& order) {
  return !x.valid() || std::ranges::is_sorted(order) ? x : g->Make(Op::kPermute, {x}, order);
}

UOp Expanded(Graph* g, UOp x, const Shape& dims) {
  return !x.valid() || std::ranges::equal(x.shape(), dims) ? x : g->Make(Op::kExpand, {x}, dims);
}

// What the sum of one element is: a sum begins with +0, so it is never -0.
UOp PlusZero(Graph* g, UOp x) {
  if (!x.valid() || !IsFloat(x.dtype())) return x;
  return g->Make(Op::kAdd, {x, g->ConstFloat(x.dtype(), 0)});
}

class WindowSum {
 public:
  WindowSum(Graph* g, UOp sum, const PaddedViews& views, const WindowTaps& taps)
      : g_(g), sum_(sum), views_(views), taps_(taps), plain_(taps.PlainAxes()) {}

  // What the sum becomes, or invalid.
  UOp AsPool() const;
  UOp AsConvolution(TensorFacts* facts) const;
  UOp WithoutTaps() const;

 private:
  const WindowTaps::Group* GroupOf(size_t places) const {
    for (const WindowTaps::Group& group : taps_.groups()) {
      if (group.places == places) return &group;
    }
    return nullptr;
  }
  UOp ToOwnShape(UOp x) const {
    return x.valid() ? Reshaped(*g_, x, {sum_.shape().begin(), sum_.shape().end()}) : x;
  }
  UOp Compact(UOp x, const TensorFacts& facts) const;
  UOp Slide(UOp image, size_t axis, const WindowTaps::Sliding& sliding, int64_t places) const;
  UOp InOrder(UOp x, std::vector<int64_t> order, const Shape& dims) const;
  UOp SumOfProducts(UOp image, UOp weight, std::span<const WindowTaps::Sliding> slides,
                    std::span<const size_t> at) const;

  Graph* const g_;
  const UOp sum_;
  const PaddedViews& views_;
  const WindowTaps& taps_;
  const std::optional<std::vector<std::optional<size_t>>> plain_;
};

UOp WindowSum::WithoutTaps() const {
  std::vector<int64_t> pairs = WholePairs(taps_.dims());
  for (const WindowTaps::Group& group : taps_.groups()) {
    if (group.count == 0) continue;
    pairs[2 * group.taps] = group.first;
    pairs[2 * group.taps + 1] = group.count;
  }
  const UOp x = sum_.src(0), fewer = Changed(g_, Op::kShrink, x, pairs);
  if (fewer == x) return UOp();
  if (NumElements(fewer.shape()) == NumElements(sum_.shape())) return PlusZero(g_, fewer);
  return MakeLike(g_, sum_, std::array{fewer});
}

// The base's axes are brought into the order of the places; an axis of windows, and the one of taps
// or copies behind it, then become one: padded to the stride, joined, cut and padded.
UOp WindowSum::AsPool() const {
  if (!plain_) return UOp();
  const Shape& dims = taps_.dims();
  Shape apart, repeated, joined;
  std::vector<int64_t> order, spread, cut, placed;
  std::vector<int64_t> used = WholePairs(views_.base.shape());
  std::vector<bool> taken(views_.base.shape().size(), false);
  const auto take = [&](size_t axis) {
    order.push_back(static_cast<int64_t>(axis));
    taken[axis] = true;
  };
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (WindowTaps::Has(taps_.folded(), axis)) continue;
    const int64_t size = dims[axis];
    const WindowTaps::Group* group = GroupOf(axis);
    if (group == nullptr) {
      const std::optional<size_t> plain = (*plain_)[axis];
      if (plain) take(*plain);
      apart.push_back(plain ? size : 1);
      repeated.push_back(size);
      joined.push_back(size);
      spread.insert(spread.end(), {0, size});
      cut.insert(cut.end(), {0, size});
      placed.insert(placed.end(), {0, size});
      continue;
    }
    const std::optional<WindowTaps::Tiling> t = taps_.TilingOf(*group);
    if (!t) return UOp();
    take(t->row);
    used[2 * t->row + 1] = t->windows;
    if (t->tap) {
      take(*t->tap);
      used[2 * *t->tap + 1] = t->taps;
    }
    apart.insert(apart.end(), {t->windows, t->tap ? t->taps : 1});
    repeated.insert(repeated.end(), {t->windows, t->taps});
    joined.push_back(t->windows * t->stride);
    spread.insert(spread.end(), {0, t->windows, 0, t->stride});
    cut.insert(cut.end(), {0, std::min(t->windows * t->stride, size - t->first)});
    placed.insert(placed.end(), {t->first, size});
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) order.push_back(static_cast<int64_t>(i));  // one element
  }
  if (apart.size() > kMaxRank) return UOp();
  UOp out = Changed(g_, Op::kShrink, views_.base, used);
  out = InOrder(out, std::move(order), apart);
  out = Changed(g_, Op::kPad, Expanded(g_, out, repeated), spread);
  if (out.valid()) out = Reshaped(*g_, out, joined);
  out = ToOwnShape(Changed(g_, Op::kPad, Changed(g_, Op::kShrink, out, cut), placed));
  if (out.valid() && out.dtype() != sum_.dtype()) out = g_->Make(Op::kCast, sum_.dtype(), {out});
  return PlusZero(g_, out);
}

UOp WindowSum::InOrder(UOp x, std::vector<int64_t> order, const Shape& dims) const {
  x = Permuted(g_, x, order);
  return x.valid() ? Reshaped(*g_, x, dims) : x;
}

// Without what only repeats.
UOp WindowSum::Compact(UOp x, const TensorFacts& facts) const {
  std::vector<int64_t> pairs = WholePairs(x.shape());
  for (size_t i = 0; i < x.shape().size(); ++i) {
    if (!facts.varies(x.id(), i)) pairs[2 * i + 1] = 1;
  }
  return Changed(g_, Op::kShrink, x, pairs);
}

// `axis` becomes two, of taps and of places: element [k, p] is that at p + k of the image as far as
// the window reaches, padded there. Rows of one more than it are cut from its copies, so that each
// begins one further.
UOp WindowSum::Slide(UOp image, size_t axis, const WindowTaps::Sliding& s, int64_t places) const {
  const int64_t rows = image.shape()[axis], reach = places + s.count - 1;
  const int64_t from = s.direction > 0 ? s.offset : s.offset - (s.count - 1);
  std::vector<int64_t> pairs = WholePairs(image.shape());
  const int64_t begin = std::clamp<int64_t>(from, 0, rows - 1);
  const int64_t end = std::clamp<int64_t>(from + reach, begin + 1, rows);
  pairs[2 * axis] = begin;
  pairs[2 * axis + 1] = end - begin;
  image = Changed(g_, Op::kShrink, image, pairs);
  pairs[2 * axis] = begin - from;
  pairs[2 * axis + 1] = reach;
  image = Changed(g_, Op::kPad, image, pairs);
  if (!image.valid()) return image;
  Shape dims(image.shape().begin(), image.shape().end());
  const auto with = [&](std::initializer_list<int64_t> in_place) {
    Shape out(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis));
    out.insert(out.end(), in_place);
    out.insert(out.end(), dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, dims.end());
    return out;
  };
  if (s.count == 1) return Reshaped(*g_, image, with({1, reach}));
  const int64_t copies = (s.count * (reach + 1) + reach - 1) / reach;
  image = Expanded(g_, Reshaped(*g_, image, with({1, reach})), with({copies, reach}));
  image = Reshaped(*g_, image, with({copies * reach}));
  pairs[2 * axis] = 0;
  pairs[2 * axis + 1] = s.count * (reach + 1);
  image = Reshaped(*g_, Changed(g_, Op::kShrink, image, pairs), with({s.count, reach + 1}));
  return Changed(g_, Op::kShrink, image, WholePairs(with({s.count, places})));
}

UOp WindowSum::AsConvolution(TensorFacts* facts) const {
  const UOp inner = views_.base;
  if (!plain_ || taps_.groups().empty() || !IsSum(inner)) return UOp();
  if (inner.dtype() != sum_.dtype()) return UOp();
  UOp product = inner.src(0);
  std::vector<UOp> views;
  for (; Is(product.op(), kMovement); product = product.src(0)) {
    if (product.is(Op::kPad) || views.size() == kMostProductViews) return UOp();
    views.push_back(product);
  }
  if (!product.is(Op::kMul) || !IsContraction(inner)) return UOp();
  UOp operands[] = {product.src(0), product.src(1)};
  for (UOp& x : operands) {
    if (x.shape().empty()) return UOp();
    for (size_t i = views.size(); i-- > 0 && x.valid();) {
      x = MakeLike(g_, views[i], std::array{x});
    }
    if (!x.valid()) return x;
  }
  facts->Update();
  const auto varies = [&](UOp x, size_t axis) { return facts->varies(x.id(), axis); };

  std::vector<WindowTaps::Sliding> slides;
  double more = 1;
  for (const WindowTaps::Group& group : taps_.groups()) {
    const std::optional<WindowTaps::Sliding> s = taps_.SlidingOf(group);
    if (!s) return UOp();
    if (slides.empty() && !varies(operands[0], s->row)) std::swap(operands[0], operands[1]);
    if ((s->tap && varies(operands[0], *s->tap)) || varies(operands[1], s->row)) return UOp();
    // What is the same for all places or taps is summed once, and then repeated.
    const bool repeats = !s->tap || !varies(operands[1], *s->tap);
    if (!varies(operands[0], s->row) || (repeats && s->count > 1)) return UOp();
    more *= static_cast<double>(taps_.dims()[*group.places] * s->count) /
            static_cast<double>(group.elements.size());
    slides.push_back(*s);
  }
  for (size_t axis = 0; axis < taps_.dims().size(); ++axis) {
    if (WindowTaps::Has(taps_.folded(), axis) || (*plain_)[axis] || GroupOf(axis)) continue;
    more *= static_cast<double>(taps_.dims()[axis]);  // the inner sum is repeated
  }
  if (more > kMostRedone) return UOp();

  UOp image = Compact(operands[0], *facts), weight = Compact(operands[1], *facts);
  if (!image.valid() || !weight.valid()) return UOp();
  // Where each of the base's axes is in the image, whose rows become taps and places.
  std::vector<size_t> at(inner.shape().size());
  for (size_t i = 0; i < at.size(); ++i) at[i] = i;
  for (size_t k = 0; k < slides.size(); ++k) {
    const WindowTaps::Sliding& s = slides[k];
    const size_t row = at[s.row];
    image = Slide(image, row, s, taps_.dims()[*taps_.groups()[k].places]);
    if (!image.valid()) return image;
    for (size_t i = 0; i < at.size(); ++i) at[i] += at[i] > row ? 1 : 0;
    if (!s.tap || weight.shape()[*s.tap] == 1) continue;  // the same for all taps
    std::vector<int64_t> pairs = WholePairs(weight.shape());
    pairs[2 * *s.tap] = s.first_tap;
    pairs[2 * *s.tap + 1] = s.count;
    weight = Changed(g_, Op::kShrink, weight, pairs);
    if (weight.valid() && s.direction < 0) {
      weight = g_->Make(Op::kFlip, {weight}, std::vector<int64_t>{static_cast<int64_t>(*s.tap)});
    }
    if (!weight.valid()) return weight;
  }
  return SumOfProducts(image, weight, slides, at);
}

// The convolution: along the places, then what the inner sum folds, then the taps. `at`: where each
// of the base's axes is in the image; its axis of places follows that of taps.
UOp WindowSum::SumOfProducts(UOp image, UOp weight, std::span<const WindowTaps::Sliding> slides,
                             std::span<const size_t> at) const {
  const UOp inner = views_.base;
  Shape dims, image_dims, weight_dims;
  std::vector<int64_t> image_order, weight_order, arg{ToWord(sum_.reduce_kind())};
  std::vector<bool> image_taken(image.shape().size(), false);
  std::vector<bool> weight_taken(weight.shape().size(), false);
  const auto add = [&](int64_t size, std::optional<size_t> of_image,
                       std::optional<size_t> of_weight) {
    dims.push_back(size);
    image_dims.push_back(of_image ? image.shape()[*of_image] : 1);
    weight_dims.push_back(of_weight ? weight.shape()[*of_weight] : 1);
    if (of_image) image_order.push_back(static_cast<int64_t>(*of_image));
    if (of_weight) weight_order.push_back(static_cast<int64_t>(*of_weight));
    if (of_image) image_taken[*of_image] = true;
    if (of_weight) weight_taken[*of_weight] = true;
  };
  for (size_t axis = 0; axis < taps_.dims().size(); ++axis) {
    if (WindowTaps::Has(taps_.folded(), axis) || taps_.dims()[axis] == 1) continue;
    const std::optional<size_t> plain = (*plain_)[axis];
    std::optional<size_t> of_image = plain ? std::optional(at[*plain]) : std::nullopt;
    for (size_t k = 0; k < slides.size(); ++k) {
      if (taps_.groups()[k].places == axis) of_image = at[slides[k].row] + 1;
    }
    add(taps_.dims()[axis], of_image, plain);
  }
  const size_t places = dims.size();
  for (const int64_t axis : inner.reduced_axes()) {
    const auto i = static_cast<size_t>(axis);
    if (inner.src(0).shape()[i] > 1) add(inner.src(0).shape()[i], at[i], i);
  }
  for (const WindowTaps::Sliding& s : slides) add(s.count, at[s.row], s.tap);
  if (dims.size() > kMaxRank) return UOp();
  for (size_t i = places; i < dims.size(); ++i) arg.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < image_taken.size(); ++i) {
    if (!image_taken[i]) image_order.push_back(static_cast<int64_t>(i));  // one element
  }
  for (size_t i = 0; i < weight_taken.size(); ++i) {
    if (!weight_taken[i]) weight_order.push_back(static_cast<int64_t>(i));
  }
  image = Expanded(g_, InOrder(image, std::move(image_order), image_dims), dims);
  weight = Expanded(g_, InOrder(weight, std::move(weight_order), weight_dims), dims);
  if (!image.valid() || !weight.valid()) return UOp();
  return ToOwnShape(g_->Make(Op::kReduce, {g_->Make(Op::kMul, {image, weight})}, arg));
}

}  // namespace

absl::StatusOr<FrozenGraph> SimplifyWindowSums(FrozenGraph graph, bool fixed, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  const auto is_window_sum = [&](uint32_t id) {
    return IsSum(from.at(id)) && PaddedViews::Of(from.at(id).src(0)).has_value();
  };
  if (std::ranges::none_of(order, is_window_sum)) return graph;
  NodeMap<int32_t> uses(from);
  for (const uint32_t id : order) {
    for (const uint32_t s : from.src(id)) ++uses[s];
  }
  // Whether what the sum sums is for it alone.
  const auto sums_alone = [&](UOp u) {
    for (u = u.src(0); Is(u.op(), kMovement) && uses[u] == 1; u = u.src(0)) {
    }
    return uses[u] == 1;
  };
  Copier copier(graph);
  Graph* const out = copier.out();
  TensorFacts facts(*out);
  const auto simplified = [&](UOp u) -> absl::StatusOr<UOp> {
    const UOp same = copier.Same(u);
    const std::optional<PaddedViews> views =
        same.valid() && IsSum(u) ? PaddedViews::Of(same.src(0)) : std::nullopt;
    if (!views) return same;
    TG_ASSIGN_OR_RETURN(const std::optional<WindowTaps> taps, WindowTaps::Of(same, *views, budget));
    if (!taps) return same;
    const uint32_t before = out->size();
    const WindowSum sum(out, same, *views, *taps);
    UOp other = sum.AsPool();
    if (!other.valid() && !fixed && sums_alone(u)) other = sum.AsConvolution(&facts);
    // What would be beyond the limits of a graph stays as it is spelled.
    out->TakeStatus().IgnoreError();
    if (!other.valid()) other = sum.WithoutTaps();
    TG_RETURN_IF_ERROR(budget->SpendNodes(out->size() - before));
    TG_RETURN_IF_ERROR(out->status());
    return other.valid() ? other : same;
  };
  TG_ASSIGN_OR_RETURN(const FrozenGraph all, copier.Run(budget, simplified));
  return Freeze(all.root());
}

}  // namespace telegrad
