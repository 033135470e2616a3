// NumPy's indexing. The list of indices becomes one entry for each axis of the result, or of the
// tensor where the result has none; the basic ones (numbers, slices, new axes) make a view by
// movement operations alone. Tensors of integers then take rows of that view: their axes move to
// the front and become one, whose positions GATHER reads or SCATTER writes. The axes that they
// broadcast to stand where the first of them stood if all of them (and then the numbers too) are
// side by side, else in front.
#include <algorithm>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/ops/positions.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/index.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/frontend/tensor/views.h"

namespace telegrad {
namespace {

struct Entry {
  enum Kind { kKept, kNew, kPicked, kTensor, kMask } kind;
  Tensor index = {};  // of kTensor and kMask
  int64_t axes = 1;   // of the tensor that it stands for
};

bool IsAdvanced(const Entry& e) { return e.kind == Entry::kTensor || e.kind == Entry::kMask; }

// What a list of indices says about `x`.
struct Selection {
  Tensor view;                 // the basic part; tensors and masks have their axes whole
  std::vector<Entry> entries;  // in order
  bool advanced = false;       // there are tensors or masks
};

// A position on an axis of size n, which the value must have.
absl::StatusOr<Dim> Position(std::string_view op, Builder* builder, const Dim& n, int64_t axis,
                             int64_t position) {
  if (n.is_static() && (position < -n.size() || position >= n.size())) {
    return InvalidArgument(op, ": position ", position, " is outside of axis ", axis, " of size ",
                           n.size());
  }
  return position < 0 ? AddDims(builder, n, position) : Dim(position);
}

// A clamped end of a slice: within [0, n], or for falling steps within [-1, n - 1].
Dim End(Builder* builder, const Dim& n, const Dim& position, bool falling) {
  if (!position.is_static()) return position;
  const int64_t low = falling ? -1 : 0;
  const Dim high = falling ? SubDims(builder, n, 1) : n;
  if (position.size() >= 0) return MinDims(builder, position, high);
  if (n.is_static() && position.size() < -n.size()) return low;
  return MaxDims(builder, AddDims(builder, n, position), low);
}

// One axis of `x` cut to a slice.
Tensor Cut(std::string_view op, const Tensor& x, int64_t axis, const telegrad::Slice& slice) {
  Builder* builder = x.builder();
  const Dim n = x.dims()[static_cast<size_t>(axis)];
  if (slice.step == 0 || slice.step == INT64_MIN) {
    return builder->Fail(InvalidArgument(op, ": axis ", axis, " has the step ", slice.step));
  }
  for (const std::optional<Dim>& end : {slice.begin, slice.end}) {
    if (end.has_value() && !end->is_static() && BoundsOf(*end).lo < 0) {
      return builder->Fail(
          InvalidArgument(op, ": axis ", axis, " has a symbolic position that may be negative"));
    }
  }
  const bool falling = slice.step < 0;
  Dim begin = 0, end = n;  // of the part, in rising order
  if (!falling) {
    if (slice.begin.has_value()) begin = End(builder, n, *slice.begin, false);
    if (slice.end.has_value()) end = End(builder, n, *slice.end, false);
  } else {
    if (slice.end.has_value()) begin = AddDims(builder, End(builder, n, *slice.end, true), 1);
    if (slice.begin.has_value()) end = AddDims(builder, End(builder, n, *slice.begin, true), 1);
  }
  const Dim length = MaxDims(builder, SubDims(builder, end, begin), 0);
  if (length == Dim(0)) begin = 0;
  const Tensor part = x.Narrow(axis, begin, length);
  const Tensor ordered = falling ? part.Flip({axis}) : part;
  return ordered.Stride(axis, std::abs(slice.step));
}

// How many axes of the tensor an index takes.
int64_t AxesOf(const Index& index) {
  if (std::holds_alternative<NewAxis>(index.value())) return 0;
  if (std::holds_alternative<Ellipsis>(index.value())) return 0;
  const Tensor* t = std::get_if<Tensor>(&index.value());
  return t != nullptr && IsBool(t->dtype()) ? t->rank() : 1;
}

absl::StatusOr<Selection> Select(std::string_view op, const Tensor& x,
                                 const std::vector<Index>& indices) {
  Builder* builder = x.builder();
  const int64_t rank = x.rank();
  int64_t taken = 0, ellipses = 0;
  for (const Index& index : indices) {
    if (const Tensor* t = std::get_if<Tensor>(&index.value())) {
      if (!t->valid()) return InvalidArgument(op, ": an index is an empty tensor");
      if (!IsInt(t->dtype()) && !IsBool(t->dtype())) {
        return InvalidArgument(op, ": an index has element type ", Name(t->dtype()),
                               ", expected integers or bool");
      }
    }
    taken += AxesOf(index);
    ellipses += std::holds_alternative<Ellipsis>(index.value()) ? 1 : 0;
  }
  if (taken > rank) {
    return InvalidArgument(op, ": the indices are for ", taken, " axes of ", ToString(x.dims()),
                           ", which has ", rank);
  }
  if (ellipses > 1) return InvalidArgument(op, ": there are ", ellipses, " ellipses");

  Selection out{x, {}, false};
  Dims kept;  // of the view: all but what numbers pick
  int64_t axis = 0;
  const auto keep = [&](Entry entry) {
    for (int64_t i = 0; i < entry.axes; ++i) {
      kept.push_back(out.view.dims()[static_cast<size_t>(axis++)]);
    }
    out.entries.push_back(std::move(entry));
  };
  const auto pick = [&](const Dim& position) {
    out.view = out.view.Narrow(axis++, position, 1);
    out.entries.push_back({Entry::kPicked});
  };
  // An ellipsis of no axes still parts the advanced indices beside it, as in NumPy.
  const auto rest = [&] {
    keep({Entry::kKept, {}, rank - taken});
    taken = rank;
  };
  for (const Index& index : indices) {
    if (const auto* position = std::get_if<int64_t>(&index.value())) {
      TG_ASSIGN_OR_RETURN(const Dim at, Position(op, builder, x.dims()[static_cast<size_t>(axis)],
                                                 axis, *position));
      pick(at);
    } else if (const auto* slice = std::get_if<telegrad::Slice>(&index.value())) {
      out.view = Cut(op, out.view, axis, *slice);
      if (!out.view.valid()) return builder->status();
      keep({Entry::kKept});
    } else if (std::holds_alternative<NewAxis>(index.value())) {
      kept.push_back(1);
      out.entries.push_back({Entry::kNew});
    } else if (std::holds_alternative<Ellipsis>(index.value())) {
      rest();
    } else {
      const Tensor& t = std::get<Tensor>(index.value());
      if (IsHostSize(t.uop()) && t.uop().vmin() >= 0) {
        pick(Dim(t));
      } else {
        out.advanced = true;
        keep({IsBool(t.dtype()) ? Entry::kMask : Entry::kTensor, t, AxesOf(index)});
      }
    }
    if (!out.view.valid()) return builder->status();
  }
  if (ellipses == 0) rest();
  out.view = out.view.Reshape(kept);
  if (!out.view.valid()) return builder->status();
  return out;
}

// Rows that tensors take: the view with their axes in front as one, and the positions.
struct TakenRows {
  Tensor table, positions;
  Dims result;  // of the whole selection
  Axes order;   // of the result's axes, from [positions..., the rest of the row]
};

absl::StatusOr<TakenRows> TakeRows(std::string_view op, const Selection& s) {
  Builder* builder = s.view.builder();
  const Dims dims = s.view.dims();
  std::vector<Tensor> tensors;
  Axes front, back;
  Dims sizes, shape;  // of the tensors' axes; what the tensors broadcast to
  int64_t axis = 0, before = 0, runs = 0;
  bool inside = false;
  for (const Entry& e : s.entries) {
    const bool advanced = IsAdvanced(e) || e.kind == Entry::kPicked;
    if (advanced && !inside && ++runs == 1) before = static_cast<int64_t>(back.size());
    inside = advanced;
    if (e.kind == Entry::kMask) {
      return InvalidArgument(op, ": how many elements a mask holds is not known before the run; ",
                             "MaskedSelect takes them, Set may have one mask and no tensors");
    }
    if (e.kind == Entry::kTensor) {
      TG_ASSIGN_OR_RETURN(shape, Broadcast(op, shape, e.index.dims()));
      tensors.push_back(e.index);
      sizes.push_back(dims[static_cast<size_t>(axis)]);
      front.push_back(axis++);
    } else if (e.kind == Entry::kKept || e.kind == Entry::kNew) {
      for (int64_t i = 0; i < e.axes; ++i) back.push_back(axis++);
    }
  }
  if (runs > 1) before = 0;
  TakenRows out;
  for (Tensor& t : tensors) t = t.Expand(shape);
  out.positions = RowPositions(builder, tensors, sizes);
  Dims merged = {ProductOf(builder, sizes)};
  for (int64_t i : back) merged.push_back(dims[static_cast<size_t>(i)]);
  Axes order = front;
  order.insert(order.end(), back.begin(), back.end());
  out.table = s.view.Permute(order).Reshape(merged);
  if (!out.table.valid() || !out.positions.valid()) return builder->status();

  const auto rank = static_cast<int64_t>(shape.size());
  out.result.assign(merged.begin() + 1, merged.end());
  out.result.insert(out.result.begin() + before, shape.begin(), shape.end());
  out.order.resize(out.result.size());
  std::iota(out.order.begin(), out.order.end(), 0);
  std::rotate(out.order.begin(), out.order.begin() + rank, out.order.begin() + rank + before);
  return out;
}

Axes InverseOrder(const Axes& order) {
  Axes out(order.size());
  for (size_t i = 0; i < order.size(); ++i) out[static_cast<size_t>(order[i])] = i;
  return out;
}

// What is assigned, of the type of `x` and the shape of the target; as in NumPy, axes of size 1 in
// front that the target does not have fall off.
absl::StatusOr<Tensor> Assigned(const Tensor& x, const Dims& target, const Operand& value) {
  Builder* builder = x.builder();
  if (!value.is_tensor()) return builder->Const(x.dtype(), value).Expand(target);
  Tensor v = value.tensor();
  if (!v.valid()) return InvalidArgument("set: the value is an empty tensor");
  Dims dims = v.dims();
  while (dims.size() > target.size() && dims.front() == Dim(1)) dims.erase(dims.begin());
  const absl::StatusOr<Dims> both = Broadcast("set", dims, target);
  if (!both.ok() || *both != target) {
    return InvalidArgument("set: a value of shape ", ToString(v.dims()),
                           " does not broadcast to the target's shape ", ToString(target));
  }
  return v.Reshape(dims).Cast(x.dtype()).Expand(target);
}

// One mask among basic indices: the value has an axis of size 1 in the place of the mask's axes, or
// broadcasts over it.
absl::StatusOr<Tensor> SetMasked(const Selection& s, const Tensor& x, const Operand& value) {
  const Dims dims = s.view.dims();
  Tensor mask;
  Dims mask_dims, with_one;
  Axes back;
  int64_t axis = 0, first = 0, before = 0, runs = 0;
  bool inside = false;
  for (const Entry& e : s.entries) {
    const bool advanced = IsAdvanced(e) || e.kind == Entry::kPicked;
    if (advanced && !inside && ++runs == 1) before = static_cast<int64_t>(back.size());
    inside = advanced;
    if (e.kind == Entry::kMask && mask.valid()) {
      return InvalidArgument("set: there are two masks, supported is one");
    }
    if (e.kind == Entry::kTensor) {
      return InvalidArgument("set: there are a mask and a tensor of integers, supported is either");
    }
    if (e.kind == Entry::kPicked) continue;
    if (e.kind == Entry::kMask) {
      mask = e.index;
      first = axis;
      const Dims covered(dims.begin() + axis, dims.begin() + axis + e.axes);
      if (mask.dims() != covered) {
        return InvalidArgument("set: a mask of shape ", ToString(mask.dims()),
                               " stands for axes of shape ", ToString(covered));
      }
      axis += e.axes;
    } else {
      for (int64_t i = 0; i < e.axes; ++i) back.push_back(axis++);
    }
  }
  if (runs > 1) before = 0;
  // The mask, and the value, with the view's axes.
  Dims spread(dims.size(), Dim(1));
  for (int64_t i = 0; i < mask.rank(); ++i) spread[first + i] = dims[first + i];
  const Tensor where = mask.Reshape(spread);
  Dims target;  // of the value: NumPy's, the elements of the mask as one axis of size 1
  for (int64_t i : back) target.push_back(dims[static_cast<size_t>(i)]);
  target.insert(target.begin() + before, Dim(1));
  TG_ASSIGN_OR_RETURN(Tensor v, Assigned(x, target, value));
  v = v.Squeeze(before);
  for (int64_t i = 0; i < mask.rank(); ++i) v = v.Unsqueeze(first);
  return ReplaceView("set", s.view, x, where.Where(v, s.view));
}

}  // namespace

Tensor Tensor::At(const std::vector<Index>& indices) const {
  if (!valid()) return *this;
  const absl::StatusOr<Selection> s = Select("at", *this, indices);
  if (!s.ok()) return builder_->Fail(s.status());
  if (!s->advanced) return s->view;
  const absl::StatusOr<TakenRows> rows = TakeRows("at", *s);
  if (!rows.ok()) return builder_->Fail(rows.status());
  return rows->table.Gather(rows->positions).Permute(rows->order);
}

Tensor Tensor::Set(const std::vector<Index>& indices, const Operand& value) const {
  if (!valid()) return *this;
  const absl::StatusOr<Selection> s = Select("set", *this, indices);
  if (!s.ok()) return builder_->Fail(s.status());
  absl::StatusOr<Tensor> out;
  if (!s->advanced) {
    out = Assigned(*this, s->view.dims(), value);
    if (out.ok()) out = ReplaceView("set", s->view, *this, *out);
  } else if (std::ranges::find(s->entries, Entry::kMask, &Entry::kind) != s->entries.end()) {
    out = SetMasked(*s, *this, value);
  } else {
    const absl::StatusOr<TakenRows> rows = TakeRows("set", *s);
    out = rows.ok() ? Assigned(*this, rows->result, value) : rows.status();
    if (out.ok()) {
      const Tensor updates = out->Permute(InverseOrder(rows->order));
      out = ReplaceView("set", rows->table, *this,
                        rows->table.Scatter(rows->positions, updates, ScatterKind::kSet));
    }
  }
  return out.ok() ? *out : builder_->Fail(out.status());
}

}  // namespace telegrad
