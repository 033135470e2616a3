// Movement by coordinates.
#include <algorithm>

#include "engine/reference/tensor_eval_ops.h"
#include "engine/types/limits.h"

namespace telegrad::reference::internal {
namespace {

// An offset beyond every tensor is as good as any other one.
int64_t Offset(const Movement& m, size_t axis) { return std::min(m.words[2 * axis], kMaxElements); }

}  // namespace

int64_t Flat(ShapeView shape, std::span<const int64_t> at) {
  int64_t flat = 0;
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + at[i];
  return flat;
}

void Unflat(ShapeView shape, int64_t flat, std::span<int64_t> at) {
  for (size_t i = shape.size(); i-- > 0;) {
    at[i] = flat % shape[i];
    flat /= shape[i];
  }
}

void Advance(ShapeView shape, std::span<int64_t> at) {
  for (size_t i = shape.size(); i-- > 0;) {
    if (++at[i] < shape[i]) return;
    at[i] = 0;
  }
}

Movement MovementOf(Op op, Shape from, std::span<const int64_t> words) {
  Movement m{op, std::move(from), {}, words};
  switch (op) {
    case Op::kReshape:
    case Op::kExpand:
      m.dims.assign(words.begin(), words.end());
      break;
    case Op::kPermute:
      for (int64_t axis : words) m.dims.push_back(m.from[static_cast<size_t>(axis)]);
      break;
    case Op::kPad:
    case Op::kShrink:
      for (size_t i = 1; i < words.size(); i += 2) m.dims.push_back(words[i]);
      break;
    default:
      m.dims = m.from;
  }
  return m;
}

bool SourceOf(const Movement& m, std::span<const int64_t> at, std::span<int64_t> from) {
  switch (m.op) {
    case Op::kReshape:
      Unflat(m.from, Flat(m.dims, at), from);
      return true;
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i) from[i] = m.from[i] == 1 ? 0 : at[i];
      return true;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) from[static_cast<size_t>(m.words[i])] = at[i];
      return true;
    case Op::kFlip:
      std::ranges::copy(at, from.begin());
      for (int64_t axis : m.words) {
        const auto i = static_cast<size_t>(axis);
        from[i] = m.from[i] - 1 - at[i];
      }
      return true;
    case Op::kPad:
    case Op::kShrink:
      for (size_t i = 0; i < from.size(); ++i) {
        from[i] = m.op == Op::kPad ? at[i] - Offset(m, i) : at[i] + Offset(m, i);
        if (from[i] < 0 || from[i] >= m.from[i]) return false;
      }
      return true;
    default:
      return false;
  }
}

}  // namespace telegrad::reference::internal
