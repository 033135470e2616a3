// Every function here is the definition in ops.def as a loop over elements, one at a time.
#include "engine/reference/tensor_eval_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::reference::internal {
namespace {

absl::StatusOr<Tensor> Iota(UOp u, std::span<const int64_t> words, EvalContext* context) {
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, Shape(words.begin(), words.end())));
  for (int64_t i = 0; i < words[0]; ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    out.set(i, LaneOfIndex(u.dtype(), i));
  }
  return out;
}

// Clamped, then rounded down to a multiple; both bounds are multiples.
absl::StatusOr<Tensor> DeviceVariable(UOp u, const Tensor& source, EvalContext* context) {
  const int64_t min = u.var_min(), max = u.var_max(), multiple = u.var_multiple();
  const int64_t value = std::clamp(LaneAsIndex(source.dtype, source.lane(0)), min, max);
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, {}));
  out.set(0, LaneOfIndex(u.dtype(), value - (value - min) % multiple));
  return out;
}

absl::StatusOr<Tensor> Move(UOp u, std::span<const int64_t> words, const Tensor& in,
                            EvalContext* context) {
  const Movement m = MovementOf(u.op(), in.dims, words);
  if (u.is(Op::kReshape)) {
    if (NumElements(m.dims) != NumElements(in.dims)) {
      return Internal("reshape: from ", ToString(in.dims), " to ", ToString(m.dims));
    }
    return Tensor{in.dtype, m.dims, in.storage};
  }
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, m.dims));
  const int64_t n = NumElements(m.dims), size = LaneBytes(in.dtype);
  Shape at(m.dims.size(), 0), from(m.from.size());
  for (int64_t i = 0; i < n; ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    if (SourceOf(m, at, from)) std::memcpy(out.at(i), in.at(Flat(m.from, from)), size);
    Advance(m.dims, at);
  }
  return out;
}

absl::StatusOr<Tensor> Elementwise(UOp u, Sources src, EvalContext* context) {
  const LaneFn fn = FindLaneFn(u.op(), src[0]->dtype, u.dtype());
  if (fn == nullptr) {
    return Internal(Name(u.op()), ": has no meaning on ", Name(src[0]->dtype));
  }
  Shape dims;
  int64_t strides[3] = {0, 0, 0};  // 0: a scalar, which broadcasts
  for (size_t k = 0; k < src.size(); ++k) {
    if (src[k]->dims.empty()) continue;
    dims = src[k]->dims;
    strides[k] = 1;
  }
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, std::move(dims)));
  const int64_t n = NumElements(out.dims);
  for (int64_t i = 0; i < n; ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    Lane lanes[3] = {0, 0, 0};
    for (size_t k = 0; k < src.size(); ++k) lanes[k] = src[k]->lane(i * strides[k]);
    out.set(i, fn(lanes[0], lanes[1], lanes[2]));
  }
  return out;
}

// Each row along the last axis is a string of bits, the first element in the lowest ones.
absl::StatusOr<Tensor> Bitcast(UOp u, const Tensor& in, EvalContext* context) {
  const int from_bits = Info(in.dtype).bits, to_bits = Info(u.dtype()).bits;
  if (from_bits == to_bits) return Tensor{u.dtype(), in.dims, in.storage};
  Shape dims = in.dims;
  const int64_t from_row = dims.back(), to_row = from_row * from_bits / to_bits;
  dims.back() = to_row;
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, std::move(dims)));
  const int64_t rows = to_row == 0 ? 0 : NumElements(out.dims) / to_row;
  std::vector<uint8_t> row(static_cast<size_t>(BytesOf(in.dtype, from_row)));
  for (int64_t i = 0; i < rows; ++i) {
    Pack(in.dtype, in.at(i * from_row), from_row, row.data());
    Unpack(u.dtype(), row.data(), to_row, out.at(i * to_row));
    for (int64_t k = 0; k < from_row; ++k) TG_RETURN_IF_ERROR(context->Tick());
  }
  return out;
}

// `wide` holds lanes of FoldType(dtype).
absl::StatusOr<Tensor> Narrowed(UOp u, Tensor wide, EvalContext* context) {
  if (wide.dtype == u.dtype()) return wide;
  const LaneFn narrow = FindLaneFn(Op::kCast, wide.dtype, u.dtype());
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, wide.dims));
  for (int64_t i = 0; i < NumElements(out.dims); ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    out.set(i, narrow(wide.lane(i), 0, 0));
  }
  return out;
}

absl::StatusOr<Tensor> Reduce(UOp u, const Tensor& in, EvalContext* context) {
  const ReduceKind kind = u.reduce_kind();
  const LaneFn fold = FoldFn(kind, in.dtype);
  const LaneFn widen = FindLaneFn(Op::kCast, in.dtype, FoldType(in.dtype));
  Shape dims = in.dims;
  for (int64_t axis : u.reduced_axes()) dims[static_cast<size_t>(axis)] = 1;
  TG_ASSIGN_OR_RETURN(Tensor sums, context->New(FoldType(in.dtype), std::move(dims)));
  for (int64_t i = 0; i < NumElements(sums.dims); ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    sums.set(i, FoldStart(kind, in.dtype));
  }
  const bool narrow = in.dtype != sums.dtype;
  Shape at(in.dims.size(), 0), to(in.dims.size());
  for (int64_t i = 0; i < NumElements(in.dims); ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    for (size_t a = 0; a < at.size(); ++a) to[a] = sums.dims[a] == 1 ? 0 : at[a];
    const int64_t sum = Flat(sums.dims, to);
    const Lane x = in.lane(i);
    sums.set(sum, fold(sums.lane(sum), narrow ? widen(x, 0, 0) : x, 0));
    Advance(in.dims, at);
  }
  return Narrowed(u, std::move(sums), context);
}

// The row of `rows` that element `i` of `index` names, or -1.
int64_t RowOf(const Tensor& rows, const Tensor& index, int64_t i) {
  const int64_t row = LaneAsIndex(index.dtype, index.lane(i));
  return row < 0 || row >= rows.dims[0] ? -1 : row;
}

int64_t RowSize(const Tensor& rows) { return NumElements(ShapeView(rows.dims).subspan(1)); }

absl::StatusOr<Tensor> Gather(UOp u, const Tensor& rows, const Tensor& index,
                              EvalContext* context) {
  Shape dims = index.dims;
  dims.insert(dims.end(), rows.dims.begin() + 1, rows.dims.end());
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, std::move(dims)));
  const int64_t size = RowSize(rows), n = NumElements(index.dims);
  for (int64_t i = 0; i < n; ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    const int64_t row = RowOf(rows, index, i);
    if (row < 0 || size == 0) continue;
    std::memcpy(out.at(i * size), rows.at(row * size),
                static_cast<size_t>(size * LaneBytes(rows.dtype)));
  }
  return out;
}

absl::StatusOr<Tensor> Scatter(UOp u, const Tensor& rows, const Tensor& index,
                               const Tensor& updates, EvalContext* context) {
  const LaneFn fn = ScatterFn(u.scatter_kind(), u.dtype());
  if (fn == nullptr) return Internal("scatter: has no meaning on ", Name(u.dtype()));
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, rows.dims));
  const int64_t n = NumElements(rows.dims), size = RowSize(rows);
  for (int64_t i = 0; i < n; ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    out.set(i, rows.lane(i));
  }
  for (int64_t i = 0; i < NumElements(index.dims); ++i) {
    TG_RETURN_IF_ERROR(context->Tick());
    const int64_t row = RowOf(rows, index, i);
    if (row < 0) continue;
    for (int64_t k = 0; k < size; ++k) {
      TG_RETURN_IF_ERROR(context->Tick());
      out.set(row * size + k, fn(out.lane(row * size + k), updates.lane(i * size + k), 0));
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<Tensor> EvalContext::New(DType dtype, Shape dims) {
  const int64_t bytes = NumElements(dims) * LaneBytes(dtype);
  TG_RETURN_IF_ERROR(budget_->TakeBytes(bytes));
  return Tensor{dtype, std::move(dims), std::make_shared<Storage>(bytes, budget_)};
}

absl::StatusOr<Tensor> EvalContext::New(UOp u, Shape dims) {
  bool good = dims.size() == u.shape().size();
  for (size_t i = 0; good && i < dims.size(); ++i) {
    const int64_t bound = u.shape()[i];
    good = u.dim(static_cast<int>(i)).valid() ? dims[i] >= 0 && dims[i] <= bound : dims[i] == bound;
  }
  if (good) return New(u.dtype(), std::move(dims));
  return Internal(Name(u.op()), ": the dims ", ToString(dims), " are not within the shape ",
                  ToString(u.shape()));
}

absl::StatusOr<Tensor> Concatenate(UOp u, size_t axis, Sources src, EvalContext* context) {
  Shape dims = src[0]->dims;
  for (const Tensor* t : src.subspan(1)) dims[axis] += t->dims[axis];
  TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, std::move(dims)));
  const ShapeView shape = out.dims;
  const int64_t outer = NumElements(shape.first(axis)),
                inner = NumElements(shape.subspan(axis + 1));
  int64_t to = 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const Tensor* t : src) {
      TG_RETURN_IF_ERROR(context->Tick());
      const int64_t n = t->dims[axis] * inner;
      if (n == 0) continue;
      std::memcpy(out.at(to), t->at(i * n), static_cast<size_t>(n * LaneBytes(u.dtype())));
      to += n;
    }
  }
  return out;
}

absl::StatusOr<Tensor> ReduceAll(UOp u, ReduceKind kind, Sources src, EvalContext* context) {
  const LaneFn fold = FoldFn(kind, u.dtype());
  const LaneFn widen = FindLaneFn(Op::kCast, u.dtype(), FoldType(u.dtype()));
  TG_ASSIGN_OR_RETURN(Tensor sums, context->New(FoldType(u.dtype()), src[0]->dims));
  for (int64_t i = 0; i < NumElements(sums.dims); ++i) {
    Lane sum = FoldStart(kind, u.dtype());
    for (const Tensor* t : src) {
      TG_RETURN_IF_ERROR(context->Tick());
      sum = fold(sum, widen(t->lane(i), 0, 0), 0);
    }
    sums.set(i, sum);
  }
  return Narrowed(u, std::move(sums), context);
}

absl::StatusOr<Tensor> Compute(UOp u, std::span<const int64_t> words, Sources src,
                               EvalContext* context) {
  switch (u.op()) {
    case Op::kConst: {
      TG_ASSIGN_OR_RETURN(Tensor out, context->New(u, {}));
      out.set(0, LaneOfConst(u.dtype(), u.const_word()));
      return out;
    }
    case Op::kIota:
      return Iota(u, words, context);
    case Op::kVar:
      return DeviceVariable(u, *src[0], context);
    case Op::kContiguous:
    case Op::kDetach:
      return *src[0];
    case Op::kBitcast:
      return Bitcast(u, *src[0], context);
    case Op::kCat:
      return Concatenate(u, static_cast<size_t>(words[0]), src, context);
    case Op::kReduce:
      return Reduce(u, *src[0], context);
    case Op::kGather:
      return Gather(u, *src[0], *src[1], context);
    case Op::kScatter:
      return Scatter(u, *src[0], *src[1], *src[2], context);
    default:
      if (Is(u.op(), kMovement)) return Move(u, words, *src[0], context);
      if (Is(u.op(), kAlu)) return Elementwise(u, src, context);
      return Internal(Name(u.op()), ": computes no tensor");
  }
}

}  // namespace telegrad::reference::internal
