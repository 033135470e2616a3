#include "engine/frontend/tensor/views.h"

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

// `t` in the place that the source of `view` has for it; the rest is 0.
Tensor StepBack(Builder* builder, UOp view, const Tensor& t) {
  const Dims words = WordsOf(view), from = Dims::Of(view.src(0));
  switch (view.op()) {
    case Op::kReshape:
      return t.Reshape(from);
    case Op::kPermute: {
      Axes inverse(words.size());
      for (size_t i = 0; i < words.size(); ++i) {
        inverse[static_cast<size_t>(words[i].size())] = static_cast<int64_t>(i);
      }
      return t.Permute(inverse);
    }
    case Op::kFlip: {
      Axes axes;
      for (const Dim& axis : words) axes.push_back(axis.size());
      return t.Flip(axes);
    }
    default: {  // a shrink is undone by a pad to the source's size, and the other way round
      Dims inverse;
      for (size_t i = 0; i < from.size(); ++i) {
        inverse.push_back(words[2 * i]);
        inverse.push_back(from[i]);
      }
      return builder->MakeSized(view.is(Op::kShrink) ? Op::kPad : Op::kShrink, DType::kVoid, {t},
                                inverse);
    }
  }
}

}  // namespace

Dims WordsOf(UOp movement) {
  Dims out;
  for (int64_t word : movement.arg()) {
    if (word >= 0) {
      out.emplace_back(word);
    } else {
      out.emplace_back(Tensor(nullptr, movement.src(static_cast<int>(-word - 1))));
    }
  }
  return out;
}

Placed PutBack(std::string_view op, const Tensor& view, UOp base, const Tensor& value) {
  if (!view.valid() || !value.valid()) return {};
  Builder* builder = view.builder();
  Placed out{value, {}};
  for (UOp u = view.uop(); u != base; u = u.src(0)) {
    switch (u.op()) {
      case Op::kReshape:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kPad:
        break;
      case Op::kShrink:
        if (!out.mask.valid()) out.mask = builder->Full(DType::kBool, Dims::Of(u), true);
        break;
      default:
        return {builder->Fail(
                    InvalidArgument(op, ": the target (", Name(u.op()), ") is no one-to-one view")),
                {}};
    }
    out.value = StepBack(builder, u, out.value);
    if (out.mask.valid()) out.mask = StepBack(builder, u, out.mask);
    if (!out.value.valid()) return {};
  }
  return out;
}

Tensor ReplaceView(std::string_view op, const Tensor& view, const Tensor& base,
                   const Tensor& value) {
  const Placed placed = PutBack(op, view, base.uop(), value);
  if (!placed.value.valid() || !placed.mask.valid()) return placed.value;
  return placed.mask.Where(placed.value, base);
}

}  // namespace telegrad
