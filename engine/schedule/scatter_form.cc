// The rows are the places of all sent axes, for each place of the axes that their indices depend on
// besides those reduced over; what else there is lies within a row.
#include "engine/schedule/scatter_form.h"

#include <algorithm>
#include <numeric>

namespace telegrad {
namespace {

using Axes = std::vector<int64_t>;

Axes List(uint32_t bits) {
  Axes out;
  for (int64_t d = 0; bits != 0; ++d, bits >>= 1) {
    if ((bits & 1) != 0) out.push_back(d);
  }
  return out;
}

Axes Join(std::initializer_list<Axes> parts) {
  Axes out;
  for (const Axes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

int64_t Product(const Shape& dims, const Axes& axes) {
  int64_t product = 1;
  for (int64_t d : axes) product *= dims[static_cast<size_t>(d)];
  return product;
}

// `x`, whose other dims are 1, with its `axes` in that order, reshaped.
UOp Arranged(Graph& g, UOp x, const Axes& axes, const Shape& to) {
  if (!x.valid()) return x;
  Axes order = axes;
  for (int64_t d = 0; d < static_cast<int64_t>(x.shape().size()); ++d) {
    if (std::ranges::find(axes, d) == axes.end()) order.push_back(d);
  }
  if (!std::ranges::is_sorted(axes)) x = g.Make(Op::kPermute, {x}, order);
  return Reshaped(g, x, to);
}

// The inverse: from a dim for each of `axes`, in that order, to dims `to`.
UOp Restored(Graph& g, UOp x, const Shape& dims, const Axes& axes, const Shape& to) {
  Shape each;
  for (int64_t d : axes) each.push_back(dims[static_cast<size_t>(d)]);
  x = Reshaped(g, x, each);
  Axes back(axes.size());
  std::iota(back.begin(), back.end(), 0);
  std::ranges::sort(back, {}, [&](int64_t i) { return axes[static_cast<size_t>(i)]; });
  if (x.valid() && !std::ranges::is_sorted(back)) x = g.Make(Op::kPermute, {x}, back);
  return Reshaped(g, x, to);
}

}  // namespace

absl::StatusOr<UOp> MakeScatter(Graph* graph, IndexForm* form, TensorForm* tensors,
                                const ScatterRequest& request) {
  Graph& g = *graph;
  Rewriter& b = form->b();
  const Shape& dims = tensors->dims();
  uint32_t sent = 0, depends = 0;
  for (const auto& computed : request.indices) {
    sent |= uint32_t{1} << computed.axis;
    depends |= form->Axes(computed.index);
  }
  const uint32_t outer_bits = depends & ~request.folded;
  const Axes outer = List(outer_bits), folded = List(request.folded), to = List(sent),
             inner = List(request.kept & ~sent & ~outer_bits);

  // The row-major number of the row, or -1.
  const Indices at = form->Everywhere(dims);
  Indices index;
  Shape sizes;
  UOp valid = form->graph().True();
  for (int64_t d : outer) {
    index.push_back(at[static_cast<size_t>(d)]);
    sizes.push_back(dims[static_cast<size_t>(d)]);
  }
  for (const auto& computed : request.indices) {
    index.push_back(computed.index);
    sizes.push_back(dims[static_cast<size_t>(computed.axis)]);
    valid = b.Make(Op::kAnd, {valid, InRange(b, computed.index, sizes.back())});
  }
  UOp row = FlatIndex(b, sizes, index);
  if (sizes.size() > 1) row = b.Make(Op::kWhere, {valid, row, form->graph().Index(-1)});
  TG_RETURN_IF_ERROR(form->graph().status());

  const Axes steps = Join({outer, folded});
  const int64_t writes = Product(dims, steps);
  Shape value_dims{writes}, base_dims{Product(dims, outer) * Product(dims, to)};
  for (int64_t d : inner) {
    value_dims.push_back(dims[static_cast<size_t>(d)]);
    base_dims.push_back(dims[static_cast<size_t>(d)]);
  }
  const uint32_t index_bits = outer_bits | request.folded;
  const UOp rows = Arranged(g, tensors->Make(row, index_bits), steps, {writes});
  const UOp values = Arranged(g, tensors->Make(request.values, index_bits | (request.kept & ~sent)),
                              Join({outer, folded, inner}), value_dims);
  TG_RETURN_IF_ERROR(form->graph().status());
  const Axes result = Join({outer, to, inner});
  UOp base = request.base;
  if (base.shape().empty() && !dims.empty()) {
    base = g.Make(Op::kExpand, {Reshaped(g, base, Shape(base_dims.size(), 1))}, base_dims);
  } else {
    base = Arranged(g, base, result, base_dims);
  }
  TG_RETURN_IF_ERROR(g.status());
  const UOp scattered = g.Make(Op::kScatter, DType::kVoid, {base, rows, values},
                               {static_cast<int64_t>(request.kind)});
  return Restored(g, scattered, dims, result, tensors->DimsOf(request.kept));
}

}  // namespace telegrad
