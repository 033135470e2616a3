#include "engine/schedule/argument_views.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

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
    const auto [it, first] = parts.try_emplace(param.arg(0), Part{param, at.vmin(), 0});
    Part& part = it->second;
    part.begin = std::min(part.begin, at.vmin());
    part.end = std::max(part.end, at.vmax() + 1);
    part.fits &= !stores && access.src(0) == param && access.num_src() == 2 && part.begin >= 0 &&
                 part.end <= NumElements(param.shape());
  }
  return parts;
}

class Viewer {
 public:
  Viewer(UOp kernel, std::map<int64_t, Part> parts, Budget* budget)
      : kernel_(kernel),
        parts_(std::move(parts)),
        out_(std::make_shared<Graph>()),
        b_(out_.get(), {&kAlgebra, &kDivMod}, budget) {}

  absl::StatusOr<FrozenGraph> Run() {
    const Graph& from = *kernel_.graph();
    NodeMap<uint32_t> made(from);
    std::vector<UOp> src;
    for (uint32_t id : PostOrder(kernel_)) {
      const UOp u = from.at(id);
      src.clear();
      for (uint32_t s : u.src_ids()) src.push_back(out_->at(made[s]));
      made[id] = Made(u, src).id();
    }
    TG_RETURN_IF_ERROR(out_->status());
    return FrozenGraph{std::move(out_), made[kernel_]};
  }

 private:
  UOp Made(UOp u, std::vector<UOp>& src) {
    if (u.is(Op::kParam)) {
      const auto part = parts_.find(u.arg(0));
      if (part != parts_.end()) {
        const Shape shape = {part->second.end - part->second.begin};
        return out_->Param(u.arg(0), u.dtype(), shape);
      }
    }
    if (u.is(Op::kIndex) && u.src(0).is(Op::kParam)) {
      const auto part = parts_.find(u.src(0).arg(0));
      if (part != parts_.end()) {
        src[1] = b_.Make(Op::kAdd, {b_.Rewrite(src[1]), out_->Index(-part->second.begin)});
      }
    }
    return out_->Make(u.op(), u.dtype(), src, u.arg());
  }

  const UOp kernel_;
  const std::map<int64_t, Part> parts_;
  std::shared_ptr<Graph> out_;
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
    TG_ASSIGN_OR_RETURN(kernel.graph, Viewer(kernel.graph.root(), std::move(parts), budget).Run());
  }
  return absl::OkStatus();
}

}  // namespace telegrad
