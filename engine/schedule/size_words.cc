#include "engine/schedule/size_words.h"

#include <algorithm>

namespace telegrad {

int64_t SizeWords::Of(int64_t number, UOp size) {
  if (!size.valid()) return number;
  auto at = std::find(sources_.begin() + 1, sources_.end(), size);
  if (at == sources_.end()) at = sources_.insert(at, size);
  return -(at - sources_.begin()) - 1;
}

UOp ShrinkLike(Graph* g, UOp x, UOp like) {
  if (SameShape(x, like)) return x;
  SizeWords words(x);
  std::vector<int64_t> pairs;
  for (size_t i = 0; i < like.shape().size(); ++i) {
    pairs.insert(pairs.end(), {0, words.Dim(like, i)});
  }
  return g->Make(Op::kShrink, DType::kVoid, words.sources(), pairs);
}

UOp ViewOf(Graph* g, UOp view, UOp x) {
  std::vector<UOp> sources{x};
  for (int i = 1; i < view.num_src(); ++i) sources.push_back(view.src(i));
  const std::vector<int64_t> arg(view.arg().begin(), view.arg().end());  // nodes made may move it
  return g->Make(view.op(), DType::kVoid, sources, arg);
}

bool IsPrefix(UOp x) {
  bool outermost = true;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const bool fixed = !x.dim(static_cast<int>(i)).valid();
    if (fixed && x.shape()[i] == 1) continue;
    if (!fixed && !outermost) return false;
    outermost = false;
  }
  return true;
}

}  // namespace telegrad
