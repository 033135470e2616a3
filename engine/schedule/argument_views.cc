#include "engine/schedule/argument_views.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "engine/rewrite/copier.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/schedule/memory_plan.h"

namespace telegrad {
namespace {

// The elements [begin, end) of an argument that a kernel's accesses can touch.
struct Part {
  UOp param;
  int64_t begin = 0, end = 0;
  bool fits = true;  // it is only loaded from, and each index is known to be inside

  bool whole() const { return begin == 0 && end == NumElements(param.shape()); }
};

UOp ArgumentOf(UOp index) {
  UOp param = index.src(0);
  while (param.is(Op::kAfter)) param = param.src(0);
  return param;
}

std::map<int64_t, Part> PartsOf(UOp kernel) {
  const Graph& graph = *kernel.graph();
  std::map<int64_t, Part> parts;
  for (uint32_t id : PostOrder(kernel)) {
    const UOp u = graph.at(id);
    const bool stores = u.is(Op::kStore);
    const UOp access = stores ? u.src(0) : u;
    if (!access.is(Op::kIndex) || !ArgumentOf(access).is(Op::kParam)) continue;
    const UOp param = ArgumentOf(access), at = access.src(1);
    const int64_t elements = NumElements(param.shape());
    const auto [it, first] = parts.try_emplace(param.slot(), Part{param, elements, 0});
    Part& part = it->second;
    part.begin = std::min(part.begin, at.vmin());
    part.end = std::max(part.end, std::min(at.vmax(), elements - 1) + 1);
    part.fits &= !stores && access.src(0) == param && access.num_src() == 2 && at.vmin() >= 0 &&
                 at.vmax() < elements;
  }
  return parts;
}

class Viewer {
 public:
  Viewer(const FrozenGraph& kernel, std::map<int64_t, Part> parts, Budget* budget)
      : parts_(std::move(parts)),
        budget_(budget),
        copier_(kernel),
        out_(copier_.out()),
        b_(out_, {&kAlgebra, &kDivMod}, budget) {}

  absl::StatusOr<FrozenGraph> Run() {
    return copier_.Run(budget_, [&](UOp u) { return Viewed(u); });
  }

 private:
  UOp Viewed(UOp u) {
    if (u.is(Op::kParam)) {
      const auto part = parts_.find(u.slot());
      if (part != parts_.end()) {
        const Shape shape = {part->second.end - part->second.begin};
        return out_->Param(u.slot(), u.dtype(), shape);
      }
    }
    if (u.is(Op::kIndex) && u.src(0).is(Op::kParam)) {
      const auto part = parts_.find(u.src(0).slot());
      if (part != parts_.end()) {
        const UOp index = b_.Rewrite(copier_.Made(u.src(1)));
        const UOp inside = b_.Make(Op::kAdd, {index, out_->Index(-part->second.begin)});
        return MakeLike(out_, u, std::array{copier_.Made(u.src(0)), inside});
      }
    }
    return copier_.Same(u);
  }

  const std::map<int64_t, Part> parts_;
  Budget* const budget_;
  Copier copier_;
  Graph* const out_;
  Rewriter b_;
};

}  // namespace

absl::Status ViewArguments(Schedule* schedule, Budget* budget) {
  for (ScheduledKernel& kernel : schedule->kernels) {
    std::map<int64_t, Part> parts;
    for (auto [argument, part] : PartsOf(kernel.graph.root())) {
      const BufferRef& ref = kernel.arguments[static_cast<size_t>(argument)];
      // Memory that the kernel has as two arguments may be written through the other one.
      if (ref.kind != BufferRef::Kind::kTemporary || !part.fits ||
          std::ranges::count(kernel.arguments, ref) > 1) {
        continue;
      }
      part.begin -= part.begin % (kTemporaryAlignment / ByteSize(part.param.dtype()));
      if (!part.whole()) parts.emplace(argument, part);
    }
    if (parts.empty()) continue;
    for (const auto& [argument, part] : parts) {
      kernel.arguments[static_cast<size_t>(argument)].offset =
          BytesOf(part.param.dtype(), part.begin);
    }
    TG_ASSIGN_OR_RETURN(kernel.graph, Viewer(kernel.graph, std::move(parts), budget).Run());
  }
  return absl::OkStatus();
}

}  // namespace telegrad
